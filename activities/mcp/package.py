"""The `mcp` package and what it stands on, kept from telling what they know; and what we call ourselves to servers."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version

from mcp_types import Implementation

_LOUD = {
    "mcp.client": logging.CRITICAL,
    "mcp.shared": logging.CRITICAL,
    "client": logging.CRITICAL,
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
}


def quiet() -> None:
    """They log what servers say word by word, tokens too, and whole addresses. What went wrong we tell ourselves."""
    for name, level in _LOUD.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)


def ourselves() -> Implementation:
    """Who we are."""
    try:
        ours = version("holdfast")
    except PackageNotFoundError:
        ours = "0"
    return Implementation(name="holdfast", version=ours)
