"""Signals that a worker cannot read: what was dropped once is dropped for ever.

Whether a payload can be read depends on the keys and files of the worker that reads it. One that drops a signal notes
that in the history, so that another, which could read it, does the same when it replays the turn.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.base import Unreadable
    from holdfast.util.redaction import Redacted


def explain_absent_input(inputs: tuple[Any, ...]) -> str | None:
    """Why a workflow's own input is not here; its task is to be tried again until it is."""
    return next((input.reason for input in inputs if isinstance(input, Unreadable) and input.gone), None)


class DroppedSignals:
    """Counts the signals of one run."""

    def __init__(self) -> None:
        self._signals = 0

    def is_dropped(self, bodies: tuple[Any, ...]) -> bool:
        """Is this signal not to be heard?"""
        self._signals += 1
        mark, replays = f"unread-{self._signals}", workflow.unsafe.is_replaying()
        gone = [body.reason for body in bodies if isinstance(body, Unreadable) and body.gone]
        noted = (bool(gone) or replays) and workflow.patched(mark)
        if gone:
            workflow.logger.warning("A signal was dropped: %s", Redacted(gone[0], "it cannot be read here"))
        return bool(gone) or noted
