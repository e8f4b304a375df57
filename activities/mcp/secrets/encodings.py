"""The ways in which a server may write a value of ours: as it is, escaped, in an address, or in base64. Pure.

Each way is a regular expression, which is compiled only when it is needed, and a few words of which one is in every
text that has it. Looking for words is so much faster that most texts are done with before any expression is tried.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

SHORTEST_SECRET = 8
"""Characters of a value that is also found inside of other words."""
LONGEST_WORD = 15
"""Characters of letters or of digits alone that may be a word, or a number, like others."""
WINDOW_LENGTH = 24
"""Characters of base64 that are looked for."""
UNBROKEN_LENGTH = 48
"""Characters of base64 that no line is shorter than."""
_LOOSE = r"(?:[ \t\r\n\\]|(?<=\\)[rnt]|(?<=5[Cc])[rnt]|(?<=\\)(?i:u00(?:09|0a|0d|20|5c))|%(?:25)*(?i:0[9ad]|20|5c))+"
"""What ends of lines and backslashes become. Nothing else in an expression takes what this takes, or it would be tried
which of them does, and a text that is almost a secret would take for ever."""
_RUNS = re.compile(rf"{_LOOSE}|[A-Za-z0-9]+|.", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_FOLD = r"(?:[\r\n\t ]|\\{1,8}[rn])*"
_LETTERS = {"\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}
_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_DIGITS = {"+": r"(?:[+-]|%2[Bb]|\\{1,8}u002[Bb])", "/": r"(?:\\{0,8}/|_|%2[Ff]|\\{1,8}u002[Ff])"}
"""Those of base64 that are written in more than one way."""
_PARTLY = r"(?:[A-Za-z0-9+/_-](?:=|%3[Dd]|\\{1,8}u003[Dd]){0,2})?"
"""The last digit, which a value shares with what follows it, or with nothing."""


@dataclass(frozen=True, repr=False)
class Disguise:
    """One way to write a value."""

    needles: tuple[str, ...]
    """One of these is in every text that has it."""
    expression: str
    written: str
    """As it is mostly written."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What finds it."""
        return re.compile(self.expression)


def list_disguises(value: str) -> tuple[Disguise, ...]:
    """Every way to write a value that is known here."""
    return (_build_text_disguise(value), *_build_base64_disguises(value))


def _build_text_disguise(value: str) -> Disguise:
    """As it is, or with any of its characters escaped: in JSON, in JSON in JSON, in an address, in HTML."""
    runs = [found[0] for found in _RUNS.finditer(value)]
    expression = "".join(_build_run_pattern(run, after=before) for before, run in pairwise(["", *runs]))
    if "+" not in value:  # a blank may be one
        expression = expression.replace(_LOOSE, _LOOSE.replace("[ ", "[+ "))
    needle = max(filter(_PLAIN.fullmatch, runs), key=len, default="")
    return Disguise((needle,), _bound_word(value, expression), value)


def _build_run_pattern(run: str, *, after: str) -> str:
    """An expression for a few characters that are escaped alike."""
    if _PLAIN.fullmatch(run):
        return run
    if _is_loose(run):
        return _LOOSE
    most, least = ("", "") if _is_loose(after) else (r"\\{0,8}", r"\\{1,8}")
    return "".join(f"(?:{most}{re.escape(one)}|{'|'.join(_list_escapes(one, least))})" for one in run)


def _is_loose(run: str) -> bool:
    return len(run.strip(" \t")) > 0 and re.fullmatch(_LOOSE, run) is not None


def _list_escapes(character: str, slashes: str) -> Iterator[str]:
    data, code = character.encode("utf-8", "surrogateescape"), ord(character)
    units = character.encode("utf-16-be", "surrogatepass").hex()
    yield "(?i:" + "".join(f"%(?:25)*{byte:02x}" for byte in data) + ")"
    yield f"(?i:{slashes}" + r"\\{1,8}".join(f"u{units[at : at + 4]}" for at in range(0, len(units), 4)) + ")"
    yield f"(?i:{slashes}" + r"\\{1,8}".join(f"x{byte:02x}" for byte in data) + ")"
    yield f"(?i:{slashes}(?:x{code:02x}|u{code:08x}))"
    yield f"(?i:&#(?:0*{code}|x0*{code:x});)"
    if letter := _LETTERS.get(character):
        yield f"{slashes}{letter}"
    if entity := _ENTITIES.get(character):
        yield f"&{entity};"
    if character == " ":
        yield r"\+"


def _bound_word(value: str, expression: str) -> str:
    """What is short, or only letters or only digits, is not looked for inside of other words."""
    kind = "0-9" if value.isdigit() else "A-Za-z" if value.isalpha() else "A-Za-z0-9"
    if len(value) > LONGEST_WORD or (len(value) >= SHORTEST_SECRET and kind == "A-Za-z0-9"):
        return expression
    before = rf"(?:(?<![{kind}])|(?<=\\[abfnrtv])|(?<=%[0-9A-Fa-f]{{2}}))"
    return f"{before}{expression}(?![{kind}])"


def _build_base64_disguises(value: str) -> Iterator[Disguise]:
    """Alone or within something longer: three ways, by where it begins. Lines may be folded."""
    data = value.encode("utf-8", "surrogateescape")
    for shift, first in enumerate((0, 2, 3)):
        bits = 8 * (shift + len(data))
        digits = b64encode(bytes(shift) + data).decode()[: bits // 6]
        expression = "".join(
            f"{_FOLD if at % 4 == 0 and at > first else ''}{_DIGITS.get(digits[at], digits[at])}"
            for at in range(first, len(digits))
        )
        yield Disguise(_choose_windows(digits[first:]), expression + (_PARTLY if bits % 6 else ""), digits[first:])


def _choose_windows(digits: str) -> tuple[str, ...]:
    """Two pieces, so near to each other that at most one of them is folded."""
    runs = _PLAIN.findall(digits[:UNBROKEN_LENGTH])
    if len(runs) == 1:
        half = len(runs[0]) // 2
        runs = [runs[0][:half], runs[0][half:]]
    longest = sorted(runs, key=len, reverse=True)[:2]
    return tuple(one[:WINDOW_LENGTH] for one in longest) or ("",)
