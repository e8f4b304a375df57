"""The form that a tool declares for its structured result, checked by us, aside and without the network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pydantic import JsonValue

from holdfast.activities.catalogue.json_schemas import CHECK_EXECUTOR, CheckedSchema
from holdfast.errors import BadInput


class ResultSchema:
    """A JSON schema of results. One that cannot be used checks nothing: the result is no worse for it."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self._schema: CheckedSchema | None = None
        try:
            self._schema = CheckedSchema(schema, "its result", all_problems=False)
        except BadInput:
            return

    async def find_problem(self, value: JsonValue) -> str | None:
        """What is wrong with a result, if anything is."""
        if self._schema is None:
            return None
        loop = asyncio.get_running_loop()
        try:
            return next(iter(await loop.run_in_executor(CHECK_EXECUTOR, self._schema.find_problems, value)), None)
        except BadInput:
            return None
