"""The definitions of servers' tools that people have gone by: as they were first seen, or last let through.

A server may change what a tool says, and does, under the name that was approved. So a definition is kept when it is
first seen; a call under another one is asked about, whatever a rule or a standing answer says; and what then runs is
from there on what is known. One file per server, in the data folder, for all workers of a host.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.activities.mcp.changes import diff_of, told
from holdfast.activities.mcp.definitions import Definition
from holdfast.errors import BadInput
from holdfast.model import Data

SIZE_LIMIT = 64_000_000
"""Bytes of one server's file."""


class Kept(Data):
    """A definition that people have gone by, and since when."""

    definition: Definition
    since: AwareDatetime
    approved: bool = False
    """A call of it was let through."""


class _File(Data):
    tools: dict[str, Kept] = Field(default_factory=dict)


class Change(NamedTuple):
    """How a tool is not as it was."""

    sentence: str
    diff: str


class Approved:
    """What is kept of the tools of one server."""

    def __init__(self, folder: Path, server: str, hide: Callable[[Definition], Definition] = lambda one: one) -> None:
        """`hide` takes out what nobody is told: it may not have been a secret when it was kept."""
        self._hide = hide
        self._file = folder / f"{server}.json"
        self._seen: tuple[int, int, int] | None = None
        self._known: _File | None = _File()

    def change(self, definition: Definition) -> Change | None:
        """What a person should see before a call of this tool runs; None when it is as it was."""
        known = self._read()
        if known is None:
            return Change(f"What was approved of this server's tools cannot be read: {self._file} is damaged.", "")
        kept = known.tools.get(definition.name)
        if kept is None or (before := self._hide(kept.definition)) == definition:
            return None
        when = f"{'it was last approved' if kept.approved else 'it was first seen'} ({kept.since:%Y-%m-%d %H:%M} UTC)"
        sentence = f"The server has changed this tool since {when}: {told(before, definition)}."
        return Change(sentence, diff_of(before, definition))

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """Of all tools that it ever had, as far as that can be read."""
        known = self._read()
        return tuple(self._hide(kept.definition) for kept in known.tools.values()) if known else ()

    def meet(self, definitions: Iterable[Definition]) -> None:
        """Keep what has not been seen before."""
        known = self._read()
        new = {one.name: one for one in definitions if known and one.name not in known.tools}
        if new:
            self._write(lambda tools: {**{name: _kept(one) for name, one in new.items()}, **tools})

    def approve(self, definition: Definition) -> None:
        """A call of it has been let through: this is what is known from now on."""
        known = self._read()
        kept = known.tools.get(definition.name) if known else None
        if kept is None or not kept.approved or kept.definition != definition:
            self._write(lambda tools: {**tools, definition.name: _kept(definition, approved=True)})

    def _read(self) -> _File | None:
        """As the file is now, read again only when it changed; None when it is damaged."""
        seen = _seen(self._file)
        if seen is None or seen != self._seen:
            self._known, self._seen = _loaded(self._file), seen
        return self._known

    def _write(self, change: Callable[[dict[str, Kept]], dict[str, Kept]]) -> None:
        """Change the file, one process at a time. BadInput when that cannot be done."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(self._file):
                data = _File(tools=change((_loaded(self._file) or _File()).tools)).model_dump_json().encode()
                if len(data) > SIZE_LIMIT:
                    raise BadInput(f"{self._file} would be over {SIZE_LIMIT:,} bytes")
                _replace(self._file, data)
        except OSError as error:
            raise BadInput(f"{self._file} cannot be written: {error.strerror or error}") from None


def _kept(definition: Definition, *, approved: bool = False) -> Kept:
    return Kept(definition=definition, since=datetime.now(UTC), approved=approved)


def _seen(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _loaded(file: Path) -> _File | None:
    try:
        return _File.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return _File()
    except (OSError, ValidationError):
        return None


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    lock = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _replace(file: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(data)
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
