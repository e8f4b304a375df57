"""The runs of a worker's commands: started, found again, removed.

A run is identified by its key: starting one that exists returns that run, living or ended.
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

from holdfast.activities.process.command import MARKER, TERM_SECONDS, Command
from holdfast.activities.process.output_store import SAVED_LIMIT
from holdfast.activities.supervision.launch import Placement, explain_unsupported, find_placement, launch_supervisor
from holdfast.activities.supervision.run_protocol import TAKEN_ANSWER, Request, clear_run, take_lock
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.activities.supervision.supervised_run import CommandOwner, SupervisedRun, read_status
from holdfast.config.settings import Settings
from holdfast.domain.calls.tool import ToolFailure
from holdfast.errors import BadInput
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning

LEASE_SECONDS = 120.0
"""The time that a command goes on without a worker that attends."""
NAME_PATTERN = "[0-9a-f]{32}"
"""A regular expression for the name of a run."""
MAX_TRIES = 5
STARTING_SECONDS = 30.0
POLL_SECONDS = 0.01


class Runs:
    """The runs in one folder."""

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
        """Held while background commands are counted and one is started."""

    async def get_placement(self) -> Placement:
        """Find out how supervisors are started here, by trying at the first call."""
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
        owner: CommandOwner | None = None,
    ) -> SupervisedRun:
        """Start the command under this key, or attach to the run that has it already.

        ToolFailure when it cannot be started, or not in this sandbox. Must not be cancelled: see `run_to_end`.
        """
        folder = self._locate_folder(key)
        refused = TAKEN_ANSWER
        for _ in range(MAX_TRIES):
            if found := await self.attach(key):  # also after a refusal: the folder counts, not the answer
                return _check_digest(found, digest)
            if refused != TAKEN_ANSWER:
                raise _build_not_started(refused)
            request = await self._build_request(command, key, digest, sandbox, owner)
            placement = await self.get_placement()
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                refused = await launch_supervisor(folder, request, prefix=placement.build_prefix(folder.name))
            except OSError as error:
                raise _build_not_started(str(error)) from error
            if not refused:
                return await self.attach(key) or SupervisedRun(folder, key)
        raise _build_not_started("others keep removing its run")

    async def attach(self, key: str) -> SupervisedRun | None:
        """The run with this key, living or ended; None when there is no trace, so that it has not begun.

        What a lost run left behind is killed before.
        """
        folder = self._locate_folder(key)
        run = SupervisedRun(folder, key)
        deadline = time.monotonic() + STARTING_SECONDS
        while (now := read_status(folder)).state == "starting" and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        if now.state == "absent":
            return None
        if now.ended and now.ended.why == "lost":
            await run.clean_up()
        return run

    def derive_name(self, key: str) -> str:
        """The name of the run with this key, which identifies it without the key."""
        return self._locate_folder(key).name

    def find(self, name: str) -> SupervisedRun | None:
        """The background command with this name, living or ended; None when there is none."""
        if not re.fullmatch(NAME_PATTERN, name):
            return None
        run = read_status(self._folder / name).run
        return SupervisedRun(self._folder / name, run.key) if run.owner else None

    def list_owned(self, excluded: Collection[str] = ()) -> dict[str, SupervisedRun]:
        """The background commands, living or ended, by their names; without those that are `excluded`."""
        found = {}
        for place in _list_folders(self._folder):
            if place.name not in excluded and (run := read_status(place).run).owner:
                found[place.name] = SupervisedRun(place, run.key)
        return found

    async def remove_run(self, key: str) -> bool:
        """Remove a run that has ended; whether it is gone. A living one stays."""
        return await asyncio.to_thread(_remove_run, self._locate_folder(key))

    async def sweep(self, older_than: float) -> int:
        """Remove runs that ended that many seconds ago, and kill what lost ones left behind; the number removed."""
        swept = 0
        for place in await asyncio.to_thread(_list_folders, self._folder):
            now = read_status(place)
            if now.run.key and now.ended and now.ended.why == "lost":
                await SupervisedRun(place, now.run.key).clean_up()
            with suppress(OSError):
                if time.time() - place.stat().st_mtime >= older_than:
                    swept += await asyncio.to_thread(_remove_run, place)
        return swept

    async def _build_request(
        self, command: Command, key: str, digest: str, sandbox: Sandbox | None, owner: CommandOwner | None
    ) -> Request:
        if sandbox:
            await sandbox.check_available()
        return Request(
            key=key,
            digest=digest,
            words=sandbox.build_words(command) if sandbox else command.words,
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

    def _locate_folder(self, key: str) -> Path:
        """The folder of a run, named by a hash of the key, which may hold any character."""
        return self._folder / hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _build_not_started(why: str) -> ToolFailure:
    return ToolFailure("command_not_started", f"The command could not start: {why}")


def _check_digest(run: SupervisedRun, digest: str) -> SupervisedRun:
    found = run.record.digest
    if digest and found and found != digest:
        raise ToolFailure("another_command", "Another command has run under this key; nothing was started")
    return run


def _list_folders(folder: Path) -> list[Path]:
    try:
        return sorted(place for place in folder.iterdir() if place.is_dir())
    except FileNotFoundError:
        return []


def _remove_run(folder: Path) -> bool:
    """Remove a run unless it lives; whether it is gone."""
    if not folder.exists():
        return True
    lock = take_lock(str(folder))
    if lock is None:
        return False
    try:
        clear_run(str(folder))
    finally:
        os.close(lock)
    return True


def open_runs(settings: Settings) -> Runs | None:
    """The runs of this host; None where the system does not support supervisors."""
    if explain_unsupported():
        return None
    return Runs(
        settings.runs_folder,
        lease_seconds=settings.tools.shell.lease_seconds,
        most_bytes=settings.limits.saved_output_bytes,
    )


def open_sandbox(settings: Settings) -> Sandbox | None:
    """The sandbox of the settings; None without one. BadInput when this system does not support supervisors."""
    shell = settings.tools.shell
    if shell.sandbox == "none":
        return None
    if why := explain_unsupported():
        raise BadInput(f"tools.shell.sandbox = {shell.sandbox!r} cannot be had here: {why}")
    return Sandbox(settings.workspace, network=shell.network, hidden=(settings.data,))


async def check_sandbox(settings: Settings) -> list[Finding]:
    """Can commands be closed in, as the settings want it? BadInput where no system like this can."""
    sandbox = open_sandbox(settings)
    if sandbox is None:
        return [report_ok("commands run without one, as the settings have it")]
    if why := await sandbox.explain_missing():
        do = 'make it available, or set tools.shell.sandbox = "none": workers do not start like this'
        return [report_problem(f"commands are to run in one, but {why}", do)]
    return [report_ok("commands run in one, and it can be made here")]


async def check_supervision() -> list[Finding]:
    """Do commands outlive their worker here?"""
    if why := explain_unsupported():
        return [report_warning(f"commands end with their worker: {why}", "run workers on Linux")]
    placement = await find_placement()
    if placement.worry:
        return [
            report_warning(
                f"commands may not outlive their worker: {placement.worry}", "set KillMode=process in the unit"
            )
        ]
    return [report_ok(f"commands outlive their worker{', but ' + placement.note if placement.note else ''}")]
