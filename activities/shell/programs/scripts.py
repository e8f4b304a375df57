"""Scripts of sed, awk and jq: what they do beside printing.

No effect is reported only for a script that is certainly understood. Where two readings are possible, or none, the
effect is "unknown", as for an option that no table has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

Effect = Literal["executes", "writes", "deletes", "sends", "reads_elsewhere", "unknown"]

_PRINTED = frozenset(["/dev/stdout", "/dev/stderr"])
_BLANK = re.compile(r"[\s;]*")
_PLAIN_ADDRESS = re.compile(r"[0-9]+(~[0-9]+)?|\$|[+~][0-9]+")
_ENDED = re.compile(r"[ \t]*(?=[;\n}#]|$)")
_LINE = re.compile(r"[^\n]*")
_TEXT = re.compile(r"(?:[^\\\n]|\\.)*", re.DOTALL)
_LABEL = re.compile(r"[ \t]*[^\s;}]*(?!\})")
_FLAGS = re.compile(r"[gpiImM0-9]*")
_BRACKET = re.compile(r"\[\^?\]?(?:\[:[a-z]+:\]|[^\]])*\]")


class _Unreadable(Exception):
    """The script is not understood."""


def find_script_effects(language: str, script: str) -> frozenset[Effect]:
    """The effects of a script in `sed`, `awk` or `jq`; empty when it certainly only prints."""
    try:
        return frozenset(_LANGUAGES[language](script))
    except _Unreadable:
        return frozenset(["unknown"])


def _list_sed_effects(script: str) -> Iterator[Effect]:
    at = 0
    while (at := _skip_pattern(_BLANK, script, at)) < len(script):
        at = _skip_addresses(script, at)
        command, at = script[at : at + 1], at + 1
        if command in "e":  # also where addresses end the script
            yield "executes" if command else "unknown"
            at = _skip_pattern(_LINE, script, at)
        elif command in "rR":
            yield "reads_elsewhere"
            at = _skip_pattern(_LINE, script, at)
        elif command in "wW":
            yield from _list_sed_file_effects(script, at)
            at = _skip_pattern(_LINE, script, at)
        elif command in "sy":
            at = _skip_part(script, at, script[at : at + 1])
            at = _skip_part(script, at - 1, script[at - 1 : at], replacement=True)
            at = _skip_pattern(_FLAGS, script, at)
            if command == "s" and script[at : at + 1] in ("e", "w"):
                if script[at] == "e":
                    yield "executes"
                else:
                    yield from _list_sed_file_effects(script, at + 1)
                at = _skip_pattern(_LINE, script, at)
            at = _skip_end(script, at)
        elif command in "aic":
            at = _skip_pattern(_TEXT, script, at)
        elif command in "btT:v#":
            at = (
                _skip_pattern(_LINE, script, at)
                if command == "#"
                else _skip_end(script, _skip_pattern(_LABEL, script, at))
            )
        elif command in "=dDgGhHnNpPxzFlLqQ":
            at = _skip_end(script, _skip_pattern(re.compile(r"[ \t]*[0-9]*"), script, at) if command in "lLqQ" else at)
        elif command not in "{}":
            raise _Unreadable


def _skip_pattern(pattern: re.Pattern[str], script: str, at: int) -> int:
    found = pattern.match(script, at)
    if found is None:
        raise _Unreadable
    return found.end()


def _skip_end(script: str, at: int) -> int:
    return _skip_pattern(_ENDED, script, at)


def _list_sed_file_effects(script: str, at: int) -> Iterator[Effect]:
    if script[at : _skip_pattern(_LINE, script, at)].lstrip() not in _PRINTED:
        yield "writes"


def _skip_addresses(script: str, at: int) -> int:
    at = _skip_address(script, at)
    at = _skip_pattern(re.compile(r"[ \t]*"), script, at)
    if script[at : at + 1] == ",":
        at = _skip_address(script, _skip_pattern(re.compile(r",[ \t]*"), script, at))
    return _skip_pattern(re.compile(r"[\s!]*"), script, at)


def _skip_address(script: str, at: int) -> int:
    if found := _PLAIN_ADDRESS.match(script, at):
        return found.end()
    if script[at : at + 1] in ("/", "\\"):
        at += script[at] == "\\"
        return _skip_pattern(re.compile("[IM]*"), script, _skip_part(script, at, script[at : at + 1]))
    return at


def _skip_part(script: str, at: int, mark: str, *, replacement: bool = False) -> int:
    """Move behind `/…/`. Implementations of sed differ in whether a mark in brackets ends it: then it is unreadable."""
    if mark in ("", "\\", "\n"):
        raise _Unreadable
    plain = _find_closing(script, at + 1, mark, brackets=False)
    if not replacement and plain != _find_closing(script, at + 1, mark, brackets=True):
        raise _Unreadable
    return plain


def _find_closing(script: str, at: int, mark: str, *, brackets: bool) -> int:
    while at < len(script):
        if script[at] == mark:
            return at + 1
        if brackets and script[at] == "[" and (found := _BRACKET.match(script, at)):
            at = found.end()
        else:
            at += 2 if script[at] == "\\" else 1
    raise _Unreadable


_AWK_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<comment>\#[^\n]*)|(?P<name>[A-Za-z_]\w*)|(?P<number>[\d.]+)"""
    r"""|(?P<blank>[ \t\r]+|\\\n)|(?P<mark>\|\||&&|>>|>=|\|&|.)""",
    re.DOTALL | re.VERBOSE,
)
_AWK_EXPRESSION = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]/\n]*\])*/")
_AWK_BEFORE_EXPRESSION = frozenset(["print", "printf", "return", "in", "else", "do", "case", "exit", ""])
_AWK_ACTS: Mapping[str, Effect] = {
    "system": "executes", "getline": "reads_elsewhere", "ARGV": "reads_elsewhere", "ENVIRON": "reads_elsewhere",
    "extension": "executes", "SYMTAB": "unknown", "PROCINFO": "unknown",
}  # fmt: skip


def _list_awk_effects(script: str) -> Iterator[Effect]:
    """Token by token. A slash that may be a division or begin an expression makes the whole script unreadable."""
    at, before, printing, depth = 0, "", False, 0
    heads: list[bool] = []  # of each open parenthesis, whether it is that of an `if`: an expression may follow it
    while at < len(script):
        if script[at] == "/" and not _is_division(before):
            at, before = _skip_pattern(_AWK_EXPRESSION, script, at), "/…/"
            continue
        token = _AWK_TOKEN.match(script, at)
        if token is None or token[0] == '"':
            raise _Unreadable
        at, text = token.end(), token[0]
        if token["blank"] or token["comment"]:
            continue
        if text in _AWK_ACTS:
            yield _AWK_ACTS[text]
        elif text in ("|", "|&", "@"):
            yield "executes"
        elif text in (">", ">>") and printing and depth <= 0 and not _is_print_only(script, at):
            yield "writes"
        if text == "(":
            heads.append(before in ("if", "while", "for"))
        elif text == ")" and heads and heads.pop():
            text = ""
        printing = (printing or text in ("print", "printf")) and text not in (";", "{", "}")
        depth = 0 if text in ("print", "printf") else depth + (text == "(") - (token[0] == ")")
        before = text


def _is_division(before: str) -> bool:
    """Does a slash behind this token divide, rather than begin an expression?"""
    if before in ("++", "--", "+", "-", "$"):
        raise _Unreadable
    return before not in _AWK_BEFORE_EXPRESSION and (before[-1].isalnum() or before[-1] in '_])."/')


def _is_print_only(script: str, at: int) -> bool:
    found = re.compile(r'\s*"(/dev/std(?:out|err))"\s*(?=[;}\n]|$)').match(script, at)
    return found is not None


_JQ_READS = re.compile(
    r"(?<![.\w$])(env|import|include|input_filename|get_search_list|modulemeta)\b|\$(\s|#[^\n]*\n)*(ENV\b|__prog)"
)
_YQ_ACTS = re.compile(r"\b(strenv|envsubst|load\w*|eval|system)\b")


def _list_jq_effects(script: str) -> Iterator[Effect]:
    if _JQ_READS.search(script.replace('"env"', "")):
        yield "reads_elsewhere"
    if found := _YQ_ACTS.search(script):
        yield "executes" if found[0] in ("system", "eval") else "reads_elsewhere"


_LANGUAGES: Mapping[str, Callable[[str], Iterator[Effect]]] = {
    "sed": _list_sed_effects,
    "awk": _list_awk_effects,
    "jq": _list_jq_effects,
}
