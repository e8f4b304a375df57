"""A log record as a line: for people, or for machines."""

from __future__ import annotations

import json
import logging
import os
import socket
from typing import Any

from holdfast.workers.log_records import WrittenRecord, build_record


class LineFormatter(logging.Formatter):
    """A record as one line for people; with `verbose`, where an exception comes from on the lines below it."""

    def __init__(self, *, verbose: bool = False) -> None:
        super().__init__()
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        found = build_record(record)
        about = ", ".join(f"{name} {value}" for name, value in found.about.items() if name != "trace")
        error = ": ".join(filter(None, (found.error, found.said)))
        logger = f" {found.logger}" if self._verbose else ""
        line = f"{found.time.astimezone():%H:%M:%S} {found.level}{logger} {found.message}"
        line += (f": {error}" if error else "") + (f" [{about}]" if about else "")
        return "\n".join((line, *(f"    {frame}" for frame in found.frames))) if self._verbose else line


class JsonFormatter(logging.Formatter):
    """A record as one JSON object."""

    def __init__(self, *, verbose: bool = False) -> None:
        super().__init__()
        self._verbose = verbose
        self._worker = f"{os.getpid()}@{socket.gethostname()}"  # as Temporal calls it

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        found = build_record(record)
        return json.dumps(self._build_fields(found), ensure_ascii=True)

    def _build_fields(self, found: WrittenRecord) -> dict[str, Any]:
        fields = {
            "time": found.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": found.level.lower(),
            "logger": found.logger,
            "message": found.message,
            **found.about,
            "worker": self._worker,
            "error": found.error,
            "error_text": found.said,
            "frames": list(found.frames) if self._verbose else [],
        }
        return {name: value for name, value in fields.items() if value not in ("", [])}
