"""Reading compound commands: groups, loops, conditions, cases, tests and functions."""

from __future__ import annotations

import re

from holdfast.activities.shell.grammar import Grammar
from holdfast.activities.shell.syntax import Compound, Link, Pipeline, Redirect, Script, Simple, Unreadable, Word
from holdfast.activities.shell.variables import NAME, why_not

FUNCTION = re.compile(r"[A-Za-z0-9_:.@+-]+")
"""Names of functions that are surely names."""
_CALCULATION = re.compile(r"\(\(([A-Za-z0-9_ \t+*/%<>=!&|?:,$^~-]*)\)\)")
_NUMBERS = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])
_IN_TEST = re.compile(r"&&|\|\||[()<>]|!(?=[ \t])")
_EXPRESSION = re.compile(r"[^()|<>&;\s'\"`\\]+(?=\s)")
_TERMINATOR = re.compile(r";;&|;;|;&")


class Reader(Grammar):
    """The whole of it."""

    def compound(self, keyword: str) -> Compound:
        """Read what begins with a keyword, or with a parenthesis."""
        if keyword == "(":
            return self._calculation() if self.looking_at("((") else self._finish(self._subshell())
        self.at += len(keyword)
        self.blanks()
        if keyword in ("[[", "select", "function", "coproc"):
            self.not_posix(keyword)
        readers = {
            "{": self._group,
            "if": self._if,
            "while": self._loop,
            "until": self._loop,
            "for": self._for,
            "select": self._for,
            "case": self._case,
            "[[": self._test,
        }
        if keyword == "function":
            return self._function_keyword()
        return self._coproc() if keyword == "coproc" else self._finish(readers[keyword]())

    def _finish(self, compound: Compound) -> Compound:
        """Read the redirections after it."""
        redirects: list[Redirect] = []
        self.blanks()
        while self.redirect(redirects):
            self.blanks()
        return Compound(compound.kind, compound.scripts, compound.words, tuple(redirects), compound.name)

    def _calculation(self) -> Compound:
        self.not_posix("((")
        found = self.take(_CALCULATION)
        if found is None:
            raise Unreadable("a calculation is too complicated")
        self.check_arithmetic(found[1])
        return self._finish(Compound("calculation", ()))

    def _subshell(self) -> Compound:
        self.at += 1
        script = self._filled(")")
        if self.peek() != ")":
            raise Unreadable("a parenthesis is not closed")
        self.at += 1
        return Compound("subshell", (script,))

    def _filled(self, end: str = "") -> Script:
        """A list that may not be empty."""
        script = self.commands(end)
        if not script.links:
            raise Unreadable("a list of commands is empty")
        return script

    def _group(self) -> Compound:
        script = self._filled()
        self.expect("}")
        return Compound("group", (script,))

    def _if(self) -> Compound:
        scripts = [self._filled()]
        self.expect("then")
        scripts.append(self._filled())
        while self.keyword() == "elif":
            self.expect("elif")
            scripts.append(self._filled())
            self.expect("then")
            scripts.append(self._filled())
        if self.keyword() == "else":
            self.expect("else")
            scripts.append(self._filled())
        self.expect("fi")
        return Compound("if", tuple(scripts))

    def _loop(self) -> Compound:
        condition = self._filled()
        return Compound("while", (condition, self._do()))

    def _do(self) -> Script:
        self.expect("do")
        script = self._filled()
        self.expect("done")
        return script

    def _for(self) -> Compound:
        name = self.word()
        if name.value is None or not name.bare or NAME.fullmatch(name.value) is None:
            raise Unreadable("the variable of a loop is not clear")
        if reason := why_not(name.value):
            self.doubt(reason)
        self.newlines()
        words: list[Word] = []
        if self.keyword() == "in":
            self.expect("in")
            words = self._values()
        if self.peek() == ";" and not self.looking_at(";;"):
            self.at += 1
        self.newlines()
        return Compound("for", (self._do(),), tuple(words), name=name.value)

    def _values(self) -> list[Word]:
        words: list[Word] = []
        self.blanks()
        while self.peek() and self.peek() not in ";\n":
            words.append(self.word())
            self.blanks()
        return words

    def _case(self) -> Compound:
        words, scripts = [self.word()], []
        self.newlines()
        self.expect("in")
        self.newlines()
        while self.keyword() != "esac":
            words.extend(self._patterns())
            scripts.append(self.commands(""))
            ended = self.take(_TERMINATOR)
            self.newlines()
            if not ended and self.keyword() != "esac":
                raise Unreadable("a case does not end")
        self.expect("esac")
        return Compound("case", tuple(scripts), tuple(words))

    def _patterns(self) -> list[Word]:
        if self.peek() == "(":
            self.at += 1
        words: list[Word] = []
        while True:
            self.blanks()
            words.append(self.word())
            self.blanks()
            if self.peek() not in ("|", ")"):
                raise Unreadable("a pattern of a case is not clear")
            self.at += 1
            if self.text[self.at - 1] == ")":
                return words

    def _test(self) -> Compound:
        """What stands between `[[` and `]]`: the words may run something, the operators do not."""
        words: list[Word] = []
        self.newlines()
        while not (self.looking_at("]]") and self.peek(2) in ("", *" \t\n;&|()<>")):
            if self.looking_at("<(", ">("):
                words.append(self.word())
            elif not self.take(_IN_TEST):
                words.append(self._operand(words))
            self.newlines()
        self.at += 2
        self._check_test(words)
        return Compound("test", (), tuple(words))

    def _operand(self, before: list[Word]) -> Word:
        if before and before[-1].text == "=~":
            start = self.at
            if not self.take(_EXPRESSION) or "${" in self.text[start : self.at]:
                raise Unreadable("a regular expression is not clear")
            return Word(self.text[start : self.at], None, False)
        return self.word()

    def _check_test(self, words: list[Word]) -> None:
        texts = [word.text for word in words]
        for place, text in enumerate(texts):
            if text in _NUMBERS:
                sides = [*texts[max(place - 1, 0) : place], *texts[place + 1 : place + 2]]
                if not all(re.fullmatch(r"[0-9]+", side) for side in sides):
                    self.doubt("it compares what variables hold as numbers, which bash evaluates")
            elif text in ("-v", "-R") or (text.startswith("-") and words[place].value is None):
                self.doubt("a test looks for a variable, whose name bash evaluates")

    def _function_keyword(self) -> Compound:
        name = self.word(before_parenthesis=True)
        self.take(re.compile(r"[ \t]*\([ \t]*\)"))
        return self.function(name)

    def function(self, name: Word) -> Compound:
        """Read the body of a function."""
        if not name.bare or name.value is None or FUNCTION.fullmatch(name.value) is None:
            raise Unreadable("the name of a function is not clear")
        self.newlines()
        keyword = self.keyword()
        if keyword not in ("{", "if", "while", "until", "for", "case") and (self.peek() != "(" or self.peek(1) == "("):
            raise Unreadable("the body of a function is not clear")
        self.deeper()
        body = self.compound(keyword or "(")
        self.depth -= 1
        return Compound("function", body.scripts, body.words, body.redirects, name.value)

    def _coproc(self) -> Compound:
        self.doubt("a coprocess runs beside the command")
        command = self._command()
        if isinstance(command, Simple) and any(word.text == "{" or word.text == "(" for word in command.words):
            raise Unreadable("a coprocess has a name")
        return Compound("coproc", (_alone(command),))


def _alone(command: Simple | Compound) -> Script:
    return Script((Link(";", Pipeline((command,), ()), True),))
