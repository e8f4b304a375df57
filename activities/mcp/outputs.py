"""The form that a tool declares for its structured result, checked by us: compiled once, and without the network."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import jsonschema_rs
from pydantic import JsonValue

from holdfast.activities.catalogue.complaints import MASK
from holdfast.content import shorten

_WORDS = 300


class ResultSchema:
    """A JSON schema of results. One that cannot be used checks nothing: the result is no worse for it."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self._validator: jsonschema_rs.Validator | None = None
        with suppress(ValueError, RecursionError):
            self._validator = jsonschema_rs.validator_for(
                dict(schema), offline=True, mask=MASK, pattern_options=jsonschema_rs.RegexOptions()
            )

    def problem(self, value: JsonValue) -> str | None:
        """What is wrong with a result, if anything is."""
        if self._validator is None:
            return None
        if value is None and not self._validator.is_valid(None):
            return "it holds no structured content"
        try:
            error = next(iter(self._validator.iter_errors(value)), None)
        except ValueError as unfit:
            return shorten(str(unfit), _WORDS)
        if error is None:
            return None
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
        return shorten(f"{where.removeprefix('.') or 'the whole'}: {error.message}", _WORDS)
