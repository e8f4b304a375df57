"""The MCP server over HTTP, as a process of the harness: always at the same port, and started again when killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import closing, suppress
from pathlib import Path

from holdfast.workers.runtime.child_processes import start_child, stop_child
from tests.chaos.harness.fleet import READY_SECONDS, HarnessBroken, import_path

LOOK_SECONDS = 0.05


class Remote:
    """One server."""

    def __init__(self, outside: Path, log: Path) -> None:
        self._outside = outside
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        with closing(socket.create_server(("127.0.0.1", 0))) as found:
            self._port = int(found.getsockname()[1])

    @property
    def url(self) -> str:
        """Where workers reach it."""
        return f"http://127.0.0.1:{self._port}/mcp"

    @property
    def pid(self) -> int:
        """Of the one that lives."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        words = [sys.executable, "-m", "tests.chaos.harness.services.mcp_remote", str(self._outside), str(self._port)]
        with self._log.open("ab") as log:
            env = {**os.environ, "PYTHONPATH": import_path()}
            self._process = await start_child(words, death=signal.SIGKILL, env=env, stdout=log, stderr=log)
        async with asyncio.timeout(READY_SECONDS):
            while not await self._listens():
                if self._process.returncode is not None:
                    raise HarnessBroken(f"the MCP server did not start: see {self._log}")
                await asyncio.sleep(LOOK_SECONDS)

    async def kill(self) -> None:
        """SIGKILL, and another in its place."""
        assert self._process
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self.start()

    async def stop(self) -> None:
        """End it."""
        if self._process:
            await stop_child(self._process, 5)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True
