"""The `mcp` package and what it stands on, kept from telling what they know; and what we call ourselves to servers."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version

from mcp_types import Implementation

from holdfast.activities.mcp.mcp_private import disable_tracing

_LOG_LEVELS = {
    "mcp.client": logging.CRITICAL,
    "mcp.shared": logging.CRITICAL,
    "client": logging.CRITICAL,
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
}


def quiet_logs() -> None:
    """Silence the loggers and spans of these packages: they hold what servers say, tokens and whole addresses.

    What went wrong stands in our own errors. A logger whose level somebody has set keeps it.
    """
    for name, level in _LOG_LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
    disable_tracing()


def build_client_info() -> Implementation:
    """Who we are."""
    try:
        ours = version("holdfast")
    except PackageNotFoundError:
        ours = "0"
    return Implementation(name="holdfast", version=ours)
