"""Background commands of a turn: shell commands that run on after the response of their call, each on one host.

Only the host of a command knows whether it still runs; `running` is the last known state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from holdfast.domain.base import Data

READ_COMMAND, STOP_COMMAND = "shell_output", "shell_stop"
"""The tools that take the handle of a background command."""
HANDLE = "handle"
"""The argument of these tools with the handle."""
COMMANDS_KEPT = 100
"""The number of background commands that a session remembers, the newest."""


class CommandState(Data):
    """The state of a background command in the result of a call."""

    handle: str = Field(max_length=100)
    running: bool


class BackgroundCommand(Data):
    """One background command of a turn, or of an earlier turn of its session."""

    handle: str
    """The name of the command for `shell_output` and `shell_stop`."""
    turn: str
    call: str
    """The id of the call that started it."""
    title: str
    host: str | None = None
    """The task queue of its host."""
    running: bool = True
    """Its last known state."""


def note_command(
    commands: tuple[BackgroundCommand, ...], state: CommandState, started: BackgroundCommand
) -> tuple[BackgroundCommand, ...]:
    """Update the state of a command, or add `started` when its handle is new."""
    known = next((one for one in commands if one.handle == state.handle), None)
    if known is None:
        return (*commands, started)[-COMMANDS_KEPT:]
    updated = known.model_copy(update={"running": known.running and state.running})
    return tuple(updated if one is known else one for one in commands)


def join_commands(
    commands: tuple[BackgroundCommand, ...], others: Iterable[BackgroundCommand]
) -> tuple[BackgroundCommand, ...]:
    """Join the commands of a turn with those of a turn that it delegated."""
    found = {one.handle: one for one in (*commands, *others)}
    return tuple(found.values())[-COMMANDS_KEPT:]


def find_host(commands: Iterable[BackgroundCommand], tool: str, arguments: Mapping[str, object]) -> str | None:
    """Return the host of the command that a call names; None for any other call."""
    if tool not in (READ_COMMAND, STOP_COMMAND):
        return None
    return next((one.host for one in commands if one.handle == arguments.get(HANDLE)), None)
