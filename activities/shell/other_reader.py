"""The other reader of commands: a process that is asked what it sees, and may die of it.

One for this process, started when it is first needed and again when it is gone. It ends with us, by the end of the
socket between the two.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

WAIT_SECONDS = 20.0
"""For an answer. It limits itself, by the time of the processor."""

_INHERITED = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True)
class Seen:
    """What it made of a command."""

    has_error: bool
    names: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    """The words of the first programs, as they are written."""


class OtherReader:
    """Asks the process; safe in threads and after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: _Child | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return self._child.process.pid if self._child else None

    def look(self, command: str) -> Seen | None:
        """What it sees in a command; None when it did not come to its end."""
        with self._lock:
            try:
                child = self._living()
                child.line.sendall(json.dumps(command).encode() + b"\n")
                answer = json.loads(child.answers.readline())
                return Seen(answer["has_error"], tuple(answer["names"]), tuple(map(tuple, answer["commands"])))
            except (OSError, ValueError):
                self._end()
                return None

    def close(self) -> None:
        """End the process; the next look starts another."""
        with self._lock:
            self._end()

    def _living(self) -> _Child:
        if self._child and self._child.of != os.getpid():
            self._child = None  # our parent's, since we were forked
        if self._child and self._child.process.poll() is not None:
            self._end()
        self._child = self._child or _Child()
        return self._child

    def _end(self) -> None:
        if self._child and self._child.of == os.getpid():
            self._child.end()
        self._child = None


class _Child:
    def __init__(self) -> None:
        self.of = os.getpid()
        self.line, theirs = socket.socketpair()
        script = Path(__file__).with_name("other_reader_worker.py")
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", str(script), *_folders()],
                    env={name: os.environ[name] for name in _INHERITED if name in os.environ},
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                self.line.close()
                raise
        self.line.settimeout(WAIT_SECONDS)
        self.answers = self.line.makefile("rb")

    def end(self) -> None:
        self.answers.close()
        self.line.close()
        self.process.kill()
        self.process.wait()


def _folders() -> list[str]:
    """Where its packages are; a package that is missing makes it die, which is told like every other death."""
    found = [find_spec(name) for name in ("tree_sitter", "tree_sitter_bash")]
    return list(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in found if spec and spec.origin))


OTHER_READER = OtherReader()
atexit.register(OTHER_READER.close)
