"""A hook that is a command: the call as JSON on standard input, the answer as JSON on standard output.

It runs where and as a discovery's commands do, and nothing of it is left when the answer is there, when it took too
long, or when the call is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from pydantic import JsonValue

from holdfast.activities.commands import Command, environment, how_it_ended, run_command
from holdfast.activities.hooks.answers import ANSWER_LIMIT, A, HookFailure, harmless, read_answer
from holdfast.activities.hooks.calls import ToldCall
from holdfast.tools import ToolFailure

ERRORS_KEPT = 2_000
"""The end of what it says on standard error, in bytes."""


@dataclass(frozen=True)
class CommandWay:
    """How a command is asked."""

    words: Sequence[str]
    folder: Path
    seconds: float
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, JsonValue]:
        """For the digest. Of variables the names: values may be secrets."""
        return {"command": [*self.words], "environment": [*sorted(self.environment)], "seconds": self.seconds}

    async def ask(self, call: ToldCall, kind: type[A], slots: asyncio.Semaphore) -> A:
        """The answer; HookFailure when there is none. Waiting for a slot costs nothing of its time."""
        command = Command(
            words=self.words,
            directory=self.folder,
            seconds=self.seconds,
            environment=environment(self.environment),
            input=call.written(),
        )
        async with slots:
            printed = await _printed(command)
        return read_answer(printed, kind)


async def _printed(command: Command) -> bytes:
    printed, said = bytearray(), bytearray()

    def take(data: bytes) -> None:
        if len(printed) > ANSWER_LIMIT:
            return
        printed.extend(data)
        if len(printed) > ANSWER_LIMIT:
            patience.reschedule(0)  # it may go on printing for ever

    def complain(data: bytes) -> None:
        said.extend(data)
        del said[:-ERRORS_KEPT]

    key = f"hook/{uuid4().hex}"
    try:
        async with asyncio.timeout(None) as patience:
            code = await run_command(command, key, output=take, errors=complain, started=lambda _: None)
    except TimeoutError:
        code = None
    except ToolFailure as failure:
        raise HookFailure(harmless(str(failure))) from None
    if len(printed) > ANSWER_LIMIT:
        raise HookFailure(f"it printed over {ANSWER_LIMIT:,} bytes")
    if code is None:
        raise HookFailure(f"it took longer than {command.seconds:g} seconds{_complaints(said)}")
    if code != 0:
        raise HookFailure(f"{how_it_ended(code)}{_complaints(said)}")
    return bytes(printed)


def _complaints(said: bytearray) -> str:
    text = harmless(said.decode("utf-8", "replace"), ERRORS_KEPT)
    return f"; it said: {text}" if text else ""
