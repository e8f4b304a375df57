"""Parses words as bash does: quotes, escapes, and everything that begins with a dollar sign.

It knows less than bash on purpose, and never guesses. Where the end of a construct is unknown, `Unreadable` ends the
parsing; where only its meaning is unknown, a doubt is added.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from holdfast.activities.shell.parser.syntax_tree import Script, Unreadable, Word
from holdfast.activities.shell.programs.variables import explain_dangerous

MAX_DEPTH = 30
"""Levels of nested constructs; more could exceed the recursion limit."""
ENDS_WORD = frozenset(" \t\n;&|()<>")

_PLAIN = re.compile(r"""[^ \t\n;&|()<>\\'"$`*?\[{~]+""")
_IN_DOUBLE = re.compile(r'[^"\\$`]+')
_IN_BODY = re.compile(r"[^\\$`]+")
_ARITHMETIC = re.compile(r"\$\(\(([A-Za-z0-9_ \t+*/%<>=!&|?:,$^~-]*)\)\)")
_BACKTICK = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
_PARAMETER = re.compile(r"\$\{(#?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])(\[(?:[@*]|[0-9]+)\])?")
_INDIRECT = re.compile(r"\$\{![A-Za-z_][A-Za-z0-9_]*(\[[@*]\]|[@*])?\}")
_TRANSFORMED = re.compile(r"@[A-Za-z]\}")
_SLICE = re.compile(r": ?-?[0-9]+(: ?-?[0-9]+)?\}")
_OPERATION = re.compile(r":?[-+?=]|%%?|##?|//?|\^\^?|,,?")
_OPERAND = re.compile(r"[^'\"\\$`{}()<>\n]+")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))", re.DOTALL)
_LETTERS = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


@dataclass
class _WordBuilder:
    """A word while it is parsed."""

    pieces: list[str] = field(default_factory=list)
    known: bool = True
    bare: bool = True
    braces: bool = False
    scripts: list[Script] = field(default_factory=list)

    def add(self, literal: str) -> None:
        if literal:
            self.pieces.append(literal)

    @property
    def last_character(self) -> str:
        """The last character so far; empty at the beginning."""
        return self.pieces[-1][-1] if self.pieces else ""

    def mark_unknown(self) -> None:
        self.known = False

    def build(self, text: str) -> Word:
        if self.braces and ("," in text or ".." in text):
            self.known = False
        if text == "[":
            self.known = True  # the program of that name: a pattern would need its other half
        return Word(text, "".join(self.pieces) if self.known else None, self.bare, tuple(self.scripts))


class WordReader(ABC):
    """The text of a command and the index of the next character; it parses words."""

    def __init__(self, text: str, doubts: list[str], *, posix: bool = False, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise Unreadable("it is nested too deeply")
        self.text = text
        self.at = 0
        self.doubts = doubts
        self.posix = posix
        self.depth = depth

    @abstractmethod
    def read_nested(self, end: str) -> Script:
        """Parse commands up to `end`, and move behind it."""

    @abstractmethod
    def build_inner_reader(self, text: str) -> WordReader:
        """A parser for a part that bash takes out first and parses on its own."""

    @abstractmethod
    def read_whole(self) -> Script:
        """Parse commands to the end of the text."""

    def add_doubt(self, reason: str) -> None:
        """Add a reason why bash may read the command otherwise."""
        self.doubts.append(reason)

    def note_bash_only(self, what: str) -> None:
        """Add a doubt about a construct that only bash has, when another shell will read it."""
        if self.posix:
            self.add_doubt(f"{what} means something else to another shell than bash")

    def peek(self, ahead: int = 0) -> str:
        """The next character, or one `ahead`; empty at the end."""
        place = self.at + ahead
        return self.text[place] if place < len(self.text) else ""

    def is_at(self, *texts: str) -> bool:
        """Does one of these texts come next?"""
        return self.text.startswith(texts, self.at)

    def take_match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Move behind a match that begins here; None when there is none."""
        if found := pattern.match(self.text, self.at):
            self.at = found.end()
        return found

    def read_word(self, *, before_parenthesis: bool = False) -> Word:
        """Parse the word that begins here. Raises Unreadable."""
        start, building = self.at, _WordBuilder()
        while (character := self.peek()) and (character not in ENDS_WORD or self.is_at("<(", ">(")):
            if character in "<>" and self.at > start:
                raise Unreadable("a process substitution is part of a larger word")
            self._read_piece(building, character)
        if self.at == start:
            raise Unreadable(f"a word is missing before {self.text[start : start + 10]!r}")
        if self.peek() == "(" and not before_parenthesis:
            raise Unreadable("a parenthesis follows a word without a blank")
        return building.build(self.text[start : self.at])

    def _read_piece(self, building: _WordBuilder, character: str) -> None:
        if found := self.take_match(_PLAIN):
            building.add(found[0])
        elif character == "$":
            self._read_dollar(building)
        elif character in "<>":
            self.note_bash_only("process substitution")
            self._read_substitution(building, 2)
        elif character in "\\'\"`":
            building.bare = False
            self._read_quoted(building, character)
        else:
            self._read_special(building, character)

    def _read_special(self, building: _WordBuilder, character: str) -> None:
        """Parse a pattern, a brace, or the tilde of a home folder."""
        if character in "*?[" or (character == "~" and building.last_character in ("", "=", ":")):
            building.mark_unknown()
        elif character == "{":
            building.braces = True
        building.add(character)
        self.at += 1

    def _read_quoted(self, building: _WordBuilder, character: str) -> None:
        if character == "`":
            self._read_backtick(building)
        elif character == '"':
            self.at += 1
            self._read_double(building, _IN_DOUBLE)
            self.at += 1
        elif character == "'":
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise Unreadable("a quote is not closed")
            building.add(self.text[self.at + 1 : end])
            self.at = end + 1
        else:
            self._read_escape(building)

    def _read_escape(self, building: _WordBuilder) -> None:
        following = self.peek(1)
        if following in ("", "\n"):
            raise Unreadable("a line continues in the middle of a word, or after the end")
        building.add(following)
        self.at += 2

    def _read_double(self, building: _WordBuilder, plain: re.Pattern[str]) -> None:
        """Parse up to the closing quote, or to the end of a here-document."""
        body = plain is _IN_BODY
        while character := self.peek():
            if found := self.take_match(plain):
                building.add(found[0])
            elif character == '"':
                return
            elif character == "$":
                self._read_dollar(building, quoted=True)
            elif character == "`":
                self._read_backtick(building)
            else:
                self._read_double_escape(building, "$`\\" if body else '$`"\\')
        if not body:
            raise Unreadable("a quote is not closed")

    def _read_double_escape(self, building: _WordBuilder, special: str) -> None:
        following = self.peek(1)
        if following and following in special:
            building.add(following)
        elif following != "\n":
            building.add("\\" + following)
        self.at += 2

    def read_as_body(self) -> Word:
        """Parse the whole text as the body of a here-document whose delimiter is not quoted."""
        building = _WordBuilder(bare=False)
        self._read_double(building, _IN_BODY)
        return building.build(self.text)

    def _read_substitution(self, building: _WordBuilder, opening: int) -> None:
        self.at += opening
        building.scripts.append(self.read_nested(")"))
        building.mark_unknown()

    def _read_backtick(self, building: _WordBuilder) -> None:
        found = self.take_match(_BACKTICK)
        if found is None:
            raise Unreadable("a backtick is not closed")
        if "\\" in found[1]:
            self.add_doubt("there is a backslash between backticks")
        building.scripts.append(self.build_inner_reader(found[1]).read_whole())
        building.mark_unknown()

    def _read_dollar(self, building: _WordBuilder, *, quoted: bool = False) -> None:
        if self.is_at("$(("):
            self._read_arithmetic(building)
        elif self.is_at("$("):
            self._read_substitution(building, 2)
        elif self.is_at("${"):
            self._read_parameter(building)
        elif self.is_at("$["):
            raise Unreadable("it uses the old form of arithmetic, $[…]")
        elif not quoted and self.is_at("$'"):
            self._read_ansi(building)
        elif not quoted and self.is_at('$"'):
            raise Unreadable("a text is translated")
        elif self.take_match(_VARIABLE):
            building.mark_unknown()
        elif self.is_at("$\\\n"):
            raise Unreadable("a line continues after a dollar sign")
        else:
            building.add("$")
            self.at += 1

    def _read_arithmetic(self, building: _WordBuilder) -> None:
        found = self.take_match(_ARITHMETIC)
        if found is None:
            raise Unreadable("a calculation is too complicated")
        self.check_arithmetic(found[1])
        building.mark_unknown()

    def check_arithmetic(self, text: str) -> None:
        """Add a doubt about variables in a calculation: bash evaluates their content, which may run a command."""
        if re.search(r"[A-Za-z_$]", text):
            self.add_doubt("it calculates with variables, whose content bash evaluates")

    def _read_parameter(self, building: _WordBuilder) -> None:
        building.mark_unknown()
        if self.take_match(_INDIRECT):
            self.add_doubt("a variable names another variable")
            return
        found = self.take_match(_PARAMETER)
        if found is None:
            raise Unreadable("an expansion of a variable is too complicated")
        if self.peek() == "}":
            self.at += 1
        elif self.take_match(_TRANSFORMED):
            self.add_doubt("the content of a variable is evaluated")
        elif not self.take_match(_SLICE):
            self._read_operation(building, found)

    def _read_operation(self, building: _WordBuilder, parameter: re.Match[str]) -> None:
        operation = self.take_match(_OPERATION)
        if operation is None or parameter[1]:
            raise Unreadable("an expansion of a variable is too complicated")
        if operation[0].endswith("=") and (reason := explain_dangerous(parameter[2])):
            self.add_doubt(reason)
        while (character := self.peek()) != "}":
            if character == "$":
                self._read_dollar(building, quoted=True)
            elif character == "`":
                self._read_backtick(building)
            elif not self.take_match(_OPERAND):
                raise Unreadable("an expansion of a variable is too complicated")
        self.at += 1

    def _read_ansi(self, building: _WordBuilder) -> None:
        self.note_bash_only("$'…'")
        building.bare = False
        found = self.take_match(_ANSI)
        if found is None:
            raise Unreadable("a quote is not closed")
        value = _ESCAPE.sub(_unescape_character, found[1])
        building.add(value)
        if "\0" in value:
            building.mark_unknown()


def _unescape_character(found: re.Match[str]) -> str:
    """The character of an escape; NUL for one that depends on the locale or cannot be in a word."""
    octal, hexadecimal, short, long, letter = found.groups()
    if letter is not None:
        return "\0" if letter in "cxuU" else _LETTERS.get(letter, found[0])
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    return chr(code) if code < 128 else "\0"
