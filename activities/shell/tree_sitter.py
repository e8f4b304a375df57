"""The other reader of commands: what it sees in one, asked of a process that may die of it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.activities.process.sidecar import HelperProcess

CPU_SECONDS = 1.0
READER = HelperProcess("holdfast.activities.shell.tree_sitter_worker", cpu_seconds=CPU_SECONDS)


@dataclass(frozen=True)
class OtherReading:
    """What it made of a command."""

    has_error: bool
    names: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    """The words of the first programs, as they are written."""


def ask_other_reader(command: str) -> OtherReading | None:
    """What it sees in a command; None when it did not come to its end."""
    answer = READER.ask(command)
    if answer is None:
        return None
    return OtherReading(answer["has_error"], tuple(answer["names"]), tuple(map(tuple, answer["commands"])))
