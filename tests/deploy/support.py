"""What the tests of deploy/ share: where it is, its tools, and commands."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from holdfast.workers.runtime.worker import READY_LINE
from tests.support.programs import PACKAGES, require_program

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SECONDS = 120.0


def tool(name: str) -> str:
    """A tool that checks what we ship: beside our Python, or of the machine, where it may be missing."""
    beside = Path(sys.executable).with_name(name)
    if beside.exists():
        return str(beside)
    return require_program(name) if name in PACKAGES else name


def checked(name: str, *arguments: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """What a tool says of something that it has nothing against."""
    done = subprocess.run(
        [tool(name), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{name} {arguments}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def loaded(file: Path) -> Any:
    """A YAML file of one document."""
    return yaml.safe_load(file.read_text())


def documents(text: str) -> list[dict[str, Any]]:
    """Those of a YAML file of several."""
    return [found for found in yaml.safe_load_all(text) if found]


def read(*parts: str) -> str:
    """A file below deploy/."""
    return DEPLOY.joinpath(*parts).read_text()


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Caller:
    """Somebody who types commands in an environment of their own: nothing of ours is in it."""

    def __init__(self, folder: Path, command: Sequence[str | Path] | None = None, **environment: str) -> None:
        self.data = folder / "data"
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.command = [str(word) for word in command or (sys.executable, "-m", "holdfast.workers.cli")]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "HOLDFAST_"))}
        folders = {"HOLDFAST_DATA": str(self.data), "HOLDFAST_WORKSPACE": str(self.workspace)}
        self.environment = {**kept, "HOME": str(folder), **folders, **environment}
        self.folder = folder

    async def started(self, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
        """A command that was begun."""
        return await asyncio.create_subprocess_exec(
            *self.command,
            *arguments,
            env={**self.environment, **environment},
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str, stdin: str = "", **environment: str) -> Done:
        """One command, to its end."""
        process = await self.started(*arguments, **environment)
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate(stdin.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())

    async def json(self, *arguments: str, stdin: str = "") -> Any:
        """What a command that succeeds answers."""
        done = await self.run(*arguments, "--json", stdin=stdin)
        assert done.code == 0, done.err
        return json.loads(done.out)

    @asynccontextmanager
    async def staying(self, *arguments: str, ready: str = READY_LINE) -> AsyncIterator[Staying]:
        """A command that stays, once it says that it is ready; ended with SIGTERM."""
        process = await self.started(*arguments)
        staying = Staying(process, contained="--as-pid-1" in self.command)
        try:
            await staying.heard(ready)
            yield staying
            if process.returncode is None:
                await staying.end()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


class Staying:
    """A process that stays."""

    def __init__(self, process: asyncio.subprocess.Process, *, contained: bool = False) -> None:
        self.process = process
        self.contained = contained
        """Is it the first process of a container, below the one that we know?"""
        self.said = ""

    async def heard(self, ready: str) -> str:
        """The line that begins so."""
        assert self.process.stdout
        assert self.process.stderr
        async with asyncio.timeout(SECONDS):
            while line := (await self.process.stdout.readline()).decode():
                self.said += line
                if line.startswith(ready):
                    return line
        raise AssertionError(self.said + (await self.process.stderr.read()).decode())

    async def end(self) -> Done:
        """SIGTERM, and all that it said."""
        os.kill(_first_below(self.process.pid) if self.contained else self.process.pid, signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            out, err = await self.process.communicate()
        self.said += out.decode() + err.decode()
        assert self.process.returncode is not None
        return Done(self.process.returncode, out.decode(), err.decode())


def _first_below(pid: int) -> int:
    """A container's first process, by that of the program which made it."""
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


async def approved_turn(caller: Caller, turn: str, command: str) -> str:
    """A turn of one command, started, approved and answered by commands alone; what it said."""
    calls = json.dumps([{"tool": "shell", "arguments": {"command": command}}])
    done = await caller.run("turn", "start", "--calls", "-", "--id", turn, stdin=calls)
    assert done.code == 0, done.err
    async with asyncio.timeout(SECONDS):
        while not (await caller.json("inbox", "--turn", turn))["approvals"]:
            pass
    done = await caller.run("approve", f"{turn}/b1c1/1")
    assert done.code == 0, done.err
    done = await caller.run("turn", "watch", turn)
    assert done.code == 0, done.err
    done = await caller.run("turn", "show", turn, "b1c1")
    assert done.code == 0, done.err
    return done.out
