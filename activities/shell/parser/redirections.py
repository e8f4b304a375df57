"""Reading what stands between commands and beside them: blanks, comments, redirections and here-documents."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.activities.shell.parser.syntax_tree import Redirect, Unreadable, Word
from holdfast.activities.shell.parser.words import ENDS_WORD, MAX_DEPTH, WordReader

_BLANKS = re.compile(r"[ \t]+")
_CONTINUED = re.compile(r"(?<![^ \t\n])\\\n")
_COMMENT = re.compile(r"#[^\n]*")
_REDIRECT = re.compile(r"([0-9]*)(<<<|<<-|<<|<&|<>|<(?!\()|>>|>&|>\||>(?!\())|(&>>|&>)")
_DELIMITER = re.compile(r"""(['"]?)([A-Za-z0-9_.!+-]+)\1(?=[ \t\n;&|()<>])""")


@dataclass(frozen=True)
class _ExpectedBody:
    """A here-document whose body comes after the end of this line."""

    delimiter: str
    literal: bool
    tabs: bool
    """Those at the beginning of its lines are left out."""


class RedirectionReader(WordReader):
    """A reader that knows which here-documents are still to come."""

    def __init__(self, text: str, doubts: list[str], *, posix: bool = False, depth: int = 0) -> None:
        super().__init__(text, doubts, posix=posix, depth=depth)
        self._expected: list[_ExpectedBody] = []
        self._bodies: list[Word] = []
        self.substituting = 0
        """How many substitutions this place is in."""

    def read_word(self, *, before_parenthesis: bool = False) -> Word:
        """Read one word, which begins here."""
        word = super().read_word(before_parenthesis=before_parenthesis)
        if self._expected and "\n" in word.text:
            raise Unreadable("a line ends in a word while a here-document is expected")
        return word

    def build_inner_reader(self, text: str) -> RedirectionReader:
        """A reader of a part that bash takes out first and reads on its own."""
        self.check_no_body_expected()
        return type(self)(text, self.doubts, posix=self.posix, depth=self.depth + 1)

    def enter_level(self) -> None:
        """Refuse what is nested without end."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("it is nested too deeply")

    def skip_blanks(self) -> None:
        """Move past blanks, continued lines and a comment."""
        while self.take_match(_BLANKS) or self.take_match(_CONTINUED):
            pass
        if self.peek() == "#":
            self.take_match(_COMMENT)

    def skip_newlines(self) -> None:
        """Move past blanks and ends of lines."""
        self.skip_blanks()
        while self.peek() == "\n":
            self.at += 1
            self.read_bodies()
            self.skip_blanks()

    def read_redirect(self, redirects: list[Redirect]) -> bool:
        """Read one redirection, when one comes next."""
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
        """Refuse a here-document whose body has not come yet."""
        if self._expected:
            raise Unreadable("the body of a here-document is missing")

    def read_bodies(self) -> None:
        """Read the bodies that were announced on the line that has just ended."""
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
        """The here-documents that were read since the last time; `others` are kept instead of them."""
        bodies, self._bodies = tuple(self._bodies), list(others)
        return bodies


def build_unknown_word(text: str) -> Word:
    """A word whose value is not known."""
    return Word(text, None, False)
