"""Which values in an MCP server's settings are secret, and references to the worker's environment.

`${NAME}` is the worker's variable of that name, `${NAME:-other}` has a default, `${env:NAME}` is the same as some files
write it. The value of a variable that the settings refer to is secret, unless it is an ordinary word, number, path or
address: hiding those would make results unreadable and protect nothing. What is written down in the settings is secret
where its name says so (`API_KEY`, `--token`), and so is the password of an address.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from holdfast.config.schema import McpServerSettings
from holdfast.errors import BadInput
from holdfast.util.secrets import Secret, Secrets
from holdfast.util.text import shorten_text

SHORTEST_SECRET = 8
SHORTEST_PASSWORD = 6
"""The same for a value whose name says that it is secret."""
LONGEST_WORD = 15
"""Characters of letters or of digits alone that may be a word or a number like others."""
LINE_LENGTH = 16
"""Characters from which on a line of a longer secret is a secret too: a key is often printed line by line."""
COMMAND_LIMIT = 60
"""Characters of a command's arguments that are shown."""
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_FOREIGN = re.compile(r"\$\{[A-Za-z]+:[^}]*\}")
"""A reference that other programs fill in: a question to the user, a folder of theirs."""
_SECRET_NAME = re.compile(
    r"(?i)auth|bearer|cookie|credential|dsn|key|pass|phrase|private|pwd|secret|session|signature|token|webhook"
    r"|(?:^|[_-])(?:pat|pin|pw|sas|sig)(?:$|[_-])"
)
_NUMBER = re.compile(r"[\d.,:/+\- ]+")
_PLAIN_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s@?#]+")
_QUERY_VALUE = re.compile(r"[?&]([^\s=&#]+)=([^\s&#]+)")
_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^\s:/?#@]*)(?::([^\s@/]*))?@")
_COMMON_WORDS = frozenset(["password", "postgres", "postgresql", "changeme", "anonymous", "undefined", "localhost"])
_USUAL_VARIABLES = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "TERM", "COLORTERM",
    "PWD", "OLDPWD", "HOSTNAME", "EDITOR", "VISUAL", "PAGER", "DISPLAY", "VIRTUAL_ENV", "NODE_ENV", "CI",
})  # fmt: skip
_USUAL_PREFIXES = ("LC_", "XDG_")


# References


def find_references(text: str) -> Iterator[str]:
    """Yield the names of the variables that a text refers to."""
    return (found[1] for found in _REFERENCE.finditer(text))


def fill_references(text: str, environment: Mapping[str, str]) -> str:
    """Replace references by their values. BadInput for a variable that is not set, or that another program fills in."""

    def find_value(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if name in environment:
            return environment[name]
        if default is None:
            raise BadInput(f"it needs the environment variable {name!r}, which is not set where the worker runs")
        return default

    if foreign := _FOREIGN.search(_REFERENCE.sub("", text)):
        known = "only variables of the environment can be referred to here, as ${NAME}"
        raise BadInput(f"it needs {shorten_text(foreign[0], 80)!r}, which another program fills in: {known}")
    return _REFERENCE.sub(find_value, text)


def blank_references(text: str, environment: Mapping[str, str]) -> str:
    """Keep what the settings themselves say: a space for each reference, its default where the variable is not set."""
    return _REFERENCE.sub(lambda found: " " if found[1] in environment else found[2] or "", text)


# Secrets


class GivenSettings(NamedTuple):
    """What the settings say of one server, with its references as they are written."""

    words: Sequence[str] = ()
    """The command with its arguments, and the address."""
    assigned: Sequence[tuple[str, str]] = ()
    """Variables, headers and the like, each with its text."""
    folder: Path = Path()
    """What relative paths begin at."""


def find_secrets(given: GivenSettings, environment: Mapping[str, str]) -> Iterator[Secret]:
    """Yield what is secret of these settings."""
    for name in list_variables(given):
        value = environment.get(name, "").strip()
        if is_secret(name, value) and not is_path(value, given.folder):
            yield from _split_secret(name, value)
        yield from _find_passwords(name, value)
    for name, text in (*given.assigned, *find_named_values(given.words)):
        literal = blank_references(text, environment).strip()
        if is_secret_name(name) and not is_path(literal, given.folder):
            parts = dict.fromkeys([literal, *literal.split()])
            yield from (one for part in parts if is_secret(name, part) for one in _split_secret(name, part))
        yield from _find_passwords(name, literal)
    for word in given.words:
        yield from _find_passwords("password", blank_references(word, environment))


def list_variables(given: GivenSettings) -> list[str]:
    """List the variables that these settings refer to, without those that every process has and that are no secret."""
    texts = [*given.words, *(text for _, text in given.assigned)]
    found = dict.fromkeys(name for text in texts for name in find_references(text))
    return [name for name in found if name not in _USUAL_VARIABLES and not name.startswith(_USUAL_PREFIXES)]


def find_named_values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what a secret name stands before: `--api-key=…`, `--api-key …`, and `?api_key=…` in an address."""
    for word, following in pairwise([*words, ""]):
        name, has_value, value = word.partition("=")
        if name.startswith("-") and is_secret_name(name) and (has_value or not following.startswith("-")):
            yield name.lstrip("-"), value if has_value else following
        yield from ((name, value) for name, value in _QUERY_VALUE.findall(word) if is_secret_name(name))


def is_secret_name(name: str) -> bool:
    """Whether a name says that its value is secret."""
    return _SECRET_NAME.search(name) is not None


def is_secret(name: str, value: str) -> bool:
    """Whether the value with this name is secret; ordinary words, numbers and addresses are not."""
    if value.lower() in _COMMON_WORDS or _PLAIN_ADDRESS.fullmatch(value):
        return False
    plain = value.isalpha() or _NUMBER.fullmatch(value) is not None
    if is_secret_name(name):
        return len(value) >= (SHORTEST_SECRET if plain else SHORTEST_PASSWORD)
    return len(value) > LONGEST_WORD or (len(value) >= SHORTEST_SECRET and not plain)


def is_path(value: str, folder: Path) -> bool:
    """Whether the value names a file or folder of this machine."""
    return value.startswith(("/", "./", "../", "~")) and os.path.exists(folder / os.path.expanduser(value))


def _split_secret(name: str, value: str) -> Iterator[Secret]:
    """The value, and its lines if it has several."""
    yield Secret(name, value)
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from (Secret(name, one) for one in lines if len(one) >= LINE_LENGTH and not one.startswith("-----"))


def _find_passwords(name: str, text: str) -> Iterator[Secret]:
    """The passwords of the addresses in a text, escaped or not; a user name that stands alone is one."""
    for user, password in _PASSWORD.findall(text):
        for value in dict.fromkeys((password or user, unquote(password or user))):
            if password != user and is_secret("password", value):
                yield Secret(name, value)


# Showing a server


def format_command(settings: McpServerSettings, variables: Mapping[str, str]) -> str | None:
    """Format the command that starts a server, with its first arguments; None for a server at an address.

    References stay as they are written. A secret that is written down is replaced by its name.
    """
    if settings.command is None:
        return None
    words = [settings.command, *settings.args]
    assigned = [*settings.env.items(), *settings.headers.items()]
    secrets = Secrets(find_secrets(GivenSettings(words, assigned), variables))
    command, *arguments = (secrets.hide(_REFERENCE.sub(lambda found: f"${{{found[1]}}}", word)) for word in words)
    return " ".join(_take_first(command, arguments))


def _take_first(command: str, arguments: Sequence[str]) -> Iterator[str]:
    yield command
    room = COMMAND_LIMIT
    for word in arguments:
        room -= len(word) + 1
        if room < 0:
            yield "…"
            return
        yield f"'{word}'" if " " in word else word
