"""MCP servers for tests: real ones that nobody here wrote, installed once into a folder of their own, and ours.

They are no dependencies of Holdfast, so they live outside of its environment: in `$HOLDFAST_TEST_SERVERS`, or in the
user's cache. Where they cannot be installed (no network, no npm) their tests are skipped; with `HOLDFAST_TEST_SERVERS`
set they fail, so that CI does not pass without them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.schema import McpServerSettings, McpSettings
from tests.support.programs import require_program

PYTHON = ("mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")
NODE = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/conformance@0.1.16",
    "node@22",
)
"""The conformance suite needs a newer node than some systems have."""
OURS = Path(__file__).with_name("mcp_server.py")
FOLDER = "HOLDFAST_TEST_SERVERS"
INSTALL_SECONDS = 600


def python_server(name: str) -> str:
    """The program of a server from PyPI."""
    return str(_installed("python", PYTHON) / "bin" / name)


def node_server(name: str) -> str:
    """The program of a server from npm."""
    return str(_installed("node", NODE) / "node_modules" / ".bin" / name)


def conformance(scenario: str, client: Sequence[str]) -> list[str]:
    """A command that has the official suite test a client in one of its scenarios."""
    modules = _installed("node", NODE) / "node_modules"
    suite = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    words = [str(modules / ".bin" / "node"), str(suite), "client"]
    return [*words, "--command", shlex.join(client), "--scenario", scenario]


@cache
def _installed(kind: str, packages: Sequence[str]) -> Path:
    """The folder with these servers, made by whichever process comes first."""
    root = Path(os.environ.get(FOLDER) or Path.home() / ".cache" / "holdfast-test-servers")
    folder = root / kind
    ready = folder / ".ready"
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f"{kind}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists() or ready.read_text() != "\n".join(packages):
            _install(kind, folder, packages)
            ready.write_text("\n".join(packages))
    return folder


def _install(kind: str, folder: Path, packages: Sequence[str]) -> None:
    folder.mkdir(exist_ok=True)
    if kind == "python":
        steps = [[sys.executable, "-m", "venv", str(folder)], [f"{folder}/bin/pip", "install", "--quiet", *packages]]
    else:
        quietly = ("--silent", "--no-audit", "--no-fund")
        steps = [[require_program("npm"), "install", *quietly, "--prefix", str(folder), *packages]]
    for step in steps:
        try:
            subprocess.run(step, check=True, capture_output=True, timeout=INSTALL_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", b"") or b""
            reason = f"servers to test with could not be installed: {error} {output.decode(errors='replace')[-500:]}"
            pytest.fail(reason) if os.environ.get(FOLDER) else pytest.skip(reason)


def ours(*arguments: str, **more: Any) -> McpServerSettings:
    """Our own server, which does what its arguments say."""
    return McpServerSettings(command=sys.executable, args=(str(OURS), *arguments), **more)


def servers(**by_name: McpServerSettings) -> McpSettings:
    """Settings with these servers."""
    return McpSettings(servers=by_name)


class HttpServer:
    """A server in a process of its own, at a port that stays the same when it is started again."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], port: int) -> None:
        self._command = command
        self._environment = {**os.environ, **environment}
        self.port = port
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process, "it was started"
        return self._process.pid

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(30):
            while not await asyncio.to_thread(listens, self.port):
                assert self._process.returncode is None, "it ended before it listened"
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def http_server(command: Sequence[str], port: int, **environment: str) -> AsyncIterator[HttpServer]:
    """A server that listens on a port, until the end of the block."""
    server = HttpServer(command, environment, port)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()


def free_port() -> int:
    """A port that nobody listens on."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    with closing(socket.socket()) as trying:
        trying.settimeout(1)
        return trying.connect_ex(("127.0.0.1", port)) == 0
