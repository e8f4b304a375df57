"""A call that is one command: its output is kept as it comes, and a failure is told with what it said."""

from __future__ import annotations

import codecs

from holdfast.activities.commands import Command, how_it_ended, run_command
from holdfast.activities.live import Tail
from holdfast.activities.outputs import OutputStore, Spool
from holdfast.content import Result, TextPart, plain
from holdfast.tools import Run, ToolFailure

ERRORS_KEPT = 4_000
"""The end of what was said on standard error, in characters, where it is kept apart."""


class Complaints:
    """What a command says on standard error, where that is no part of its result."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tail = Tail(ERRORS_KEPT)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, data: bytes) -> None:
        """Keep the end of it, and show it to whoever watches."""
        text = self._decoder.decode(data)
        self._tail.add(text)
        self._run.write(text)

    def parts(self) -> tuple[TextPart, ...]:
        """For a failure."""
        said = plain(self._tail.text).strip()
        return (TextPart(text=f"On standard error:\n{said}"),) if said else ()


async def call_command(command: Command, run: Run, outputs: OutputStore, *, errors_apart: bool = False) -> Result:
    """What the command prints; ToolFailure when it runs too long or exits with anything but 0."""
    spool = outputs.spool()
    complaints = Complaints(run) if errors_apart else None
    try:
        return await _call(command, run, spool, complaints)
    finally:
        spool.discard()


async def _call(command: Command, run: Run, spool: Spool, complaints: Complaints | None) -> Result:
    def take(data: bytes) -> None:
        run.write(spool.write(data))

    apart = complaints.take if complaints else None
    try:
        code = await run_command(command, run.key, output=take, errors=apart, started=run.started)
    except TimeoutError:
        message = f"The command was stopped: it ran longer than {command.seconds:g} seconds"
        raise ToolFailure("timeout", message, _said(spool, complaints)) from None
    if code != 0:
        raise ToolFailure("command_failed", how_it_ended(code), _said(spool, complaints))
    return Result(parts=_said(spool) or (TextPart(text="(no output)"),))


def _said(spool: Spool, complaints: Complaints | None = None) -> tuple[TextPart, ...]:
    part = spool.part()
    printed = (part.model_copy(update={"text": plain(part.text)}),) if part.text else ()
    return (*printed, *(complaints.parts() if complaints else ()))
