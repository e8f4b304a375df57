"""One connection: a request must arrive within a time, and its answer be taken. uvicorn by itself waits for ever."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

ARRIVE_SECONDS = 30.0
TAKE_SECONDS = 30.0
"""Within which whoever asked takes some of an answer that waits to be sent."""


class Connection(H11Protocol):
    """HTTP/1.1 that hangs up on whoever does not come to the point."""

    _patience: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self.access_log = False  # uvicorn's own has queries in it, and is on where anybody listens to its logger
        self._start_waiting()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest, unless it is all there."""
        super().data_received(data)
        self._start_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        self._stop_taking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for somebody to take what was written: whoever does not would keep a place for ever."""
        super().pause_writing()
        self._stop_taking()
        self._taking = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It was taken."""
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
