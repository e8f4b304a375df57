"""Where a server stands, for people and for whoever waits for it."""

from __future__ import annotations

from enum import StrEnum

from holdfast.domain.base import Data


class ServerState(StrEnum):
    """Where a server stands."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    WAITING = "waiting"
    """It could not be reached, or was lost, and is tried again."""
    UNAUTHORIZED = "unauthorized"
    """We may not use it. It is tried again, and at once when somebody has logged in."""
    REFUSED = "refused"
    """It cannot be used as it is configured."""
    CLOSED = "closed"


class ServerStatus(Data):
    """What is known of a server, for people."""

    name: str
    state: ServerState
    place: str | None = None
    protocol: str | None = None
    server: str | None = None
    """What it calls itself."""
    tools: int = 0
    problem: str | None = None
    left_out: tuple[str, ...] = ()
    """Why some of its tools are not there."""
    remarks: tuple[str, ...] = ()
    """What of the settings is about none of its tools."""


class ServerUnavailable(Exception):
    """A server that is not connected, and why."""
