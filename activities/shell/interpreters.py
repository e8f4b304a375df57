"""Programs that are given a program in another language: what it does is in no word that could be judged."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.activities.shell.model import Program

_INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|Rscript|R|tclsh|osascript|ipython|irb|ghci)[\d.]*"
)
_INLINE = re.compile(r"--?(eval|print|command|run|exec|code).*|-[A-Za-z0-9]*[ceEpr].*", re.DOTALL)
_ASKING = frozenset(["-V", "-v", "--version", "-h", "--help"])
_AWK = frozenset(["awk", "gawk", "mawk", "nawk"])
_AWK_OPTION = re.compile(r"-F.+|-v.+|--posix|--csv|--")
_AWK_ACTS = re.compile(r"system|getline|close|[|>@]")
_SED = frozenset(["sed", "gsed"])
_SED_OPTION = re.compile(r"-[nErsuz]+|--(quiet|silent|regexp-extended|null-data|debug|posix)")
_SED_LOOKS = re.compile(
    r"([0-9$]+(,[0-9$]+)?)?[pdq=]"
    r"|s([^\w\s\\])(?:(?!\3)[^\\\n]|\\.)*\3(?:(?!\3)[^\\\n]|\\.)*\3[gpiI0-9]*"
)


def interprets_code(program: Program) -> bool:
    """Whether a program runs code from its words or its input, rather than from a file with a name.

    Scripts of awk and sed that surely only print are no code in this sense.
    """
    name, words = program.name or "", program.words[1:]
    if name in _AWK:
        script = _script(words, _AWK_OPTION, takes=("-F", "-v"))
        return script is None or _AWK_ACTS.search(script) is not None
    if name in _SED:
        script = _script(words, _SED_OPTION)
        return script is None or _SED_LOOKS.fullmatch(script) is None
    return _INTERPRETER.fullmatch(name) is not None and _is_given_code(words)


def _script(words: Sequence[str | None], option: re.Pattern[str], takes: Sequence[str] = ()) -> str | None:
    """The first operand; None when it, or an option before it, is not known."""
    waiting = iter(words)
    for word in waiting:
        if word in takes:
            if next(waiting, None) is None:
                return None
        elif word is None or not word.startswith("-"):
            return word
        elif not option.fullmatch(word):
            return None
    return None


def _is_given_code(words: Sequence[str | None]) -> bool:
    """Inline, or from the input when no file is named; options of the program it runs come after that file."""
    for word in words:
        if word is None or word == "-" or _INLINE.fullmatch(word):
            return True
        if not word.startswith("-") or word in ("-m", *_ASKING):
            return False
    return True
