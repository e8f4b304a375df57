"""Keeps the `mcp` package from logging and tracing what servers send, and builds the name that servers get of us."""

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
    """Silence the loggers of the package and of its HTTP client, which log messages with tokens and whole addresses.

    A logger whose level is set keeps it.
    """
    for name, level in _LOG_LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
    disable_tracing()


def build_client_info() -> Implementation:
    """Build the name and version that servers are given."""
    try:
        ours = version("holdfast")
    except PackageNotFoundError:
        ours = "0"
    return Implementation(name="holdfast", version=ours)
