"""One request to a server and what is known about it at any moment, also after its caller has stopped waiting.

A request that was never sent may be sent again; one that was sent may have taken effect. So it is recorded when it
happens, and not guessed afterwards. Importing this imports no `mcp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(eq=False)
class Exchange:
    """A request to a server, and its answer."""

    id: int | str | None = None
    """The JSON-RPC id; None until the session has made the request."""
    method: str = ""
    was_sent: bool = False
    """The server may have received it."""
    is_stopped: bool = False
    """The server has been told that the answer is no longer wanted."""
    answered: bool = False
    size: int = 0
    """Bytes of the answer."""
    left_out: list[str] = field(default_factory=list)
    """Why parts of the answer were left out."""

    @contextmanager
    def make_current(self) -> Iterator[None]:
        """Let what is requested in this block be this exchange."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def find_current_exchange() -> Exchange | None:
    """Return the exchange that the current task requests, if any."""
    return _CURRENT.get()


PARTS_LIMIT = 1_000
