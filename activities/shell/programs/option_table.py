"""The tables of options, from `option_effects.toml`: the effect of each option of each known program."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from holdfast.activities.shell.programs.scripts import Effect

TABLE_FILE = Path(__file__).with_name("option_effects.toml")
_EFFECT_KINDS = (*(effect for effect in get_args(Effect) if effect != "unknown"), "wrapped", "harmless")
_OPTION = re.compile(r"(-\S+?)(::|:2|:)?")
_VALUES = {None: 0, "::": 0, ":": 1, ":2": 2}
_VERSION = re.compile(r"-?[0-9][0-9.]*")
_COMMON_OPTIONS = "--help --version"


@dataclass(frozen=True)
class OptionEntry:
    """An option of a program."""

    effect: str
    """An Effect, "harmless" or "wrapped"."""
    values: int
    """Further words that it takes when its own word holds no value."""
    takes_rest: bool
    """The rest of a word of combined letters is its value."""


@dataclass(frozen=True)
class OptionTable:
    """The options of one program or subcommand."""

    entries: Mapping[str, OptionEntry]
    style: str = "gnu"
    permutes: bool = True
    old_style: bool = False
    subcommands: bool = False
    most_operands: int | None = None
    one_address: bool = False
    language: str | None = None
    scripts: frozenset[str] = frozenset()
    operands: tuple[tuple[re.Pattern[str], str], ...] = ()
    words: tuple[tuple[re.Pattern[str], str], ...] = ()
    values: tuple[tuple[frozenset[str], re.Pattern[str], str], ...] = ()

    @property
    def has_effects(self) -> bool:
        """Has any of its options an effect?"""
        return bool(self.operands or self.words) or any(one.effect != "harmless" for one in self.entries.values())


NO_OPTIONS = OptionTable({})


def find_table(name: str) -> tuple[str, OptionTable] | None:
    """The table of a program by its name, also without a version or the `g` of GNU: `python3.11`, `gsort`."""
    if name.startswith("git-"):
        return "git", compile_tables().get(f"git {name[4:]}", replace(NO_OPTIONS, subcommands=True))
    bare = _VERSION.sub("", name) if name not in compile_tables() else name
    known = _index_names().get(name) or _index_names().get(bare) or _index_names().get(name.removeprefix("g"))
    return (known, compile_tables()[known]) if known else None


@cache
def _load_raw() -> dict[str, dict[str, Any]]:
    return tomllib.loads(TABLE_FILE.read_text())


@cache
def _index_names() -> Mapping[str, str]:
    """Every name of a program, with the name of its table."""
    programs = {name: raw for name, raw in _load_raw().items() if " " not in name and name != "plain"}
    return {alias: name for name, raw in programs.items() for alias in (name, *raw.get("names", ()))}


@cache
def compile_tables() -> Mapping[str, OptionTable]:
    """All tables by the names of their programs and subcommands."""
    return {name: _compile_table(name) for name in _load_raw() if name != "plain"}


def _compile_table(name: str) -> OptionTable:
    raw = _load_raw()[name]
    return OptionTable(
        entries=_build_entries(name),
        **{
            key: raw[key]
            for key in ("style", "permutes", "old_style", "subcommands", "most_operands", "one_address")
            if key in raw
        },
        language=raw.get("language"),
        scripts=frozenset(option.rstrip(":") for option in raw.get("scripts", "").split()),
        operands=tuple((re.compile(pattern, re.DOTALL), effect) for pattern, effect in raw.get("operands", ())),
        words=tuple((re.compile(pattern, re.DOTALL), effect) for pattern, effect in raw.get("words", ())),
        values=tuple(
            (frozenset(options.split()), re.compile(pattern, re.DOTALL), effect)
            for options, pattern, effect in raw.get("values", ())
        ),
    )


def _build_entries(name: str) -> dict[str, OptionEntry]:
    """The options of a table; its own override those of the tables that it is `like`."""
    raw = _load_raw()[name]
    found: dict[str, OptionEntry] = {}
    for other in raw.get("like", ()):
        found |= _build_entries(other)
    for kind in (*reversed(_EFFECT_KINDS), "scripts"):
        listed = raw.get(kind, "") + (f" {_COMMON_OPTIONS}" if kind == "harmless" else "")
        for text in listed.split():
            if option := _OPTION.fullmatch(text):
                effect = "harmless" if kind == "scripts" else kind
                found[option[1]] = OptionEntry(effect, _VALUES[option[2]], option[2] is not None)
    return found


@cache
def list_plain_programs() -> frozenset[str]:
    """The names of programs without options that have an effect."""
    return frozenset(_load_raw()["plain"]["names"].split())
