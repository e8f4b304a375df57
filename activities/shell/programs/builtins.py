"""Commands of the shell itself: those that change what later commands mean, or evaluate their words, are a doubt."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from holdfast.activities.shell.programs.option_parser import Doubt, Options, parse_options
from holdfast.activities.shell.programs.program import Program
from holdfast.activities.shell.programs.variables import VARIABLE_NAME, explain_dangerous

_ALWAYS_DOUBTED = {
    "alias": "an alias gives a program another meaning",
    "hash": "hash can give a program another meaning",
    "enable": "enable can give a command another meaning",
    "shopt": "shopt changes how commands are read",
    "source": "source runs the commands of a file, which may change everything after it",
    ".": ". runs the commands of a file, which may change everything after it",
    "let": "let evaluates its words",
    "bind": "bind can run commands",
    "complete": "complete can run commands",
    "compgen": "compgen can run commands",
    "fc": "fc runs commands of the past",
    "mapfile": "mapfile can run commands and set variables",
    "readarray": "readarray can run commands and set variables",
    "getopts": "getopts sets variables",
    "unalias": "unalias changes the meaning of a program",
}
_OTHER_BUILTINS = frozenset(
    ["break", "continue", "return", "shift", "times", "ulimit", "umask", "kill", "disown", "dirs", "history", "caller",
     "logout", "suspend", "fg", "bg", "popd", "pushd", "help", "trap", "eval", "command", "builtin", "exec"]
)  # fmt: skip
_DECLARED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\+?=.*)?", re.DOTALL)
_SPLITTING_WRAPPERS = frozenset(["command", "builtin", "exec", "sh -c", "dash -c"])
_READ = Options("ers", "adinNptu")
_FORMAT = re.compile(r'"?[A-Za-z0-9%\\ /.:(]')
_SET = re.compile(r"[-+][eux]*")
_SET_NAMES = frozenset(["pipefail", "errexit", "nounset", "xtrace"])
_QUOTED = re.compile(r'"[^"]*"')


def is_builtin(name: str) -> bool:
    """Is it a command of the shell itself?"""
    return name in _ALWAYS_DOUBTED or name in _CHECKS or name in _OTHER_BUILTINS


def explain_doubt(program: Program) -> str | None:
    """Explain why a command of the shell makes the analysis uncertain; None when it does not, and for programs."""
    name = program.name or ""
    if name in _ALWAYS_DOUBTED:
        return _ALWAYS_DOUBTED[name]
    try:
        return _CHECKS[name](program) if name in _CHECKS else None
    except Doubt as doubt:
        return str(doubt)


def _explain_declaration(program: Program) -> str | None:
    # Bash does not split the value of an assignment; under another name, or in another shell, it is split into words.
    plain = program.texts[0] == program.words[0] and _SPLITTING_WRAPPERS.isdisjoint(program.wrappers)
    for word, text in zip(program.words[1:], program.texts[1:], strict=True):
        if word is None and not plain:
            return f"the words of {program.name} are not known"
        if word is not None and re.fullmatch(r"[-+][gprxltuf]+", word):
            continue
        found = _DECLARED.fullmatch(text if word is None else word)
        if reason := explain_dangerous(found[1] if found else None):
            return reason
    return None


def _explain_read(program: Program) -> str | None:
    begun = parse_options(program.words, _READ)
    names = [*program.words[begun.at :], *begun.values.get("a", [])]
    return next((reason for name in names if (reason := explain_dangerous(name))), None)


def _explain_printf(program: Program) -> str | None:
    first = program.words[1] if len(program.words) > 1 else ""
    if first is None:
        return None if _FORMAT.match(program.texts[1]) else "the words of printf are not known"
    if first.startswith("-v"):
        return explain_dangerous(first[2:] or (program.words[2] if len(program.words) > 2 else None))
    return None


def _explain_unset(program: Program) -> str | None:
    names = [word for word in program.words[1:] if word not in ("-v", "-f")]
    return next((reason for name in names if (reason := explain_dangerous(name))), None)


def _explain_test(program: Program) -> str | None:
    words, texts = program.words[1:], program.texts[1:]
    for place, (word, text) in enumerate(zip(words, texts, strict=True)):
        following = words[place + 1] if place + 1 < len(words) else ""
        if word is None and (following is None or not _QUOTED.fullmatch(text)):
            return "the words of a test are not known"
        if word in ("-v", "-R") and (following is None or not VARIABLE_NAME.fullmatch(following)):
            return "a test looks for a variable, whose name bash evaluates"
    return None


def _explain_set(program: Program) -> str | None:
    words = list(program.words[1:])
    while words and (word := words.pop(0)) != "--":
        if word is None or not _SET.fullmatch(word.replace("o", "")) or (word[0] not in "-+"):
            return "set changes how commands are read"
        if word.endswith("o") and (not words or words.pop(0) not in _SET_NAMES):
            return "set changes how commands are read"
    return None


def _explain_running(program: Program) -> str | None:
    if any(word is None or (word.startswith("-") and set(word) & {"x", "p"}) for word in program.words[1:]):
        return f"{program.name} can run commands or set variables"
    return None


_CHECKS: Mapping[str, Callable[[Program], str | None]] = {
    **dict.fromkeys(["declare", "typeset", "local", "export", "readonly"], _explain_declaration),
    **dict.fromkeys(["test", "["], _explain_test),
    **dict.fromkeys(["jobs", "wait"], _explain_running),
    "read": _explain_read,
    "printf": _explain_printf,
    "unset": _explain_unset,
    "set": _explain_set,
}
