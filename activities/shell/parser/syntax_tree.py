"""The syntax tree of a command: what the parser builds and the analysis walks."""

from __future__ import annotations

from dataclasses import dataclass


class Unreadable(Exception):
    """Our parser does not know this construct, which bash may accept. The message says why."""


@dataclass(frozen=True)
class Word:
    """One word of a command."""

    text: str
    value: str | None
    """The word without quotes; None when only running the command tells."""
    bare: bool
    """Nothing in it is quoted or escaped: it may be a keyword."""
    scripts: tuple[Script, ...] = ()
    """The substitutions of commands and processes in it."""


@dataclass(frozen=True)
class Assignment:
    """`name=value`, in front of a command or alone."""

    name: str
    word: Word
    """The value."""
    appends: bool = False
    elements: tuple[Word, ...] = ()
    """The elements of an array: `name=(a b)`."""


@dataclass(frozen=True)
class Redirect:
    """`2> file`; for a here-document, without its body."""

    descriptor: str
    operator: str
    word: Word


@dataclass(frozen=True)
class SimpleCommand:
    """A program with its words, or assignments and redirections alone."""

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True)
class CompoundCommand:
    """A group, loop, condition, case or test. What it may run is kept, not when."""

    kind: str
    scripts: tuple[Script, ...]
    words: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    name: str = ""
    """The name of a function, or of the variable of a loop."""


@dataclass(frozen=True)
class Pipeline:
    """Commands connected by `|` or `|&`."""

    commands: tuple[SimpleCommand | CompoundCommand, ...]
    pipes: tuple[str, ...]
    prefixes: tuple[str, ...] = ()
    """`!` and `time` in front of it."""


@dataclass(frozen=True)
class Link:
    """One pipeline of a list, with the operator that connects it to the one before."""

    operator: str
    pipeline: Pipeline
    background: bool = False


@dataclass(frozen=True)
class Script:
    """A list of pipelines."""

    links: tuple[Link, ...]
    bodies: tuple[Word, ...] = ()
    """The bodies of its here-documents."""
