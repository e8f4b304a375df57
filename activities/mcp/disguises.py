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

SHORTEST = 8
"""Characters of a value that is also found inside of other words."""
LONGEST_WORD = 15
"""Characters of letters or of digits alone that may be a word, or a number, like others."""
WINDOW = 24
"""Characters of base64 that are looked for."""
UNBROKEN = 48
"""Characters of base64 that no line is shorter than."""
_RUNS = re.compile(r"[A-Za-z0-9]+|[\r\n]+|\\+|.", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_SLASHES = r"\\{0,8}"
"""Those of JSON in JSON in JSON."""
_BREAK = r"(?:[\r\n\t ]|\\{1,8}[rnt]|%(?:25)*(?i:0[ad9])|&#(?:10|13|x0*[aAdD]);)+"
_FOLD = r"(?:[\r\n\t ]|\\{1,8}[rn])*"
_LETTERS = {"\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}
_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_DIGITS = {"+": r"(?:[+-]|%2[Bb]|\\{1,8}u002[Bb])", "/": r"(?:\\{0,8}/|_|%2[Ff]|\\{1,8}u002[Ff])"}
"""Those of base64 that are written in more than one way."""
_PARTLY = r"(?:[A-Za-z0-9+/_-](?:=|%3[Dd]|\\{1,8}u003[Dd]){0,2})?"
"""The last digit, which a value shares with what follows it, or with nothing."""


@dataclass(frozen=True)
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


def disguises_of(value: str) -> tuple[Disguise, ...]:
    """Every way to write a value that is known here."""
    return (_as_text(value), *_as_base64(value))


def _as_text(value: str) -> Disguise:
    """As it is, or with any of its characters escaped: in JSON, in an address, in HTML."""
    expression = "".join(map(_any_way, _RUNS.findall(value)))
    needle = max(_PLAIN.findall(value), key=len, default="")
    return Disguise((needle,), _whole_word(value, expression), value)


def _any_way(run: str) -> str:
    """An expression for a few characters that are escaped alike."""
    if _PLAIN.fullmatch(run):
        return run
    if run[0] in "\r\n":
        return _BREAK
    if run[0] == "\\":
        return rf"(?:\\{{{len(run)},{8 * len(run)}}}|(?i:%(?:25)*5c){{{len(run)}}})"
    return f"(?:{_SLASHES}{re.escape(run)}|{'|'.join(_escapes(run))})"


def _escapes(character: str) -> Iterator[str]:
    data = character.encode("utf-8", "surrogateescape")
    units = character.encode("utf-16-be", "surrogatepass").hex()
    yield "(?i:" + "".join(f"%(?:25)*{byte:02x}" for byte in data) + ")"
    yield "(?i:" + "".join(rf"\\{{1,8}}u{units[at : at + 4]}" for at in range(0, len(units), 4)) + ")"
    yield "(?i:" + "".join(rf"\\{{1,8}}x{byte:02x}" for byte in data) + ")"
    yield f"(?i:&#(?:0*{ord(character)}|x0*{ord(character):x});)"
    yield rf"(?i:\\{{1,8}}(?:x{ord(character):02x}|u{ord(character):08x}))"
    if letter := _LETTERS.get(character):
        yield rf"\\{{1,8}}{letter}"
    if entity := _ENTITIES.get(character):
        yield f"&{entity};"
    if character == " ":
        yield r"\+"


def _whole_word(value: str, expression: str) -> str:
    """What is short, or only letters or only digits, is not looked for inside of other words."""
    kind = "0-9" if value.isdigit() else "A-Za-z" if value.isalpha() else "A-Za-z0-9"
    if len(value) > LONGEST_WORD or (len(value) >= SHORTEST and kind == "A-Za-z0-9"):
        return expression
    before = rf"(?:(?<![{kind}])|(?<=\\[abfnrtv])|(?<=%[0-9A-Fa-f]{{2}}))"
    return f"{before}{expression}(?![{kind}])"


def _as_base64(value: str) -> Iterator[Disguise]:
    """Alone or within something longer: three ways, by where it begins. Lines may be folded."""
    data = value.encode("utf-8", "surrogateescape")
    for shift, first in enumerate((0, 2, 3)):
        bits = 8 * (shift + len(data))
        digits = b64encode(bytes(shift) + data).decode()[: bits // 6]
        expression = "".join(
            f"{_FOLD if at % 4 == 0 and at > first else ''}{_DIGITS.get(digits[at], digits[at])}"
            for at in range(first, len(digits))
        )
        yield Disguise(_windows(digits[first:]), expression + (_PARTLY if bits % 6 else ""), digits[first:])


def _windows(digits: str) -> tuple[str, ...]:
    """Two pieces, so near to each other that at most one of them is folded."""
    runs = _PLAIN.findall(digits[:UNBROKEN])
    if len(runs) == 1:
        half = len(runs[0]) // 2
        runs = [runs[0][:half], runs[0][half:]]
    longest = sorted(runs, key=len, reverse=True)[:2]
    return tuple(one[:WINDOW] for one in longest) or ("",)
