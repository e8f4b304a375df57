"""The tokens of the HTTP endpoint: their names, roles and expiry.

A token is shown once, when it is created. Its SHA-256 is stored; a token has 256 random bits, so it cannot be found
from that. The file is readable by its owner alone and replaced whole. A file that is damaged, or that others could have
written, admits nobody. What a name may decide is up to the workers' rules.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, ValidationError, model_validator

from holdfast.domain.base import StrictData, describe_problems
from holdfast.errors import BadInput, HoldfastError
from holdfast.util.findings import Finding, report_ok, report_warning
from holdfast.util.private_files import UnfitFile, check_own, lock_file, read_regular_file, replace_private
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import shorten_text

PREFIX = "hf_"
"""The beginning of every token, by which scanners recognise one in a log or a repository."""
TOKEN_BYTES = 32
MAX_TOKENS = 1_000
LOCK_SECONDS = 5.0
_SIZE_LIMIT = 1_000_000
"""Bytes of the file."""


class TokensUnreadable(BadInput):
    """The file of tokens is unusable: no token is accepted."""


class Role(StrEnum):
    """What a token is for."""

    APPROVER = "approver"
    """Reading and deciding."""
    VIEWER = "viewer"
    """Reading only."""


class Token(StrictData):
    """What is stored of a token."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Its owner: decisions are recorded under this name."""
    role: Role = Role.APPROVER
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    created: AwareDatetime
    expires: AwareDatetime | None = None

    def is_expired(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.expires is not None and now >= self.expires


class _TokenList(StrictData):
    """The content of the file."""

    tokens: Annotated[tuple[Token, ...], Field(max_length=MAX_TOKENS)]

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if len({token.name for token in self.tokens}) < len(self.tokens):
            raise ValueError("two tokens have the same name")
        return self


class TokenFile:
    """The tokens of one data folder. Read again at every use, so that a revoked one stops working at once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read: bytes | None = None
        self._tokens: tuple[Token, ...] = ()

    def read_all(self) -> tuple[Token, ...]:
        """Return every token, expired ones too. TokensUnreadable when the file is unusable."""
        data = self._read_bytes()
        if data is None:
            return ()
        if data != self._read:
            self._tokens = self._parse_tokens(data)
            self._read = data
        return self._tokens

    def create(self, name: str, role: Role = Role.APPROVER, lasts: timedelta | None = None) -> tuple[str, Token]:
        """Create a token and return it, which is stored nowhere, and its record. BadInput when the name is taken."""
        made = PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(TOKEN_BYTES)).decode().rstrip("=")
        now = datetime.now(UTC).replace(microsecond=0)
        expires = now + lasts if lasts else None
        token = Token(name=_check_name(name), role=role, sha256=_hash_token(made), created=now, expires=expires)
        with self._lock_file():
            tokens = self.read_all()
            if any(other.name == name for other in tokens):
                raise BadInput(f"the token {name!r} exists: revoke it first, or choose another name")
            if len(tokens) >= MAX_TOKENS:
                raise BadInput(f"there are {MAX_TOKENS:,} tokens already: revoke some first")
            self._write_tokens((*tokens, token))
        return made, token

    def revoke(self, name: str) -> Token:
        """Remove a token and return its record. HoldfastError when there is none with this name."""
        with self._lock_file():
            tokens = self.read_all()
            token = next((token for token in tokens if token.name == name), None)
            if token is None:
                near = did_you_mean(name, [token.name for token in tokens])
                raise HoldfastError(f"no token is called {shorten_text(name, 80)!r}. {near}".rstrip())
            self._write_tokens(tuple(other for other in tokens if other is not token))
        return token

    def _read_bytes(self) -> bytes | None:
        """The content of the file; None without one. Never blocks."""
        try:
            return read_regular_file(self.file, _SIZE_LIMIT, check_own)
        except FileNotFoundError:
            return None
        except UnfitFile as error:
            raise self._build_unreadable(str(error)) from None

    def _parse_tokens(self, data: bytes) -> tuple[Token, ...]:
        try:
            return _TokenList.model_validate_json(data).tokens
        except ValidationError as error:
            raise self._build_unreadable(
                f"is damaged: {shorten_text(describe_problems(error, 'file', most=1), 300)}"
            ) from None

    def _build_unreadable(self, why: str) -> TokensUnreadable:
        hint = "correct it, or remove it and create new tokens"
        return TokensUnreadable(f"the file of tokens {str(self.file)!r} {why}; no token is accepted: {hint}")

    def _write_tokens(self, tokens: tuple[Token, ...]) -> None:
        """Replace the file: the endpoint reads it at any moment."""
        text = _TokenList(tokens=tokens).model_dump_json(indent=2, exclude_none=True) + "\n"
        replace_private(self.file, text.encode())

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        """One change at a time: else a token that is being revoked could come back."""
        from holdfast.workers.runtime.data_folder import (
            prepare_folder,  # imports temporalio, which reading does not need
        )

        prepare_folder(self.file.parent)
        with lock_file(self.file, LOCK_SECONDS):
            yield


def find_token(tokens: Iterable[Token], given: str) -> Token | None:
    """Find the token that was given, expired or not. Every one is compared, in constant time."""
    digest = _hash_token(given)
    found = None
    for token in tokens:
        if hmac.compare_digest(token.sha256, digest):
            found = token
    return found


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _check_name(name: str) -> str:
    """Return the name if every character of it is visible: decisions are recorded under it."""
    if not name.isprintable() or name != name.strip() or not 0 < len(name) <= 200:
        raise BadInput(
            f"{shorten_text(name, 80)!r} is not a valid token name: 1 to 200 printable characters, "
            "without spaces around them"
        )
    return name


def check_tokens(file: Path, now: datetime) -> Iterator[Finding]:
    """Check the tokens of the HTTP endpoint. TokensUnreadable when no token is accepted."""
    tokens = TokenFile(file).read_all()
    if over := sorted(token.name for token in tokens if token.is_expired(now)):
        do = f"holdfast tokens revoke {over[0]}, and create another if it is still needed"
        yield report_warning(f"the tokens of {', '.join(over)} have expired", do)
    else:
        yield report_ok(
            f"{len(tokens)} tokens" if tokens else "no token yet: `holdfast tokens create NAME` creates one"
        )
