"""Tokens of the HTTP endpoint: who may come in, under which name, until when.

A token is shown once, when it is made. Kept is its SHA-256, by which it is known again; it is 256 bits of chance, so
nobody finds it from that. The file is for its owner alone and replaced whole. One that is damaged, or that somebody
else could have written, lets nobody in. What a name may decide is for the workers' rules to say, not for a token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, ValidationError, model_validator

from holdfast.domain.base import Message, describe_problems
from holdfast.errors import BadInput, HoldfastError
from holdfast.util.files import hold_lock, write_whole
from holdfast.util.findings import Finding, ok, warning
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import shorten_text

PREFIX = "hf_"
"""By which a token is recognised where it should not be: in a log, in a repository."""
TOKEN_BYTES = 32
MAX_TOKENS = 1_000
LOCK_SECONDS = 5.0
_SIZE_LIMIT = 1_000_000
"""Bytes of the file."""


class TokensUnreadable(BadInput):
    """The file of tokens cannot be gone by: nobody comes in until it is right."""


class Role(StrEnum):
    """What a token is for."""

    APPROVER = "approver"
    """To look and to decide."""
    VIEWER = "viewer"
    """To look only."""


class Token(Message):
    """What is kept of a token."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Whoever holds it: decisions are recorded under this name."""
    role: Role = Role.APPROVER
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    created: AwareDatetime
    expires: AwareDatetime | None = None

    def is_expired(self, now: datetime) -> bool:
        """Is it too late for it?"""
        return self.expires is not None and now >= self.expires


class _TokenList(Message):
    """What the file holds."""

    tokens: Annotated[tuple[Token, ...], Field(max_length=MAX_TOKENS)]

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if len({token.name for token in self.tokens}) < len(self.tokens):
            raise ValueError("two tokens have the same name")
        return self


class TokenFile:
    """The tokens of one data folder. Read anew at every look, so that a revoked one stops at once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read: bytes | None = None
        self._tokens: tuple[Token, ...] = ()

    def read_all(self) -> tuple[Token, ...]:
        """Every token, expired ones too. TokensUnreadable when the file is not as it should be."""
        data = self._read_bytes()
        if data is None:
            return ()
        if data != self._read:
            self._tokens = self._parse_tokens(data)
            self._read = data
        return self._tokens

    def create(self, name: str, role: Role = Role.APPROVER, lasts: timedelta | None = None) -> tuple[str, Token]:
        """Make a token; itself, which is kept nowhere, and what is kept of it."""
        made = PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(TOKEN_BYTES)).decode().rstrip("=")
        now = datetime.now(UTC).replace(microsecond=0)
        expires = now + lasts if lasts else None
        token = Token(name=_check_name(name), role=role, sha256=_hash_token(made), created=now, expires=expires)
        with self._lock_file():
            kept = self.read_all()
            if any(other.name == name for other in kept):
                raise BadInput(f"there is a token called {name!r}: revoke it first, or choose another name")
            if len(kept) >= MAX_TOKENS:
                raise BadInput(f"there are {MAX_TOKENS:,} tokens already: revoke some first")
            self._write_tokens((*kept, token))
        return made, token

    def revoke(self, name: str) -> Token:
        """Take a token back; from now on nobody comes in by it."""
        with self._lock_file():
            kept = self.read_all()
            token = next((token for token in kept if token.name == name), None)
            if token is None:
                near = did_you_mean(name, [token.name for token in kept])
                raise HoldfastError(f"no token is called {shorten_text(name, 80)!r}. {near}".rstrip())
            self._write_tokens(tuple(other for other in kept if other is not token))
        return token

    def _read_bytes(self) -> bytes | None:
        """What is in the file, None when there is none. Never waits."""
        try:
            descriptor = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if problem := _describe_unfit(os.fstat(descriptor)):
                    raise self._build_unreadable(problem)
                with open(descriptor, "rb", closefd=False) as opened:
                    data = opened.read(_SIZE_LIMIT + 1)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._build_unreadable(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if len(data) > _SIZE_LIMIT:
            raise self._build_unreadable(f"is over {_SIZE_LIMIT // 1_000_000} MB")
        return data

    def _parse_tokens(self, data: bytes) -> tuple[Token, ...]:
        try:
            return _TokenList.model_validate_json(data).tokens
        except ValidationError as error:
            raise self._build_unreadable(
                f"is damaged: {shorten_text(describe_problems(error, 'file', most=1), 300)}"
            ) from None

    def _build_unreadable(self, why: str) -> TokensUnreadable:
        hint = "put it right, or remove it and make new tokens"
        return TokensUnreadable(f"the file of tokens {str(self.file)!r} {why}; nobody comes in by it: {hint}")

    def _write_tokens(self, tokens: tuple[Token, ...]) -> None:
        """All of it or nothing: the endpoint reads it at any moment."""
        text = _TokenList(tokens=tokens).model_dump_json(indent=2, exclude_none=True) + "\n"
        try:
            write_whole(self.file, text.encode())
        except OSError as error:
            raise self._build_write_error(error) from error

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        """One change at a time: else a token that is just being revoked could come back with one that is made."""
        from holdfast.workers.runtime.data_folder import (
            prepare_folder,  # it brings Temporal along, which reading does not need
        )

        prepare_folder(self.file.parent)
        with ExitStack() as held:
            try:
                held.enter_context(
                    hold_lock(self.file, LOCK_SECONDS, "somebody else is changing the tokens: try again")
                )
            except OSError as error:
                raise self._build_write_error(error) from error
            yield

    def _build_write_error(self, error: OSError) -> HoldfastError:
        return HoldfastError(f"{str(self.file)!r} cannot be written: {error.strerror or error}")


def find_token(tokens: Iterable[Token], given: str) -> Token | None:
    """The token that was given, expired or not. Every one is compared, each in the same time whatever is given."""
    digest = _hash_token(given)
    found = None
    for token in tokens:
        if hmac.compare_digest(token.sha256, digest):
            found = token
    return found


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _check_name(name: str) -> str:
    """Decisions are recorded under it, so it must be seen for what it is."""
    if not name.isprintable() or name != name.strip() or not 0 < len(name) <= 200:
        raise BadInput(
            f"{shorten_text(name, 80)!r} cannot be a token's name: 1 to 200 characters that show, "
            "without spaces around them"
        )
    return name


def _describe_unfit(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid != os.geteuid():
        return "belongs to somebody else"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "may be written by others (chmod 600, once you know that nobody did)"
    return None


def check_tokens(file: Path, now: datetime) -> Iterator[Finding]:
    """Who may come in by HTTP. TokensUnreadable: nobody."""
    tokens = TokenFile(file).read_all()
    if over := sorted(token.name for token in tokens if token.is_expired(now)):
        do = f"holdfast tokens revoke {over[0]}, and create another if it is still needed"
        yield warning(f"the tokens of {', '.join(over)} are no longer good", do)
    else:
        yield ok(f"{len(tokens)} tokens" if tokens else "no token yet: `holdfast tokens create NAME` makes one")
