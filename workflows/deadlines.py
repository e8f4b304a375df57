"""Deadlines of approvals: one timer for the next moment that matters, however many calls wait (S28).

A turn without deadlines has no timer, and a wait of a week is one timer of a week.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.calls.batch import find_warning_time
    from holdfast.domain.turn.turn_state import TurnState


class Deadlines:
    """Wakes the turn when a deadline passes, or comes near."""

    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._moment: datetime | None = None
        self._timer: asyncio.Task[None] | None = None

    def schedule_wake(self) -> None:
        """Sleep until what is next."""
        moment = find_next_moment(self._state)
        if moment == self._moment:
            return
        self.cancel_wake()
        if moment is not None:
            self._moment = moment
            self._timer = asyncio.create_task(self._wake_at(moment))

    def cancel_wake(self) -> None:
        """Nothing waits any more."""
        if self._timer:
            self._timer.cancel()
        self._moment = self._timer = None

    async def _wake_at(self, moment: datetime) -> None:
        await workflow.sleep(max(moment - workflow.now(), datetime.resolution))
        self._moment = self._timer = None
        self._state.log.has_changed = True  # also when nothing is due any more: the next moment is to be found
        self._state.decisions.apply_deadlines()


def find_next_moment(state: TurnState) -> datetime | None:
    """When the next deadline passes or comes near."""
    waiting = [call for call in (state.queue.active.waiting_calls if state.queue.active else ()) if not call.changing]
    moments = [moment for call in waiting for moment in (call.deadline_at, find_warning_time(call)) if moment]
    return min(moments, default=None)
