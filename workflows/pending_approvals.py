"""The pending approvals of a turn: search attributes and memo for inboxes, and a timer for deadlines.

Search attributes and memo are written only when their content changes, so a turn without approvals adds no event for
them. One timer serves all deadlines, set for the next one (S28): a turn without deadlines has no timer, and a wait of a
week is one timer of a week.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.calls.batch import find_warning_time
    from holdfast.domain.calls.call import Call
    from holdfast.domain.turn.approval_view import build_inbox_summary
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.names import DEADLINE_ATTRIBUTE, MEMO_KEY, STATE_ATTRIBUTE, TOOLS_ATTRIBUTE


ATTRIBUTE_BYTES = 1_500
"""Bytes of a list in a search attribute. The server terminates a workflow whose attribute is over 2,048."""


class PendingApprovals:
    """The calls of one turn that await approval."""

    def __init__(self, state: TurnState) -> None:
        self.since: dict[str, datetime] = {}
        """The time since which each call waits, by call id."""
        self._state = state
        self._published: tuple[tuple[object, ...], ...] = ()
        self._published_deadline: datetime | None = None
        self._wake_time: datetime | None = None
        self._timer: asyncio.Task[None] | None = None

    def publish(self) -> None:
        """Write search attributes and memo, if their content has changed."""
        waiting = self._list_calls()
        facts = tuple(_select_facts(call) for call in waiting)
        if facts == self._published:
            return
        self.since = {call.id: self.since.get(call.id, workflow.now()) for call in waiting}
        deadline = min((call.deadline_at for call in waiting if call.deadline_at), default=None)
        if bool(facts) != bool(self._published) or deadline != self._published_deadline:
            workflow.upsert_search_attributes(
                [
                    STATE_ATTRIBUTE.value_set("awaiting_approval" if facts else "running"),
                    TOOLS_ATTRIBUTE.value_set(_list_tool_names(waiting)),
                    *_update_deadline(deadline, self._published_deadline),
                ]
            )
            self._published_deadline = deadline
        if facts:
            summary = build_inbox_summary(self._state.turn_id, waiting, self.since)
            workflow.upsert_memo({MEMO_KEY: summary.model_dump(mode="json")})
        self._published = facts

    def schedule_wake(self) -> None:
        """Set the timer for the next deadline or warning."""
        moment = self._find_next_moment()
        if moment == self._wake_time:
            return
        self.cancel_wake()
        if moment is not None:
            self._wake_time = moment
            self._timer = asyncio.create_task(self._wake_at(moment))

    def cancel_wake(self) -> None:
        """Cancel the timer."""
        if self._timer:
            self._timer.cancel()
        self._wake_time = self._timer = None

    async def _wake_at(self, moment: datetime) -> None:
        await workflow.sleep(max(moment - workflow.now(), datetime.resolution))
        self._wake_time = self._timer = None
        self._state.log.has_changed = True  # also when nothing is due any more: the timer must be set anew
        self._state.decisions.apply_deadlines()

    def _find_next_moment(self) -> datetime | None:
        waiting = [call for call in self._list_calls() if not call.changing]
        moments = [moment for call in waiting for moment in (call.deadline_at, find_warning_time(call)) if moment]
        return min(moments, default=None)

    def _list_calls(self) -> tuple[Call, ...]:
        return self._state.queue.active.waiting_calls if self._state.queue.active else ()


def _select_facts(call: Call) -> tuple[object, ...]:
    """The facts of a waiting call that inboxes show."""
    return call.id, call.revision, call.warned, len(call.approvals), call.problem, call.editing and call.editing.by


def _update_deadline(now: datetime | None, before: datetime | None) -> list[SearchAttributeUpdate[datetime]]:
    """Return the update of the deadline attribute; empty for a turn without deadlines."""
    if now:
        return [DEADLINE_ATTRIBUTE.value_set(now)]
    return [DEADLINE_ATTRIBUTE.value_unset()] if before else []


def _list_tool_names(waiting: tuple[Call, ...]) -> list[str]:
    """List the tools of the waiting calls, as many as a search attribute holds."""
    names: list[str] = []
    room = ATTRIBUTE_BYTES
    for name in sorted({call.tool for call in waiting}):
        room -= len(name.encode()) + 3
        if room < 0:
            break
        names.append(name)
    return names
