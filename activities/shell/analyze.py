"""Analyses a shell command: which programs it would run, without running it (S30).

Every program in chains, pipes, substitutions, functions, here-documents and wrappers, by its own words, and every
reason why that may not be all. Nothing is judged here: `programs.program_effects` and the policy do that.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import TypedDict

from holdfast.activities.shell.parse import parse_command
from holdfast.activities.shell.parser.simple_commands import KEYWORDS
from holdfast.activities.shell.parser.syntax_tree import (
    Assignment,
    CompoundCommand,
    Link,
    Redirect,
    Script,
    SimpleCommand,
    Word,
)
from holdfast.activities.shell.programs import builtins
from holdfast.activities.shell.programs.program import (
    NOWHERE,
    Analysis,
    Operator,
    Program,
    Redirection,
    RedirectionKind,
    Step,
)
from holdfast.activities.shell.programs.program_effects import may_interpret_code
from holdfast.activities.shell.programs.variables import explain_dangerous
from holdfast.activities.shell.programs.wrappers import InnerCode, InnerProgram, unwrap_program

MAX_DEPTH = 8
"""Levels of nested wrappers."""
MAX_PROGRAMS = 500
"""Programs of one command that are listed."""

_NAME = re.compile(r"[A-Za-z0-9_./@:,^\[][A-Za-z0-9_./+@:,^%-]*")
_KINDS: dict[str, RedirectionKind] = {
    "<": "read", ">": "write", ">|": "write", "&>": "write", ">>": "append", "&>>": "append", "<>": "read_write",
    "<<": "heredoc", "<<<": "herestring",
}  # fmt: skip
_DESCRIPTOR = re.compile(r"[0-9]{1,2}-?|-")
_CHAINS: dict[str, Operator] = {"|": "|", "|&": "|&", "&&": "&&", "||": "||", ";": ";"}


def analyse_command(command: str) -> Analysis:
    """Find what a command would run. Never raises for any text: what is unknown becomes a doubt."""
    found = _Findings()
    script = found.walk_code(command, _Context())
    uncertain = tuple(dict.fromkeys(found.doubts))
    steps = _list_steps(script) if script and not uncertain and not found.nested else ()
    return Analysis(command, tuple(found.programs), uncertain, tuple(dict.fromkeys(found.writes)), steps)


def rebuild_command(analysis: Analysis) -> str | None:
    """The command rebuilt from the analysed words, so that exactly these run; None unless it is a plain chain."""
    texts = [(step.operator, _format_program(step.program)) for step in analysis.steps]
    return "".join(f" {operator} {text}" if operator else text for operator, text in texts) or None


@dataclass(frozen=True)
class _Context:
    """The surroundings of a command: wrappers, assignments, input."""

    wrappers: tuple[str, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    background: bool = False
    reads_pipe: bool = False
    posix: bool = False
    depth: int = 0

    def add_wrapper(self, wrapper: str) -> _Context:
        return replace(self, wrappers=(*self.wrappers, wrapper), depth=self.depth + 1)


class _Runner(TypedDict):
    runner: tuple[str | None, ...]
    runner_at: int


class _Findings:
    """The programs and doubts that were found so far, in the order of the command."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.doubts: list[str] = []
        self.writes: list[str | None] = []
        self.nested = False
        """Commands inside words were parsed too."""

    def walk_code(self, text: str, context: _Context) -> Script | None:
        """Parse commands, and collect what they run. None when they are nested too deeply."""
        if context.depth > MAX_DEPTH:
            self.doubts.append("it is nested too deeply")
            return None
        reading = parse_command(text, posix=context.posix)
        self.doubts.extend(reading.doubts)
        self._walk_script(reading.script, context)
        return reading.script

    def _walk_script(self, script: Script, context: _Context) -> None:
        for link in script.links:
            self._walk_link(link, context)
        for body in script.bodies:
            self._walk_word(body, context)

    def _walk_link(self, link: Link, context: _Context) -> None:
        for prefix in link.pipeline.prefixes:
            context = context.add_wrapper(prefix) if prefix == "time" else context
        context = replace(context, background=context.background or link.background)
        for place, command in enumerate(link.pipeline.commands):
            inside = replace(context, reads_pipe=context.reads_pipe or place > 0)
            if isinstance(command, SimpleCommand):
                self._walk_simple(command, inside)
            else:
                self._walk_compound(command, inside)

    def _walk_word(self, word: Word, context: _Context) -> None:
        for script in word.scripts:
            self._walk_script(script, replace(context, redirections=(), reads_pipe=False))

    def _walk_redirections(self, redirects: tuple[Redirect, ...], context: _Context) -> tuple[Redirection, ...]:
        found = []
        for redirect in redirects:
            self._walk_word(redirect.word, context)
            found.append(_build_redirection(redirect))
            if (found[-1].target or "").startswith(("/dev/tcp/", "/dev/udp/")):
                self.doubts.append("a redirection connects to another machine")
            if found[-1].is_writing:
                self.writes.append(found[-1].target)
        return tuple(found)

    def _walk_compound(self, command: CompoundCommand, context: _Context) -> None:
        for word in command.words:
            self._walk_word(word, context)
        redirections = self._walk_redirections(command.redirects, context)
        inside = replace(context, redirections=(*context.redirections, *redirections))
        if command.kind == "function":
            inside = inside.add_wrapper(f"function {command.name}")
        for script in command.scripts:
            self._walk_script(script, inside)

    def _walk_simple(self, command: SimpleCommand, context: _Context) -> None:
        for assignment in command.assignments:
            self._walk_assignment(assignment, context)
        redirections = self._walk_redirections(command.redirects, context)
        for word in command.words:
            self._walk_word(word, context)
        if command.words:
            self._walk_program(_build_program(command, redirections, context), context)

    def _walk_assignment(self, assignment: Assignment, context: _Context) -> None:
        for word in (assignment.word, *assignment.elements):
            self._walk_word(word, context)
        if reason := explain_dangerous(assignment.name):
            self.doubts.append(reason)

    def _walk_program(self, program: Program, context: _Context) -> None:
        """Add a program, and the programs that it runs."""
        if context.depth > MAX_DEPTH or len(self.programs) >= MAX_PROGRAMS:
            self.doubts.append("there is too much of it")
            return
        unwrapped = unwrap_program(program)
        self.doubts.extend(unwrapped.doubts)
        if unwrapped.listed:
            self._add_program(replace(program, normal=unwrapped.normal or program.words))
        for inner in unwrapped.inner:
            inside = context.add_wrapper(inner.wrapper)
            if isinstance(inner, InnerCode):
                self.nested = True
                redirections = program.redirections
                self.walk_code(inner.text, replace(inside, redirections=redirections, posix=inner.posix))
            else:
                self._walk_program(_build_wrapped(program, inner, inside), inside)

    def _add_program(self, program: Program) -> None:
        first = program.words[0]
        if first is not None and _NAME.fullmatch(first) is None:
            self.doubts.append(f"{first[:40]!r} is an unusual name of a program")
        if reason := builtins.explain_doubt(program):
            self.doubts.append(reason)
        self.programs.append(replace(program, interprets_code=may_interpret_code(program)))


def _build_program(command: SimpleCommand, redirections: tuple[Redirection, ...], context: _Context) -> Program:
    words = tuple(word.value for word in command.words)
    return Program(
        words=words,
        texts=tuple(word.text for word in command.words),
        normal=words,
        assignments=tuple((each.name, None if each.appends else each.word.value) for each in command.assignments),
        redirections=(*context.redirections, *redirections),
        wrappers=context.wrappers,
        background=context.background,
        reads_pipe=context.reads_pipe,
    )


def _build_wrapped(program: Program, inner: InnerProgram, context: _Context) -> Program:
    assignments = (*program.assignments, *inner.assignments)
    return replace(
        program,
        words=inner.words,
        texts=inner.texts,
        normal=inner.words,
        assignments=assignments,
        wrappers=context.wrappers,
        **_find_runner(program, inner),
    )


def _find_runner(program: Program, inner: InnerProgram) -> _Runner:
    """The outermost runner of a program, as long as its words are passed on unchanged."""
    if program.runner and inner.words == program.words[-len(inner.words) :]:
        return {"runner": program.runner, "runner_at": program.runner_at}
    if inner.runner_at is not None:
        return {"runner": program.words, "runner_at": inner.runner_at}
    return {"runner": (), "runner_at": 0}


def _build_redirection(redirect: Redirect) -> Redirection:
    target = redirect.word.value
    text = f"{redirect.descriptor}{redirect.operator}{redirect.word.text}"
    if redirect.operator in (">&", "<&"):
        if target is not None and redirect.word.bare and _DESCRIPTOR.fullmatch(target):
            return Redirection("duplicate", target, text)
        return Redirection("write", target, text)
    return Redirection(_KINDS[redirect.operator], target, text)


def _list_steps(script: Script) -> tuple[Step, ...]:
    """The steps of a plain chain; empty for any other script."""
    steps: list[Step] = []
    for link in script.links:
        if link.background or link.pipeline.prefixes:
            return ()
        operators = [link.operator if steps else "", *link.pipeline.pipes]
        for operator, command in zip(operators, link.pipeline.commands, strict=True):
            if not isinstance(command, SimpleCommand) or not _is_plain(command):
                return ()
            redirections = tuple(_build_redirection(redirect) for redirect in command.redirects)
            steps.append(Step(_CHAINS.get(operator, ""), _build_program(command, redirections, _Context())))
    return tuple(steps)


def _is_plain(command: SimpleCommand) -> bool:
    values = [*command.words, *(assignment.word for assignment in command.assignments)]
    return (
        bool(command.words)
        and all(word.value is not None for word in values)
        and not any(assignment.appends or assignment.elements for assignment in command.assignments)
        and all(_is_harmless(_build_redirection(redirect)) for redirect in command.redirects)
    )


def _is_harmless(redirection: Redirection) -> bool:
    return redirection.kind == "duplicate" or (redirection.target == NOWHERE and redirection.kind != "herestring")


def _format_program(program: Program) -> str:
    words = [shlex.quote(word) for word in program.words if word is not None]
    if words[0] in KEYWORDS or "=" in words[0]:
        words[0] = f"'{words[0]}'" if not words[0].startswith("'") else words[0]
    assignments = [f"{name}={shlex.quote(value or '')}" for name, value in program.assignments]
    return " ".join([*assignments, *words, *(_format_redirection(redirection) for redirection in program.redirections)])


def _format_redirection(redirection: Redirection) -> str:
    start = re.match(r"[0-9]*[<>&|]+", redirection.text)
    return f"{start[0] if start else ''}{redirection.target}"
