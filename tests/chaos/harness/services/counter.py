"""A service that counts what it is told, over HTTP; in a thread of the harness, which nobody kills.

`/once` counts every request. `/keyed` counts a key once, as services with idempotency keys do.
"""

from __future__ import annotations

import json
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any

HOST = "127.0.0.1"


class Counter:
    """What was counted, by label: the keys of its effects, one for each time it counted."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counted: dict[str, list[str]] = {}
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self.count))
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Counter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def count(self, label: str, key: str, *, keyed: bool) -> None:
        """Count once more, unless it goes by the key and has counted that."""
        with self._lock:
            keys = self._counted.setdefault(label, [])
            if not (keyed and key in keys):
                keys.append(key)

    def keys(self, label: str) -> tuple[str, ...]:
        """What was counted for a label."""
        with self._lock:
            return tuple(self._counted.get(label, ()))


def _handler(count: Any) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            count(said["label"], said["key"], keyed=self.path == "/keyed")
            with suppress(OSError):  # who asked may be dead by now
                self.send_response(204)
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler
