"""What a check is: a name, something to look at, and how long that may take.

A file of this folder holds one group of checks and lists them in `CHECKS`; `__init__.py` lists the files. A check
looks and changes nothing, tells no secret, and says for everything that is not well what would help.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.config.settings import Settings
from holdfast.util.findings import Finding, problem, warning

T = TypeVar("T")

CHECK_SECONDS = 10.0
_NOT_ALLOWED = {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED}


def _read_clock() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class CheckContext:
    """What is looked at from here."""

    settings: Settings
    server: Client | None = None
    """None where it cannot be reached, or is not to be."""
    now: Callable[[], datetime] = _read_clock
    """This machine's clock."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def client(self) -> Client:
        """The server, for checks that need one."""
        assert self.server, "checks that need a server are only asked when there is one"
        return self.server


@dataclass(frozen=True)
class Check:
    """One thing to look at."""

    name: str
    look: Callable[[CheckContext], Awaitable[list[Finding]]]
    seconds: float = CHECK_SECONDS
    remote: bool = False
    """Does it need the server?"""


async def run_in_thread(work: Callable[[], T]) -> T:
    """What a function gives that may block, in a thread nobody waits for: a disk of a server that is gone hangs."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def settle_future(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    def run_body() -> None:
        try:
            result, error = work(), None
        except BaseException as raised:
            result, error = None, raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle_future, result, error)

    threading.Thread(target=run_body, daemon=True, name="holdfast-doctor").start()
    found: T = await done
    return found


def report_unanswered(error: RPCError, what: str) -> Finding:
    """The server did not say what was asked: who may not ask is no problem of the house."""
    if error.status in _NOT_ALLOWED:
        return warning(
            f"{what} cannot be looked at: {error.message}", "ask somebody who may, or give this user the right"
        )
    return problem(
        f"{what} cannot be looked at: {error.message}", "look at the server and its log", lost=_is_unavailable(error)
    )


def _is_unavailable(error: RPCError) -> bool:
    return error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED)
