"""A tool that a command runs: its name as the last argument, its arguments as JSON on standard input."""

from __future__ import annotations

import codecs
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.activities.commands import Command, environment, how_it_ended, run_command
from holdfast.activities.live import Tail
from holdfast.activities.outputs import OutputStore, Spool
from holdfast.approvals import Confirmation
from holdfast.content import Result, TextPart, plain, shorten
from holdfast.tools import Effect, Invocation, Run, Tool, ToolFailure

if TYPE_CHECKING:
    from holdfast.activities.catalogue.discovery import Declared
    from holdfast.configuration import DiscoverySettings

ERRORS_KEPT = 4_000
"""The end of what a call said on standard error, in characters: it is part of a failure."""


class DiscoveredTool(Tool):
    """Declared by one command, run by another."""

    live_output = True

    def __init__(self, settings: DiscoverySettings, declared: Declared, outputs: OutputStore) -> None:
        self.name = declared.name
        self.display_name = declared.display_name
        self.description = declared.description or f"{declared.name}, a tool of {settings.name}"
        self.effect = declared.effect or settings.effect
        self.timeout_seconds = settings.call_timeout_seconds + 30
        self.Parameters = {"type": "object", **declared.parameters}
        self._settings = settings
        self._outputs = outputs

    def build(self, arguments: dict[str, Any], workspace: Path) -> Invocation:
        """Bind the arguments."""
        command = Command(
            words=(*self._settings.call_command, self.name),
            directory=Path(self._settings.folder),
            seconds=self._settings.call_timeout_seconds,
            environment=environment(self._settings.environment),
            input=json.dumps(arguments).encode(),
        )
        return _Calling(self, arguments, command, self._outputs)


class _Calling(Invocation):
    def __init__(self, tool: DiscoveredTool, arguments: dict[str, Any], command: Command, outputs: OutputStore) -> None:
        self._tool = tool
        self._arguments = arguments
        self._command = command
        self._outputs = outputs

    def describe(self) -> str:
        return f"{self._tool.display_name or self._tool.name} {shorten(json.dumps(self._arguments), 200)}"

    def concurrency_safe(self) -> bool:
        return self._tool.effect is Effect.READ

    async def should_confirm(self) -> Confirmation | None:
        if self._tool.effect is Effect.READ:
            return None
        return Confirmation(kind="exec", title=self.describe(), command=shlex.join(self._command.words))

    async def execute(self, run: Run) -> Result:
        spool = self._outputs.spool()
        try:
            return await self._execute(run, spool)
        finally:
            spool.discard()

    async def _execute(self, run: Run, spool: Spool) -> Result:
        errors = Tail(ERRORS_KEPT)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def take(data: bytes) -> None:
            run.write(spool.write(data))

        def complain(data: bytes) -> None:
            text = decoder.decode(data)
            errors.add(text)
            run.write(text)

        try:
            code = await run_command(self._command, run.key, output=take, errors=complain, started=run.started)
        except TimeoutError:
            message = f"The command was stopped: it ran longer than {self._command.seconds:g} seconds"
            raise ToolFailure("timeout", message, _parts(spool, errors)) from None
        if code != 0:
            raise ToolFailure("command_failed", how_it_ended(code), _parts(spool, errors))
        return Result(parts=_parts(spool) or (TextPart(text="(no output)"),))


def _parts(spool: Spool, errors: Tail | None = None) -> tuple[TextPart, ...]:
    """What it printed; for a failure, what it said on standard error as well."""
    printed = spool.part()
    parts = (printed.model_copy(update={"text": plain(printed.text)}),) if printed.text else ()
    said = plain(errors.text).strip() if errors else ""
    return (*parts, TextPart(text=f"On standard error:\n{said}")) if said else parts
