"""The format of log records, without any content of calls.

Our own messages are written as they are: text of others in them is `Redacted`, which withholds itself. Of messages of
Temporal and Python only the first line is written, without appended fields. Of any other logger, for example of a tool,
no message is written, since it may contain anything; the origin of a record is determined by its file, not by the name
of its logger. With the setting `content` everything is written.
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
"""The path name of records of Temporal's core."""
_OUR_FOLDER = os.path.dirname(holdfast.__file__) + os.sep
_THEIR_FOLDERS = tuple(
    os.path.dirname(found.origin) + os.sep
    for found in map(find_spec, ("temporalio", "asyncio", "uvicorn"))
    if found and found.origin
)
_FIELDS = re.compile(r"\s*\(\{.*\}\)")
_LINK = re.compile(r"\s*(?:For further information visit )?https?://\S+")
_QUOTED = re.compile(r"(?<=error of type).*|(?<=original error):.*|<(?:Task|Future|Handle|coroutine)\b.*", re.DOTALL)
"""The parts of messages of Temporal and asyncio that quote an exception or a call."""
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
    """turn, call, tool, attempt, trace, as far as they are known."""
    error: str = ""
    """The type of an exception."""
    error_text: str = ""
    """The message of an exception, if content may be logged."""
    frames: tuple[str, ...] = ()


def build_record(record: logging.LogRecord) -> WrittenRecord:
    """Build what is written of a record; call it where the record was logged, whose context it reads."""
    error = record.exc_info[1] if record.exc_info else None
    return WrittenRecord(
        time=datetime.fromtimestamp(record.created, UTC),
        level=record.levelname,
        logger=record.name,
        message=_format_line(_format_message(record)),
        about=find_log_context(record),
        error=format_error_type(error) if error else "",
        error_text=_format_line(_strip_details(str(error))) if error and is_content_allowed() else "",
        frames=_format_frames(error) if error else (),
    )


def find_log_context(record: logging.LogRecord) -> dict[str, str | int]:
    """The turn and the call of a record: from the fields of Temporal, else from the active activity or workflow."""
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
    return f"message of {_shorten_id(record.name)} {WITHHELD}"


def _strip_details(text: str) -> str:
    """The first line, without the fields of Temporal and without the links of pydantic."""
    first = next(iter(text.strip().splitlines()), "")
    return _LINK.sub("", _FIELDS.sub("", first)).rstrip()


def _shorten_id(text: str) -> str:
    return _format_line(text)[:_ID_LIMIT]


def _format_line(text: str) -> str:
    return shorten_text(" ".join(strip_controls(text).split()), LINE_LIMIT)


def _format_frames(error: BaseException) -> tuple[str, ...]:
    """The frames of a traceback, the innermost last."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)


class LineFormatter(logging.Formatter):
    """Formats a record as one line for people; with `verbose`, followed by the traceback of its exception."""

    def __init__(self, *, verbose: bool = False) -> None:
        super().__init__()
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        found = build_record(record)
        about = ", ".join(f"{name} {value}" for name, value in found.about.items() if name != "trace")
        error = ": ".join(filter(None, (found.error, found.error_text)))
        logger = f" {found.logger}" if self._verbose else ""
        line = f"{found.time.astimezone():%H:%M:%S} {found.level}{logger} {found.message}"
        line += (f": {error}" if error else "") + (f" [{about}]" if about else "")
        return "\n".join((line, *(f"    {frame}" for frame in found.frames))) if self._verbose else line


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object."""

    def __init__(self, *, verbose: bool = False) -> None:
        super().__init__()
        self._verbose = verbose
        self._worker = f"{os.getpid()}@{socket.gethostname()}"  # as Temporal calls it

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
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
            "error_text": found.error_text,
            "frames": list(found.frames) if self._verbose else [],
        }
        return {name: value for name, value in fields.items() if value not in ("", [])}
