"""Logs what a server writes beside the protocol, on standard error or in log messages, to a file without secrets.

The end of it is part of the error when the server fails. The file is bounded.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from holdfast.util.redaction import Redacted
from holdfast.util.secrets import Secrets
from holdfast.util.text import shorten_text, strip_controls

FILE_LIMIT = 1_000_000
"""Bytes of a file. The file before it is kept as well."""
LINE_LIMIT = 4_000
"""Characters of a line."""
BUFFER_LIMIT = 3 * LINE_LIMIT
"""Bytes of a line that are read: secrets are removed before the line is cut, so none is cut in two."""
MINUTE_LIMIT = 200_000
"""Characters that are written in a minute; the rest is dropped."""
KEPT_LINES = 20
SHOWN_LIMIT = 500


class ServerLog:
    """The log file of one server, shared by all processes that use the server."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._minute = datetime.min.replace(tzinfo=UTC)
        self._left = MINUTE_LIMIT

    def write(self, line: str) -> None:
        """Append a line. A line that cannot be written is dropped."""
        now = datetime.now(UTC)
        if (now - self._minute).total_seconds() >= 60:
            self._minute, self._left = now, MINUTE_LIMIT
        if self._left <= 0:
            return
        self._left -= len(line)
        text = line if self._left > 0 else "… the rest of this minute is dropped"
        with suppress(OSError):
            self._append_data(f"{now:%Y-%m-%dT%H:%M:%SZ} {text}\n".encode("utf-8", "replace"))

    def _append_data(self, data: bytes) -> None:
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


class ServerRemarks:
    """Collects what one connection receives of its server beside the protocol."""

    def __init__(self, secrets: Secrets, log: ServerLog | None = None) -> None:
        self._secrets = secrets
        self._log = log
        self._rest = b""
        self._errors: list[str] = []
        self._stray: str | None = None

    def add_error_data(self, data: bytes) -> None:
        """Add bytes of its standard error."""
        *lines, self._rest = (line[:BUFFER_LIMIT] for line in (self._rest + data).split(b"\n"))
        for line in lines:
            text = self._clean_line(line.decode("utf-8", "replace"))
            if text:
                self._errors = [*self._errors, text][-KEPT_LINES:]
                self._write_line(text)

    def end_errors(self) -> None:
        """Its standard error has ended."""
        if self._rest:
            self.add_error_data(b"\n")

    def add_stray_line(self, line: bytes) -> None:
        """Add a line of its standard output that is not a message."""
        text = self._clean_line(line[:BUFFER_LIMIT].decode("utf-8", "replace"))
        self._stray = self._stray or text or None
        self._write_line(f"(standard output, no message) {text}")

    def add_log_message(self, level: str, text: str) -> None:
        """Add a log message of the protocol."""
        self._write_line(f"({self._clean_line(level)}) {self._clean_line(text)}")

    def add_note(self, text: str) -> None:
        """Add what happened to it, in our words."""
        self._write_line(f"-- {self._clean_line(text)}")

    def describe_remarks(self) -> str:
        """Describe the last lines, to follow a reason."""
        found = ""
        if self._stray:
            stray = shorten_text(self._stray, 100)
            found += f"; it printed on standard output, where only protocol messages belong: {stray}"
        if self._errors:
            text = self._secrets.hide("\n".join(self._errors))
            found += f"; its last lines: {shorten_text(text[-SHOWN_LIMIT:], SHOWN_LIMIT)}"
        return found

    def _clean_line(self, text: str) -> str:
        return shorten_text(self._secrets.hide(strip_controls(text).strip()), LINE_LIMIT)

    def _write_line(self, line: str) -> None:
        if self._log:
            self._log.write(line.replace("\n", " "))


_OWN_WORDS = re.compile(
    r"(it was ended by signal \d+|it (?:ended|exited|has closed its output)[^;:]*"
    r"|it was not ready within [\d.]+ seconds|the connection [^;:]*|it was closed|it cannot be connected"
    r"|it does not follow the protocol"
    r"|its command(?:, or the program that runs it,)? does not exist|its command is not executable"
    r"|it lists over [\d,]+ tools)"
)


def redact_problem(problem: str | None) -> Redacted:
    """Prepare a server's problem for the log: only its beginning is shown, where the words are ours."""
    found = _OWN_WORDS.match(problem or "")
    return Redacted(problem, found[0] if found else "")
