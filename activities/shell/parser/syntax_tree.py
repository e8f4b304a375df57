"""The parts of a command, as they were written: what the reader builds, and the analysis walks."""

from __future__ import annotations

from dataclasses import dataclass


class Unreadable(Exception):
    """Bash may read this, we do not: everything after it is unknown."""


@dataclass(frozen=True)
class Word:
    """One word."""

    text: str
    value: str | None
    """What it stands for; None when only running tells."""
    bare: bool
    """Nothing in it is quoted or escaped, so it may be a keyword."""
    scripts: tuple[Script, ...] = ()
    """What runs to make it: substitutions of commands and processes."""


@dataclass(frozen=True)
class Assignment:
    """`name=value`, in front of a command or alone."""

    name: str
    word: Word
    """Only the value."""
    appends: bool = False
    elements: tuple[Word, ...] = ()
    """Those of a list: `name=(a b)`."""


@dataclass(frozen=True)
class Redirect:
    """`2> file`; of a here-document only its beginning."""

    descriptor: str
    operator: str
    word: Word


@dataclass(frozen=True)
class SimpleCommand:
    """A program with its words, or only assignments or redirections."""

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True)
class CompoundCommand:
    """A group, loop, condition, case or test: we ask what it may run, not when."""

    kind: str
    scripts: tuple[Script, ...]
    words: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    name: str = ""
    """Of a function, or of the variable of a loop."""


@dataclass(frozen=True)
class Pipeline:
    """Commands connected by `|` or `|&`."""

    commands: tuple[SimpleCommand | CompoundCommand, ...]
    pipes: tuple[str, ...]
    prefixes: tuple[str, ...] = ()
    """`!` and `time` in front of it."""


@dataclass(frozen=True)
class Link:
    """One pipeline of a list, what connects it to the one before, and whether it runs in the background."""

    operator: str
    pipeline: Pipeline
    background: bool = False


@dataclass(frozen=True)
class Script:
    """A list of pipelines."""

    links: tuple[Link, ...]
    bodies: tuple[Word, ...] = ()
    """Those of the here-documents in it."""
