"""All runs of a host: started once, found again by any worker, forgotten when nobody needs them any more.

A run is named by its key: whoever asks to start what has been started gets that very run, living or ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from holdfast.activities.commands import Command
from holdfast.activities.outputs import SAVED_LIMIT
from holdfast.activities.processes import MARKER, TERM_SECONDS
from holdfast.activities.supervision import folder as files
from holdfast.activities.supervision.ended import Owner, look
from holdfast.activities.supervision.launching import launch
from holdfast.activities.supervision.placing import Placement, find_placement
from holdfast.activities.supervision.request import Request
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.activities.supervision.supervised import Supervised
from holdfast.activities.supervision.supervisor import TAKEN
from holdfast.tools import ToolFailure

LEASE_SECONDS = 120.0
"""How long a command goes on that no worker attends to."""
NAME = "[0-9a-f]{32}"
"""What the name of a run looks like."""
TRIES = 5
STARTING_SECONDS = 30.0
POLL_SECONDS = 0.01


class Runs:
    """The runs below one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        lease_seconds: float = LEASE_SECONDS,
        grace_seconds: float = TERM_SECONDS,
        most_bytes: int = SAVED_LIMIT,
        placement: Placement | None = None,
    ) -> None:
        self._folder = folder.absolute()
        self._lease_seconds = lease_seconds
        self._grace_seconds = grace_seconds
        self._most_bytes = most_bytes
        self._placement = placement
        self.starting = asyncio.Lock()
        """Held by whoever counts background commands before it starts one."""

    async def placement(self) -> Placement:
        """How supervisors are started here; found out once, where nobody said."""
        if self._placement is None:
            self._placement = await find_placement()
        return self._placement

    async def supervise(
        self,
        command: Command,
        key: str,
        *,
        digest: str = "",
        sandbox: Sandbox | None = None,
        owner: Owner | None = None,
    ) -> Supervised:
        """Start the command under this key, or attach to the run that has it already.

        ToolFailure when it cannot be started, or not in this sandbox. Not to be cancelled half-way: see `to_the_end`.
        """
        folder = self._place(key)
        refused = TAKEN
        for _ in range(TRIES):
            if found := await self.attach(key):  # also after a refusal: what is there counts, not what was said
                return _of(found, digest)
            if refused != TAKEN:
                raise _not_started(refused)
            request = await self._request(command, key, digest, sandbox, owner)
            placement = await self.placement()
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                refused = await launch(folder, request, prefix=placement.prefix(folder.name))
            except OSError as error:
                raise _not_started(str(error)) from error
            if not refused:
                return await self.attach(key) or Supervised(folder, key)
        raise _not_started("others keep removing its run")

    async def attach(self, key: str) -> Supervised | None:
        """The run with this key, living or ended; None when there is no trace of one, so that it has not begun.

        Of a run whose supervisor is gone nothing is left running.
        """
        folder = self._place(key)
        run = Supervised(folder, key)
        deadline = time.monotonic() + STARTING_SECONDS
        while (now := look(folder)).state == "starting" and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        if now.state == "absent":
            return None
        if now.ended and now.ended.why == "lost":
            await run.clean_up()
        return run

    def name_of(self, key: str) -> str:
        """The name of a run, which leads to it without its key."""
        return self._place(key).name

    def find(self, name: str) -> Supervised | None:
        """The background command with this name, living or ended; None when there is none."""
        if not re.fullmatch(NAME, name):
            return None
        run = look(self._folder / name).run
        return Supervised(self._folder / name, run.key) if run.owner else None

    def owned(self, besides: Collection[str] = ()) -> dict[str, Supervised]:
        """The background commands, living or ended, by their names; without those that are left out."""
        found = {}
        for place in _places(self._folder):
            if place.name not in besides and (run := look(place).run).owner:
                found[place.name] = Supervised(place, run.key)
        return found

    async def forget(self, key: str) -> bool:
        """Remove a run that is over; whether there is none any more. One that lives stays."""
        return await asyncio.to_thread(_remove, self._place(key))

    async def sweep(self, older_than: float) -> int:
        """Remove runs that have been over for so many seconds, and end what lost ones left behind; how many went."""
        swept = 0
        for place in await asyncio.to_thread(_places, self._folder):
            now = look(place)
            if now.run.key and now.ended and now.ended.why == "lost":
                await Supervised(place, now.run.key).clean_up()
            with suppress(OSError):
                if time.time() - place.stat().st_mtime >= older_than:
                    swept += await asyncio.to_thread(_remove, place)
        return swept

    async def _request(
        self, command: Command, key: str, digest: str, sandbox: Sandbox | None, owner: Owner | None
    ) -> Request:
        if sandbox:
            await sandbox.require()
        return Request(
            key=key,
            digest=digest,
            words=sandbox.words(command) if sandbox else command.words,
            directory=str(command.directory),
            environment={**command.environment, MARKER: key},
            seconds=command.seconds,
            lease_seconds=self._lease_seconds,
            grace_seconds=self._grace_seconds,
            most_bytes=self._most_bytes,
            sandboxed=sandbox is not None,
            follow=command.follow,
            input=command.input,
            owner=owner.model_dump() if owner else None,
        )

    def _place(self, key: str) -> Path:
        """Nothing of the key is in the name: it may hold anything."""
        return self._folder / hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _not_started(why: str) -> ToolFailure:
    return ToolFailure("command_not_started", f"The command could not start: {why}")


def _of(run: Supervised, digest: str) -> Supervised:
    found = run.run.digest
    if digest and found and found != digest:
        raise ToolFailure("another_command", "Another command has run under this key; nothing was started")
    return run


def _places(folder: Path) -> list[Path]:
    try:
        return sorted(place for place in folder.iterdir() if place.is_dir())
    except FileNotFoundError:
        return []


def _remove(folder: Path) -> bool:
    """Whether there is no such run any more."""
    if not folder.exists():
        return True
    lock = files.take(str(folder))
    if lock is None:
        return False
    try:
        files.clear(str(folder))
    finally:
        os.close(lock)
    return True
