"""What is known of a command without running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RedirectionKind = Literal["read", "write", "append", "read_write", "heredoc", "herestring", "duplicate"]
Operator = Literal["", "|", "|&", "&&", "||", ";"]
NOWHERE = "/dev/null"
"""The one file whose content nobody can lose."""


@dataclass(frozen=True)
class Redirection:
    """Where a program's input comes from, or its output goes."""

    kind: RedirectionKind
    target: str | None
    """The file, or for a duplicate the descriptor; None when only running the command would tell."""
    text: str
    """As it was written."""

    @property
    def is_writing(self) -> bool:
        """Whether a file is written."""
        return self.kind in ("write", "append", "read_write") and self.target != NOWHERE


@dataclass(frozen=True)
class Program:
    """One program, or one command of the shell itself, with the words it would be given."""

    words: tuple[str | None, ...]
    """Without quotes, as bash would pass them. None stands for what only running tells: any number of words."""
    texts: tuple[str, ...]
    """The same words as they were written."""
    normal: tuple[str | None, ...]
    """The words a rule looks at: as `words`, but `git -C here status` is `git status`."""
    assignments: tuple[tuple[str, str | None], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    """Its own, and those of the groups it stands in."""
    wrappers: tuple[str, ...] = ()
    """What it is inside, outermost first: "sudo", "xargs", "bash -c", "function name" and the like."""
    background: bool = False
    reads_pipe: bool = False
    """Another program's output is its input."""
    interprets_code: bool = False
    """It is given a program in another language, in its words or its input."""
    runner: tuple[str | None, ...] = ()
    """The words of the runner that runs it, `uv run pytest`; its own words are the last of these."""
    runner_at: int = 0
    """Where in those the command of the runner begins."""

    @property
    def known_name(self) -> str | None:
        """The name that rules and tables know it by: `git` of `git-push`."""
        return self.normal[0].rpartition("/")[2] if self.normal and self.normal[0] is not None else None

    @property
    def name(self) -> str | None:
        """The program without its folder; None when it is not known."""
        return self.words[0].rpartition("/")[2] if self.words and self.words[0] is not None else None


@dataclass(frozen=True)
class Step:
    """One command of a plain chain, and what connects it to the one before."""

    operator: Operator
    program: Program


@dataclass(frozen=True)
class Analysis:
    """What a command would run."""

    command: str
    programs: tuple[Program, ...] = ()
    """Every one that may run, each once however often it would. Wrappers that only run another are not listed."""
    uncertain: tuple[str, ...] = ()
    """Why this is perhaps not all of it, in words for a person. Empty: everything is known."""
    writes: tuple[str | None, ...] = ()
    """The files that redirections write; None when the name is not known."""
    steps: tuple[Step, ...] = ()
    """The whole command, when it is nothing but a plain chain of literal words."""

    @property
    def is_simple(self) -> bool:
        """Whether `rebuild_command` can rebuild it."""
        return bool(self.steps)
