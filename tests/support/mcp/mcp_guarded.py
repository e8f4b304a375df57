"""A server that wants OAuth, in a process of its own, and somebody with a browser who logs in to it."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx2

from holdfast import Settings
from holdfast.config.schema import McpServerSettings
from holdfast.workers.mcp.servers import LoginStatus, log_in
from tests.cli.warm import start_script
from tests.support.mcp.mcp_servers import free_port, listens

PROGRAM = Path(__file__).with_name("mcp_oauth.py")
SECRET = "canary-configured-secret+/="
"""Of the client that the authorization server knows from before."""


class ForkedServer:
    """Its process: half of what it does is to import, and it is started for every test."""

    def __init__(self, folder: Path, port: int) -> None:
        self._arguments = (str(folder), str(port))
        self._port = port
        self._process: BaseProcess | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = await asyncio.to_thread(start_script, str(PROGRAM), self._arguments, os.environ)
        async with asyncio.timeout(30):
            while not await asyncio.to_thread(listens, self._port):
                assert self._process.exitcode is None, "it ended before it listened"
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process:
            self._process.kill()
            await asyncio.to_thread(self._process.join)


class Guarded:
    """The server and its authorization server: what they are told to do, and what they were asked."""

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = port
        self.process: ForkedServer
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.issuer = f"http://localhost:{port}"

    def settings(self, **more: Any) -> McpServerSettings:
        """As a worker knows it."""
        return McpServerSettings(url=self.url, **more)

    def does(self, **options: Any) -> None:
        """From now on it does this, and nothing else, otherwise than it should."""
        (self.folder / "options.json").write_text(json.dumps(options))

    def log(self, begins: str = "") -> list[str]:
        """What the authorization server was asked."""
        return [line for line in self._lines("log") if line.startswith(begins)]

    @property
    def effects(self) -> list[str]:
        """What its tool did."""
        return self._lines("effects")

    @property
    def secrets(self) -> list[str]:
        """All that it has given out, and what it knew from before."""
        return [*self._lines("secrets"), SECRET]

    async def expire(self) -> None:
        """Every token that it has given out is too old."""
        async with httpx2.AsyncClient() as client:
            (await client.post(f"{self.issuer}/expire")).raise_for_status()

    def _lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


@asynccontextmanager
async def guarded_server(folder: Path) -> AsyncIterator[Guarded]:
    """One, until the end of the block."""
    made = Guarded(folder, free_port())
    made.process = ForkedServer(folder, made.port)
    try:
        await made.process.start()
        yield made
    finally:
        await made.process.kill()


async def followed(url: str) -> httpx2.Response:
    """Where a browser ends that opens this address."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=20) as client:
        return await client.get(url)


async def somebody_logs_in(
    settings: Settings, name: str, browse: Callable[[str], Any] = followed, seconds: float = 20
) -> LoginStatus:
    """Log in as `holdfast mcp login` does, with a browser that follows every redirect."""
    browsing: list[asyncio.Task[Any]] = []

    def tell(words: str) -> None:
        if found := re.search(r"https?://\S+", words):
            browsing.append(asyncio.ensure_future(browse(found[0])))

    try:
        return await log_in(settings, name, tell, opens=False, pastes=False, seconds=seconds)
    finally:
        for task in browsing:
            await task
