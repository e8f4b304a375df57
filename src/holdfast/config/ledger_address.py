"""Where a shared ledger is: an address of PostgreSQL, or `env:HOLDFAST_…`, a variable that holds one.

A password stands in no settings file, since those are shown, trusted and kept in repositories; and in no variable that
commands of tools inherit. No message of ours repeats an address with its password (S45).
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
    """A value of the settings file, as it is; ValueError with what is wrong, which never repeats the value."""
    if text.startswith(VARIABLE_PREFIX):
        if not _VARIABLE_NAME.fullmatch(text.removeprefix(VARIABLE_PREFIX)):
            raise ValueError(
                "must name a variable that begins with HOLDFAST_, as `env:HOLDFAST_LEDGER`: "
                "only those are kept from commands"
            )
        return text
    if _find_passwords(_parse_address(text)):
        raise ValueError("holds a password: put the address into a variable and write `env:HOLDFAST_LEDGER`")
    return text


def resolve_address(setting: str, environment: Mapping[str, str]) -> str:
    """The address that a setting means, with its password. BadInput when there is none."""
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
    """An address for people: hosts and database, and neither user nor password nor options."""
    parts = _parse_address(address)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def hide_passwords(text: str, address: str) -> str:
    """Words of somebody else's, without the address's passwords, should they hold any."""
    for secret in sorted(_find_passwords(_parse_address(address)), key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def _parse_address(address: str) -> SplitResult:
    """Strict: what is read as a password here must be what the driver reads as one."""
    wrong = f"must be an address as {_EXAMPLE}, or `env:HOLDFAST_LEDGER`"
    if not address.isprintable() or " " in address or len(address) > _ADDRESS_LIMIT:
        raise ValueError(wrong)
    try:
        parts = urlsplit(address)
    except ValueError:  # its words would repeat the address
        raise ValueError(wrong) from None
    if parts.scheme not in ("postgresql", "postgres") or not address.startswith(f"{parts.scheme}://"):
        raise ValueError(wrong)
    if not _is_escaped(parts) or "#" in address:
        raise ValueError(f"{wrong}; in names and passwords, `@`, `:`, `/`, `?`, `#` and `%` are written as %40 …")
    return parts


def _is_escaped(parts: SplitResult) -> bool:
    """Is every part what it seems to be? A password with a slash in it would be read as a host and a path."""
    hosts = [_HOST_PATTERN.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")]
    ports = [int(host[2] or 0) for host in hosts if host]
    try:
        parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        return False
    once = parts.netloc.count("@") <= 1 and "@" not in parts.path + parts.query
    return once and all(hosts) and max(ports, default=0) < 65_536


def _find_passwords(parts: SplitResult) -> set[str]:
    """Every password in it, as it is written and as it is meant."""
    said = [parts.netloc.rpartition("@")[0].partition(":")[2]]
    for option in parts.query.split("&"):
        name, _, value = option.partition("=")
        said += [value] if unquote_plus(name) in _SECRET_OPTIONS else []
    return {form for secret in said for form in (secret, unquote(secret), unquote_plus(secret)) if form}
