"""Parses lists, pipelines, simple commands, redirections and here-documents, by the rules of bash.

Everything is parsed once, from left to right. An unknown construct ends the parsing with `Unreadable`. Compound
commands are in `compound_commands`, words in `words`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass

from holdfast.activities.shell.parser.syntax_tree import (
    Assignment,
    CompoundCommand,
    Link,
    Pipeline,
    Redirect,
    Script,
    SimpleCommand,
    Unreadable,
    Word,
)
from holdfast.activities.shell.parser.words import ENDS_WORD, MAX_DEPTH, WordReader

CLOSING = frozenset(["then", "elif", "else", "fi", "do", "done", "esac", "}"])
"""Keywords that end a list."""
OPENING = frozenset(["if", "for", "while", "until", "case", "select", "function", "{", "[["])
KEYWORDS = CLOSING | OPENING | {"!", "time", "coproc", "in"}
DECLARING = frozenset(["declare", "typeset", "local", "export", "readonly"])
"""Commands whose words bash parses like assignments."""

_KEYWORD = re.compile(r"(?:[a-z]+|[{}!]|\[\[)(?=[ \t\n;&|()<>]|$)")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_SUBSCRIPT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_CONNECTOR = re.compile(r"&&|\|\||;(?!;|&)|&(?!&|>)|\n")
_FUNCTION = re.compile(r"[ \t]*\([ \t]*\)")
_EMPTY = Word("", "", False)
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


class SimpleCommandReader(WordReader):
    """Parses lists, pipelines and simple commands; `CommandReader` adds compound commands."""

    def __init__(self, text: str, doubts: list[str], *, posix: bool = False, depth: int = 0) -> None:
        super().__init__(text, doubts, posix=posix, depth=depth)
        self._expected: list[_ExpectedBody] = []
        self._bodies: list[Word] = []
        self.substituting = 0
        """The number of substitutions around this place."""

    @abstractmethod
    def read_compound(self, keyword: str) -> CompoundCommand:
        """Parse the compound command that begins with this keyword or a parenthesis."""

    @abstractmethod
    def read_function(self, name: Word) -> CompoundCommand:
        """Parse the body of a function."""

    def read_whole(self) -> Script:
        """Parse commands to the end of the text. Raises Unreadable."""
        script = self.read_commands("")
        if self.peek():
            raise Unreadable(f"it is not clear what {self.text[self.at : self.at + 10]!r} belongs to")
        self.check_no_body_expected()
        return Script(script.links, self.take_bodies())

    def read_nested(self, end: str) -> Script:
        """Parse commands up to `end`, and move behind it. Raises Unreadable."""
        self.check_no_body_expected()
        self.enter_level()
        self.substituting += 1
        outside = self.take_bodies()
        script = self.read_commands(end)
        if not self.is_at(end):
            raise Unreadable(f"{end!r} is missing")
        self.check_no_body_expected()
        self.at += len(end)
        self.depth -= 1
        self.substituting -= 1
        found = Script(script.links, self.take_bodies(outside))
        if found.bodies and not _is_one_command(found):
            # Bash prints a substitution and parses the text again; operators behind a here-document get lost.
            self.add_doubt("commands follow a here-document in a substitution, which bash reads in its own way")
        return found

    def peek_keyword(self) -> str:
        """The keyword that comes next; empty when none does."""
        found = _KEYWORD.match(self.text, self.at)
        return found[0] if found and found[0] in KEYWORDS else ""

    def expect_keyword(self, keyword: str) -> None:
        """Move behind this keyword, which must come next."""
        if self.peek_keyword() != keyword:
            raise Unreadable(f"{keyword!r} is missing before {self.text[self.at : self.at + 10]!r}")
        self.at += len(keyword)

    def read_commands(self, end: str) -> Script:
        """Parse pipelines up to `end`, a closing keyword or the end of the text."""
        links: list[Link] = []
        operator = ";"
        self.skip_newlines()
        while not self._is_list_end(end):
            pipeline = self._read_pipeline()
            self.skip_blanks()
            connector = found[0] if (found := self.take_match(_CONNECTOR)) else ""
            if connector == "\n":
                self.read_bodies()
            links.append(Link(operator, pipeline, connector == "&"))
            operator = connector if connector in ("&&", "||") else ";"
            self.skip_newlines()
            if operator != ";" and self._is_list_end(end):
                raise Unreadable(f"nothing follows {operator!r}")
            if not connector and not self._is_list_end(end):
                raise Unreadable(f"an operator is missing before {self.text[self.at : self.at + 10]!r}")
        return Script(tuple(links))

    def _is_list_end(self, end: str) -> bool:
        if not self.peek() or (end and self.is_at(end)) or self.is_at(";;", ";&"):
            return True
        return self.peek_keyword() in CLOSING

    def _read_pipeline(self) -> Pipeline:
        prefixes: list[str] = []
        while (keyword := self.peek_keyword()) in ("!", "time"):
            self.at += len(keyword)
            self.skip_blanks()
            prefixes.append(keyword)
            if keyword == "time":
                self._read_time()
        commands, pipes = [self._read_command()], []
        self.skip_blanks()
        while self.peek() == "|" and not self.is_at("||"):
            pipes.append("|&" if self.is_at("|&") else "|")
            self.at += len(pipes[-1])
            self.skip_newlines()
            commands.append(self._read_command())
            self.skip_blanks()
        if "|&" in pipes:
            self.note_bash_only("|&")
        return Pipeline(tuple(commands), tuple(pipes), tuple(prefixes))

    def _read_time(self) -> None:
        self.note_bash_only("time")
        if self.substituting:
            # Bash takes the first parenthesis behind it for the end, also that of a pattern of `case`.
            self.add_doubt("`time` in a substitution changes where bash sees its end")
        if re.match(r"-p[ \t]", self.text[self.at : self.at + 3]):
            self.at += 3
            self.skip_blanks()
        if self.peek() in ("-", "", "\n", ";", "&", "|", ")"):
            raise Unreadable("`time` has options, or nothing to run")

    def _read_command(self) -> SimpleCommand | CompoundCommand:
        self.enter_level()
        keyword = self.peek_keyword()
        if self.peek() == "(":
            command: SimpleCommand | CompoundCommand = self.read_compound("(")
        elif keyword in OPENING or keyword == "coproc":
            command = self.read_compound(keyword)
        elif keyword:
            raise Unreadable(f"{keyword!r} stands where a command should begin")
        else:
            command = self._read_simple()
        self.depth -= 1
        return command

    def _read_simple(self) -> SimpleCommand | CompoundCommand:
        words: list[Word] = []
        assignments: list[Assignment] = []
        redirects: list[Redirect] = []
        start = self.at
        while True:
            self.skip_blanks()
            if self.read_redirect(redirects):
                continue
            if not self.peek() or self.peek() in "\n;&|()":
                break
            declares = bool(words) and words[0].value in DECLARING
            if (not words or declares) and (assignment := self._read_assignment()):
                self._add_assignment(assignment, words, assignments)
                continue
            word = self._read_argument(before_parenthesis=not words)
            if not words and not assignments and not redirects and self.take_match(_FUNCTION):
                return self.read_function(word)
            words.append(word)
        if self.at == start or self.peek() == "(":
            raise Unreadable(f"a command is missing before {self.text[self.at : self.at + 10]!r}")
        return SimpleCommand(tuple(words), tuple(assignments), tuple(redirects))

    def _read_argument(self, *, before_parenthesis: bool) -> Word:
        if before_parenthesis and _SUBSCRIPT.match(self.text, self.at):
            raise Unreadable("an element of a list is set, or a pattern names a program")
        word = self.read_word(before_parenthesis=before_parenthesis)
        if self.peek() in ("<", ">") and word.text.startswith("{") and word.text.endswith("}"):
            raise Unreadable("a redirection sets a variable")
        return word

    def _read_assignment(self) -> Assignment | None:
        found = self.take_match(_ASSIGNED)
        if found is None:
            return None
        if found[2]:
            self.note_bash_only("+=")
        if self.peek() == "(":
            self.note_bash_only("a list")
            return Assignment(found[1], _build_unknown_word(found[0]), bool(found[2]), self._read_elements())
        empty = not self.peek() or (self.peek() in " \t\n;&|()<>" and not self.is_at("<(", ">("))
        return Assignment(found[1], _EMPTY if empty else self.read_word(), bool(found[2]))

    def _add_assignment(self, assignment: Assignment, words: list[Word], assignments: list[Assignment]) -> None:
        """Add an assignment in front of a program; behind `export` and the like it is a word."""
        if not words:
            assignments.append(assignment)
            return
        start = f"{assignment.name}{'+' * assignment.appends}="
        value = None if assignment.word.value is None else start + assignment.word.value
        scripts = (*assignment.word.scripts, *(script for word in assignment.elements for script in word.scripts))
        words.append(Word(start + assignment.word.text, value, False, scripts))

    def _read_elements(self) -> tuple[Word, ...]:
        self.at += 1
        words: list[Word] = []
        self.skip_newlines()
        while self.peek() != ")":
            if self.peek() == "[":
                raise Unreadable("an element of a list is set by its place")
            words.append(self.read_word())
            self.skip_newlines()
        self.at += 1
        if self.peek() and self.peek() not in ENDS_WORD:
            raise Unreadable("something follows a list without a blank")
        return tuple(words)

    # Redirections and what is between commands

    def read_word(self, *, before_parenthesis: bool = False) -> Word:
        """Parse the word that begins here. Raises Unreadable."""
        word = super().read_word(before_parenthesis=before_parenthesis)
        if self._expected and "\n" in word.text:
            raise Unreadable("a line ends in a word while a here-document is expected")
        return word

    def build_inner_reader(self, text: str) -> SimpleCommandReader:
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
        return _build_unknown_word(found[0])

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


def _build_unknown_word(text: str) -> Word:
    """A word with an unknown value."""
    return Word(text, None, False)


def _is_one_command(script: Script) -> bool:
    """Is a script one program with its words and nothing else?"""
    pipelines = [link.pipeline for link in script.links if not link.background]
    return (
        len(script.links) == len(pipelines) == 1
        and not pipelines[0].prefixes
        and len(pipelines[0].commands) == 1
        and isinstance(pipelines[0].commands[0], SimpleCommand)
    )
