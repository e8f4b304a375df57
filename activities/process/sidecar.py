"""A helper process for work on untrusted input: it is asked one question at a time, and may crash or run out of time.

For code that holds the interpreter lock for long, or may corrupt memory (tree-sitter), on input that a model or a
server chose. One process for each kind of work, started at the first question and again when it has died. Its limit is
processor time, so a busy machine changes no answer. It ends with this process: the socket between them closes.
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
"""The longest wait for an answer."""
CLOSE_SECONDS = 1.0
_INHERITED = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class HelperProcess:
    """Asks a helper process. Safe in threads and after a fork; it blocks the thread that asks."""

    def __init__(self, module: str, *, cpu_seconds: float) -> None:
        """`module` has a function `answer`, which takes and returns JSON values."""
        self._module = module
        self._cpu_seconds = cpu_seconds
        self._lock = threading.Lock()
        self._child: _ChildProcess | None = None
        _HELPERS.append(self)

    @property
    def pid(self) -> int | None:
        """The process id of the helper; None when it does not run."""
        return self._child.process.pid if self._child else None

    def ask(self, request: Any) -> Any:
        """The answer to a request; None when the helper crashed or took too long."""
        with self._lock:
            try:
                child = self._get_child()
                child.connection.sendall(json.dumps(request).encode() + b"\n")
                return json.loads(child.answers.readline())
            except (OSError, ValueError, RecursionError):
                self._end_child()
                return None

    def close(self) -> None:
        """End the process; the next question starts another. Gives up when a question is under way for too long."""
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            try:
                self._end_child()
            finally:
                self._lock.release()

    def _get_child(self) -> _ChildProcess:
        if self._child and self._child.owner_pid != os.getpid():
            self._child = None  # we are a fork of the process that started it
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
    """End every helper process. For programs that leave by `os._exit`, without atexit handlers."""
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
