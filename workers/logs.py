"""Logging of the processes we run: one line per record, on standard error.

Expected conditions (a garbage signal, a server that went away) are logged by Temporal with their traceback; a line
with the exception's words says as much, unless `verbose` asks for more.
"""

from __future__ import annotations

import logging
import re
import sys

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from holdfast.content import plain, shorten

LINE_LIMIT = 1_000
_FIELDS = re.compile(r"\s*\(\{.*\}\)")
_LINK = re.compile(r"\s*(?:For further information visit )?https?://\S+")


class OneLine(logging.Formatter):
    """A record as one line, with the exception's type and words instead of its traceback."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        short = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None, "stack_info": None})
        text = _gist(super().format(short))
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {type(record.exc_info[1]).__name__}: {_gist(str(record.exc_info[1]))}"
        return shorten(" ".join(plain(text).split()), LINE_LIMIT)


def _gist(text: str) -> str:
    """The first line, without the fields that Temporal adds and without links: pydantic writes pages."""
    first = next(iter(text.strip().splitlines()), "")
    return _LINK.sub("", _FIELDS.sub("", first)).rstrip()


def configure(*, verbose: bool = False) -> None:
    """Log warnings to standard error; with `verbose` everything, with tracebacks."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s") if verbose else OneLine())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)
    Runtime.set_default(_runtime("INFO" if verbose else "WARN"), error_if_already_set=False)


def silence() -> None:
    """For commands that answer a person: what went wrong is in their answer, not in a log."""
    logging.basicConfig(level=logging.CRITICAL, handlers=[logging.NullHandler()], force=True)
    Runtime.set_default(_runtime("ERROR"), error_if_already_set=False)


def _runtime(level: str) -> Runtime:
    """Temporal's core writes to standard output by itself; forwarded, its lines look like ours."""
    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"), append_target_to_name=False)
    logs = LoggingConfig(TelemetryFilter(core_level=level, other_level="ERROR"), forwarding=forwarding)
    return Runtime(telemetry=TelemetryConfig(logging=logs))
