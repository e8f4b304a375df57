"""The programs of a shell command, as the analysis knows them without running it."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RedirectionKind = Literal["read", "write", "append", "read_write", "heredoc", "herestring", "duplicate"]
Operator = Literal["", "|", "|&", "&&", "||", ";"]
Words = tuple[str | None, ...]
"""The words of a program as bash would pass them. None stands for any number of words that only running it tells."""

NOWHERE = "/dev/null"
"""The null device: writing it destroys nothing."""
MAX_FOLDERS = 16
"""Folders of one command that are followed."""
_STANDARD_FOLDERS = ("", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
_BACK = "-"


@dataclass(frozen=True)
class Redirection:
    """The source of a program's input, or the target of its output."""

    kind: RedirectionKind
    target: str | None
    """The file, or the descriptor of a duplicate; None when only running the command tells."""
    text: str
    """The redirection as it is written."""

    @property
    def is_writing(self) -> bool:
        """Does it write a file?"""
        return self.kind in ("write", "append", "read_write") and self.target != NOWHERE


@dataclass(frozen=True)
class Program:
    """One program, or one command of the shell itself, with its words."""

    words: Words
    texts: tuple[str, ...]
    """The same words as they are written."""
    normal: Words
    """The words that tables and rules look at: like `words`, but `git -C here status` is `git status`."""
    assignments: tuple[tuple[str, str | None], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    """Its own, and those of the groups around it."""
    wrappers: tuple[str, ...] = ()
    """The programs that run it, the outermost first: "sudo", "xargs", "bash -c", "function name" and so on."""
    background: bool = False
    reads_pipe: bool = False
    """Its input is the output of another program."""
    interprets_code: bool = False
    """Its words or its input are code in another language."""
    runner: Words = ()
    """The words of the runner that runs it, as in `uv run pytest`; its own words are the last of them."""
    runner_at: int = 0
    """The index in `runner` at which the command begins."""

    @property
    def name(self) -> str | None:
        """The name without its folder; None when it is unknown."""
        return _get_name(self.words)

    @property
    def known_name(self) -> str | None:
        """The name that tables and rules know it by: `git` for `git-push`. None when it is unknown."""
        return _get_name(self.normal)


@dataclass(frozen=True)
class Step:
    """One program of a plain chain, and the operator that connects it to the one before."""

    operator: Operator
    program: Program


@dataclass(frozen=True)
class Analysis:
    """The programs that a command would run."""

    command: str
    programs: tuple[Program, ...] = ()
    """Every program that may run, each once. A wrapper that only runs another program is not listed."""
    uncertain: tuple[str, ...] = ()
    """Reasons why this may not be all of it, for a person. Empty: it is complete."""
    writes: tuple[str | None, ...] = ()
    """The files that redirections write; None for an unknown name."""
    steps: tuple[Step, ...] = ()
    """The whole command, when it is a plain chain of literal words; else empty."""


@dataclass(frozen=True)
class ReachedFolders:
    """The folders in which the programs of a command may run."""

    known: tuple[Path, ...]
    """The first is the one that the command starts in. A folder need not exist."""
    complete: bool = True
    """Are these all of them?"""


def is_standard_folder(path: str | None) -> bool:
    """Is a program at this path certainly the one of its name? `./env` may be anything."""
    return path is not None and path.rpartition("/")[0] in _STANDARD_FOLDERS


def find_reached_folders(programs: Iterable[Program], start: Path) -> ReachedFolders:
    """Every folder that `cd` and `pushd` in a command may lead to from `start`.

    The order of the programs is ignored: a function is written before the `cd` that precedes its call.
    """
    known, complete = [start], True
    for program in programs:
        if program.name not in ("cd", "pushd"):
            continue
        words = [word for word in program.words[1:] if word is None or word == _BACK or not word.startswith("-")]
        if words == [_BACK] or (program.name == "pushd" and not words):
            continue  # back to a folder that is known
        target = words[0] if len(words) == 1 else None
        if target is None:
            complete = False
            continue
        reached = (Path(os.path.normpath(folder / target)) for folder in known)
        known = list(dict.fromkeys([*known, *reached]))
        if len(known) > MAX_FOLDERS:
            return ReachedFolders(tuple(known[:MAX_FOLDERS]), complete=False)
    return ReachedFolders(tuple(known), complete)


def _get_name(words: Words) -> str | None:
    return words[0].rpartition("/")[2] if words and words[0] is not None else None
