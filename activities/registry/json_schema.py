"""Compiles and checks JSON schemas in another process, since they may come from untrusted servers: a slow schema
affects only its own tool.

One check at a time, which blocks the thread that asks: on an event loop, use `CHECK_EXECUTOR`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import JsonValue

from holdfast.activities.process.sidecar import HelperProcess
from holdfast.errors import BadInput
from holdfast.util.json_values import digest_canonical

SCHEMA_LIMIT = 262_144
"""Bytes of a schema."""
CPU_SECONDS = 1.0
"""CPU time of one check, or of compiling one schema."""
MAX_DEATHS = 3
"""How often one schema may kill the process. Then it is not tried any more: others wait for the same process."""
SCHEMA_PROCESS = HelperProcess("holdfast.activities.registry.json_schema_worker", cpu_seconds=CPU_SECONDS)
CHECK_EXECUTOR = ThreadPoolExecutor(1, thread_name_prefix="holdfast-schemas")


class SchemaTooHard(BadInput):
    """A schema takes more than `CPU_SECONDS` to compile or to check."""


class CheckedSchema:
    """One schema. `all_problems`: a check finds all problems of a value, in words for a model, else only the first."""

    def __init__(self, schema: Mapping[str, JsonValue], what: str, *, all_problems: bool) -> None:
        """`what`: the thing that the schema describes, for messages. BadInput when JSON cannot represent it, or it is
        too large.
        """
        self._what = what
        self._all_problems = all_problems
        self._schema = dict(schema)
        self._deaths = 0
        try:
            size = len(json.dumps(self._schema, allow_nan=False, ensure_ascii=False).encode())
            self._key = digest_canonical([self._schema, all_problems])
        except (ValueError, TypeError, RecursionError):
            raise BadInput(f"the schema of {what} cannot be used: JSON cannot represent it") from None
        if size > SCHEMA_LIMIT:
            raise BadInput(f"the schema of {what} is over {SCHEMA_LIMIT:,} bytes")

    def compile(self) -> None:
        """Compile the schema; BadInput when it cannot be used. Blocks."""
        self._ask_process({"schema": self._schema})

    def find_problems(self, value: JsonValue) -> list[str]:
        """The problems of a value that JSON can represent. BadInput when the schema cannot be used. Blocks."""
        answer = self._ask_process({"value": value})
        if answer.get("unknown"):
            answer = self._ask_process({"schema": self._schema, "value": value})
        return [str(line) for line in answer.get("problems", ())]

    def _ask_process(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._deaths >= MAX_DEATHS:
            raise self._build_too_hard()
        answer = SCHEMA_PROCESS.ask({"key": self._key, "all": self._all_problems, **request})
        if not isinstance(answer, dict):
            self._deaths += 1
            raise self._build_too_hard()
        if "unusable" in answer:
            raise BadInput(f"the schema of {self._what} cannot be used: {answer['unusable']}")
        return answer

    def _build_too_hard(self) -> SchemaTooHard:
        return SchemaTooHard(f"the schema of {self._what} cannot be used: it takes too long to check anything by it")
