"""The real command in subprocesses: a data folder, `holdfast up` on it, and everything a user would type."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast import Holdfast, HoldfastPlugin, Settings
from holdfast.domain.calls.events import Event
from holdfast.workers.runtime.connect import connect_client
from tests.cli import warm

COMMAND = [sys.executable, "-m", "holdfast.workers.cli"]
SECONDS = 60.0
"""Any command and any wait may take so long: the machine may be busy with other tests."""


class Up:
    """A running `holdfast up` and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self.where: dict[str, Any] = {}

    def wait_for(self, text: str, seconds: float = SECONDS) -> str:
        """The next line that holds `text`."""
        return _line_with(self.process, lambda line: text in line, seconds, self.said)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        try:
            self.said += self.process.communicate(timeout=SECONDS)[0].splitlines()
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode


class Home:
    """One data folder and one workspace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "HOLDFAST_"))}
        self.env = {
            **kept,
            "HOLDFAST_DATA": str(self.data),
            "HOLDFAST_WORKSPACE": str(self.workspace),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "TERM": "xterm-256color",
        }

    def run(self, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        if warm.suits(env):
            return warm.run(arguments, stdin=stdin, env={**self.env, **env}, cwd=self.folder, seconds=SECONDS)
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            env={**self.env, **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def json(self, *arguments: str, stdin: str = "") -> Any:
        """The JSON document a command that succeeds answers with."""
        done = self.run(*arguments, "--json", stdin=stdin)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def json_once(self, so: Callable[[Any], object], *arguments: str) -> Any:
        """The JSON document a command answers with, once it is so: what the server lists is a moment behind."""
        deadline = time.monotonic() + SECONDS
        while not so(found := self.json(*arguments)):
            assert time.monotonic() < deadline, found
        return found

    def listed(self, turn: str, count: int = 1) -> list[dict[str, Any]]:
        """What the inbox has of a turn, once it is this many."""
        found = self.json_once(lambda found: found["total"] == count, "inbox", "--turn", turn)
        return list(found["approvals"])

    def start(self, turn: str, *calls: dict[str, Any], options: tuple[str, ...] = ()) -> None:
        """A turn of these calls."""
        done = self.run("turn", "start", "--calls", "-", "--id", turn, *options, stdin=json.dumps(calls))
        assert done.returncode == 0, done.stderr

    def seen(self, turn: str, **fields: object) -> dict[str, Any]:
        """The first event of a turn with these fields, as `turn watch --json` tells it.

        Watched from here, since this is only how tests wait: a command would spend most of a second on its imports.
        """
        with ThreadPoolExecutor(1) as thread:  # the test itself may run in a loop
            return thread.submit(asyncio.run, self._first_event(turn, fields)).result()

    async def _first_event(self, turn: str, fields: dict[str, object]) -> dict[str, Any]:
        settings = Settings(data=self.data, workspace=self.workspace)
        told: list[dict[str, Any]] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                client = await connect_client(settings, HoldfastPlugin(settings), embedded=True)
                async with aclosing(Holdfast(client).get_turn(turn).watch()) as items:  # type: ignore[type-var]
                    async for item in items:
                        if isinstance(item, Event):
                            told.append(item.model_dump(mode="json"))
                            if all(told[-1].get(name) == value for name, value in fields.items()):
                                return told[-1]
        raise AssertionError(f"no event of {turn!r} has {fields}; what came:\n" + "\n".join(map(str, told)))

    @contextmanager
    def up(self, *options: str) -> Iterator[Up]:
        """`holdfast up --json` on this data folder, until the end of the block."""
        process = subprocess.Popen(
            [*COMMAND, "up", "--port", "0", "--json", *options],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
        )
        up = Up(process)
        try:
            up.where = json.loads(up.wait_for('"address"'))
            yield up
        finally:
            if process.poll() is None:
                up.end()
            if process.stdout:
                process.stdout.close()

    def processes(self) -> set[int]:
        """Every living process that belongs to this folder: by its environment or its working directory."""
        mark = str(self.folder).encode()
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    here = os.readlink(entry / "cwd").startswith(str(self.folder))
                    if here or mark in (entry / "environ").read_bytes():
                        found.add(int(entry.name))
        return found

    def all_gone(self, seconds: float = SECONDS) -> bool:
        """Wait until no process of this folder is left, those included that others start while they end."""
        deadline = time.monotonic() + seconds
        while found := self.processes():
            for pid in found:
                with suppress(ProcessLookupError):
                    handle = os.pidfd_open(pid)
                    ended, _, _ = select.select([handle], [], [], max(0, deadline - time.monotonic()))
                    os.close(handle)
                    if not ended:
                        return False
        return True


def call(tool: str, **arguments: object) -> dict[str, Any]:
    """A call as a calls file holds it."""
    return {"tool": tool, "arguments": arguments}


def _line_with(process: subprocess.Popen[str], wanted: Callable[[str], bool], seconds: float, said: list[str]) -> str:
    """Read lines until one is wanted. A process that stays silent too long is killed, and the test fails."""
    assert process.stdout
    watchdog = threading.Timer(seconds, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            said.append(line.rstrip("\n"))
            if wanted(line):
                return line
    finally:
        watchdog.cancel()
        watchdog.join()
    raise AssertionError("the line never came; what came:\n" + "\n".join(said))
