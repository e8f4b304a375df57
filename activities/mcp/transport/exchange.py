"""One request of ours and its answer: what is known of it at any moment, also by whoever has just stopped waiting.

What was never handed over is sent again; what was may have taken effect. So it is noted where it happens, and not
guessed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(eq=False)
class Exchange:
    """A request on its way."""

    id: int | str | None = None
    """The protocol's id of it; none as long as nobody was to send it."""
    method: str = ""
    begun: bool = False
    """May the server have got it?"""
    told: bool = False
    """The server has been told that nobody wants its answer any more."""
    answered: bool = False
    size: int = 0
    """Bytes of the answer."""
    remarks: list[str] = field(default_factory=list)
    """What of the answer was left out, and why."""

    @contextmanager
    def make_current(self) -> Iterator[None]:
        """What is asked in this block is this request."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def find_current_exchange() -> Exchange | None:
    """The request that this is done for."""
    return _CURRENT.get()


PARTS_LIMIT = 1_000
