"""What can happen to a batch, one example for each thing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.domain.approvals.approval import Confirmation, Decision
from holdfast.domain.calls import batch as batches
from holdfast.domain.calls.batch import (
    Batch,
    apply_outcome,
    apply_verdicts,
    build_batch,
    may_repeat,
    start_calls,
    stop_calls,
    withdraw_batch,
)
from holdfast.domain.calls.call import Call, CallRequest, Status
from holdfast.domain.calls.decision_checks import DecisionContext, check_decision
from holdfast.domain.calls.scheduling import Plan, list_startable
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import (
    Allow,
    Ask,
    BoundCall,
    Deny,
    ExecutionOutcome,
    Failed,
    Finished,
    Lost,
    NeedsApprovalAgain,
    Reject,
    Stopped,
    Verdict,
)
from holdfast.domain.content import CallError, Result, TextPart
from holdfast.errors import DecisionRefused, InvalidTransition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)
TURN = "turn-1"


def bound(*, safe: bool = False, digest: str = "d1", effect: Effect = Effect.ONCE) -> BoundCall:
    tool = ToolRef(name="shell", effect=effect, definition="def")
    return BoundCall(
        tool=tool,
        title="Run it",
        arguments={},
        digest=digest,
        concurrency_safe=safe,
        timeout_seconds=1,
        heartbeat_seconds=1,
    )


def ask(*, safe: bool = False, digest: str = "d1", diff: str | None = None) -> Ask:
    confirmation = Confirmation(kind="exec", title="Run it", diff=diff)
    return Ask(rule="asks", bound=bound(safe=safe, digest=digest), confirmation=confirmation)


def allow(*, safe: bool = False) -> Allow:
    return Allow(rule="allows", bound=bound(safe=safe))


def decided(batch: Batch, turn: str, said: Decision, now: datetime) -> Batch:
    """As a turn takes a decision: only when it counts."""
    call = check_decision(batch, said, DecisionContext(turn), now)
    return batches.apply_decision(batch, call.id, said, now)


def fresh(size: int) -> Batch:
    return build_batch("b1", [CallRequest(tool="shell", id=f"m{number}") for number in range(1, size + 1)], NOW)


def in_states(*states: str) -> Batch:
    """A batch by abbreviation: v(alidating) a(waiting) s(cheduled) x (executing) t(erminal); upper case is not safe."""
    names = {"v": "validating", "a": "awaiting_approval", "s": "scheduled", "x": "executing", "t": "cancelled"}
    calls = []
    for place, state in enumerate(states, start=1):
        status = Status(names[state.lower()])
        calls.append(
            Call(
                id=f"b1c{place}",
                request=CallRequest(tool="shell"),
                status=status,
                bound=None if status is Status.VALIDATING else bound(safe=state.islower()),
                started_at=NOW if status is Status.EXECUTING else None,
            )
        )
    return Batch(id="b1", calls=tuple(calls))


def waiting(**options: Any) -> Batch:
    return apply_verdicts(fresh(2), {"b1c1": ask(**options), "b1c2": allow()}, NOW)


def running() -> Batch:
    return start_calls(apply_verdicts(fresh(1), {"b1c1": allow()}, NOW), {"b1c1"}, NOW)


def decision(**changes: Any) -> Decision:
    return Decision.model_validate(
        {"approval_id": f"{TURN}/b1c1/1", "digest": "d1", "outcome": "proceed_once", **changes}
    )


def statuses(batch: Batch) -> list[str]:
    return [call.status.value for call in batch.calls]


def only(batch: Batch) -> Call:
    [call] = batch.calls
    return call


# Making one


def test_S4_ids_are_the_engines_own_and_places_are_in_order() -> None:
    batch = build_batch("b2", [CallRequest(tool="a", id="same"), CallRequest(tool="b", id="same")], NOW)
    assert [call.id for call in batch.calls] == ["b2c1", "b2c2"]
    assert statuses(batch) == ["validating", "validating"]
    assert len(batch) == 2
    assert batch.get("b2c2") is batch.calls[1]
    assert batch.get("same") is None


def test_S4_calls_with_one_model_id_are_both_run_and_both_answered() -> None:
    batch = build_batch("b1", [CallRequest(tool="a", id="same"), CallRequest(tool="b", id="same")], NOW)
    batch = apply_verdicts(batch, {"b1c1": allow(safe=True), "b1c2": allow(safe=True)}, NOW)
    assert [call.id for call in list_startable(batch)] == ["b1c1", "b1c2"]
    batch = start_calls(batch, {"b1c1", "b1c2"}, NOW)
    for call_id in ("b1c2", "b1c1"):
        batch = apply_outcome(batch, call_id, Finished(result=Result.from_text(f"of {call_id}")), LATER)
    assert batch.is_done
    assert [(answer.call_id, answer.model_id, answer.text) for answer in batch.responses] == [
        ("b1c1", "same", "of b1c1"),
        ("b1c2", "same", "of b1c2"),
    ]


# Readiness and starting


@pytest.mark.parametrize(
    ("states", "ready"),
    [
        ("v", False),
        ("a", False),
        ("s", True),
        ("t", True),
        ("", True),
        ("st", True),
        ("sv", False),
        ("sa", False),
        ("ssta", False),
        ("xa", True),
    ],
)
def test_S9_batch_is_ready_when_all_are_scheduled_or_ended_or_some_have_begun(states: str, ready: bool) -> None:
    assert in_states(*states).is_ready is ready


@pytest.mark.parametrize("states", ["sv", "va", "sssa", "tsv", "sA", "Vs"])
def test_S9_nothing_starts_before_all_are_ready(states: str) -> None:
    assert list_startable(in_states(*states)) == ()


def test_S9_gate_stays_open_once_it_was_open() -> None:
    """S9: a call that goes back to a person does not close the gate for the calls behind it."""
    batch = apply_verdicts(fresh(3), {"b1c1": allow(safe=True), "b1c2": allow(), "b1c3": allow()}, NOW)
    batch = start_calls(batch, {"b1c1"}, NOW)
    batch = apply_outcome(batch, "b1c1", NeedsApprovalAgain(verdict=ask(safe=True)), LATER)
    assert statuses(batch)[0] == "awaiting_approval"
    assert [call.id for call in list_startable(batch)] == ["b1c2"]


@pytest.mark.parametrize(
    ("states", "starting"),
    [
        ("", []),
        ("t", []),
        ("s", [1]),
        ("S", [1]),
        ("sss", [1, 2, 3]),
        ("SSS", [1]),  # unsafe ones one after another
        ("Sss", [1]),  # nothing beside an unsafe one
        ("sSs", [1]),  # an unsafe one that may not start holds back what is behind it
        ("ssSs", [1, 2]),
        ("xsss", [2, 3, 4]),
        ("xS", []),
        ("xSs", []),
        ("xsSs", [2]),
        ("Xs", []),
        ("XS", []),
        ("tSs", [2]),
        ("tsts", [2, 4]),
        ("xas", [3]),  # a safe one that waits holds nothing back
        ("xAs", []),  # an unsafe one that waits does
        ("xvs", []),  # of one still validating nobody knows
        ("sx", [1]),
        ("Sx", []),
    ],
)
def test_S10_calls_start_in_order_and_unsafe_ones_alone(states: str, starting: list[int]) -> None:
    assert [call.id for call in list_startable(in_states(*states))] == [f"b1c{place}" for place in starting]


def test_no_more_than_the_limit_execute_at_once() -> None:
    assert len(list_startable(in_states(*"s" * 9), Plan(parallel=4))) == 4
    assert len(list_startable(in_states(*"xxx" + "s" * 9), Plan(parallel=4))) == 1
    assert list_startable(in_states(*"xxxx" + "s" * 9), Plan(parallel=4)) == ()
    assert len(list_startable(in_states(*"s" * 1_000))) == 50


# Verdicts


def test_verdicts_move_each_call_its_own_way() -> None:
    verdicts: dict[str, Verdict] = {
        "b1c1": allow(),
        "b1c2": ask(),
        "b1c3": Deny(rule="never", message="Not here"),
        "b1c4": Reject(error=CallError(type="tool_not_registered", message="No tool")),
    }
    batch = apply_verdicts(fresh(5), verdicts, LATER)
    assert statuses(batch) == ["scheduled", "awaiting_approval", "error", "error", "validating"]
    assert [call.rule for call in batch.calls] == ["allows", "asks", "never", None, None]
    assert [call.error.type for call in batch.calls if call.error] == ["denied", "tool_not_registered"]
    asked = batch.calls[1]
    assert (asked.revision, asked.decision, asked.confirmation) == (1, None, ask().confirmation)
    assert batch.waiting_calls == (asked,)


def test_S1_verdict_for_a_call_that_moved_on_changes_nothing() -> None:
    batch = stop_calls(fresh(2), "Enough", NOW, only={"b1c1"})
    after = apply_verdicts(batch, {"b1c1": allow(), "b1c2": allow(), "unknown": allow()}, LATER)
    assert after.calls[0] is batch.calls[0]
    assert apply_verdicts(after, {"b1c2": ask()}, LATER) == after


# Decisions


def test_S21_proceed_once_schedules_the_call_with_its_decision() -> None:
    said = decision(by="ada")
    batch = decided(waiting(), TURN, said, LATER)
    assert statuses(batch) == ["scheduled", "scheduled"]
    assert batch.calls[0].decision == said


def test_S21_respond_answers_in_the_tools_place() -> None:
    batch = decided(waiting(), TURN, decision(outcome="respond", content="42"), LATER)
    [answer] = batch.responses
    assert (answer.status, answer.text, answer.error) == ("success", "42", None)
    assert batch.calls[0].ended_at == LATER


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"by": "ada", "note": "too risky"}, "Refused by ada: too risky"),
        ({"by": "ada"}, "Refused by ada"),
        ({}, "Refused by somebody"),
    ],
)
def test_S21_cancel_ends_the_call_cancelled_with_the_reason(said: dict[str, str], text: str) -> None:
    batch = decided(waiting(diff="-a\n+b\n"), TURN, decision(outcome="cancel", **said), LATER)
    [answer] = batch.responses
    assert (answer.status, answer.text, answer.display) == ("cancelled", text, "-a\n+b\n")
    assert answer.error == CallError(type="refused", message=text)
    assert statuses(batch) == ["cancelled", "scheduled"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"approval_id": "rubbish"}, "unknown_approval"),
        ({"approval_id": "turn-2/b1c1/1"}, "unknown_approval"),
        ({"approval_id": f"{TURN}/b1c9/1"}, "unknown_approval"),
        ({"approval_id": f"{TURN}/b1c2/1"}, "not_waiting"),
        ({"approval_id": f"{TURN}/b1c1/0"}, "old_revision"),
        ({"approval_id": f"{TURN}/b1c1/2"}, "unknown_approval"),
        ({"digest": "d2"}, "other_digest"),
        ({"digest": ""}, "other_digest"),
        ({"outcome": "respond"}, "no_content"),
        ({"outcome": "respond", "content": ""}, "no_content"),
    ],
)
def test_S22_decision_that_does_not_fit_is_refused_with_its_code(changes: dict[str, str], code: str) -> None:
    batch = waiting()
    for refuse in (
        lambda said: check_decision(batch, said, DecisionContext(TURN), NOW),
        lambda said: decided(batch, TURN, said, NOW),
    ):
        with pytest.raises(DecisionRefused) as refusal:
            refuse(decision(**changes))
        assert refusal.value.code == code


@pytest.mark.parametrize("outcome", ["proceed_once", "cancel", "respond"])
def test_S1_decision_on_a_call_that_ended_is_refused(outcome: str) -> None:
    batch = stop_calls(waiting(), "Enough", NOW)
    with pytest.raises(DecisionRefused) as refusal:
        decided(batch, TURN, decision(outcome=outcome, content="x"), LATER)
    assert refusal.value.code == "not_waiting"
    assert "cancelled" in str(refusal.value)


def test_S22_question_asked_again_needs_a_new_decision() -> None:
    batch = decided(waiting(), TURN, decision(), NOW)
    batch = apply_outcome(
        start_calls(batch, {"b1c1"}, NOW), "b1c1", NeedsApprovalAgain(verdict=ask(digest="d2")), LATER
    )
    asked = batch.calls[0]
    assert (asked.status, asked.revision, asked.decision) == ("awaiting_approval", 2, None)
    with pytest.raises(DecisionRefused) as refusal:
        decided(batch, TURN, decision(), LATER)
    assert refusal.value.code == "old_revision"
    again = decision(approval_id=f"{TURN}/b1c1/2", digest="d2")
    assert statuses(decided(batch, TURN, again, LATER))[0] == "scheduled"


# Questions


def questioned(*options: str, other: bool = True) -> Batch:
    shown = Confirmation(kind="question", title="Which?", options=options, other=other)
    return apply_verdicts(fresh(1), {"b1c1": Ask(rule="asks", bound=bound(), confirmation=shown)}, NOW)


@pytest.mark.parametrize(
    ("batch", "changes", "code"),
    [
        (questioned(), {"outcome": "proceed_once"}, "needs_answer"),
        (questioned(), {"outcome": "yes"}, "needs_answer"),
        (questioned("a"), {"outcome": "proceed_once", "content": "a"}, "needs_answer"),
        (questioned(), {"outcome": "respond"}, "no_content"),
        (questioned(), {"outcome": "respond", "content": ""}, "no_content"),
        (questioned("a", "b", other=False), {"outcome": "respond", "content": "c"}, "not_an_option"),
        (questioned("a", "b", other=False), {"outcome": "respond", "content": "A"}, "not_an_option"),
        (questioned("a", "b", other=False), {"outcome": "respond", "content": "a "}, "not_an_option"),
        (questioned("a", "b", other=False), {"outcome": "respond"}, "no_content"),
        (questioned("a"), {"outcome": "respond", "content": "a", "digest": "d2"}, "other_digest"),
    ],
)
def test_S21_question_wants_an_answer_and_one_of_its_options(batch: Batch, changes: dict[str, Any], code: str) -> None:
    with pytest.raises(DecisionRefused) as refusal:
        decided(batch, TURN, decision(**changes), LATER)
    assert refusal.value.code == code
    assert statuses(batch) == ["awaiting_approval"]


@pytest.mark.parametrize(
    ("batch", "answer"),
    [
        (questioned(), "anything"),
        (questioned("a", "b"), "something else"),
        (questioned("a", "b"), "a"),
        (questioned("a", "b", other=False), "b"),
    ],
)
def test_S21_answer_to_a_question_is_its_result(batch: Batch, answer: str) -> None:
    call = only(decided(batch, TURN, decision(outcome="respond", content=answer), LATER))
    assert call.status is Status.SUCCESS
    assert call.response is not None
    assert call.response.parts == (TextPart(text=answer),)


@pytest.mark.parametrize("outcome", ["cancel", "no"])
def test_S21_question_can_be_refused(outcome: str) -> None:
    call = only(decided(questioned("a", other=False), TURN, decision(outcome=outcome), LATER))
    assert call.status is Status.CANCELLED


def test_S21_options_of_what_is_no_question_do_not_matter() -> None:
    shown = Confirmation(kind="exec", title="Run it", options=("a",), other=False)
    batch = apply_verdicts(fresh(1), {"b1c1": Ask(rule="asks", bound=bound(), confirmation=shown)}, NOW)
    assert only(decided(batch, TURN, decision(), LATER)).status is Status.SCHEDULED


# Execution


def test_begun_calls_execute_and_only_scheduled_ones_can() -> None:
    batch = start_calls(apply_verdicts(fresh(2), {"b1c1": allow(), "b1c2": allow()}, NOW), {"b1c1"}, LATER)
    assert statuses(batch) == ["executing", "scheduled"]
    assert [call.started_at for call in batch.calls] == [LATER, None]
    with pytest.raises(InvalidTransition):
        start_calls(batch, {"b1c1"}, LATER)


PARTIAL = (TextPart(text="half"),)
BOOM = CallError(type="boom", message="It broke")


@pytest.mark.parametrize(
    ("outcome", "status", "error", "text"),
    [
        (Finished(result=Result.from_text("done")), "success", None, "done"),
        (Failed(error=BOOM, parts=PARTIAL), "error", "boom", "It broke\nhalf"),
        (Stopped(reason="by itself", parts=PARTIAL), "cancelled", "cancelled", "by itself\nhalf"),
        (Stopped(), "cancelled", "cancelled", "The call was stopped"),
        (Lost(message="Gone", parts=PARTIAL), "error", "outcome_unknown", "Gone\nhalf"),
        (Lost(message="Gone", repeatable=True), "error", "worker_lost", "Gone"),
        (NeedsApprovalAgain(verdict=Deny(rule="r", message="No")), "error", "denied", "No"),
        (NeedsApprovalAgain(verdict=Reject(error=BOOM)), "error", "boom", "It broke"),
        (
            NeedsApprovalAgain(verdict=allow()),
            "error",
            "not_covered",
            "The worker refused to run a call that its own policy allows",
        ),
    ],
)
def test_S3_outcome_ends_the_call_with_one_response(
    outcome: ExecutionOutcome, status: str, error: str | None, text: str
) -> None:
    batch = apply_outcome(running(), "b1c1", outcome, LATER)
    [answer] = batch.responses
    assert (answer.call_id, answer.model_id, answer.tool) == ("b1c1", "m1", "shell")
    assert (answer.status, answer.error and answer.error.type, answer.text) == (status, error, text)
    assert (only(batch).ended_at, only(batch).execution_time) == (LATER, timedelta(seconds=5))
    assert batch.is_done


def test_S22_reconsidered_call_goes_back_to_a_person() -> None:
    batch = apply_outcome(running(), "b1c1", NeedsApprovalAgain(verdict=ask()), LATER)
    assert statuses(batch) == ["awaiting_approval"]
    assert only(batch).revision == 1
    assert batch.responses == ()


@pytest.mark.parametrize(
    ("outcome", "status", "text"),
    [
        (Finished(result=Result.from_text("done")), "success", "done"),
        (Failed(error=BOOM, parts=PARTIAL), "cancelled", "Enough\nhalf"),
        (Stopped(reason="by itself", parts=PARTIAL), "cancelled", "Enough. by itself\nhalf"),
        (
            Lost(message="Gone", parts=PARTIAL),
            "cancelled",
            "Enough; its worker was lost before it answered, so it may have taken effect\nhalf",
        ),
        (NeedsApprovalAgain(verdict=ask()), "cancelled", "Enough"),
        (NeedsApprovalAgain(verdict=allow()), "cancelled", "Enough"),
        (NeedsApprovalAgain(verdict=Deny(rule="r", message="No")), "cancelled", "Enough"),
        (NeedsApprovalAgain(verdict=Reject(error=BOOM)), "cancelled", "Enough"),
    ],
)
def test_S7_stopped_call_is_cancelled_never_an_error_and_keeps_what_it_had(
    outcome: ExecutionOutcome, status: str, text: str
) -> None:
    batch = apply_outcome(stop_calls(running(), "Enough", NOW), "b1c1", outcome, LATER)
    [answer] = batch.responses
    assert (answer.status, answer.text) == (status, text)
    assert only(batch).stopping is None


@pytest.mark.parametrize("state", ["v", "a", "s", "t"])
def test_S1_outcome_for_a_call_that_does_not_execute_changes_nothing(state: str) -> None:
    batch = in_states(state)
    assert apply_outcome(batch, "b1c1", Finished(result=Result.from_text("late")), LATER) == batch
    assert apply_outcome(batch, "b1c9", Finished(result=Result.from_text("whose?")), LATER) == batch


# Stopping


def test_S16_stop_cancels_what_has_not_begun_and_marks_what_runs() -> None:
    batch = stop_calls(in_states("v", "a", "s", "x", "t"), "Enough", LATER)
    assert statuses(batch) == ["cancelled", "cancelled", "cancelled", "executing", "cancelled"]
    assert [call.stopping for call in batch.calls] == [None, None, None, "Enough", None]
    assert [answer.text for answer in batch.responses] == ["Enough"] * 3
    assert stop_calls(batch, "Again", LATER) == batch


def test_S16_stop_of_one_call_leaves_its_siblings_alone() -> None:
    before = in_states("v", "a", "s", "x", "t")
    after = stop_calls(before, "Enough", LATER, only={"b1c3"})
    assert statuses(after) == ["validating", "awaiting_approval", "cancelled", "executing", "cancelled"]
    assert all(old is new for old, new in zip(before.calls, after.calls, strict=True) if old.id != "b1c3")


def test_S14_withdrawn_batch_answers_every_call_and_never_starts() -> None:
    batch = withdraw_batch(fresh(2), LATER)
    assert batch.withdrawn
    assert batch.is_done
    assert [answer.text for answer in batch.responses] == ["The batch was withdrawn before it started"] * 2
    assert list_startable(apply_verdicts(batch, {"b1c1": allow()}, LATER)) == ()


def test_S13_responses_come_in_request_order_whatever_the_order_of_endings() -> None:
    batch = apply_verdicts(fresh(3), {f"b1c{place}": allow(safe=True) for place in (1, 2, 3)}, NOW)
    batch = start_calls(batch, {"b1c1", "b1c2", "b1c3"}, NOW)
    for place in (3, 1, 2):
        batch = apply_outcome(batch, f"b1c{place}", Finished(result=Result.from_text(str(place))), LATER)
    assert [answer.text for answer in batch.responses] == ["1", "2", "3"]


# Repeating


@pytest.mark.parametrize(("effect", "repeat"), [(Effect.READ, True), (Effect.IDEMPOTENT, True), (Effect.ONCE, False)])
def test_S31_only_reads_and_idempotent_calls_may_be_repeated(effect: Effect, repeat: bool) -> None:
    call = Call(id="b1c1", request=CallRequest(tool="shell"), bound=bound(effect=effect))
    assert may_repeat(call) is repeat


def test_S31_call_nobody_has_bound_is_not_repeated() -> None:
    assert not may_repeat(Call(id="b1c1", request=CallRequest(tool="shell")))
