"""The network between one worker and the server: a proxy on loopback that can be cut, silenced and mended."""

from __future__ import annotations

import asyncio
from contextlib import suppress

HOST = "127.0.0.1"
CHUNK = 65_536


class Proxy:
    """Passes bytes on, as long as the line is whole."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._whole = True
        self._speaking = asyncio.Event()
        self._speaking.set()

    @property
    def address(self) -> str:
        """Where a worker finds the server."""
        assert self._server, "the proxy was not started"
        return f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)

    async def stop(self) -> None:
        """Close everything."""
        self.cut()
        if self._server:
            self._server.close()
            await self._server.wait_closed()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Every connection breaks, and no other comes about."""
        self._whole = False
        for writer in tuple(self._writers):
            writer.transport.abort()

    def silence(self) -> None:
        """Every connection stays, and nothing arrives."""
        self._speaking.clear()

    def mend(self) -> None:
        """All is well again; what was silenced arrives now."""
        self._whole = True
        self._speaking.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self._whole:
                await self._connect(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the other end is dead, or the harness ends
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(HOST, self._target)
        self._writers.add(their_writer)
        both = [
            asyncio.create_task(self._pass_on(reader, their_writer)),
            asyncio.create_task(self._pass_on(their_reader, writer)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._writers.discard(their_writer)
            their_writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._speaking.wait()
                writer.write(data)
                await writer.drain()
