"""Commands that go on after the answer of their call, as a turn knows them: which there are, and on which host.

Whether one still runs only its host knows; what stands here is what was last heard of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from holdfast.domain.base import Data

READ_COMMAND, STOP_COMMAND = "shell_output", "shell_stop"
"""The tools that take the handle of a background command."""
HANDLE = "handle"
"""The argument that they take it by."""
COMMANDS_KEPT = 100
"""Background commands that a session remembers, the newest."""


class CommandState(Data):
    """What a result says of a background command."""

    handle: str = Field(max_length=100)
    running: bool


class BackgroundCommand(Data):
    """One background command of a turn, or of an earlier turn of its session."""

    handle: str
    """The name that its output is read and it is stopped by."""
    turn: str
    call: str
    """The call that started it."""
    title: str
    host: str | None = None
    """The task queue of the host that it runs on."""
    running: bool = True
    """As it was last heard of."""


def note_command(
    commands: tuple[BackgroundCommand, ...], said: CommandState, started_as: BackgroundCommand
) -> tuple[BackgroundCommand, ...]:
    """The commands with what a result says of one of them; `started_as` is what it is taken for when it is new."""
    known = next((one for one in commands if one.handle == said.handle), None)
    if known is None:
        return (*commands, started_as)[-COMMANDS_KEPT:]
    now = known.model_copy(update={"running": known.running and said.running})
    return tuple(now if one is known else one for one in commands)


def join_commands(
    commands: tuple[BackgroundCommand, ...], others: Iterable[BackgroundCommand]
) -> tuple[BackgroundCommand, ...]:
    """Those of a turn and those of one that it delegated."""
    found = {one.handle: one for one in (*commands, *others)}
    return tuple(found.values())[-COMMANDS_KEPT:]


def find_host(commands: Iterable[BackgroundCommand], tool: str, arguments: Mapping[str, object]) -> str | None:
    """Where a call must run that names one of these commands; None for every other call."""
    if tool not in (READ_COMMAND, STOP_COMMAND):
        return None
    return next((one.host for one in commands if one.handle == arguments.get(HANDLE)), None)
