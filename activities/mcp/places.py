"""How a server is started, for people: its command with the first arguments, and nothing that may be secret. Pure.

References stay as they are written. What is written in the place of one and may be a secret (the value of `--token`, a
password in an address, anything that looks made by chance) is left out: rather too much of it than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from holdfast.activities.mcp.secrets import Secrets, secrets_of, telling, unfilled
from holdfast.configuration import McpServerSettings

LIMIT = 60
"""Characters of the arguments."""
HIDDEN = "…"
_REFERENCES = re.compile(r"\$\{\w+\}")
_ASSIGNED = re.compile(r"(-*[\w.-]+)([=:])(?!//)(.+)", re.DOTALL)
_LOGIN = re.compile(r"//.*@")
_QUERY = re.compile(r"[?#].*")
_LOGINS = frozenset(["-u", "-p", "--user", "--login"])
"""Options that may be given `name:password`."""
_PIECE = re.compile(r"[A-Za-z0-9+_-]+")
_KEY = 16
"""Characters of letters and digits that may be a key, wherever they stand."""
_PASSWORD = 6
"""The same of what is no path, package or address."""


def place_of(settings: McpServerSettings, variables: Mapping[str, str]) -> str | None:
    """The command that starts a server, with its first arguments; None for one that is reached."""
    if settings.command is None:
        return None
    secrets = Secrets(secrets_of((), {**settings.env, **settings.headers}, variables))
    words = (secrets.hide(word) for word in (unfilled(settings.command), *_told(map(unfilled, settings.args))))
    return " ".join(_first(*words))


def _told(words: Iterable[str]) -> Iterator[str]:
    """Arguments without what may be secret."""
    secret = False
    for word in words:
        yield HIDDEN if secret and _REFERENCES.sub("", word) else _without_secrets(word)
        secret = word.startswith("-") and "=" not in word and _wants_secret(word)


def _wants_secret(option: str) -> bool:
    return telling(option) or option in _LOGINS


def _without_secrets(word: str) -> str:
    """One argument; `--name=value` and `NAME=value` keep their name."""
    written = _REFERENCES.sub("", word)
    if len(written) > LIMIT:
        return HIDDEN
    if found := _ASSIGNED.fullmatch(written):
        name, sign, value = found.groups()
        if _by_chance(name):
            return HIDDEN
        if _wants_secret(name) or _by_chance(value):
            return f"{name}{sign}{HIDDEN}"
    elif _by_chance(written):
        return HIDDEN
    if " " in word:
        return HIDDEN if telling(word) else f"'{word}'"
    return _QUERY.sub("", _LOGIN.sub(f"//{HIDDEN}@", word)) if "//" in word else word


def _by_chance(text: str) -> bool:
    """Does it look as if nobody had thought of it?"""
    least = _KEY if text.startswith("-") or set("/.@") & set(text) else _PASSWORD
    return any(len(piece) >= least and _mixed(piece) for piece in _PIECE.findall(text))


def _mixed(text: str) -> bool:
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def _first(command: str, *arguments: str) -> Iterator[str]:
    """The command, and as many arguments as there is room for."""
    yield command
    room = LIMIT
    for word in arguments:
        room -= len(word) + 1
        if room < 0:
            yield HIDDEN
            return
        yield word
