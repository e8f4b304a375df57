"""What a turn takes from validation and from people when these, deadlines and failures cross each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.domain.approvals.approval import Actor, Approver, Confirmation, Deadline, Decision, DecisionAction, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.batch import start_calls
from holdfast.domain.calls.call import CallRequest, Status
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.transitions import QUESTIONS_LIMIT, expire_call
from holdfast.domain.calls.verdicts import Allow, Ask, BoundCall, Deny, Reject, Verdict
from holdfast.domain.content import CallError
from holdfast.domain.conversation.messages import (
    ModelChoice,
)
from holdfast.domain.modes import Mode
from holdfast.domain.turn.activity_io import Question, ValidateResult
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_result import build_memory
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import EditingNotice, RevokeDecisions
from holdfast.errors import RequestRefused

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANA = Approver(name="ana")
BEN = Approver(name="ben")
DIFF = "--- a/f\n+++ b/f\n@@ -1,2 +1,1 @@\n-one\n-two\n+three\n"


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


@pytest.mark.parametrize("outcome", ["yes", "respond"])
def test_only_a_refusal_can_stop_the_turn(outcome: str) -> None:
    with pytest.raises(ValueError, match="goes with the outcome `cancel` only"):
        decision(outcome=outcome, content="x", by="ada", stop_turn=True)


def test_S23_same_decision_counts_once_with_and_without_an_id() -> None:
    for said in (decision(outcome="yes", id="one"), decision(outcome="yes")):
        state = waiting(Clock())
        assert state.apply_decision(said).status == "scheduled"
        seen = len(state.log.events)
        with pytest.raises(Exception, match="already counted"):
            state.apply_decision(said)
        assert len(state.log.events) == seen


# Grants


def turn(**input: Any) -> TurnState:
    return TurnState("t", lambda: NOW, TurnInput(prompt="Go", model=ModelChoice(), **input))


def grant(number: int, outcome: DecisionAction, **decision: Any) -> Grant:
    refuses = outcome is DecisionAction.CANCEL
    made = Decision(approval_id=f"t/b1c{number}/1", digest="d", outcome=outcome, remember=refuses, **decision)
    return Grant(id=f"g{number}", scope=Scope(tool=f"t{number}"), covers="it", decision=made, given_at=NOW)


def test_S24_what_is_taken_back_is_only_what_was_allowed() -> None:
    refused, allowed = grant(1, DecisionAction.CANCEL), grant(2, DecisionAction.PROCEED_ALWAYS)
    state = turn(memory=TurnMemory(grants=(refused, allowed), grants_given=2))
    state.decisions.revoke_decisions([refused.decision.key, allowed.decision.key], "ana")
    assert [one.id for one in state.decisions.grants.all_grants] == ["g1"]
    assert state.decisions.is_stale


def test_S24_the_longest_key_of_a_decision_can_be_taken_back() -> None:
    """A turn that revokes says so to those that it delegated, in a handler that may not fail."""
    longest = Decision(approval_id="t" * 2_000, digest="d", outcome=DecisionAction.PROCEED_ALWAYS, id="i" * 200)
    assert RevokeDecisions(decisions=(longest.key,)).decisions == (longest.key,)


def test_S22_a_refusal_stands_where_approvers_have_keys_also_before_a_turn_has_asked_any() -> None:
    state = turn(memory=TurnMemory(grants=(grant(1, DecisionAction.CANCEL),), grants_given=1, keyed=True))
    with pytest.raises(RequestRefused, match="not signed"):
        state.decisions.check_revoke("g1")
    assert build_memory(state).keyed


# Modes and editors


def test_S27_a_new_mode_is_to_be_judged_by_and_counts_once_a_worker_has() -> None:
    state = waiting(Clock())
    decisions = state.decisions
    decisions.set_mode(Mode.DEFAULT, "ana")
    assert not decisions.is_stale, "it is the mode already"
    decisions.set_mode(Mode.PLAN, "ana")
    assert (decisions.is_stale, decisions.permitted_mode, decisions.has_pending_validation) == (True, None, True)
    assert (state.log.events[-1].note, state.log.events[-1].by) == ("mode plan", "ana")
    verdicts: dict[str, Verdict] = {"b1c1": ask(), "b1c2": ask()}
    state.reapply_verdicts(state.queue.active_batch, ValidateResult(verdicts=verdicts, mode=Mode.DEFAULT))
    assert decisions.permitted_mode is Mode.DEFAULT, "what the worker permits"


def test_verdicts_on_a_batch_that_is_no_longer_at_work_change_no_call_and_stop_nothing() -> None:
    state = waiting(Clock())
    before = state.queue.active_batch
    late = ValidateResult(verdicts={"b1c1": Deny(rule="hook", message="No", stop_turn="Enough")}, approvers=(BEN,))
    state.apply_verdicts("b9", late)
    state.reapply_verdicts(before.model_copy(update={"id": "b9"}), late)
    assert (state.queue.active, state.queue.stop) == (before, None)
    assert state.decisions.approvers == (BEN,), "who may decide is known all the same"


def test_S19_a_hook_that_denies_may_end_the_turn() -> None:
    state = waiting(Clock())
    verdicts: dict[str, Verdict] = {"b1c1": Deny(rule="hook", message="No", stop_turn="Enough of this")}
    state.reapply_verdicts(state.queue.active_batch, ValidateResult(verdicts=verdicts))
    assert state.queue.stop == ("stopped", "Enough of this")


@pytest.mark.parametrize("approval", ["turn/b1c1/2", "turn/b9c1/1", "other/b1c1/1", ""])
def test_only_a_pending_approval_is_edited(approval: str) -> None:
    with pytest.raises(RequestRefused, match="no pending approval"):
        waiting(Clock()).decisions.note_editing(EditingNotice(approval_id=approval, by="ana"))
