"""The folders that a command may be in while it runs: where it starts, and where every `cd` in it leads."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast.activities.shell.programs.program import Program

MAX_FOLDERS = 16
"""Folders of one command: more are not followed."""
_FOLDER_COMMANDS = frozenset(["cd", "pushd"])
_BACK = "-"


@dataclass(frozen=True)
class ReachedFolders:
    """Where the programs of a command may run."""

    known: tuple[Path, ...]
    """The first is the one that the command starts in. A folder need not exist."""
    complete: bool = True
    """These are all of them."""


def find_reached_folders(programs: Iterable[Program], start: Path) -> ReachedFolders:
    """Every folder that a program of the command may run in.

    The order of the programs says nothing: a function is written before the `cd` that comes before its call.
    """
    known, complete = [start], True
    for program in programs:
        if program.name not in _FOLDER_COMMANDS:
            continue
        words = [word for word in program.words[1:] if word is None or word == _BACK or not word.startswith("-")]
        if words == [_BACK] or (program.name == "pushd" and not words):
            continue  # back to one that is known
        target = words[0] if len(words) == 1 else None
        if target is None:
            complete = False
            continue
        reached = (Path(os.path.normpath(folder / target)) for folder in known)
        known = list(dict.fromkeys([*known, *reached]))
        if len(known) > MAX_FOLDERS:
            return ReachedFolders(tuple(known[:MAX_FOLDERS]), complete=False)
    return ReachedFolders(tuple(known), complete)
