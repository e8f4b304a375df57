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

from holdfast.activities.shell import tree_sitter
from holdfast.activities.shell.parser.compound_commands import CommandReader
from holdfast.activities.shell.parser.syntax_tree import (
    CompoundCommand,
    Link,
    Pipeline,
    Script,
    SimpleCommand,
    Unreadable,
    Word,
)

MAX_LENGTH = 20_000
"""Characters: more is no command but a file."""

MAX_SECOND_LENGTH = 2_000
"""Characters the other reader looks at when ours gives up: it is slow at what cannot be read."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_UNSEEN_KINDS = frozenset(["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"])


@dataclass(frozen=True)
class ParsedCommand:
    """A command as it was read."""

    script: Script
    doubts: tuple[str, ...]
    """Why it may be read otherwise."""


def parse_command(command: str, *, posix: bool = False) -> ParsedCommand:
    """Read a command; one that cannot be read is full of doubts."""
    if len(command) > MAX_LENGTH:
        return ParsedCommand(Script(()), (f"it is longer than {MAX_LENGTH:,} characters",))
    doubts = _list_unseen(command)
    if "\0" in command or not _is_encodable(command):
        return ParsedCommand(Script(()), tuple(doubts or ["it holds characters that are none"]))
    try:
        script = CommandReader(command, doubts, posix=posix).read_whole()
    except (Unreadable, RecursionError) as error:
        reason = str(error) if isinstance(error, Unreadable) else "it is nested too deeply"
        return ParsedCommand(_build_second_script(command), (*doubts, f"it cannot be read: {reason}"))
    return ParsedCommand(script, (*doubts, *_list_objections(command, script)))


def _is_encodable(command: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in command)


def _list_unseen(command: str) -> list[str]:
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


def _list_objections(command: str, script: Script) -> list[str]:
    seen = tree_sitter.ask_other_reader(command)
    if seen is None:
        return ["a second reader could not read it to its end"]
    if seen.has_error:
        return ["two readers of it disagree"]
    ours = set(_list_names(script))
    return [f"two readers of it disagree about {name[:40]!r}" for name in seen.names if name not in ours]


def _list_names(script: Script) -> Iterator[str]:
    """Whatever may look like a program to the other reader."""
    for link in script.links:
        yield from link.pipeline.prefixes
        for command in link.pipeline.commands:
            yield from _list_command_names(command)
    for body in script.bodies:
        yield from _list_word_names(body)


def _list_command_names(command: SimpleCommand | CompoundCommand) -> Iterator[str]:
    words = list(command.words)
    if isinstance(command, SimpleCommand):
        if words:
            yield words[0].text
        for assignment in command.assignments:
            words += [assignment.word, *assignment.elements]
    else:
        yield command.kind
        for script in command.scripts:
            yield from _list_names(script)
    for word in (*words, *(redirect.word for redirect in command.redirects)):
        yield from _list_word_names(word)


def _list_word_names(word: Word) -> Iterator[str]:
    for script in word.scripts:
        yield from _list_names(script)


def _build_second_script(command: str) -> Script:
    """What the other reader makes of it: enough to name programs, not to decide on them."""
    seen = tree_sitter.ask_other_reader(command) if len(command) <= MAX_SECOND_LENGTH else None
    commands = [
        SimpleCommand(tuple(map(_build_second_word, words)), (), ()) for words in (seen.commands if seen else ())
    ]
    return Script(tuple(Link(";", Pipeline((command,), ())) for command in commands))


def _build_second_word(text: str) -> Word:
    reader = CommandReader(text, [])
    try:
        word = reader.read_word()
    except Unreadable:
        return Word(text, None, False)
    return Word(text, word.value if reader.at == len(text) else None, False)
