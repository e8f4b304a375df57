"""Logging of our processes: one line per record, on standard error, as text or as JSON.

Temporal logs expected conditions (an invalid signal, a lost server) with their traceback; here one line names the type
of the exception. `verbose` adds records of level INFO, and tracebacks.
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
    """Log warnings to standard error; with `verbose` also information. `serves`: serve metrics, if the settings say so.

    BadInput when the metrics cannot be served.
    """
    # Commands that only silence logging do without it: it imports the telemetry of activities.
    from holdfast.workers.runtime.log_format import JsonFormatter, LineFormatter

    given = telemetry or TelemetrySettings()
    allow_content(given.content)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter((JsonFormatter if given.logs == "json" else LineFormatter)(verbose=verbose))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)
    _install_hooks()
    _install_runtime(_build_runtime("INFO" if verbose else "WARN", given.metrics if serves else None))


def print_or_log(telemetry: TelemetrySettings, text: str, note: Callable[[str], None], known: str = "") -> None:
    """Print something that the person who started this process should know; with JSON logs, log it instead.

    `known` is what is logged if the text contains words of others, which a log may have to withhold.
    """
    if telemetry.logs == "json":
        _LOGGER.warning("%s", Redacted(text, known) if known else text)
    else:
        note(text)


def silence_logging() -> None:
    """Turn logging off, for commands whose output names every problem."""
    logging.basicConfig(level=logging.CRITICAL, handlers=[logging.NullHandler()], force=True)
    _install_runtime(_build_runtime("ERROR"))


def _install_runtime(runtime: Runtime) -> None:
    Runtime.set_default(runtime, error_if_already_set=False)


def _build_runtime(level: str, metrics: str | None = None) -> Runtime:
    """A runtime whose core logs through our logger instead of standard output.

    The fields of its records contain whole failures, and are left out.
    """
    forwarding = LogForwardingConfig(
        logger=logging.getLogger("temporalio.core"), append_target_to_name=False, append_log_fields_to_message=False
    )
    logs = LoggingConfig(TelemetryFilter(core_level=level, other_level="ERROR"), forwarding=forwarding)
    served = _build_prometheus(metrics) if metrics else None
    try:
        return Runtime(telemetry=TelemetryConfig(logging=logs, metrics=served, attach_service_name=False))
    except ValueError as error:
        raise BadInput(f"metrics cannot be served at {metrics} (telemetry.metrics): {error}") from None


def _build_prometheus(address: str) -> PrometheusConfig:
    from holdfast.telemetry.metrics import BUCKETS

    return PrometheusConfig(
        bind_address=address,
        counters_total_suffix=True,
        durations_as_seconds=True,
        histogram_bucket_overrides=BUCKETS,
    )


def _install_hooks() -> None:
    """Log warnings and exceptions of threads, which Python would print on standard error with their whole text."""
    logging.captureWarnings(True)

    def log_thread_error(found: threading.ExceptHookArgs) -> None:
        if found.exc_type is not SystemExit and found.exc_value is not None:
            _log_error("A thread ended with an exception", found.exc_value)

    def log_unraisable(found: Any) -> None:
        _log_error("An exception was ignored", found.exc_value)

    threading.excepthook = log_thread_error
    sys.unraisablehook = log_unraisable


def _log_error(what: str, error: BaseException | None) -> None:
    known = (type(error), error, error.__traceback__) if error else None
    _LOGGER.warning(what, exc_info=known)
