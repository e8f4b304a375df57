"""What a turn publishes about itself while it waits: search attributes to be found by, a memo to be shown.

Written only when what waits has changed, so a turn that asks nobody costs no history event for it.
"""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.calls.call import Call
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.domain.turn.views import build_inbox_summary
    from holdfast.names import DEADLINE_ATTRIBUTE, MEMO_KEY, STATE_ATTRIBUTE, TOOLS_ATTRIBUTE


ATTRIBUTE_BYTES = 1_500
"""The server takes 2,048."""


class Inbox:
    """Keeps search attributes and memo in step with the approvals that wait."""

    def __init__(self, state: TurnState) -> None:
        self.since: dict[str, datetime] = {}
        """Since when each waiting call waits, by call id."""
        self._state = state
        self._published: tuple[tuple[object, ...], ...] = ()
        self._deadline: datetime | None = None

    def publish(self) -> None:
        """Say what waits now, if that has changed."""
        waiting = self._state.queue.active.waiting_calls if self._state.queue.active else ()
        now = tuple(_select_facts(call) for call in waiting)
        if now == self._published:
            return
        self.since = {call.id: self.since.get(call.id, workflow.now()) for call in waiting}
        soonest = min((call.deadline_at for call in waiting if call.deadline_at), default=None)
        if bool(now) != bool(self._published) or soonest != self._deadline:
            workflow.upsert_search_attributes(
                [
                    STATE_ATTRIBUTE.value_set("awaiting_approval" if now else "running"),
                    TOOLS_ATTRIBUTE.value_set(_list_tool_names(waiting)),
                    *_update_deadline(soonest, self._deadline),
                ]
            )
            self._deadline = soonest
        if now:
            summary = build_inbox_summary(self._state.turn_id, waiting, self.since)
            workflow.upsert_memo({MEMO_KEY: summary.model_dump(mode="json")})
        self._published = now


def _select_facts(call: Call) -> tuple[object, ...]:
    """What of a waiting call an inbox must not be late with."""
    return call.id, call.revision, call.warned, len(call.approvals), call.problem, call.editing and call.editing.by


def _update_deadline(now: datetime | None, before: datetime | None) -> list[SearchAttributeUpdate[datetime]]:
    """Only where there is, or was, one: turns without deadlines are told nothing of them."""
    if now:
        return [DEADLINE_ATTRIBUTE.value_set(now)]
    return [DEADLINE_ATTRIBUTE.value_unset()] if before else []


def _list_tool_names(waiting: tuple[Call, ...]) -> list[str]:
    """The tools that wait, as far as a search attribute holds them: the server ends a turn whose value is too long."""
    names: list[str] = []
    for name in sorted({call.tool for call in waiting}):
        if sum(map(_count_bytes, names)) + _count_bytes(name) > ATTRIBUTE_BYTES:
            break
        names.append(name)
    return names


def _count_bytes(name: str) -> int:
    return len(name.encode()) + 3
