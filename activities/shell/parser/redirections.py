"""Parses redirections, here-documents, and the blanks, comments and line breaks between words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from holdfast.activities.shell.parser.syntax_tree import Redirect, Unreadable, Word
from holdfast.activities.shell.parser.words import ENDS_WORD, MAX_DEPTH, WordReader

_BLANKS = re.compile(r"[ \t]+")
_CONTINUED = re.compile(r"(?<![^ \t\n])\\\n")
_COMMENT = re.compile(r"#[^\n]*")
_REDIRECT = re.compile(r"([0-9]*)(<<<|<<-|<<|<&|<>|<(?!\()|>>|>&|>\||>(?!\())|(&>>|&>)")
_DELIMITER = re.compile(r"""(['"]?)([A-Za-z0-9_.!+-]+)\1(?=[ \t\n;&|()<>])""")


@dataclass(frozen=True)
class _ExpectedBody:
    """A here-document whose body begins on the next line."""

    delimiter: str
    literal: bool
    tabs: bool
    """Tabs at the beginning of its lines are left out."""


class RedirectionReader(WordReader):
    """Parses redirections; `SimpleCommandReader` adds commands."""

    def __init__(self, text: str, doubts: list[str], *, posix: bool = False, depth: int = 0) -> None:
        super().__init__(text, doubts, posix=posix, depth=depth)
        self._expected: list[_ExpectedBody] = []
        self._bodies: list[Word] = []

    def read_word(self, *, before_parenthesis: bool = False) -> Word:
        """Parse the word that begins here. Raises Unreadable."""
        word = super().read_word(before_parenthesis=before_parenthesis)
        if self._expected and "\n" in word.text:
            raise Unreadable("a line ends in a word while a here-document is expected")
        return word

    def build_inner_reader(self, text: str) -> Self:
        """A parser for a part that bash takes out first and parses on its own."""
        self.check_no_body_expected()
        return type(self)(text, self.doubts, posix=self.posix, depth=self.depth + 1)

    def enter_level(self) -> None:
        """Count a nested construct; Unreadable when there are too many."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("it is nested too deeply")

    def skip_blanks(self) -> None:
        """Move behind blanks, continued lines and a comment."""
        while self.take_match(_BLANKS) or self.take_match(_CONTINUED):
            pass
        if self.peek() == "#":
            self.take_match(_COMMENT)

    def skip_newlines(self) -> None:
        """Move behind blanks and line breaks, parsing the bodies of here-documents."""
        self.skip_blanks()
        while self.peek() == "\n":
            self.at += 1
            self.read_bodies()
            self.skip_blanks()

    def read_redirect(self, redirects: list[Redirect]) -> bool:
        """Parse one redirection, if one comes next; whether it did."""
        found = self.take_match(_REDIRECT)
        if found is None:
            return False
        descriptor, operator = found[1] or "", found[2] or found[3]
        if len(descriptor) > 4:
            raise Unreadable("a number before a redirection may be too large to be one")
        if found[3] or operator == "<<<" or len(descriptor) > 1:
            self.note_bash_only(found[0])
        self.take_match(_BLANKS)
        if operator in ("<<", "<<-"):
            redirects.append(Redirect(descriptor, "<<", self._expect_body(tabs=operator == "<<-")))
        else:
            redirects.append(Redirect(descriptor, operator, self._read_target(operator)))
        return True

    def _read_target(self, operator: str) -> Word:
        if self.peek() == "#":
            raise Unreadable("a redirection has no file")
        if operator in ("<&", ">&") and self.peek() == "-" and self.peek(1) not in ("", *ENDS_WORD):
            raise Unreadable("a descriptor is closed in the middle of a word")
        return self.read_word()

    def _expect_body(self, *, tabs: bool) -> Word:
        found = self.take_match(_DELIMITER)
        if found is None:
            raise Unreadable("the delimiter of a here-document is too complicated")
        self._expected.append(_ExpectedBody(found[2], bool(found[1]), tabs))
        return build_unknown_word(found[0])

    def check_no_body_expected(self) -> None:
        """Unreadable when the body of a here-document has not come yet."""
        if self._expected:
            raise Unreadable("the body of a here-document is missing")

    def read_bodies(self) -> None:
        """Parse the bodies of the here-documents of the line that has just ended."""
        self._bodies.extend(self._read_body(expected) for expected in self._expected)
        self._expected = []

    def _read_body(self, expected: _ExpectedBody) -> Word:
        lines: list[str] = []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            line = self.text[self.at : end if end >= 0 else len(self.text)]
            self.at = end + 1 if end >= 0 else len(self.text)
            bare = line.lstrip("\t") if expected.tabs else line
            if bare == expected.delimiter:
                return self._build_body("".join(lines), expected)
            if bare.startswith(expected.delimiter) or (not expected.literal and line.endswith("\\")):
                break
            lines.append(bare + "\n")
        raise Unreadable("a here-document does not end, or ends in a way that is not clear")

    def _build_body(self, body: str, expected: _ExpectedBody) -> Word:
        if expected.literal:
            return Word(body, body, False)
        return type(self)(body, self.doubts, posix=self.posix, depth=self.depth + 1).read_as_body()

    def take_bodies(self, others: tuple[Word, ...] = ()) -> tuple[Word, ...]:
        """The bodies of here-documents since the last call; `others` take their place."""
        bodies, self._bodies = tuple(self._bodies), list(others)
        return bodies


def build_unknown_word(text: str) -> Word:
    """A word with an unknown value."""
    return Word(text, None, False)
