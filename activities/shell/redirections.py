"""Reading what stands between commands and beside them: blanks, comments, redirections and here-documents."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.activities.shell.syntax import Redirect, Unreadable, Word
from holdfast.activities.shell.words import DEPTH, ENDS_WORD, WordReader

_BLANKS = re.compile(r"[ \t]+")
_CONTINUED = re.compile(r"(?<![^ \t\n])\\\n")
_COMMENT = re.compile(r"#[^\n]*")
_REDIRECT = re.compile(r"([0-9]*)(<<<|<<-|<<|<&|<>|<(?!\()|>>|>&|>\||>(?!\())|(&>>|&>)")
_DELIMITER = re.compile(r"""(['"]?)([A-Za-z0-9_.!+-]+)\1(?=[ \t\n;&|()<>])""")


@dataclass(frozen=True)
class _Expected:
    """A here-document whose body comes after the end of this line."""

    delimiter: str
    literal: bool
    tabs: bool
    """Those at the beginning of its lines are left out."""


class RedirectionReader(WordReader):
    """A reader that knows which here-documents are still to come."""

    def __init__(self, text: str, doubts: list[str], *, posix: bool = False, depth: int = 0) -> None:
        super().__init__(text, doubts, posix=posix, depth=depth)
        self._expected: list[_Expected] = []
        self._bodies: list[Word] = []
        self.substituting = 0
        """How many substitutions this place is in."""

    def word(self, *, before_parenthesis: bool = False) -> Word:
        """Read one word, which begins here."""
        word = super().word(before_parenthesis=before_parenthesis)
        if self._expected and "\n" in word.text:
            raise Unreadable("a line ends in a word while a here-document is expected")
        return word

    def inner(self, text: str) -> RedirectionReader:
        """A reader of a part that bash takes out first and reads on its own."""
        self.nothing_expected()
        return type(self)(text, self.doubts, posix=self.posix, depth=self.depth + 1)

    def deeper(self) -> None:
        """Refuse what is nested without end."""
        self.depth += 1
        if self.depth > DEPTH:
            raise Unreadable("it is nested too deeply")

    def blanks(self) -> None:
        """Move past blanks, continued lines and a comment."""
        while self.take(_BLANKS) or self.take(_CONTINUED):
            pass
        if self.peek() == "#":
            self.take(_COMMENT)

    def newlines(self) -> None:
        """Move past blanks and ends of lines."""
        self.blanks()
        while self.peek() == "\n":
            self.at += 1
            self.read_bodies()
            self.blanks()

    def redirect(self, redirects: list[Redirect]) -> bool:
        """Read one redirection, when one comes next."""
        found = self.take(_REDIRECT)
        if found is None:
            return False
        descriptor, operator = found[1] or "", found[2] or found[3]
        if len(descriptor) > 4:
            raise Unreadable("a number before a redirection may be too large to be one")
        if found[3] or operator == "<<<" or len(descriptor) > 1:
            self.not_posix(found[0])
        self.take(_BLANKS)
        if operator in ("<<", "<<-"):
            redirects.append(Redirect(descriptor, "<<", self._expect_body(tabs=operator == "<<-")))
        else:
            redirects.append(Redirect(descriptor, operator, self._target(operator)))
        return True

    def _target(self, operator: str) -> Word:
        if self.peek() == "#":
            raise Unreadable("a redirection has no file")
        if operator in ("<&", ">&") and self.peek() == "-" and self.peek(1) not in ("", *ENDS_WORD):
            raise Unreadable("a descriptor is closed in the middle of a word")
        return self.word()

    def _expect_body(self, *, tabs: bool) -> Word:
        found = self.take(_DELIMITER)
        if found is None:
            raise Unreadable("the delimiter of a here-document is too complicated")
        self._expected.append(_Expected(found[2], bool(found[1]), tabs))
        return unknown(found[0])

    def nothing_expected(self) -> None:
        """Refuse a here-document whose body has not come yet."""
        if self._expected:
            raise Unreadable("the body of a here-document is missing")

    def read_bodies(self) -> None:
        """Read the bodies that were announced on the line that has just ended."""
        self._bodies.extend(self._body(expected) for expected in self._expected)
        self._expected = []

    def _body(self, expected: _Expected) -> Word:
        lines: list[str] = []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            line = self.text[self.at : end if end >= 0 else len(self.text)]
            self.at = end + 1 if end >= 0 else len(self.text)
            bare = line.lstrip("\t") if expected.tabs else line
            if bare == expected.delimiter:
                return self._meaning("".join(lines), expected)
            if bare.startswith(expected.delimiter) or (not expected.literal and line.endswith("\\")):
                break
            lines.append(bare + "\n")
        raise Unreadable("a here-document does not end, or ends in a way that is not clear")

    def _meaning(self, body: str, expected: _Expected) -> Word:
        if expected.literal:
            return Word(body, body, False)
        return type(self)(body, self.doubts, posix=self.posix, depth=self.depth + 1).body()

    def bodies_so_far(self, others: tuple[Word, ...] = ()) -> tuple[Word, ...]:
        """The here-documents that were read since the last time; `others` are kept instead of them."""
        bodies, self._bodies = tuple(self._bodies), list(others)
        return bodies


def unknown(text: str) -> Word:
    """A word whose value is not known."""
    return Word(text, None, False)
