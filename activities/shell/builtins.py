"""Commands of the shell itself that change what later commands mean, or evaluate their words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from holdfast.activities.shell.model import Program
from holdfast.activities.shell.options import Doubt, Options, begin
from holdfast.activities.shell.variables import NAME, why_not

_ALWAYS = {
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
_OTHERS = frozenset(
    ["break", "continue", "return", "shift", "times", "ulimit", "umask", "kill", "disown", "dirs", "history", "caller",
     "logout", "suspend", "fg", "bg", "popd", "pushd", "help", "trap", "eval", "command", "builtin", "exec"]
)  # fmt: skip
_DECLARED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\+?=.*)?", re.DOTALL)
_SPLITTING = frozenset(["command", "builtin", "exec", "sh -c", "dash -c"])
_READ = Options("ers", "adinNptu")
_FORMAT = re.compile(r'"?[A-Za-z0-9%\\ /.:(]')
_SET = re.compile(r"[-+][eux]*")
_SET_NAMES = frozenset(["pipefail", "errexit", "nounset", "xtrace"])
_QUOTED = re.compile(r'"[^"]*"')


def is_builtin(name: str) -> bool:
    """Is it a command of the shell itself, that runs nothing of what it is given unless a check says so?"""
    return name in _ALWAYS or name in _CHECKS or name in _OTHERS


def check(program: Program) -> str | None:
    """Why a command of the shell leaves doubt; None for every other."""
    name = program.name or ""
    if name in _ALWAYS:
        return _ALWAYS[name]
    try:
        return _CHECKS[name](program) if name in _CHECKS else None
    except Doubt as doubt:
        return str(doubt)


def _declaring(program: Program) -> str | None:
    # Only under its plain name, and to bash, is a value one word whatever it holds.
    plain = program.texts[0] == program.words[0] and _SPLITTING.isdisjoint(program.wrappers)
    for word, text in zip(program.words[1:], program.texts[1:], strict=True):
        if word is None and not plain:
            return f"the words of {program.name} are not known"
        if word is not None and re.fullmatch(r"[-+][gprxltuf]+", word):
            continue
        found = _DECLARED.fullmatch(text if word is None else word)
        if reason := why_not(found[1] if found else None):
            return reason
    return None


def _read(program: Program) -> str | None:
    begun = begin(program.words, _READ)
    names = [*program.words[begun.at :], *begun.values.get("a", [])]
    return next((reason for name in names if (reason := why_not(name))), None)


def _printf(program: Program) -> str | None:
    first = program.words[1] if len(program.words) > 1 else ""
    if first is None:
        return None if _FORMAT.match(program.texts[1]) else "the words of printf are not known"
    if first.startswith("-v"):
        return why_not(first[2:] or (program.words[2] if len(program.words) > 2 else None))
    return None


def _unset(program: Program) -> str | None:
    names = [word for word in program.words[1:] if word not in ("-v", "-f")]
    return next((reason for name in names if (reason := why_not(name))), None)


def _test(program: Program) -> str | None:
    words, texts = program.words[1:], program.texts[1:]
    for place, (word, text) in enumerate(zip(words, texts, strict=True)):
        following = words[place + 1] if place + 1 < len(words) else ""
        if word is None and (following is None or not _QUOTED.fullmatch(text)):
            return "the words of a test are not known"
        if word in ("-v", "-R") and (following is None or not NAME.fullmatch(following)):
            return "a test looks for a variable, whose name bash evaluates"
    return None


def _set(program: Program) -> str | None:
    words = list(program.words[1:])
    while words and (word := words.pop(0)) != "--":
        if word is None or not _SET.fullmatch(word.replace("o", "")) or (word[0] not in "-+"):
            return "set changes how commands are read"
        if word.endswith("o") and (not words or words.pop(0) not in _SET_NAMES):
            return "set changes how commands are read"
    return None


def _runs(program: Program) -> str | None:
    if any(word is None or (word.startswith("-") and set(word) & {"x", "p"}) for word in program.words[1:]):
        return f"{program.name} can run commands or set variables"
    return None


_CHECKS: Mapping[str, Callable[[Program], str | None]] = {
    **dict.fromkeys(["declare", "typeset", "local", "export", "readonly"], _declaring),
    **dict.fromkeys(["test", "["], _test),
    **dict.fromkeys(["jobs", "wait"], _runs),
    "read": _read,
    "printf": _printf,
    "unset": _unset,
    "set": _set,
}
