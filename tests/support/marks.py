"""Processes that carry the mark of a call, as the system sees them; and waiting for a plain condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 60.0
"""Seconds any wait may take before the test fails."""


def alive(pid: int) -> bool:
    """Does this process run?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def marked(key: str) -> list[int]:
    """Every living process whose mark is this key, or begins with it when it ends in a slash."""
    mark = f"HOLDFAST_CALL={key}".encode()
    return [pid for pid in map(int, filter(str.isdigit, _names())) if _carries(pid, mark) and alive(pid)]


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.05)


def _names() -> list[str]:
    return [entry.name for entry in Path("/proc").iterdir()]


def _carries(pid: int, mark: bytes) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(one.startswith(mark) if mark.endswith(b"/") else one == mark for one in variables)
