"""Finds the secret values in an MCP server's settings, and fills in references to the worker's environment.

`${NAME}` is the worker's variable of that name, `${NAME:-other}` has a default, `${env:NAME}` is the same as some files
write it. Secret is what the settings name: the value of every variable that they refer to, except the variables that
all commands get (`PATH`, `HOME`); what is written down under a secret name (`API_KEY`, `--token`, `?token=`); and the
password of an address. Nothing is guessed from how a value looks: what is not secret is written down, not referred to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import unquote

from holdfast.activities.process.command import USUAL_VARIABLES
from holdfast.config.schema import McpServerSettings
from holdfast.errors import BadInput
from holdfast.util.secrets import Secret, Secrets
from holdfast.util.text import shorten_text

SHORTEST_SECRET = 6
"""Characters of a value that is hidden: a shorter one, such as `true` or a port, would be found in other words."""
COMMAND_LIMIT = 60
"""Characters of a command's arguments that are shown."""
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_FOREIGN = re.compile(r"\$\{[A-Za-z]+:[^}]*\}")
"""A reference that other programs fill in: a question to the user, a folder of theirs."""
_SECRET_NAME = re.compile(
    r"(?i)auth|bearer|cookie|credential|dsn|key|pass|phrase|private|pwd|secret|session|signature|token|webhook"
    r"|(?:^|[_-])(?:pat|pin|pw|sas|sig)(?:$|[_-])"
)
_OPEN_VARIABLES = frozenset([*USUAL_VARIABLES, "PWD"])
_QUERY_VALUE = re.compile(r"[?&]([^\s=&#]+)=([^\s&#]+)")
_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^\s:/?#@]*)(?::([^\s@/]*))?@")
_SCHEME = re.compile(r"[A-Za-z][\w-]*\s+(\S*)\s*")
"""A scheme and credentials, as in the header Authorization (RFC 9110)."""


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
    """Replace each reference by a space, or by its default where the variable is not set."""
    return _REFERENCE.sub(lambda found: " " if found[1] in environment else found[2] or "", text)


# Secrets


class GivenSettings(NamedTuple):
    """The settings of one server that may hold secrets, with references as they are written."""

    words: Sequence[str] = ()
    """The command with its arguments, and the address."""
    assigned: Sequence[tuple[str, str]] = ()
    """Variables, headers and the like, each with its text."""


def find_secrets(
    given: GivenSettings, environment: Mapping[str, str], shortest: int = SHORTEST_SECRET
) -> Iterator[Secret]:
    """Yield what is secret of these settings, without values of fewer than `shortest` characters."""
    found = (*_list_values(given, environment), *_list_passwords(given, environment))
    yield from (Secret(name, value) for name, value in found if len(value) >= shortest)


def list_variables(given: GivenSettings) -> list[str]:
    """List the variables that these settings refer to, without those that every command gets."""
    texts = [*given.words, *(text for _, text in given.assigned)]
    found = dict.fromkeys(name for text in texts for name in find_references(text))
    return [name for name in found if name not in _OPEN_VARIABLES and not name.startswith("LC_")]


def _list_values(given: GivenSettings, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Values with their names: of variables that are referred to, then those written down under a secret name."""
    for name in list_variables(given):
        value = environment.get(name, "").strip()
        yield name, value
        yield from ((name, line.strip()) for line in value.splitlines())  # output is read and logged line by line
    for name, text in (*given.assigned, *_list_named_words(given.words)):
        if _is_secret_name(name):
            literal = blank_references(text.strip(), environment)
            scheme = _SCHEME.fullmatch(literal)
            if scheme is None or scheme[1]:  # else the credentials are a reference
                yield name, literal.strip()
            if scheme:
                yield name, scheme[1]


def _list_named_words(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The values with names in a command and an address: `--name=…`, `--name …`, and `?name=…`."""
    for word, following in pairwise([*words, ""]):
        name, has_value, value = word.partition("=")
        if name.startswith("-") and (has_value or not following.startswith("-")):
            yield name.lstrip("-"), value if has_value else following
        for name, value in _QUERY_VALUE.findall(word):
            yield from ((name, one) for one in dict.fromkeys((value, unquote(value))))


def _list_passwords(given: GivenSettings, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The passwords of all addresses, escaped or not; a user without a password is one."""
    texts = [(name, environment.get(name, "")) for name in list_variables(given)]
    texts += [(name, blank_references(text, environment)) for name, text in given.assigned]
    texts += [("password", blank_references(word, environment)) for word in given.words]
    for name, text in texts:
        for user, password in _PASSWORD.findall(text):
            yield from ((name, one) for one in dict.fromkeys((password or user, unquote(password or user))))


def _is_secret_name(name: str) -> bool:
    """Whether a name says that its value is secret."""
    return _SECRET_NAME.search(name) is not None


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
