"""Parses a command twice: by our own parser, which decides, and by tree-sitter's grammar of bash, which may object.

That grammar is lenient, and disagrees with bash in places: `git pu\\<newline>sh` is two words to it. Ours is small and
strict, and refuses what it does not know. So ours says what runs; where tree-sitter sees an error, or a program that
ours does not see, the command is uncertain. When ours gives up, the programs that tree-sitter sees are still shown to
the person who decides. It runs in a process of its own, because it may crash (0.26.0 corrupts memory).

Why: docs/decisions/0010-bash-is-read-twice.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.activities.process.sidecar import HelperProcess
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
"""Characters of a command; a longer one is not parsed."""
MAX_SECOND_LENGTH = 2_000
"""Characters of an unreadable command that tree-sitter parses: it is slow with errors."""
CPU_SECONDS = 1.0
TREE_SITTER = HelperProcess("holdfast.activities.shell.tree_sitter_worker", cpu_seconds=CPU_SECONDS)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_UNSEEN_KINDS = frozenset(["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"])


@dataclass(frozen=True)
class ParsedCommand:
    """The syntax tree of a command."""

    script: Script
    doubts: tuple[str, ...]
    """Reasons why bash may parse it differently."""


@dataclass(frozen=True)
class TreeSitterResult:
    """The reading of a command by tree-sitter."""

    has_error: bool
    names: tuple[str, ...]
    """The names of all programs."""
    commands: tuple[tuple[str, ...], ...]
    """The words of the first programs, as they are written."""


def parse_command(command: str, *, posix: bool = False) -> ParsedCommand:
    """Parse a command. Never raises: what cannot be parsed has an incomplete tree and doubts.

    `posix`: another shell than bash will read it.
    """
    if len(command) > MAX_LENGTH:
        return ParsedCommand(Script(()), (f"it is longer than {MAX_LENGTH:,} characters",))
    doubts = _list_invisible(command)
    if "\0" in command or any("\ud800" <= character <= "\udfff" for character in command):
        return ParsedCommand(Script(()), tuple(doubts or ["it holds code points that are no characters"]))
    try:
        script = CommandReader(command, doubts, posix=posix).read_whole()
    except (Unreadable, RecursionError) as error:
        reason = str(error) if isinstance(error, Unreadable) else "it is nested too deeply"
        return ParsedCommand(_build_second_script(command), (*doubts, f"it cannot be read: {reason}"))
    return ParsedCommand(script, (*doubts, *_list_objections(command, script)))


def ask_tree_sitter(command: str) -> TreeSitterResult | None:
    """Parse a command with tree-sitter; None when it crashed or took too long."""
    answer = TREE_SITTER.ask(command)
    if answer is None:
        return None
    return TreeSitterResult(answer["has_error"], tuple(answer["names"]), tuple(map(tuple, answer["commands"])))


def _list_invisible(command: str) -> list[str]:
    """Doubts about characters that a person does not see, or sees as something else."""
    doubts = []
    if found := _CONTROL.search(command):
        doubts.append(f"it holds the control character {found[0]!r}")
    invisible = (character for character in command if not character.isascii() and _is_invisible(character))
    doubts += [f"it holds the invisible character U+{ord(one):04X}" for one in list(invisible)[:1]]
    return doubts


def _is_invisible(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind in _UNSEEN_KINDS or character in _UNSEEN or "\ufe00" <= character <= "\ufe0f"


def _list_objections(command: str, script: Script) -> list[str]:
    seen = ask_tree_sitter(command)
    if seen is None:
        return ["the second parser did not finish"]
    if seen.has_error:
        return ["two parsers of bash disagree about it"]
    ours = set(_list_names(script))
    return [f"two parsers of bash disagree about {name[:40]!r}" for name in seen.names if name not in ours]


def _list_names(script: Script) -> Iterator[str]:
    """Everything that tree-sitter may take for the name of a program."""
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
    """The programs that tree-sitter sees: enough to show them, not to decide on them."""
    seen = ask_tree_sitter(command) if len(command) <= MAX_SECOND_LENGTH else None
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
