"""Reading a command twice: by our own reader, which decides, and by tree-sitter's grammar of bash, which may object.

The grammar is well known and forgiving, and disagrees with bash in places. Ours is small and strict, and refuses what
it does not know. So ours says what runs; where the other one sees an error, or a program that ours does not, nobody
can be sure. When ours gives up, the other one still names what it sees: a person should see it too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.activities.shell import other_reader
from holdfast.activities.shell.compounds import Reader
from holdfast.activities.shell.syntax import Compound, Link, Pipeline, Script, Simple, Unreadable, Word

LONGEST = 20_000
"""Characters: more is no command but a file."""

LONGEST_SECOND = 2_000
"""Characters the other reader looks at when ours gives up: it is slow at what cannot be read."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_UNSEEN_KINDS = frozenset(["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"])


@dataclass(frozen=True)
class Reading:
    """A command as it was read."""

    script: Script
    doubts: tuple[str, ...]
    """Why it may be read otherwise."""


def read(command: str, *, posix: bool = False) -> Reading:
    """Read a command; one that cannot be read is full of doubts."""
    if len(command) > LONGEST:
        return Reading(Script(()), (f"it is longer than {LONGEST:,} characters",))
    doubts = _unseen(command)
    if "\0" in command or not _encodable(command):
        return Reading(Script(()), tuple(doubts or ["it holds characters that are none"]))
    try:
        script = Reader(command, doubts, posix=posix).whole()
    except (Unreadable, RecursionError) as error:
        reason = str(error) if isinstance(error, Unreadable) else "it is nested too deeply"
        return Reading(_second_script(command), (*doubts, f"it cannot be read: {reason}"))
    return Reading(script, (*doubts, *_objections(command, script)))


def _encodable(command: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in command)


def _unseen(command: str) -> list[str]:
    """Characters a person does not see, or sees as something else."""
    doubts = []
    if found := _CONTROL.search(command):
        doubts.append(f"it holds the control character {found[0]!r}")
    if not command.isascii():
        for character in command:
            if not character.isascii() and (
                unicodedata.category(character) in _UNSEEN_KINDS
                or character in _UNSEEN
                or "\ufe00" <= character <= "\ufe0f"
            ):
                doubts.append(f"it holds the invisible character U+{ord(character):04X}")
                break
    return doubts


def _objections(command: str, script: Script) -> list[str]:
    seen = other_reader.look(command)
    if seen is None:
        return ["a second reader could not read it to its end"]
    if seen.has_error:
        return ["two readers of it disagree"]
    ours = set(_names(script))
    return [f"two readers of it disagree about {name[:40]!r}" for name in seen.names if name not in ours]


def _names(script: Script) -> Iterator[str]:
    """Whatever may look like a program to the other reader."""
    for link in script.links:
        yield from link.pipeline.prefixes
        for command in link.pipeline.commands:
            yield from _names_of(command)
    for body in script.bodies:
        yield from _names_in(body)


def _names_of(command: Simple | Compound) -> Iterator[str]:
    words = list(command.words)
    if isinstance(command, Simple):
        if words:
            yield words[0].text
        for assignment in command.assignments:
            words += [assignment.word, *assignment.elements]
    else:
        yield command.kind
        for script in command.scripts:
            yield from _names(script)
    for word in (*words, *(redirect.word for redirect in command.redirects)):
        yield from _names_in(word)


def _names_in(word: Word) -> Iterator[str]:
    for script in word.scripts:
        yield from _names(script)


def _second_script(command: str) -> Script:
    """What the other reader makes of it: enough to name programs, not to decide on them."""
    seen = other_reader.look(command) if len(command) <= LONGEST_SECOND else None
    commands = [Simple(tuple(map(_second_word, words)), (), ()) for words in (seen.commands if seen else ())]
    return Script(tuple(Link(";", Pipeline((command,), ())) for command in commands))


def _second_word(text: str) -> Word:
    reader = Reader(text, [])
    try:
        word = reader.word()
    except Unreadable:
        return Word(text, None, False)
    return Word(text, word.value if reader.at == len(text) else None, False)
