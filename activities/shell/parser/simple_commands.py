"""Parses lists, pipelines and simple commands, by the rules of bash.

Everything is parsed once, from left to right. An unknown construct ends the parsing with `Unreadable`. Compound
commands are in `compound_commands`, redirections in `redirections`, words in `words`.
"""

from __future__ import annotations

import re
from abc import abstractmethod

from holdfast.activities.shell.parser.redirections import RedirectionReader, build_unknown_word
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
from holdfast.activities.shell.parser.words import ENDS_WORD

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


class SimpleCommandReader(RedirectionReader):
    """Parses lists, pipelines and simple commands; `CommandReader` adds compound commands."""

    substituting = 0
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
            return Assignment(found[1], build_unknown_word(found[0]), bool(found[2]), self._read_elements())
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


def _is_one_command(script: Script) -> bool:
    """Is a script one program with its words and nothing else?"""
    pipelines = [link.pipeline for link in script.links if not link.background]
    return (
        len(script.links) == len(pipelines) == 1
        and not pipelines[0].prefixes
        and len(pipelines[0].commands) == 1
        and isinstance(pipelines[0].commands[0], SimpleCommand)
    )
