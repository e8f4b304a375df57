"""The address of a shared ledger: a PostgreSQL address, or `env:HOLDFAST_…`, a variable that holds one.

A settings file never holds a password, since it is shown, trusted and stored in repositories; nor does a variable that
commands of tools inherit. No error repeats an address with its password (S45).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_plus, urlsplit

from holdfast.errors import BadInput

VARIABLE_PREFIX = "env:"
_VARIABLE_NAME = re.compile(r"HOLDFAST_[A-Za-z0-9_]+")
_HOST_PATTERN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@]*)(?::([0-9]{1,5}))?")
_ADDRESS_LIMIT = 4_000
_SECRET_OPTIONS = ("password", "sslpassword")
_EXAMPLE = "postgresql://user@host/database"


def check_ledger_address(text: str) -> str:
    """Check a value of the settings file, and return it. The ValueError never repeats the value."""
    if text.startswith(VARIABLE_PREFIX):
        if not _VARIABLE_NAME.fullmatch(text.removeprefix(VARIABLE_PREFIX)):
            raise ValueError(
                "must name a variable that begins with HOLDFAST_, as `env:HOLDFAST_LEDGER`: "
                "commands do not inherit such variables"
            )
        return text
    if _find_passwords(_parse_address(text)):
        raise ValueError("holds a password: put the address into a variable and write `env:HOLDFAST_LEDGER`")
    return text


def resolve_address(setting: str, environment: Mapping[str, str]) -> str:
    """Return the address of a setting, with its password. BadInput when the variable is not set or invalid."""
    if not setting.startswith(VARIABLE_PREFIX):
        where, address = "the setting `ledger`", setting
    else:
        name = setting.removeprefix(VARIABLE_PREFIX)
        where, address = f"the variable {name}, which the setting `ledger` names,", environment.get(name, "")
        if not address:
            raise BadInput(f"{where} is not set: it must hold the ledger's address, as {_EXAMPLE}")
    try:
        _parse_address(address)
    except ValueError as error:
        raise BadInput(f"{where} {error}") from None
    return address


def format_address(address: str) -> str:
    """Format an address for people: hosts and database, without user, password and options."""
    parts = _parse_address(address)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def hide_passwords(text: str, address: str) -> str:
    """Replace the passwords of an address in a text from elsewhere, such as a driver's error."""
    for secret in sorted(_find_passwords(_parse_address(address)), key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def _parse_address(address: str) -> SplitResult:
    """Parse strictly, so that the driver finds no password where this finds none."""
    wrong = f"must be an address as {_EXAMPLE}, or `env:HOLDFAST_LEDGER`"
    if not address.isprintable() or " " in address or len(address) > _ADDRESS_LIMIT:
        raise ValueError(wrong)
    try:
        parts = urlsplit(address)
    except ValueError:  # its message would repeat the address
        raise ValueError(wrong) from None
    if parts.scheme not in ("postgresql", "postgres") or not address.startswith(f"{parts.scheme}://"):
        raise ValueError(wrong)
    if not _is_escaped(parts) or "#" in address:
        raise ValueError(f"{wrong}; in names and passwords, `@`, `:`, `/`, `?`, `#` and `%` are written as %40 …")
    return parts


def _is_escaped(parts: SplitResult) -> bool:
    """Is every part escaped? A password with a bare slash would be read as a host and a path."""
    hosts = [_HOST_PATTERN.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")]
    ports = [int(host[2] or 0) for host in hosts if host]
    try:
        parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        return False
    once = parts.netloc.count("@") <= 1 and "@" not in parts.path + parts.query
    return once and all(hosts) and max(ports, default=0) < 65_536


def _find_passwords(parts: SplitResult) -> set[str]:
    """Find every password in an address, escaped and unescaped."""
    passwords = [parts.netloc.rpartition("@")[0].partition(":")[2]]
    for option in parts.query.split("&"):
        name, _, value = option.partition("=")
        passwords += [value] if unquote_plus(name) in _SECRET_OPTIONS else []
    return {form for secret in passwords for form in (secret, unquote(secret), unquote_plus(secret)) if form}
