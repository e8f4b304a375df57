"""Parses compound commands: groups, loops, conditions, cases, tests and functions."""

from __future__ import annotations

import re

from holdfast.activities.shell.parser.simple_commands import SimpleCommandReader
from holdfast.activities.shell.parser.syntax_tree import (
    CompoundCommand,
    Link,
    Pipeline,
    Redirect,
    Script,
    SimpleCommand,
    Unreadable,
    Word,
)
from holdfast.activities.shell.programs.variables import VARIABLE_NAME, explain_dangerous

FUNCTION_NAME = re.compile(r"[A-Za-z0-9_:.@+-]+")
"""Names of functions that are certain."""
_CALCULATION = re.compile(r"\(\(([A-Za-z0-9_ \t+*/%<>=!&|?:,$^~-]*)\)\)")
_NUMBERS = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])
_IN_TEST = re.compile(r"&&|\|\||[()<>]|!(?=[ \t])")
_EXPRESSION = re.compile(r"[^()|<>&;\s'\"`\\]+(?=\s)")
_TERMINATOR = re.compile(r";;&|;;|;&")


class CommandReader(SimpleCommandReader):
    """The parser of commands."""

    def read_compound(self, keyword: str) -> CompoundCommand:
        """Parse the compound command that begins with this keyword or a parenthesis. Raises Unreadable."""
        if keyword == "(":
            return self._read_calculation() if self.is_at("((") else self._finish_compound(self._read_subshell())
        self.at += len(keyword)
        self.skip_blanks()
        if keyword in ("[[", "select", "function", "coproc"):
            self.note_bash_only(keyword)
        readers = {
            "{": self._read_group,
            "if": self._read_if,
            "while": self._read_loop,
            "until": self._read_loop,
            "for": self._read_for,
            "select": self._read_for,
            "case": self._read_case,
            "[[": self._read_test,
        }
        if keyword == "function":
            return self._read_function_keyword()
        return self._read_coproc() if keyword == "coproc" else self._finish_compound(readers[keyword]())

    def _finish_compound(self, compound: CompoundCommand) -> CompoundCommand:
        """Parse the redirections behind a compound command."""
        redirects: list[Redirect] = []
        self.skip_blanks()
        while self.read_redirect(redirects):
            self.skip_blanks()
        return CompoundCommand(compound.kind, compound.scripts, compound.words, tuple(redirects), compound.name)

    def _read_calculation(self) -> CompoundCommand:
        self.note_bash_only("((")
        found = self.take_match(_CALCULATION)
        if found is None:
            raise Unreadable("a calculation is too complicated")
        self.check_arithmetic(found[1])
        return self._finish_compound(CompoundCommand("calculation", ()))

    def _read_subshell(self) -> CompoundCommand:
        self.at += 1
        script = self._read_filled(")")
        if self.peek() != ")":
            raise Unreadable("a parenthesis is not closed")
        self.at += 1
        return CompoundCommand("subshell", (script,))

    def _read_filled(self, end: str = "") -> Script:
        """Parse a list that must not be empty."""
        script = self.read_commands(end)
        if not script.links:
            raise Unreadable("a list of commands is empty")
        return script

    def _read_group(self) -> CompoundCommand:
        script = self._read_filled()
        self.expect_keyword("}")
        return CompoundCommand("group", (script,))

    def _read_if(self) -> CompoundCommand:
        scripts = [self._read_filled()]
        self.expect_keyword("then")
        scripts.append(self._read_filled())
        while self.peek_keyword() == "elif":
            self.expect_keyword("elif")
            scripts.append(self._read_filled())
            self.expect_keyword("then")
            scripts.append(self._read_filled())
        if self.peek_keyword() == "else":
            self.expect_keyword("else")
            scripts.append(self._read_filled())
        self.expect_keyword("fi")
        return CompoundCommand("if", tuple(scripts))

    def _read_loop(self) -> CompoundCommand:
        condition = self._read_filled()
        return CompoundCommand("while", (condition, self._read_do()))

    def _read_do(self) -> Script:
        self.expect_keyword("do")
        script = self._read_filled()
        self.expect_keyword("done")
        return script

    def _read_for(self) -> CompoundCommand:
        name = self.read_word()
        if name.value is None or not name.bare or VARIABLE_NAME.fullmatch(name.value) is None:
            raise Unreadable("the variable of a loop is not clear")
        if reason := explain_dangerous(name.value):
            self.add_doubt(reason)
        self.skip_newlines()
        words: list[Word] = []
        if self.peek_keyword() == "in":
            self.expect_keyword("in")
            words = self._read_values()
        if self.peek() == ";" and not self.is_at(";;"):
            self.at += 1
        self.skip_newlines()
        return CompoundCommand("for", (self._read_do(),), tuple(words), name=name.value)

    def _read_values(self) -> list[Word]:
        words: list[Word] = []
        self.skip_blanks()
        while self.peek() and self.peek() not in ";\n":
            words.append(self.read_word())
            self.skip_blanks()
        return words

    def _read_case(self) -> CompoundCommand:
        words, scripts = [self.read_word()], []
        self.skip_newlines()
        self.expect_keyword("in")
        self.skip_newlines()
        while self.peek_keyword() != "esac":
            words.extend(self._read_patterns())
            scripts.append(self.read_commands(""))
            ended = self.take_match(_TERMINATOR)
            self.skip_newlines()
            if not ended and self.peek_keyword() != "esac":
                raise Unreadable("a case does not end")
        self.expect_keyword("esac")
        return CompoundCommand("case", tuple(scripts), tuple(words))

    def _read_patterns(self) -> list[Word]:
        if self.peek() == "(":
            self.at += 1
        words: list[Word] = []
        while True:
            self.skip_blanks()
            words.append(self.read_word())
            self.skip_blanks()
            if self.peek() not in ("|", ")"):
                raise Unreadable("a pattern of a case is not clear")
            self.at += 1
            if self.text[self.at - 1] == ")":
                return words

    def _read_test(self) -> CompoundCommand:
        """Parse up to `]]`. The words may run something, the operators do not."""
        words: list[Word] = []
        self.skip_newlines()
        while not (self.is_at("]]") and self.peek(2) in ("", *" \t\n;&|()<>")):
            if self.is_at("<(", ">("):
                words.append(self.read_word())
            elif not self.take_match(_IN_TEST):
                words.append(self._read_operand(words))
            self.skip_newlines()
        self.at += 2
        self._check_test(words)
        return CompoundCommand("test", (), tuple(words))

    def _read_operand(self, before: list[Word]) -> Word:
        if before and before[-1].text == "=~":
            start = self.at
            if not self.take_match(_EXPRESSION) or "${" in self.text[start : self.at]:
                raise Unreadable("a regular expression is not clear")
            return Word(self.text[start : self.at], None, False)
        return self.read_word()

    def _check_test(self, words: list[Word]) -> None:
        texts = [word.text for word in words]
        for place, text in enumerate(texts):
            if text in _NUMBERS:
                sides = [*texts[max(place - 1, 0) : place], *texts[place + 1 : place + 2]]
                if not all(re.fullmatch(r"[0-9]+", side) for side in sides):
                    self.add_doubt("it compares what variables hold as numbers, which bash evaluates")
            elif text in ("-v", "-R") or (text.startswith("-") and words[place].value is None):
                self.add_doubt("a test looks for a variable, whose name bash evaluates")

    def _read_function_keyword(self) -> CompoundCommand:
        name = self.read_word(before_parenthesis=True)
        self.take_match(re.compile(r"[ \t]*\([ \t]*\)"))
        return self.read_function(name)

    def read_function(self, name: Word) -> CompoundCommand:
        """Parse the body of a function. Raises Unreadable."""
        if not name.bare or name.value is None or FUNCTION_NAME.fullmatch(name.value) is None:
            raise Unreadable("the name of a function is not clear")
        self.skip_newlines()
        keyword = self.peek_keyword()
        if keyword not in ("{", "if", "while", "until", "for", "case") and (self.peek() != "(" or self.peek(1) == "("):
            raise Unreadable("the body of a function is not clear")
        self.enter_level()
        body = self.read_compound(keyword or "(")
        self.depth -= 1
        return CompoundCommand("function", body.scripts, body.words, body.redirects, name.value)

    def _read_coproc(self) -> CompoundCommand:
        self.add_doubt("a coprocess runs beside the command")
        command = self._read_command()
        if isinstance(command, SimpleCommand) and any(word.text == "{" or word.text == "(" for word in command.words):
            raise Unreadable("a coprocess has a name")
        return CompoundCommand("coproc", (_build_script(command),))


def _build_script(command: SimpleCommand | CompoundCommand) -> Script:
    return Script((Link(";", Pipeline((command,), ()), True),))
