"""Which values in a server's settings nobody is told. Pure, but for a look whether a path is there.

All that came by reference, unless it cannot be told from ordinary words: hiding those would make results unreadable and
keep nothing secret. What is written down is secret where its name says so. Of what is composed (an address with a
password, a document with a key) the parts are secret as well that would be of use by themselves.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from holdfast.activities.mcp.secrets.embedded import (
    find_address_secrets,
    find_basic_password,
    find_secret_parts,
    is_address,
    is_secret_name,
)
from holdfast.activities.mcp.secrets.encodings import LONGEST_WORD, SHORTEST_SECRET
from holdfast.activities.mcp.secrets.env_references import blank_references, fill_references, find_references
from holdfast.activities.mcp.secrets.redactor import Secret

SHORTEST_PASSWORD = 6
"""Characters of what is called a password or the like."""
LINE_LENGTH = 16
"""Characters of a line that is hidden by itself."""
_USUAL_VARIABLES = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TEMP",
        "TMP",
        "TERM",
        "COLORTERM",
        "PWD",
        "OLDPWD",
        "HOSTNAME",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "DISPLAY",
        "VIRTUAL_ENV",
        "NODE_ENV",
        "CI",
    ]
)
_USUAL_PREFIXES = ("LC_", "XDG_")
_COMMON_WORDS = frozenset(["password", "postgres", "postgresql", "changeme", "anonymous", "undefined", "localhost"])
"""What is set where there is no secret."""
_NUMBER = re.compile(r"[\d.,:/+\- ]+")


class GivenSettings(NamedTuple):
    """What the settings say of one server, its references as they are written."""

    words: Sequence[str] = ()
    """Its command with the arguments, and its address."""
    assigned: Sequence[tuple[str, str]] = ()
    """Its variables, headers and the like: each with what it is set to."""
    folder: Path = Path()
    """Where paths begin that do not say it."""


def find_secrets(given: GivenSettings, environment: Mapping[str, str]) -> Iterator[Secret]:
    """What is secret of this. BadInput when it refers to what is not there."""
    for name in list_variables(given):
        yield from _list_value_secrets(name, environment.get(name, ""), given.folder)
    for name, text in (*given.assigned, *find_flags(given.words)):
        literal = blank_references(text, environment)
        words = [one for one in literal.split() if not one.isalpha()]
        for one in (*([literal, *words] if is_secret_name(name) else ()), *find_secret_parts(literal)):
            yield from _list_password_secrets(name, one, given.folder)
        for one in find_basic_password(fill_references(text, environment)):
            yield from _list_password_secrets(name, one, given.folder)
    for one in (one for word in given.words for one in find_address_secrets(blank_references(word, environment))):
        yield from _list_password_secrets("password", one, given.folder)


def list_variables(given: GivenSettings) -> list[str]:
    """The variables that this refers to, but for those that every process has and that are no secret."""
    texts = [*given.words, *(text for _, text in given.assigned)]
    found = dict.fromkeys(name for text in texts for name in find_references(text))
    return [name for name in found if name not in _USUAL_VARIABLES and not name.startswith(_USUAL_PREFIXES)]


def find_flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Arguments that have a name: `--api-key=…`, `--api-key …`."""
    for word, following in pairwise([*words, ""]):
        name, is_one, value = word.partition("=")
        if name.startswith("-") and is_secret_name(name) and (is_one or not following.startswith("-")):
            yield name.lstrip("-"), value if is_one else following


def _list_value_secrets(name: str, value: str, folder: Path) -> Iterator[Secret]:
    """A value that came by reference, and what of it is secret by itself."""
    value = value.strip()
    if is_path(value, folder):
        return
    if is_secret(value, called_so=is_secret_name(name)):
        yield Secret(name, value)
        yield from _list_line_secrets(name, value)
    for part in find_secret_parts(value):
        yield from _list_password_secrets(name, part, folder)


def _list_password_secrets(name: str, value: str, folder: Path) -> Iterator[Secret]:
    """A value that is known to be a password or the like."""
    value = value.strip()
    if is_secret(value, called_so=True) and not is_path(value, folder):
        yield Secret(name, value)
        yield from _list_line_secrets(name, value)


def _list_line_secrets(name: str, value: str) -> Iterator[Secret]:
    """Those of a value that has several: a key is often told line by line."""
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from (
            Secret(name, one, line=True) for one in lines if len(one) >= LINE_LENGTH and not one.startswith("-----")
        )


def is_path(value: str, folder: Path) -> bool:
    """Is it something on this machine? What only looks so may be anything."""
    if not value.startswith(("/", "./", "../", "~")):
        return False
    return os.path.exists(folder / os.path.expanduser(value))


def is_secret(value: str, *, called_so: bool) -> bool:
    """Would hiding it keep anything secret? Of ordinary words, numbers and addresses it would not."""
    alike = value.isalpha() or _NUMBER.fullmatch(value) is not None
    if len(value) < SHORTEST_SECRET:
        return called_so and len(value) >= SHORTEST_PASSWORD and not alike
    if value.lower() in _COMMON_WORDS or is_address(value):
        return False
    return called_so or not alike or len(value) > LONGEST_WORD
