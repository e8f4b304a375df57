"""The other reader of commands: what it sees in one, asked of a process that may die of it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.activities.aside import Aside

CPU_SECONDS = 1.0
READER = Aside("holdfast.activities.shell.other_reader_worker", cpu_seconds=CPU_SECONDS)


@dataclass(frozen=True)
class Seen:
    """What it made of a command."""

    has_error: bool
    names: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    """The words of the first programs, as they are written."""


def look(command: str) -> Seen | None:
    """What it sees in a command; None when it did not come to its end."""
    answer = READER.ask(command)
    if answer is None:
        return None
    return Seen(answer["has_error"], tuple(answer["names"]), tuple(map(tuple, answer["commands"])))
