"""The `mcp` package and what it stands on, kept from telling what they know; and what we call ourselves to servers."""

from __future__ import annotations

import logging
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from mcp_types import Implementation

_LOG_LEVELS = {
    "mcp.client": logging.CRITICAL,
    "mcp.shared": logging.CRITICAL,
    "client": logging.CRITICAL,
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
}


def quiet_logs() -> None:
    """They log what servers say word by word, tokens too, and whole addresses. What went wrong we tell ourselves."""
    for name, level in _LOG_LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
    _disable_tracing()


def _disable_tracing() -> None:
    """Nor do their spans tell whoever traces this process what servers say. There is no setting for that."""
    with suppress(ImportError):
        from mcp.shared import _otel
        from opentelemetry.trace import NoOpTracer

        _otel._tracer = NoOpTracer()


def build_client_info() -> Implementation:
    """Who we are."""
    try:
        ours = version("holdfast")
    except PackageNotFoundError:
        ours = "0"
    return Implementation(name="holdfast", version=ours)
