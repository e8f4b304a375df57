"""Which log records are written, and how.

Nothing that a call was given.

A message of ours is written as it is: what others said stands in it as `Words`, which withhold themselves. Of Temporal
and of Python itself the first line is, without what they append. Of anybody else, a tool for example, nothing is, since
nobody knows what they put into it; whoever logs is known by its file, not by the name of its logger. `content` lets all
of it through.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import traceback
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, NamedTuple

from temporalio import activity, workflow

import holdfast
from holdfast.telemetry.activity import format_error_type, list_log_fields
from holdfast.util.redaction import WITHHELD, is_content_allowed
from holdfast.util.text import shorten_text, strip_controls

LINE_LIMIT = 1_000
FRAMES = 30
_CORE_MARK = "(sdk-core)"
"""Where Temporal's core says that its lines come from."""
_OUR_FOLDER = os.path.dirname(holdfast.__file__) + os.sep
_THEIR_FOLDERS = tuple(
    os.path.dirname(found.origin) + os.sep
    for found in map(find_spec, ("temporalio", "asyncio", "uvicorn"))
    if found and found.origin
)
_FIELDS = re.compile(r"\s*\(\{.*\}\)")
_LINK = re.compile(r"\s*(?:For further information visit )?https?://\S+")
_QUOTED = re.compile(r"(?<=error of type).*|(?<=original error):.*|<(?:Task|Future|Handle|coroutine)\b.*", re.DOTALL)
"""Where messages of Temporal and asyncio quote what went wrong."""
_WARNING = re.compile(r"(.*?:\d+: \w+):.*", re.DOTALL)
_CALL = re.compile(r"b\d+c\d+")
_ID_LIMIT = 300


class WrittenRecord(NamedTuple):
    """A record as it is written."""

    time: datetime
    level: str
    logger: str
    message: str
    about: dict[str, str | int]
    """turn, call, tool, attempt, trace: as far as they are known."""
    error: str = ""
    """The type of an exception,"""
    said: str = ""
    """and its words, where those are allowed."""
    frames: tuple[str, ...] = ()


def build_record(record: logging.LogRecord) -> WrittenRecord:
    """What of a record is written now, in the place where it was logged."""
    error = record.exc_info[1] if record.exc_info else None
    return WrittenRecord(
        time=datetime.fromtimestamp(record.created, UTC),
        level=record.levelname,
        logger=record.name,
        message=_format_line(_format_message(record)),
        about=find_log_context(record),
        error=format_error_type(error) if error else "",
        said=_format_line(_strip_details(str(error))) if error and is_content_allowed() else "",
        frames=_format_frames(error) if error else (),
    )


def find_log_context(record: logging.LogRecord) -> dict[str, str | int]:
    """Whose turn and call it is about: by what Temporal adds to it, or by what is at work here."""
    found = {name: _shorten_id(value) if isinstance(value, str) else value for name, value in list_log_fields().items()}
    details: Any = getattr(record, "temporal_activity", None) or getattr(record, "temporal_workflow", None)
    if not details and activity.in_activity():
        info = activity.info()
        details = {"workflow_id": info.workflow_id, "activity_id": info.activity_id, "attempt": info.attempt}
    elif not details and workflow.in_workflow():
        details = {"workflow_id": workflow.info().workflow_id}
    fields = getattr(getattr(record, "temporal_log", None), "fields", None)
    return _read_details(details or (fields if isinstance(fields, dict) else {})) | found


def _read_details(details: Any) -> dict[str, str | int]:
    turn, call, attempt = details.get("workflow_id"), details.get("activity_id"), details.get("attempt")
    found: dict[str, str | int] = {"turn": _shorten_id(turn)} if isinstance(turn, str) and turn else {}
    if isinstance(call, str) and (named := _CALL.match(call)):
        found["call"] = named[0]
    return {**found, "attempt": attempt} if isinstance(attempt, int) and call else found


def _format_message(record: logging.LogRecord) -> str:
    message = _strip_details(record.getMessage())
    if is_content_allowed() or record.pathname.startswith(_OUR_FOLDER):
        return message
    if record.name == "py.warnings":
        found = _WARNING.match(message)
        return found[1] if found else WITHHELD
    if record.pathname == _CORE_MARK or record.pathname.startswith(_THEIR_FOLDERS):
        return _QUOTED.sub(f" {WITHHELD}", message)
    return f"{_shorten_id(record.name)} has logged something {WITHHELD}"


def _strip_details(text: str) -> str:
    """The first line, without the fields that Temporal adds and without links: pydantic writes pages."""
    first = next(iter(text.strip().splitlines()), "")
    return _LINK.sub("", _FIELDS.sub("", first)).rstrip()


def _shorten_id(text: str) -> str:
    return _format_line(text)[:_ID_LIMIT]


def _format_line(text: str) -> str:
    return shorten_text(" ".join(strip_controls(text).split()), LINE_LIMIT)


def _format_frames(error: BaseException) -> tuple[str, ...]:
    """Where it was raised, the innermost last."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)


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
