"""How a server is started, for people: its command with the first arguments, and nothing that may be secret. Pure.

References stay as they are written. What is written in the place of one and may be a secret (the value of `--token`, a
password in an address, anything that looks made by chance) is left out: rather too much of it than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from holdfast.activities.mcp.secrets.detect import GivenSettings, find_secrets
from holdfast.activities.mcp.secrets.embedded import is_secret_name
from holdfast.activities.mcp.secrets.env_references import find_references, name_references
from holdfast.activities.mcp.secrets.redactor import Secrets
from holdfast.config.schema import McpServerSettings

PLACE_LIMIT = 60
"""Characters of the arguments."""
HIDDEN = "…"
_REFERENCES = re.compile(r"\$\{\w+\}")
_ASSIGNMENT = re.compile(r"(-*[\w.-]+)([=:])(?!//)(.+)", re.DOTALL)
_USERINFO = re.compile(r"//.*@")
_QUERY = re.compile(r"[?#].*")
_LOGIN_OPTIONS = frozenset(["-u", "-p", "--user", "--login"])
"""Options that may be given `name:password`."""
_WORD_PIECE = re.compile(r"[A-Za-z0-9+_-]+")
_KEY_LENGTH = 16
"""Characters of letters and digits that may be a key, wherever they stand."""
_PASSWORD_LENGTH = 6
"""The same of what is no path, package or address."""


def format_place(settings: McpServerSettings, variables: Mapping[str, str]) -> str | None:
    """The command that starts a server, with its first arguments; None for one that is reached."""
    if settings.command is None:
        return None
    assigned = [*settings.env.items(), *settings.headers.items()]
    unknown = {name: "" for _, text in assigned for name in find_references(text)}
    secrets = Secrets(find_secrets(GivenSettings(assigned=assigned), {**unknown, **variables}))
    words = (
        secrets.hide(word)
        for word in (name_references(settings.command), *_hide_arguments(map(name_references, settings.args)))
    )
    return " ".join(_take_first(*words))


def _hide_arguments(words: Iterable[str]) -> Iterator[str]:
    """Arguments without what may be secret."""
    secret = False
    for word in words:
        yield HIDDEN if secret and _REFERENCES.sub("", word) else _hide_secrets(word)
        secret = word.startswith("-") and "=" not in word and _has_secret_value(word)


def _has_secret_value(option: str) -> bool:
    return is_secret_name(option) or option in _LOGIN_OPTIONS


def _hide_secrets(word: str) -> str:
    """One argument; `--name=value` and `NAME=value` keep their name."""
    written = _REFERENCES.sub("", word)
    if len(written) > PLACE_LIMIT:
        return HIDDEN
    if found := _ASSIGNMENT.fullmatch(written):
        name, sign, value = found.groups()
        if _is_random_looking(name):
            return HIDDEN
        if _has_secret_value(name) or _is_random_looking(value):
            return f"{name}{sign}{HIDDEN}"
    elif _is_random_looking(written):
        return HIDDEN
    if " " in word:
        return HIDDEN if is_secret_name(word) else f"'{word}'"
    return _QUERY.sub("", _USERINFO.sub(f"//{HIDDEN}@", word)) if "//" in word else word


def _is_random_looking(text: str) -> bool:
    """Does it look as if nobody had thought of it?"""
    least = _KEY_LENGTH if text.startswith("-") or set("/.@") & set(text) else _PASSWORD_LENGTH
    return any(len(piece) >= least and _is_mixed(piece) for piece in _WORD_PIECE.findall(text))


def _is_mixed(text: str) -> bool:
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def _take_first(command: str, *arguments: str) -> Iterator[str]:
    """The command, and as many arguments as there is room for."""
    yield command
    room = PLACE_LIMIT
    for word in arguments:
        room -= len(word) + 1
        if room < 0:
            yield HIDDEN
            return
        yield word
