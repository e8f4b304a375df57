"""How long a history may become before its workflow continues as new."""

from __future__ import annotations

from temporalio import workflow

EVENT_LIMIT = 250
"""Far below the server's limit of 51,200: a worker that takes a run up anew replays it within a tenth of a second."""


def is_history_long() -> bool:
    """Is it time to continue as new?"""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= EVENT_LIMIT
