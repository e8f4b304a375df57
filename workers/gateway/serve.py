"""Serving the gateway until SIGTERM or SIGINT; running requests get some seconds to finish.

uvicorn by itself waits for ever for a client that neither sends its request nor reads its answer.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.client.client import Holdfast
from holdfast.config.settings import Settings
from holdfast.errors import BadInput, HoldfastError
from holdfast.workers.gateway import READY_LINE, STOP_SECONDS
from holdfast.workers.gateway.app import build_application
from holdfast.workers.gateway.auth import HostNames
from holdfast.workers.gateway.tokens import TokenFile
from holdfast.workers.runtime.worker import stop_on_signals

ARRIVE_SECONDS = 30.0
TAKE_SECONDS = 30.0
"""Within which a client has to read some of an answer that waits to be sent."""


class Connection(H11Protocol):
    """HTTP/1.1 that closes the connection to a client that is too slow."""

    _patience: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self.access_log = False  # uvicorn's own log has queries in it, and is on when its logger is
        self._start_waiting()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of the request."""
        super().data_received(data)
        self._start_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._stop_taking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read: one that does not would keep its place for ever."""
        super().pause_writing()
        self._stop_taking()
        self._taking = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        self._stop_taking()
        super().resume_writing()

    def _start_waiting(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_waiting()
        elif self._patience is None:
            self._patience = self.loop.call_later(ARRIVE_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None


GRACE_SECONDS = 6
"""How long running requests may take when the gateway ends."""
MAX_CONNECTIONS = 500
HEAD_LIMIT = 32_768
"""Bytes of a request's line and headers."""


@dataclass(frozen=True)
class Listener:
    """A listening socket, and its address."""

    socket: socket.socket
    url: str


def open_listener(host: str, port: int, *, or_any: bool = False) -> Listener:
    """Listen on this port, or on any free one if it is taken and `or_any` is set. BadInput for an invalid host."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise BadInput(f"{host!r} is not a host to listen on: {getattr(error, 'strerror', None) or error}") from None
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
        made.setblocking(False)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE and or_any:
            return open_listener(host, 0)
        if error.errno == errno.EADDRINUSE:
            raise HoldfastError(f"port {port} of {host} is in use: choose another") from None
        raise HoldfastError(f"cannot listen on port {port} of {host!r}: {error.strerror}") from None
    shown = f"[{host}]" if ":" in host else host
    return Listener(made, f"http://{shown}:{made.getsockname()[1]}")


async def run_gateway(
    holdfast: Holdfast,
    settings: Settings,
    listener: Listener,
    *,
    host: str,
    say: Callable[[str], None] = print,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until a signal or `stop`."""
    stopping = stop or stop_on_signals(STOP_SECONDS)
    app = build_application(holdfast, TokenFile(settings.tokens_file), HostNames(host, settings.gateway.names))
    if not logging.getLogger().isEnabledFor(logging.INFO):
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # else clients that send garbage fill our log
    server = _Server(
        uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            h11_max_incomplete_event_size=HEAD_LIMIT,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener.socket]))
    waiting = asyncio.create_task(stopping.wait())
    say(f"{READY_LINE}: {listener.url}, process {os.getpid()}")
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    server.should_exit = True
    await serving


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
