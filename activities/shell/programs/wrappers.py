"""Finds what programs that run other programs would run, by their own words.

Three kinds. One that only passes on (`env`, `timeout`, `xargs`) is not judged itself, what it runs is. One that raises
rights or leaves the machine (`sudo`, `ssh`) is judged as well. A runner (`npx`, `uv run`) may install what it runs, so
a rule must cover the runner as well as the command. The tables are in `wrapper_tables`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from holdfast.activities.shell.programs.option_parser import (
    Doubt,
    Options,
    ParsedOptions,
    cannot_be_option,
    parse_options,
)
from holdfast.activities.shell.programs.program import Program, Words, is_standard_folder
from holdfast.activities.shell.programs.program_effects import is_commanded
from holdfast.activities.shell.programs.program_tables import SHELLS
from holdfast.activities.shell.programs.wrapper_tables import (
    CONTAINER_RUNS,
    ELSEWHERE,
    FIND_EXECUTES,
    GIT,
    GIT_GIVEN,
    GIT_RUNNING,
    GIT_RUNS,
    GIT_SETTING,
    LOADER,
    PASSING,
    RAISING,
    RUNNERS,
    SAFE_SETTINGS,
    SHELL,
    XARGS,
    Runner,
)

MAX_EXECUTED = 10
"""Programs that one `find` may run."""
_VERSION = re.compile(r"-?[0-9][0-9.]*")
_LOADER_NAME = re.compile(r"ld-linux.*\.so\.[0-9]+|ld-musl-.*\.so\.[0-9]+|ld(64)?\.so(\.[0-9]+)?|ld-[0-9.]+\.so")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_HARMLESS_FLAGS = re.compile(r"-[bBdEIOPqRsSuvx]+|-[WX].+")
_MODULE = re.compile(r"-[bBdEIOPqRsSuvx]*m(.*)", re.DOTALL)
_PACKAGE_VERSION = re.compile(r"(@?[^@]+)@[^/]*")


@dataclass(frozen=True)
class InnerProgram:
    """A program that another one runs."""

    wrapper: str
    words: Words
    texts: tuple[str, ...]
    assignments: tuple[tuple[str, str | None], ...] = ()
    runner_at: int | None = None
    """The index in the words of its runner at which it begins; None when no runner runs it."""


@dataclass(frozen=True)
class InnerCode:
    """Commands of a shell in the words of a program, to be parsed on their own."""

    wrapper: str
    text: str
    posix: bool = False
    """Another shell than bash reads them."""


@dataclass(frozen=True)
class UnwrapResult:
    """The programs that a program would run."""

    inner: tuple[InnerProgram | InnerCode, ...] = ()
    listed: bool = True
    """The program itself is judged as well."""
    doubts: tuple[str, ...] = ()
    normal: Words | None = None
    """Its words without options that say nothing, where they differ."""


Unwrapper = Callable[[Program], UnwrapResult]


def unwrap_program(program: Program) -> UnwrapResult:
    """Find what a program would run, and whether it is judged itself. Never raises: an unknown form is a doubt."""
    name = program.name
    if name is None:
        return UnwrapResult(doubts=(f"it is not known which program {program.texts[0][:40]!r} is",))
    if is_commanded(program):
        return UnwrapResult(doubts=(f"{name} takes its commands from its input",))
    if name not in SHELLS and _VERSION.sub("", name) in SHELLS:
        return UnwrapResult(doubts=(f"{name} reads commands in its own way",))
    unwrap = _unwrap_git_program if name.startswith("git-") else _UNWRAPPERS.get(name, _unwrap_runner)
    try:
        unwrapped = unwrap(program)
    except Doubt as doubt:
        return UnwrapResult(doubts=(str(doubt),))
    return unwrapped if is_standard_folder(program.words[0]) else replace(unwrapped, listed=True)


def list_runner_phrases() -> Iterator[tuple[str, ...]]:
    """The first words of every runner: `npx`, `uv run`, `python -m` …"""
    yield from (("python", "-m"), ("python3", "-m"))
    for name, forms in RUNNERS.items():
        yield from ((name, *marks) for marks in forms)


def _unwrap_git_program(program: Program) -> UnwrapResult:
    """`git-push` is `git push`."""
    words = ("git", (program.name or "")[4:], *program.words[1:])
    return _unwrap_git(replace(program, words=words, texts=("git", *program.texts)))


def _build_inner(program: Program, parsed: ParsedOptions) -> tuple[InnerProgram, ...]:
    """The program behind the options of this one, if there is any."""
    words, texts = program.words[parsed.at :], program.texts[parsed.at :]
    return (InnerProgram(program.name or "", words, texts, tuple(parsed.assignments)),) if words else ()


def _unwrap_passing(program: Program) -> UnwrapResult:
    if program.name == "command" and program.words[1:2] in (("-v",), ("-V",)):
        return UnwrapResult()
    parsed = parse_options(program.words, PASSING[program.name or ""])
    if program.words[parsed.at : parsed.at + 1] == ("-",):
        raise Doubt("`env -` hides what it runs")
    inner = _build_inner(program, parsed)
    if program.name == "exec" and not inner and any(one.kind != "duplicate" for one in program.redirections):
        raise Doubt("exec changes where the input and the output of what follows are")
    elsewhere = program.name == "env" and parsed.values.keys() & {"C", "chdir"}
    return UnwrapResult(inner, listed=not inner or bool(elsewhere))


def _unwrap_raising(program: Program) -> UnwrapResult:
    parsed = parse_options(program.words, RAISING[program.name or ""])
    return UnwrapResult(_build_inner(program, parsed))


def _unwrap_xargs(program: Program) -> UnwrapResult:
    parsed = parse_options(program.words, XARGS)
    words = program.words[parsed.at :] or ("echo",)
    texts = program.texts[parsed.at :] or ("echo",)
    marks = [mark or "{}" for mark in (*parsed.values.get("I", ()), *parsed.values.get("i", ()))]
    filled = tuple(None if word is None or any(mark in word for mark in marks) else word for word in words)
    if not marks or parsed.values.keys() & {"n", "L", "l", "max-args", "max-lines"}:
        return UnwrapResult((InnerProgram("xargs", (*filled, None), (*texts, "…")),), listed=False)
    return UnwrapResult((InnerProgram("xargs", filled, texts),), listed=False)


def _unwrap_find(program: Program) -> UnwrapResult:
    words = program.words
    doubts = [
        "the words of find are not known"
        for word, text in zip(words, program.texts, strict=True)
        if word is None and not cannot_be_option(word, text)
    ]
    # Each is taken for a beginning, also one that is the value of another option: more is listed than runs, not less.
    beginnings = [place for place, word in enumerate(words) if word in FIND_EXECUTES]
    if len(beginnings) > MAX_EXECUTED:
        raise Doubt("find is given too many programs to run")
    runs = (_build_executed(program, place) for place in beginnings)
    return UnwrapResult(tuple(run for run in runs if run.words), doubts=tuple(doubts[:1]))


def _build_executed(program: Program, place: int) -> InnerProgram:
    words, begin_at = program.words, place + 1
    end = next((at for at in range(begin_at, len(words)) if _is_end(words, at)), len(words))
    filled = tuple(None if word is None or "{}" in word else word for word in words[begin_at:end])
    return InnerProgram(f"find {words[place]}", filled, program.texts[begin_at:end])


def _is_end(words: tuple[str | None, ...], place: int) -> bool:
    return words[place] == ";" or (words[place] == "+" and words[place - 1] == "{}")


def _unwrap_shell(program: Program) -> UnwrapResult:
    parsed = parse_options(program.words, SHELL)
    _check_settings(program, parsed)
    operand = program.words[parsed.at] if parsed.at < len(program.words) else None
    if "c" not in parsed.values:
        if operand not in (None, "-") and "s" not in parsed.values:
            return UnwrapResult()
        raise Doubt(f"{program.name} takes its commands from its input")
    if operand in (None, "-"):
        raise Doubt(f"the commands of {program.name} -c are not known")
    code = InnerCode(f"{program.name} -c", operand, program.name != "bash")
    if program.name in ("bash", "sh", "dash"):
        return UnwrapResult((code,), listed=False)
    return UnwrapResult((code,), doubts=(f"{program.name} reads commands in its own way",))


def _check_settings(program: Program, parsed: ParsedOptions) -> None:
    given = parsed.values
    if given.keys() & {"i", "O"} or not SAFE_SETTINGS.issuperset(given.get("o", ())) or {"c", "s"} <= given.keys():
        raise Doubt(f"the settings of {program.name} change how it reads commands")
    if any(word is not None and word.startswith("+") for word in program.words[1 : parsed.at + 1]):
        raise Doubt(f"the settings of {program.name} change how it reads commands")


def _unwrap_eval(program: Program) -> UnwrapResult:
    words = program.words[2:] if program.words[1:2] == ("--",) else program.words[1:]
    known = [word for word in words if word is not None]
    if len(known) < len(words):
        raise Doubt("the commands of eval are not known")
    return UnwrapResult((InnerCode("eval", " ".join(known)),), listed=False)


def _unwrap_trap(program: Program) -> UnwrapResult:
    words = program.words[2:] if program.words[1:2] == ("--",) else program.words[1:]
    if len(words) < 2 or words[0] == "-":
        return UnwrapResult()
    if words[0] is None or words[0].startswith("-"):
        raise Doubt("the commands of trap are not known")
    return UnwrapResult((InnerCode("trap", words[0]),), listed=False)


def _unwrap_git(program: Program) -> UnwrapResult:
    parsed = parse_options(program.words, GIT)
    doubts = []
    for place, word in enumerate(program.words[: parsed.at]):
        setting = program.words[place + 1] if word == "-c" else word[2:] if word and word.startswith("-c") else None
        if setting and not GIT_SETTING.fullmatch(setting):
            doubts.append(f"the setting {setting[:40]!r} of git may run a program")
    normal = (program.words[0], *program.words[parsed.at :])
    if any(_may_run_program(word) for word in normal if word is not None) or GIT_GIVEN.intersection(normal[1:2]):
        doubts.append("git is given a program to run")
    return UnwrapResult(doubts=tuple(doubts), normal=normal)


def _may_run_program(word: str) -> bool:
    name = word.partition("=")[0]
    return word in GIT_RUNS or (len(name) > 3 and any(option.startswith(name) for option in GIT_RUNNING))


def _unwrap_elsewhere(program: Program) -> UnwrapResult:
    name = program.name or ""
    if name in ("docker", "podman", "kubectl", "nerdctl", "nix") and not CONTAINER_RUNS.intersection(
        word for word in program.words if word is not None
    ):
        return UnwrapResult()
    return UnwrapResult(doubts=(f"{name} {ELSEWHERE[name]}",))


# Runners


def _unwrap_runner(program: Program) -> UnwrapResult:
    """The command of a runner; nothing for any other program."""
    name = program.name or ""
    if _LOADER_NAME.fullmatch(name):
        return _unwrap_runner_words(program, "loader", LOADER, 1)
    if _PYTHON.fullmatch(name):
        return _unwrap_module(program)
    for marks, runner in sorted(RUNNERS.get(name, {}).items(), key=lambda one: -len(one[0])):
        at = _find_behind(program.words, marks, runner.before)
        if at is not None:
            return _unwrap_runner_words(program, " ".join((name, *marks)), runner, at)
    return UnwrapResult()


def _unwrap_module(program: Program) -> UnwrapResult:
    """`python -m pip` is `pip`."""
    words = program.words
    for place, word in enumerate(words[1:], 1):
        if word is None or not word.startswith("-") or word in ("-W", "-X"):
            break
        if option := _MODULE.fullmatch(word):
            command = (option[1], *words[place + 1 :]) if option[1] else words[place + 1 :]
            return _build_run(program, "python -m", len(words) - len(command), command)
        if not _HARMLESS_FLAGS.fullmatch(word):
            break
    return UnwrapResult()


def _find_behind(words: Words, marks: tuple[str, ...], before: Options) -> int | None:
    """The index behind the words that make a program a runner; None when they are missing."""
    if not marks:
        return 1
    if marks[0] not in words:
        return None
    try:
        at = parse_options(words, before).at
    except Doubt:
        at = words.index(marks[0])
    return at + len(marks) if words[at : at + len(marks)] == marks else None


def _unwrap_runner_words(program: Program, wrapper: str, runner: Runner, at: int) -> UnwrapResult:
    words = program.words
    if runner.dashed and "--" in words[at:]:
        first = words.index("--", at) + 1
        return _build_run(program, wrapper, first, words[first:])
    parsed = parse_options((words[0], *words[at:]), runner.options)
    if any(parsed.values.get(option) for option in ("preload", "audit")):
        raise Doubt(f"{program.name} is given code to load")
    first = at + parsed.at - 1 + runner.skips
    first += words[first : first + 1] == ("--",)
    command = words[first:]
    name = command[0] if command else None
    if name is not None and runner.versions and (package := _PACKAGE_VERSION.fullmatch(name)):
        command = (package[1], *command[1:])
    if name is not None and runner.scripts and "m" in parsed.values:
        command = ("python", "-m", *command)
    elif name is not None and runner.scripts and ("s" in parsed.values or name.endswith(".py")):
        command = ("python", *command)
    code = tuple(value for option in runner.code for value in parsed.values.get(option, ()))
    return _build_run(program, wrapper, first, command, code)


def _build_run(program: Program, wrapper: str, at: int, words: Words, code: tuple[str, ...] = ()) -> UnwrapResult:
    texts = program.texts[at:]
    texts = (*("python",) * (len(words) - len(texts)), *texts)
    run = [InnerProgram(wrapper, words, texts, runner_at=at)] if words else []
    return UnwrapResult((*run, *(InnerCode(wrapper, text, posix=True) for text in code)))


_UNWRAPPERS: Mapping[str, Unwrapper] = {
    **dict.fromkeys(PASSING, _unwrap_passing),
    **dict.fromkeys(RAISING, _unwrap_raising),
    **dict.fromkeys(ELSEWHERE, _unwrap_elsewhere),
    **dict.fromkeys(SHELLS, _unwrap_shell),
    "xargs": _unwrap_xargs,
    "find": _unwrap_find,
    "eval": _unwrap_eval,
    "trap": _unwrap_trap,
    "git": _unwrap_git,
}
