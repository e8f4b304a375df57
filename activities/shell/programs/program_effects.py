"""Predicates about one program of a command: does it only read, destroy, run other code, use the network?

Two kinds of error are possible, and each predicate is safe in one direction: `is_harmless` is true only for a form that
is known, while `explain_destructive` and the `may_…` err towards yes. A form that no table has is left to rules and
people. The caller has checked that the analysis is certain, and which files redirections write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from holdfast.activities.shell.programs.option_effects import find_effects
from holdfast.activities.shell.programs.program import NOWHERE, Program, is_standard_folder
from holdfast.activities.shell.programs.program_tables import (
    AS_SOMEBODY_ELSE,
    CODE_RUNNERS,
    COMMANDED,
    DESTROYING,
    GIT_LISTING,
    GIT_LOOKING,
    INTERPRETER,
    INTO_FOLDERS,
    LOOKING,
    NETWORK_PROGRAMS,
    NETWORK_SUBCOMMANDS,
    SCRIPTED,
    SHELLS,
    SUBCOMMANDS,
    WIPES,
    WRITING,
    DestructiveForm,
)
from holdfast.activities.shell.programs.variables import is_dangerous

_PROCESSES = re.compile(r"(.*[/=])?proc(/.*)?|(.*[/=])?(fd|std(in|out|err))/+\.\.(/.*)?", re.DOTALL)
"""Files that show the environment and the memory of other programs, also by way of `/dev/fd`."""
_ROOT = re.compile(r"/[./]*|([./]*\.\.){3}[./]*")
"""The root folder, which /proc is below, or a path that may be it."""
_DEVICE = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|loop|mapper/|dm-|md).*|/dev/(mem|kmem|port)|/proc/sys.*")
_PIPED_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "ash", "fish"])
_INLINE = re.compile(r"--?(eval|print|command|run|exec|code).*|-[A-Za-z0-9]*[ceEpr].*", re.DOTALL)
_EVALUATES = frozenset(["eval", "repl"])
"""Subcommands of deno and bun."""
_INFORMATION_OPTIONS = frozenset(["-V", "-v", "--version", "-h", "--help"])
_LOCAL_LANGUAGES = re.compile(r"(sed|gsed|[gmn]?awk)")
"""Languages without access to the network."""
_OUTSIDE_PATH = re.compile(r"[/~].*|(.*[/:=])?\.\.(/.*)?", re.DOTALL)
"""A path that leads out of the folder: `git diff` compares any two files of the machine."""
_READ_FROM = "@"
"""Programs read further words from the file behind it; git takes it for part of a name."""


def is_harmless(program: Program) -> bool:
    """Is it certain that this form of a program changes nothing, runs nothing else and shows no environment?

    Its output may still hold secrets of files.
    """
    first = program.words[0] if program.words else None
    if first is None or program.interprets_code or any(is_dangerous(name) for name, _ in program.assignments):
        return False
    if not is_standard_folder(first) or explain_destructive(program) or find_effects(program):
        return False
    if any(redirection.is_writing for redirection in program.redirections):
        return False
    if any(word is not None and _may_show_processes(program, word) for word in _list_inputs(program)):
        return False
    if program.name == "command":
        return program.words[1:2] in (("-v",), ("-V",))
    return _is_reading_git(program) if program.name == "git" else program.name in LOOKING


def explain_destructive(program: Program) -> str | None:
    """Explain why a program may destroy what cannot be restored; None when no table says so."""
    name = program.known_name or ""
    if name.startswith("mkfs"):
        return WIPES.reason
    if f"function {name}" in program.wrappers and (program.background or program.reads_pipe):
        return "a function starts itself again and again"
    if (
        name in _PIPED_SHELLS
        and program.reads_pipe
        and all(word and word.startswith("-") for word in program.words[1:])
    ):
        return "it runs whatever another program sends it"
    for redirection in program.redirections:
        if redirection.is_writing and (reason := explain_destructive_write(redirection.target)):
            return reason
    words = [word for word in program.normal[1:] if word is not None]
    return next((form.reason for form in DESTROYING.get(name, ()) if _is_form(form, words)), None)


def explain_destructive_write(target: str | None) -> str | None:
    """Explain why writing this file by a redirection destroys something; None when it does not."""
    return "it writes to a device" if target is not None and _DEVICE.fullmatch(target) else None


def may_run_files(name: str) -> bool:
    """Does a program of this name run the code in any file that it is given?"""
    return name in SHELLS or INTERPRETER.fullmatch(name) is not None


def is_commanded(program: Program) -> bool:
    """Does an unknown input give it commands, one of which may run other programs?"""
    if program.name not in COMMANDED:
        return False
    return program.reads_pipe or any(
        one.kind in ("read", "read_write", "heredoc", "herestring") and one.target != NOWHERE
        for one in program.redirections
    )


def may_interpret_code(program: Program) -> bool:
    """Does it run code from its words or its input, rather than from a named file?

    A script of awk or sed that certainly runs nothing else does not count.
    """
    name = program.name or ""
    if name in SCRIPTED:
        return not {one.effect for one in find_effects(program)}.isdisjoint(["executes", "unknown"])
    return INTERPRETER.fullmatch(name) is not None and _is_given_code(program.words[1:])


def may_bring_in(program: Program) -> bool:
    """May its output hold content from other machines? True for an unknown program name."""
    name = program.known_name
    if name is None or name in NETWORK_PROGRAMS:
        return True
    if program.interprets_code and not _LOCAL_LANGUAGES.fullmatch(name):
        return True
    subcommands = NETWORK_SUBCOMMANDS.get(name, frozenset())
    return bool(subcommands) and any(word is None or word in subcommands for word in program.normal[1:])


def needs_own_approval(program: Program) -> bool:
    """Is it outside of what a grant for every call of the shell covers, so that each call of it is asked about?

    Such a grant is given in passing, for commands that nobody has seen yet. `policy.grants` names these exceptions to
    the person: interpreters, programs by an unusual path, programs as another user, programs that write files.
    """
    name = program.name
    if name is None or program.interprets_code or not is_standard_folder(program.words[0]):
        return True
    outer = [wrapper.split()[0].rpartition("/")[2] for wrapper in program.wrappers if wrapper.strip()]
    if any(one in AS_SOMEBODY_ELSE for one in (name, *outer)):
        return True
    if CODE_RUNNERS.fullmatch(name) or name in WRITING:
        return True
    return (name == "git" or name in LOOKING) and not is_harmless(program)


def find_subcommand(program: Program) -> tuple[str, ...] | None:
    """The first two words, when these say what the program does whatever harmless words follow; else None."""
    return None if may_do_more(program) else tuple(word for word in program.words[:2] if word is not None)


def may_do_more(program: Program) -> bool:
    """May it do more than its first two words say? False only for options and words that `SUBCOMMANDS` knows."""
    words = [word for word in program.words if word is not None]
    if len(words) < len(program.words) or len(words) < 2:
        return True
    if program.interprets_code or program.wrappers or explain_destructive(program) or find_effects(program):
        return True
    options = SUBCOMMANDS.get(words[0], {}).get(words[1])
    return options is None or not all(_is_known_word(word, options, words[0]) for word in words[2:])


def _list_inputs(program: Program) -> Iterator[str | None]:
    """Its words, and the files that it reads from."""
    yield from program.words[1:]
    yield from (one.target for one in program.redirections if one.kind in ("read", "read_write"))


def _may_show_processes(program: Program, word: str) -> bool:
    above = program.name in INTO_FOLDERS and _ROOT.fullmatch(word) is not None
    return above or _PROCESSES.fullmatch(word) is not None


def _is_reading_git(program: Program) -> bool:
    words = program.normal[1:]
    subcommand = (words[0] or "") if words else ""
    if listing := GIT_LISTING.get(subcommand):
        options = words[1:] or ([None] if subcommand == "stash" else [])
        return all(word is not None and listing.fullmatch(word) for word in options)
    return subcommand in GIT_LOOKING


def _is_form(form: DestructiveForm, words: list[str]) -> bool:
    return all(any(pattern.fullmatch(word) for word in words) for pattern in form.patterns)


def _is_given_code(words: Sequence[str | None]) -> bool:
    """Is code inline, or read from the input as no file is named? Options behind that file are those of the code."""
    for word in words:
        if word is None or word == "-" or word in _EVALUATES or _INLINE.fullmatch(word):
            return True
        if not word.startswith("-") or word in ("-m", *_INFORMATION_OPTIONS):
            return False
    return True


def _is_known_word(word: str, options: re.Pattern[str], program: str) -> bool:
    if word.startswith("-"):
        return options.fullmatch(word) is not None
    return not _OUTSIDE_PATH.fullmatch(word) and (program == "git" or not word.startswith(_READ_FROM))
