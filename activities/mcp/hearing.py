"""What a server says beside the protocol: on standard error, in log messages, and on its output where only messages
belong.

The end of it is told when the server fails, and all of it is kept in a file of the data folder, bounded, with names in
the place of secrets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from holdfast.content import plain, shorten

FILE_LIMIT = 1_000_000
"""Bytes of a file; the one before it is kept as well."""
LINE_LIMIT = 4_000
"""Characters of a line, and bytes that wait for their line to end."""
MINUTE_LIMIT = 200_000
"""Characters of a minute: a server that shouts is not written down."""
KEPT_LINES = 20
SAID = 500


class ServerLog:
    """The file of one server, for all processes that speak with it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._minute = datetime.min.replace(tzinfo=UTC)
        self._left = MINUTE_LIMIT

    def write(self, line: str) -> None:
        """Add a line. What cannot be written is not worth failing for."""
        now = datetime.now(UTC)
        if (now - self._minute).total_seconds() >= 60:
            self._minute, self._left = now, MINUTE_LIMIT
        if self._left <= 0:
            return
        self._left -= len(line)
        text = line if self._left > 0 else "… what else it says in this minute is not kept"
        with suppress(OSError):
            self._append(f"{now:%Y-%m-%dT%H:%M:%SZ} {text}\n".encode("utf-8", "replace"))

    def _append(self, data: bytes) -> None:
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            if self.file.stat().st_size > FILE_LIMIT:
                self.file.replace(self.file.with_name(f"{self.file.name}.1"))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.file, flags, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


class Heard:
    """What one connection hears of its server beside the protocol."""

    def __init__(self, hide: Callable[[str], str], log: ServerLog | None = None) -> None:
        self._hide = hide
        self._log = log
        self._rest = b""
        self._errors: list[str] = []
        self._stray: str | None = None

    def errors(self, data: bytes) -> None:
        """Bytes of its standard error."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_LIMIT:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            text = self._line(line.decode("utf-8", "replace"))
            if text:
                self._errors = [*self._errors, text][-KEPT_LINES:]
                self._keep(text)

    def end(self) -> None:
        """Nothing more comes on its standard error."""
        if self._rest:
            self.errors(b"\n")

    def stray(self, line: bytes) -> None:
        """A line of its standard output that is no message."""
        text = self._line(line[:LINE_LIMIT].decode("utf-8", "replace"))
        self._stray = self._stray or text or None
        self._keep(f"(standard output, no message) {text}")

    def logged(self, level: str, text: str) -> None:
        """A log message of the protocol."""
        self._keep(f"({self._line(level)}) {self._line(text)}")

    def note(self, text: str) -> None:
        """What befell it, as we see it."""
        self._keep(f"-- {self._line(text)}")

    def said(self) -> str:
        """The end of it, to be put behind a reason."""
        found = ""
        if self._stray:
            stray = shorten(self._stray, 100)
            found += f"; on its standard output, where only messages of the protocol belong, it said: {stray}"
        if self._errors:
            text = "\n".join(self._errors)
            found += f"; it said: {shorten(text[-SAID:], SAID)}"
        return found

    def _line(self, text: str) -> str:
        return shorten(self._hide(plain(text)).strip(), LINE_LIMIT)

    def _keep(self, line: str) -> None:
        if self._log:
            self._log.write(line.replace("\n", " "))
