"""Signals that a worker cannot read: a signal that was dropped once stays dropped in every replay.

Whether a payload can be read depends on the keys and files of the worker that reads it, which is not in the history.
So the worker that drops a signal records that in the history, and every worker that replays the run drops it too.
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
        # Not a patch of the code: `patched` writes the record "signal N was dropped". It is the only command whose
        # presence in the history the SDK answers before the workflow decides, and in the task that has the signal. A
        # local activity or a memo would have to be written for every signal, as a replay cannot know which had one.
        # Failing the task until the body can be read, as updates do, would let anybody stop a turn for ever by one
        # signal that is encrypted with a key of theirs.
        noted = (bool(gone) or replays) and workflow.patched(mark)
        if gone:
            workflow.logger.warning("A signal was dropped: %s", Redacted(gone[0], "it cannot be read here"))
        return bool(gone) or noted
