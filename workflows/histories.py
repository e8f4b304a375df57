"""How long a history may become before its workflow continues as new."""

from __future__ import annotations

from temporalio import workflow

EVENTS = 2_000
"""The server's limit is 51,200, and it warns at a fifth of that: this bounds what a worker replays after a crash."""


def long_history() -> bool:
    """Is it time to continue as new?"""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= EVENTS
