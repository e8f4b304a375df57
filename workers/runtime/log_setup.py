"""Logging of the processes we run: one line per record, on standard error, as text or as JSON.

Expected conditions (a garbage signal, a server that went away) are logged by Temporal with their traceback; a line
with the exception's type says as much. `verbose` adds what is informative, and where exceptions come from.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from holdfast.config.sections import TelemetrySettings
from holdfast.errors import BadInput
from holdfast.util.redaction import Redacted, allow_content

_LOGGER = logging.getLogger(__name__)


def configure_logging(
    telemetry: TelemetrySettings | None = None, *, verbose: bool = False, serves: bool = False
) -> None:
    """Log warnings to standard error; with `verbose` more. `serves`: answer Prometheus, where the settings say so.

    BadInput when that cannot be.
    """
    from holdfast.workers.runtime.log_format import JsonFormatter, LineFormatter

    given = telemetry or TelemetrySettings()
    allow_content(given.content)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter((JsonFormatter if given.logs == "json" else LineFormatter)(verbose=verbose))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)
    _install_hooks()
    _install_runtime(_build_runtime("INFO" if verbose else "WARN", given.metrics if serves else None))


def print_or_log(telemetry: TelemetrySettings, text: str, note: Callable[[str], None], known: str = "") -> None:
    """Tell something that whoever started this process should know; in the log, where machines read that.

    `known` is what a log is told where the text holds words of others, and those are not allowed in it.
    """
    if telemetry.logs == "json":
        _LOGGER.warning("%s", Redacted(text, known) if known else text)
    else:
        note(text)


def silence_logging() -> None:
    """For commands that answer a person: what went wrong is in their answer, not in a log."""
    logging.basicConfig(level=logging.CRITICAL, handlers=[logging.NullHandler()], force=True)
    _install_runtime(_build_runtime("ERROR"))


def _install_runtime(runtime: Runtime) -> None:
    Runtime.set_default(runtime, error_if_already_set=False)


def _build_runtime(level: str, metrics: str | None = None) -> Runtime:
    """Temporal's core writes to standard output by itself; forwarded, its lines look like ours.

    Their fields hold whole failures, and are left out.
    """
    forwarding = LogForwardingConfig(
        logger=logging.getLogger("temporalio.core"), append_target_to_name=False, append_log_fields_to_message=False
    )
    logs = LoggingConfig(TelemetryFilter(core_level=level, other_level="ERROR"), forwarding=forwarding)
    served = _build_prometheus(metrics) if metrics else None
    try:
        return Runtime(telemetry=TelemetryConfig(logging=logs, metrics=served, attach_service_name=False))
    except ValueError as error:
        raise BadInput(f"no metrics can be had at {metrics} (telemetry.metrics): {error}") from None


def _build_prometheus(address: str) -> PrometheusConfig:
    from holdfast.telemetry.metrics import BUCKETS

    return PrometheusConfig(
        bind_address=address,
        counters_total_suffix=True,
        durations_as_seconds=True,
        histogram_bucket_overrides=BUCKETS,
    )


def _install_hooks() -> None:
    """Python tells of warnings, and of what is raised in threads, with all its words and on standard error itself."""
    logging.captureWarnings(True)

    def log_thread_error(found: threading.ExceptHookArgs) -> None:
        if found.exc_type is not SystemExit and found.exc_value is not None:
            _log_error("A thread ended with an exception", found.exc_value)

    def log_unraisable(found: Any) -> None:
        _log_error("An exception was raised where nobody could hear it", found.exc_value)

    threading.excepthook = log_thread_error
    sys.unraisablehook = log_unraisable


def _log_error(what: str, error: BaseException | None) -> None:
    known = (type(error), error, error.__traceback__) if error else None
    _LOGGER.warning(what, exc_info=known)
