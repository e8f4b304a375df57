"""The definitions of servers' tools that people have gone by: as they were first seen, or last let through.

A server may change what a tool says, and does, under the name that was approved. So a definition is kept when it is
first seen; a call under another one is asked about, whatever a rule or a standing answer says; and what then runs is
from there on what is known. What is not known is asked about as well: a server that could make us forget could change
what it liked. One file per server, in the data folder, for all workers of a host.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.activities.mcp.changes import diff_of, told
from holdfast.activities.mcp.definitions import Definition
from holdfast.errors import BadInput, HoldfastError
from holdfast.locks import locked
from holdfast.model import Data
from holdfast.whole_files import write_whole
from holdfast.withheld import Words

SIZE_LIMIT = 24_000_000
"""Bytes of one server's file: three times what it may list at once."""
TOOLS_LIMIT = 5_000
LOCK_SECONDS = 5.0
REMEMBERING = ThreadPoolExecutor(1, thread_name_prefix="holdfast-mcp-tools")
"""Where files are written: another process may hold one for seconds."""

_LOGGER = logging.getLogger(__name__)


class Kept(Data):
    """A definition that people have gone by, and since when."""

    definition: Definition
    since: AwareDatetime
    approved: bool = False
    """A call of it was let through."""


class _File(Data):
    tools: dict[str, Kept] = Field(default_factory=dict)
    lost: bool = False
    """It was damaged once: what is not in it may have been, and nothing counts as seen for the first time."""


class Change(NamedTuple):
    """How a tool is not as it was."""

    sentence: str
    before: Definition | None = None
    after: Definition | None = None

    @property
    def diff(self) -> str:
        """The same line by line, where both are known."""
        return diff_of(self.before, self.after) if self.before and self.after else ""


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
            return Change(f"What was approved of this server's tools cannot be read: {self._file} is damaged.")
        kept = known.tools.get(definition.name)
        if kept is None:
            why = "was lost with a damaged file" if known.lost else "could not be kept"
            return Change(f"What was seen of this tool before {why}, so it may have changed.")
        if (before := self._hide(kept.definition)) == definition:
            return None
        when = f"{'it was last approved' if kept.approved else 'it was first seen'} ({kept.since:%Y-%m-%d %H:%M} UTC)"
        sentence = f"The server has changed this tool since {when}: {told(before, definition)}."
        return Change(sentence, before, definition)

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """Of all tools that it ever had, as far as that can be read."""
        known = self._read()
        return tuple(self._hide(kept.definition) for kept in known.tools.values()) if known else ()

    def meet(self, definitions: Iterable[Definition]) -> None:
        """Keep what has not been seen before, as far as there is room. Blocks: see `REMEMBERING`."""
        listed = {one.name: one for one in definitions}
        known = self._read()
        if known is None or known.lost or known.tools.keys() >= listed.keys():
            return
        self._write(lambda tools: {**{name: _kept(one) for name, one in listed.items()}, **tools}, listed)

    def approve(self, definition: Definition) -> None:
        """A call of it has been let through: this is what is known from now on. Blocks."""
        known = self._read()
        kept = known.tools.get(definition.name) if known else None
        if kept is None or not kept.approved or kept.definition != definition:
            new = _kept(definition, approved=True)
            self._write(lambda tools: {**tools, definition.name: new}, [definition.name])

    def _read(self) -> _File | None:
        """As the file is now, read again only when it changed; None when it is damaged."""
        seen = _seen(self._file)
        if seen is None or seen != self._seen:
            self._known, self._seen = _loaded(self._file), seen
        return self._known

    def _write(self, change: Callable[[dict[str, Kept]], dict[str, Kept]], needed: Collection[str]) -> None:
        """Change the file, one process at a time. BadInput when that cannot be done."""
        busy = f"{self._file} is held by another process"
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self._file, LOCK_SECONDS, busy):
                before = _loaded(self._file)
                lost = before is None or before.lost
                tools = change(before.tools if before else {})
                write_whole(self._file, _data(_File(tools=tools, lost=lost), needed, self._file))
        except OSError as error:
            raise BadInput(f"{self._file} cannot be written: {error.strerror or error}") from None
        except HoldfastError as error:
            raise BadInput(str(error)) from None


async def remember(work: Callable[[], None]) -> None:
    """Have something written down, and keep nobody else waiting. What cannot be is told, and asked about again."""
    try:
        await asyncio.get_running_loop().run_in_executor(REMEMBERING, work)
    except BadInput as error:
        _LOGGER.warning("What is known of a server's tools is not kept: %s", Words(error))


def _data(file: _File, needed: Collection[str], path: Path) -> bytes:
    """What is written. Where there is no room, what was only seen and is not there any more makes some."""
    data = file.model_dump_json().encode()
    if len(data) > SIZE_LIMIT or len(file.tools) > TOOLS_LIMIT:
        tools = {name: kept for name, kept in file.tools.items() if kept.approved or name in needed}
        data = _File(tools=tools, lost=file.lost).model_dump_json().encode()
        if len(data) > SIZE_LIMIT or len(tools) > TOOLS_LIMIT:
            raise BadInput(f"{path} would hold over {TOOLS_LIMIT:,} tools, or {SIZE_LIMIT:,} bytes")
    return data


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
