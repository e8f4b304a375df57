"""Work on what strangers wrote, done aside: by a process that is asked, and may die of it.

For code that holds the interpreter while it runs, or may crash it, on input that somebody else chose. One process for
each kind of work and each of ours, started when it is first needed and again when it is gone. It limits itself by the
time of the processor, so that a busy machine changes no answer, and ends with us, by the end of the socket between us.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

WAIT_SECONDS = 20.0
"""For an answer, at the most."""
CLOSE_SECONDS = 1.0
_INHERITED = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class HelperProcess:
    """Asks the process; safe in threads and after a fork. It blocks: as long as the work takes, and no longer."""

    def __init__(self, module: str, *, cpu_seconds: float) -> None:
        """`module` has a function `answer`, which takes and gives what JSON can say."""
        self._module = module
        self._cpu_seconds = cpu_seconds
        self._lock = threading.Lock()
        self._child: _ChildProcess | None = None
        _HELPERS.append(self)

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return self._child.process.pid if self._child else None

    def ask(self, request: Any) -> Any:
        """What it answers; None when it did not come to its end."""
        with self._lock:
            try:
                child = self._get_child()
                child.connection.sendall(json.dumps(request).encode() + b"\n")
                return json.loads(child.answers.readline())
            except (OSError, ValueError, RecursionError):
                self._end_child()
                return None

    def close(self) -> None:
        """End the process; the next question starts another. One that is being asked is left to itself."""
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            try:
                self._end_child()
            finally:
                self._lock.release()

    def _get_child(self) -> _ChildProcess:
        if self._child and self._child.owner_pid != os.getpid():
            self._child = None  # our parent's, since we were forked
        if self._child and self._child.process.poll() is not None:
            self._end_child()
        self._child = self._child or _ChildProcess(self._module, self._cpu_seconds)
        return self._child

    def _end_child(self) -> None:
        if self._child and self._child.owner_pid == os.getpid():
            self._child.end()
        self._child = None


_HELPERS: list[HelperProcess] = []


def close_helpers() -> None:
    """End every process: for whoever leaves without the interpreter's own end."""
    for one in _HELPERS:
        one.close()


atexit.register(close_helpers)


class _ChildProcess:
    def __init__(self, module: str, cpu_seconds: float) -> None:
        self.owner_pid = os.getpid()
        self.connection, theirs = socket.socketpair()
        script = Path(__file__).with_name("sidecar_main.py")
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(script), module, str(cpu_seconds), *filter(None, sys.path)],
                    env={name: os.environ[name] for name in _INHERITED if name in os.environ},
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                self.connection.close()
                raise
        self.connection.settimeout(WAIT_SECONDS)
        self.answers = self.connection.makefile("rb")

    def end(self) -> None:
        self.answers.close()
        self.connection.close()
        self.process.kill()
        self.process.wait()
