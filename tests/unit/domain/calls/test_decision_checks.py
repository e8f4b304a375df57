"""What a turn takes from validation when people, deadlines and failures cross each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.domain.approvals.actors import Actor, Approver
from holdfast.domain.approvals.approval import Confirmation, Deadline, Decision
from holdfast.domain.calls.batch import start_calls
from holdfast.domain.calls.call import CallRequest, Status
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.transitions import QUESTIONS_LIMIT, expire_call
from holdfast.domain.calls.verdicts import Allow, Ask, BoundCall, Deny, Reject, Verdict
from holdfast.domain.content import CallError
from holdfast.domain.turn.activity_io import Question, ValidateResult
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import EditingNotice
from holdfast.errors import RequestRefused

ANA = Approver(name="ana")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def ask(digest: str = "d1", diff: str | None = None, **more: Any) -> Ask:
    tool = ToolRef(name="tool", effect=Effect.ONCE, definition="def")
    bound = BoundCall(tool=tool, title="t", arguments={}, digest=digest, timeout_seconds=1, heartbeat_seconds=1)
    shown = Confirmation(kind="edit", title="t", diff=diff, edits="text", **more)
    return Ask(rule="asks", bound=bound, confirmation=shown)


def waiting(clock: Clock, **more: Any) -> TurnState:
    state = TurnState("turn", clock, TurnInput(batches=((CallRequest(tool="tool"),) * 2,)))
    batch = state.activate_batch()
    verdicts: dict[str, Verdict] = {call.id: ask(**more) for call in batch.calls}
    state.apply_verdicts(batch.id, ValidateResult(verdicts=verdicts, approvers=(ANA,)))
    return state


def decision(**more: Any) -> Decision:
    return Decision.model_validate({"approval_id": "turn/b1c1/1", "digest": "d1", **more})


def test_S7_a_judgement_that_broke_leaves_what_waits_as_it_was_and_forgets_nobody() -> None:
    state = waiting(Clock())
    before = state.queue.active_batch
    broken = Reject(error=CallError(type="validation_failed", message="It broke"))
    verdicts: dict[str, Verdict] = {call.id: broken for call in before.calls}
    state.reapply_verdicts(before, ValidateResult(verdicts=verdicts, approvers=None))
    assert state.queue.active_batch == before
    assert state.decisions.approvers == (ANA,)


def test_S28_a_deadline_that_passes_while_a_change_is_looked_at_waits_for_that() -> None:
    clock = Clock()
    state = waiting(clock, deadline=Deadline(seconds=10, default="allow"))
    said = decision(outcome="modify", content="new")
    state.apply_decision(said)
    clock.now += timedelta(seconds=11)
    state.decisions.apply_deadlines()
    changing, other = state.queue.active_batch.calls
    assert (changing.status, other.status) == (Status.AWAITING_APPROVAL, Status.SCHEDULED)
    deadline = Deadline(seconds=10, default="allow")
    state.decisions.apply_change("b1c1", ValidateResult(verdicts={"b1c1": ask("d2", deadline=deadline)}))
    again = state.queue.active_batch.calls[0]
    assert (again.status, again.revision, again.deadline_at) == (
        "awaiting_approval",
        2,
        clock.now + timedelta(seconds=10),
    )


def test_S26_an_edit_that_is_cancelled_after_it_was_changed_and_approved_keeps_the_diff_of_the_change() -> None:
    state = waiting(Clock(), diff="+old\n")
    state.apply_decision(decision(outcome="proceed_once", content="new"))
    state.decisions.apply_change("b1c1", ValidateResult(verdicts={"b1c1": ask("d2", diff="+new\n")}))
    state.stop_turn("cancelled", "Enough")
    assert state.queue.active_batch.responses[0].display == "+new\n"


DIFF = "--- a/f\n+++ b/f\n@@ -1,2 +1,1 @@\n-one\n-two\n+three\n"


def test_S26_a_cancelled_edit_keeps_its_diff_and_its_counts_of_lines_whoever_let_it_through() -> None:
    asked = waiting(Clock(), diff=DIFF)
    asked.apply_decision(decision(outcome="cancel"))
    stopped = waiting(Clock(), diff=DIFF)
    stopped.stop_turn("cancelled", "Enough")
    for verdict in (
        Allow(rule="auto_edit", bound=ask().bound, diff=DIFF),
        Deny(rule="grant g1", message="Refused", actor=Actor(kind="person", name="ana"), diff=DIFF),
    ):
        allowed = waiting(Clock())
        allowed.reapply_verdicts(allowed.queue.active_batch, ValidateResult(verdicts={"b1c1": verdict}))
        allowed.stop_turn("cancelled", "Enough")
        answer = allowed.queue.active_batch.responses[0]
        assert (answer.status, answer.display, answer.changes) == ("cancelled", DIFF, "+1 −2")
    for state in (asked, stopped):
        [answer] = state.queue.active_batch.responses[:1]
        assert (answer.display, answer.changes) == (DIFF, "+1 −2")


def test_S26_a_change_that_is_let_through_and_cancelled_keeps_the_diff_of_the_change() -> None:
    state = waiting(Clock(), diff="+old\n")
    state.apply_decision(decision(outcome="proceed_once", content="new"))
    allowed = Allow(rule="r", bound=ask("d2").bound, diff=DIFF)
    state.decisions.apply_change("b1c1", ValidateResult(verdicts={"b1c1": allowed}))
    state.stop_turn("cancelled", "Enough")
    assert state.queue.active_batch.responses[0].display == DIFF


def test_S28_an_edit_that_nobody_answered_in_time_keeps_its_diff_too() -> None:
    call = waiting(Clock(), diff=DIFF).queue.active_batch.calls[0]
    ended = expire_call(call, Clock().now)
    assert ended.response
    assert (ended.response.status, ended.response.display, ended.response.changes) == ("error", DIFF, "+1 −2")


def test_S1_a_long_turn_costs_no_more_to_judge_again() -> None:
    """What is looked through is the batch at work, not everything that was done."""
    state = waiting(Clock())
    state.queue.done = [state.queue.active_batch] * 10_000
    looked: list[str] = []
    state.queue.find_call = lambda call_id: looked.append(call_id) or None  # type: ignore[method-assign,func-returns-value]
    state.decisions.build_validate_input(state.decisions.list_unsettled_calls())
    assert looked == []


def test_S24_what_was_opened_in_an_editor_while_all_was_judged_again_proceeds_all_the_same() -> None:
    state = waiting(Clock())
    before = state.queue.active_batch
    state.decisions.note_editing(EditingNotice(approval_id="turn/b1c1/1", by="ana"))
    granted = Allow(rule="grant g1", bound=ask().bound, grant="g1")
    state.reapply_verdicts(before, ValidateResult(verdicts={"b1c1": granted}))
    assert state.queue.active_batch.calls[0].status is Status.SCHEDULED
    assert not state.decisions.is_stale


def test_S24_what_moved_on_while_all_was_judged_again_is_judged_once_more() -> None:
    state = waiting(Clock())
    before = state.queue.active_batch
    state.apply_decision(decision(outcome="modify", content="new"))
    granted = Allow(rule="grant g1", bound=ask().bound, grant="g1")
    state.reapply_verdicts(before, ValidateResult(verdicts={"b1c1": granted}))
    assert state.queue.active_batch.calls[0].changing is not None
    assert state.decisions.is_stale


def test_S39_a_tool_that_asks_where_it_runs_asks_a_hundred_times_at_the_most() -> None:
    state = waiting(Clock())
    state.apply_decision(decision(outcome="proceed_once"))
    state.queue.stop_call("b1c2", None)
    state.queue.update_batch(start_calls(state.queue.active_batch, {"b1c1"}, Clock()()))
    question = Question(call="b1c1", question=Confirmation(kind="question", title="?", question="?"))
    for _ in range(QUESTIONS_LIMIT):
        state.executions.check_question_count(question)
        revision = state.executions.hold_call(question)
        digest = state.queue.active_batch.calls[0].approval_digest
        answer = {"approval_id": f"turn/b1c1/{revision}", "digest": digest, "outcome": "respond", "content": "a"}
        state.apply_decision(decision(**answer, id=f"d{revision}"))
        state.queue.update_batch(start_calls(state.queue.active_batch, {"b1c1"}, Clock()()))
    with pytest.raises(RequestRefused, match="has asked 100 times"):
        state.executions.check_question_count(question)
