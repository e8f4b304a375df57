"""Who is at work on which call right now, by files outside: so that it can be told whether a kill hit anything, and
whether what became of a call is settled yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

from tests.support.marks import alive

Who = Literal["worker", "tool"]
"""A tool may go on after its worker's attempt has ended; commands and servers mark themselves."""
_NUMBERS = count()


class Attempts:
    """Marks of processes: workers make and remove their own, commands theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "attempts"

    @contextmanager
    def here(self, label: str, who: Who) -> Iterator[None]:
        """This process is at work on a call; a mark that outlives it is of a dead process, and counts for nothing."""
        mark = self.folder / f"{label}.{who}.{os.getpid()}.{next(_NUMBERS)}"
        mark.touch()
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def of_worker(self, pid: int) -> int:
        """How many calls a worker attempts."""
        return sum(1 for _, who, other in self._marks() if (who, other) == ("worker", pid))

    def of_servers(self) -> set[int]:
        """The MCP servers that are at work."""
        return {pid for _, who, pid in self._marks() if who == "server"}

    def running(self) -> int:
        """How many attempts there are, of the living."""
        return sum(1 for _, who, pid in self._marks() if who == "worker" and alive(pid))

    def go_on(self, label: str) -> bool:
        """Is anything alive that may still have an effect for this call?"""
        return any(other == label and alive(pid) for other, _, pid in self._marks())

    def forget(self, pid: int) -> None:
        """The marks of a worker that is dead."""
        for mark in self.folder.glob(f"*.*.{pid}.*"):
            mark.unlink(missing_ok=True)

    def _marks(self) -> Iterator[tuple[str, str, int]]:
        for name in os.listdir(self.folder):
            label, who, pid, *_ = name.split(".")
            yield label, who, int(pid)
