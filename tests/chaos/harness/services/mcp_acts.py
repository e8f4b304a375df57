"""What the harness's MCP servers do: effects outside, like the tools', in a process that is not the worker's.

    append   two lines in a file, one at its beginning and one at its end: must run once
    keyed    the same, but a key that has its lines is not given more: may be repeated

In the middle the worker dies, where that is planned. Nothing but the standard library is imported: one of the servers
starts with every worker.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

KEY = "holdfast/idempotency-key"
DYING_SECONDS = 0.3
"""How long a worker may take to die that was told to."""
TOOLS = ("append", "keyed")
SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "seconds": {"type": "number"}},
    "required": ["label", "seconds"],
}
_NUMBERS = count()


class McpActs:
    """In a folder outside."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines = folder / "lines"

    @contextmanager
    def at_work(self, label: str) -> Iterator[None]:
        """Marked, so that it can be told whether this may still have an effect."""
        mark = self._folder / "attempts" / f"{label}.server.{os.getpid()}.{next(_NUMBERS)}"
        mark.touch()
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def begin(self, tool: str, label: str, key: str) -> bool:
        """The first half; False when this key has all of it."""
        if tool == "keyed" and f"{label} {key} done" in self._lines.read_text().splitlines():
            return False
        self._line(label, key, "begun")
        for number in range(2):
            with suppress(FileNotFoundError):
                planned = self._folder / "planned"
                (planned / f"{label}.in_effect.{number}").rename(planned / f"{label}.now")
                time.sleep(DYING_SECONDS)
        return True

    def finish(self, tool: str, label: str, key: str) -> str:
        """The second half, and the answer. Of one key that is repeated only one finishes."""
        with (self._folder / "keyed.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if tool != "keyed" or f"{label} {key} done" not in self._lines.read_text().splitlines():
                self._line(label, key, "done")
        return f"done {label}"

    def _line(self, label: str, key: str, what: str) -> None:
        with self._lines.open("ab", buffering=0) as file:
            file.write(f"{label} {key} {what}\n".encode())
