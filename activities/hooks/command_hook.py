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

from holdfast.activities.hooks.hook_io import ANSWER_LIMIT, A, HookCall, HookFailure, clean_text, read_answer
from holdfast.activities.process.command import Command, build_environment, describe_exit_code, run_command
from holdfast.domain.calls.tool import ToolFailure

ERROR_LIMIT = 2_000
"""The end of what it says on standard error, in bytes."""


@dataclass(frozen=True)
class CommandRunner:
    """How a command is asked."""

    words: Sequence[str]
    folder: Path
    seconds: float
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, JsonValue]:
        """For the digest. Of variables the names: values may be secrets."""
        return {"command": [*self.words], "environment": [*sorted(self.environment)], "seconds": self.seconds}

    async def ask(self, call: HookCall, kind: type[A], slots: asyncio.Semaphore) -> A:
        """The answer; HookFailure when there is none. Waiting for a slot costs nothing of its time."""
        command = Command(
            words=self.words,
            directory=self.folder,
            seconds=self.seconds,
            environment=build_environment(self.environment),
            input=call.encode(),
        )
        async with slots:
            printed = await _run_command(command)
        return read_answer(printed, kind)


async def _run_command(command: Command) -> bytes:
    printed, said = bytearray(), bytearray()

    def take_output(data: bytes) -> None:
        if len(printed) > ANSWER_LIMIT:
            return
        printed.extend(data)
        if len(printed) > ANSWER_LIMIT:
            patience.reschedule(0)  # it may go on printing for ever

    def take_errors(data: bytes) -> None:
        said.extend(data)
        del said[:-ERROR_LIMIT]

    key = f"hook/{uuid4().hex}"
    try:
        async with asyncio.timeout(None) as patience:
            code = await run_command(command, key, output=take_output, errors=take_errors, on_start=lambda _: None)
    except TimeoutError:
        code = None
    except ToolFailure as failure:
        raise HookFailure(clean_text(str(failure))) from None
    if len(printed) > ANSWER_LIMIT:
        raise HookFailure(f"it printed over {ANSWER_LIMIT:,} bytes")
    if code is None:
        raise HookFailure(f"it took longer than {command.seconds:g} seconds{_describe_errors(said)}")
    if code != 0:
        raise HookFailure(f"{describe_exit_code(code)}{_describe_errors(said)}")
    return bytes(printed)


def _describe_errors(errors: bytearray) -> str:
    text = clean_text(errors.decode("utf-8", "replace"), ERROR_LIMIT)
    return f"; it said: {text}" if text else ""
