"""Any interleaving of verdicts, decisions, outcomes, stops and their duplicates keeps the promises of S1–S4, S7–S10,
S13, S14, S16, S22, S24, S25 and S28.

The machine knows the contract by itself: the table, the gate and the rule of concurrency are written out here again,
and nothing is asked of the code under test but what became of the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.domain.approvals.approval import (
    Actor,
    Confirmation,
    Deadline,
    Decision,
    DecisionAction,
    Needs,
    Offer,
    QuestionAnswer,
    Scope,
)
from holdfast.domain.calls.batch import Batch, apply_outcome, apply_verdicts, start_calls
from holdfast.domain.calls.call import Call, CallRequest
from holdfast.domain.calls.scheduling import list_startable
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
    QuestionRaised,
    Reject,
    Stopped,
    Verdict,
)
from holdfast.domain.content import CallError, Result, TextPart
from holdfast.domain.modes import Mode
from holdfast.domain.turn.activity_io import Question, ValidateResult
from holdfast.domain.turn.batch_queue import BatchQueue
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_result import build_result
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import EditingNotice
from holdfast.errors import DecisionRefused, Refused, RequestRefused

TURN = "team/turn-1"
ENDS = {"success", "error", "cancelled"}
MOVES = {
    None: {"validating"},
    "validating": {"awaiting_approval", "scheduled", "error", "cancelled"},
    "awaiting_approval": {"awaiting_approval", "scheduled", "success", "error", "cancelled"},
    "scheduled": {"executing", "awaiting_approval", "error", "cancelled"},
    "executing": {"success", "error", "cancelled", "awaiting_approval"},
}


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


def bound(*, safe: bool, digest: str) -> BoundCall:
    tool = ToolRef(name="tool", effect=Effect.ONCE, definition="def")
    return BoundCall(
        tool=tool,
        title="Do it",
        arguments={},
        digest=digest,
        concurrency_safe=safe,
        timeout_seconds=1,
        heartbeat_seconds=1,
    )


OFFERS = (
    Offer(outcome=DecisionAction.PROCEED_ALWAYS, scope=Scope(digest="d1"), covers="exactly this"),
    Offer(outcome=DecisionAction.PROCEED_ALWAYS_TOOL, scope=Scope(tool="tool"), covers="all of it"),
)


def ask(*, safe: bool, digest: str, **more: Any) -> Ask:
    shown = Confirmation(kind="edit", title="Do it", diff="+ new\n", edits="text", offers=OFFERS, **more)
    return Ask(rule="asks", bound=bound(safe=safe, digest=digest), confirmation=shown)


HALF = (TextPart(text="half"),)
BROKEN = CallError(type="boom", message="It broke")
DEFAULTS: list[Literal["deny", "allow"]] = ["deny", "allow"]
TRAITS = [(safe, digest) for safe in (True, False) for digest in ("d1", "d2")]
ASKS = [
    *(ask(safe=safe, digest=digest) for safe, digest in TRAITS),
    ask(safe=True, digest="d1", needs=Needs(approvals=2)),
    *(
        ask(safe=True, digest="d1", deadline=Deadline(seconds=60, warning_seconds=20, default=default))
        for default in DEFAULTS
    ),
]
EVERY_VERDICT: list[Verdict] = [
    *(Allow(rule="allows", bound=bound(safe=safe, digest=digest)) for safe, digest in TRAITS),
    Allow(rule="grant g1", bound=bound(safe=True, digest="d1"), grant="g1", actor=Actor(kind="person", name="ada")),
    *ASKS,
    Deny(rule="denies", message="No"),
    Deny(rule="grant g2", message="Never", actor=Actor(kind="person", name="ada")),
    Reject(error=BROKEN),
]
EVERY_OUTCOME: list[ExecutionOutcome] = [
    Finished(result=Result.from_text("done")),
    Finished(result=Result()),
    Failed(error=BROKEN, parts=HALF),
    Stopped(),
    Stopped(reason="by itself", parts=HALF),
    Lost(message="Gone", parts=HALF),
    Lost(message="Gone", repeatable=True),
    QuestionRaised(question=Confirmation(kind="question", title="Which?", question="Which?"), state={"step": 1}),
    *(NeedsApprovalAgain(verdict=verdict) for verdict in EVERY_VERDICT),
]
DENIED = Deny(rule="denies", message="No")
VERDICTS = st.sampled_from(EVERY_VERDICT)
OUTCOMES = st.sampled_from(EVERY_OUTCOME)
ENDINGS = st.sampled_from([outcome for outcome in EVERY_OUTCOME if outcome.kind not in ("reconsider", "asks")])
PLACES = st.integers(0, 4)
LUCK = st.sampled_from([False, False, False, True])
"""What stops everything happens seldom, so that something is left to stop."""
BAD: list[tuple[dict[str, Any], str]] = [
    ({"revision": -1}, "old_revision"),
    ({"revision": 1}, "unknown_approval"),
    ({"digest": "another"}, "other_digest"),
    ({"turn": "turn-2"}, "unknown_approval"),
    ({"call": "b99c1"}, "unknown_approval"),
    ({"approval_id": "garbage"}, "unknown_approval"),
    ({"outcome": "respond", "content": None}, "no_content"),
    ({"outcome": "proceed_always_server"}, "not_offered"),
    ({"outcome": "proceed_always", "scope": {"tool": "*"}}, "not_offered"),
    ({"outcome": "cancel", "remember": True, "scope": {"digest": "another"}}, "not_offered"),
    ({"expires": datetime(2025, 1, 1, tzinfo=UTC)}, "expired_decision"),
]


def is_safe(call: Call) -> bool:
    return call.bound is not None and call.bound.concurrency_safe


def wants_others(verdict: Verdict) -> bool:
    """Is one person's word not enough?"""
    return isinstance(verdict, Ask) and verdict.confirmation.needs != Needs()


class TurnMachine(RuleBasedStateMachine):
    """One turn under everything that can come at it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.state = TurnState(TURN, self.clock)  # until its input is drawn
        self.ended: dict[str, Call] = {}
        self.executed: set[str] = set()
        self.status: dict[str, str] = {}
        self.seen = 0
        self.sizes: dict[str, int] = {}
        self.given: list[Decision] = []
        self.decisions = 0

    # What comes from outside

    @initialize(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=2))
    def begin(self, sizes: list[int]) -> None:
        batches = tuple(requests(size) for size in sizes)
        self.state = TurnState(TURN, self.clock, TurnInput(batches=batches, keep_open=True))
        self.sizes = {f"b{number}": size for number, size in enumerate(sizes, start=1)}
        self.state.activate_batch()

    @precondition(lambda self: len(self.sizes) < 5)
    @rule(size=st.integers(1, 4))
    def submit(self, size: int) -> None:
        with suppress(RequestRefused):
            self.state.check_open()
            batch = self.queue.enqueue_batch(requests(size))
            assert batch.id not in self.sizes
            self.sizes[batch.id] = size

    @precondition(lambda self: self.queue.queued)
    @rule(place=PLACES)
    def withdraw(self, place: int) -> None:
        batch = self.queue.queued[place % len(self.queue.queued)]
        answer = self.queue.withdraw_batch(batch.id)
        assert (answer.status, len(answer.responses)) == ("withdrawn", len(batch))
        assert all(call.id not in self.executed for call in batch.calls)
        for gone in (batch.id, "b99", ""):
            self.changes_nothing(lambda gone=gone: self.queue.withdraw_batch(gone), RequestRefused)  # type: ignore[misc]

    @precondition(lambda self: self.queue.active is None and self.queue.queued and not self.queue.stop)
    @rule()
    def activate(self) -> None:
        self.state.activate_batch()

    @precondition(lambda self: self.queue.active)
    @rule(verdicts=st.lists(VERDICTS, min_size=5, max_size=5), chosen=st.sets(PLACES, min_size=1))
    def judge(self, verdicts: list[Verdict], chosen: set[int]) -> None:
        calls = self.queue.active_batch.calls
        found = {calls[place % len(calls)].id: verdicts[place] for place in chosen}
        self.queue.update_batch(apply_verdicts(self.queue.active_batch, found, self.clock()))

    @precondition(lambda self: self.queue.active)
    @rule(verdicts=st.lists(VERDICTS, min_size=5, max_size=5))
    def judge_all(self, verdicts: list[Verdict]) -> None:
        found = {call.id: verdict for call, verdict in zip(self.queue.active_batch.calls, verdicts, strict=False)}
        self.queue.update_batch(apply_verdicts(self.queue.active_batch, found, self.clock()))

    @precondition(lambda self: self.undecided())
    @rule(
        place=PLACES,
        outcome=st.sampled_from(["proceed_once"] * 2 + ["respond", "cancel", "proceed_always", "proceed_always_tool"]),
        named=st.booleans(),
        stop=st.sampled_from([False, False, False, False, True]),
    )
    def decide(self, place: int, outcome: str, named: bool, stop: bool) -> None:
        waiting = self.undecided()
        call = waiting[place % len(waiting)]
        self.decisions += 1
        said = self.decision(
            call,
            outcome=outcome,
            id=f"decision-{self.decisions}" if named else None,
            note=f"{self.decisions}",
            by=f"person {self.decisions}",
            stop_turn=stop and outcome == "cancel",
        )
        answer = self.state.apply_decision(said)
        self.given.append(said)
        now = self.queue.active_batch.get(call.id)
        assert now is not None
        assert (answer.call, answer.status) == (call.id, now.status)
        assert call.confirmation is not None
        enough = len(call.approvals) + 1 >= call.confirmation.needs.approvals
        proceeds = "scheduled" if enough else "awaiting_approval"
        assert now.status == {"respond": "success", "cancel": "cancelled"}.get(outcome, proceeds)
        assert bool(self.queue.stop) >= said.stop_turn
        if outcome in ("proceed_always", "proceed_always_tool"):
            assert self.state.decisions.is_stale
            assert self.state.decisions.grants.all_grants[-1].decision == said

    @precondition(lambda self: self.undecided())
    @rule(place=PLACES, outcome=st.sampled_from(["modify", "proceed_once"]), by_text=st.booleans())
    def change(self, place: int, outcome: str, by_text: bool) -> None:
        """S25: a change waits for validation, and nothing else is taken meanwhile."""
        waiting = self.undecided()
        call = waiting[place % len(waiting)]
        self.decisions += 1
        said = self.decision(
            call,
            outcome=outcome,
            id=f"change-{self.decisions}",
            **({"content": "text"} if by_text else {"arguments": {"text": "x"}, "content": None}),
        )
        assert call.confirmation is not None
        if outcome == "proceed_once" and call.confirmation.needs.approvals > 1:
            self.changes_nothing(lambda: self.state.apply_decision(said), DecisionRefused, "needs_others")
            return
        assert self.state.apply_decision(said).status == "awaiting_approval"
        self.given.append(said)
        assert self.state.decisions.is_changing(call.id, said)
        now = self.queue.active_batch.get(call.id)
        assert now is not None
        self.changes_nothing(lambda: self.state.apply_decision(self.decision(now)), DecisionRefused, "being_changed")

    @precondition(lambda self: any(call.changing for call in self.calls()))
    @rule(verdict=VERDICTS)
    def validate_change(self, verdict: Verdict) -> None:
        call = next(call for call in self.calls() if call.changing)
        assert call.changing is not None
        self.state.decisions.apply_change(call.id, ValidateResult(verdicts={call.id: verdict}))
        after = self.queue.active_batch.get(call.id)
        assert after is not None
        assert after.changing is None
        if verdict.kind in ("deny", "reject"):
            assert (after.status, after.revision, bool(after.problem)) == (call.status, call.revision, True)
        elif call.changing.outcome is DecisionAction.PROCEED_ONCE and not wants_others(verdict):
            assert (after.status, after.decision) == ("scheduled", call.changing)
        elif verdict.kind == "ask":
            assert (after.status, after.revision) == ("awaiting_approval", call.revision + 1)

    @precondition(lambda self: self.queue.active)
    @rule(verdicts=st.lists(VERDICTS, min_size=5, max_size=5), mode=st.sampled_from(Mode), stop=PLACES)
    def reconsider(self, verdicts: list[Verdict], mode: Mode, stop: int) -> None:
        """S24, S27: what is judged again while the world goes on keeps what has moved on."""
        self.state.decisions.set_mode(mode, "ada")
        before = self.queue.active_batch
        asked = {call.id for call in self.state.decisions.list_unsettled_calls()}
        found = {call.id: verdict for call, verdict in zip(before.calls, verdicts, strict=False) if call.id in asked}
        moved = before.calls[stop % len(before.calls)]
        self.queue.stop_call(moved.id, None)
        now = self.queue.active_batch.get(moved.id)
        self.state.reapply_verdicts(before, ValidateResult(verdicts=found))
        assert self.queue.active_batch.get(moved.id) == now
        for old, new in zip(before.calls, self.calls(), strict=True):
            assert old.id in asked or old.id == moved.id or old == new
            if found.get(old.id) and found[old.id].kind == "deny":
                assert new.is_terminal, "nothing that is denied goes on"

    @precondition(lambda self: self.state.decisions.grants.all_grants)
    @rule(place=PLACES)
    def revoke(self, place: int) -> None:
        grant = self.state.decisions.grants.all_grants[place % len(self.state.decisions.grants.all_grants)]
        self.state.decisions.revoke_grant(grant.id, "ada")
        assert self.state.decisions.is_stale
        self.changes_nothing(lambda: self.state.decisions.revoke_grant(grant.id, "ada"), RequestRefused, "no_grant")

    @precondition(lambda self: self.undecided())
    @rule(place=PLACES, seconds=st.sampled_from([0, 30]))
    def edit(self, place: int, seconds: int) -> None:
        waiting = self.undecided()
        call = waiting[place % len(waiting)]
        address = f"{TURN}/{call.id}/{call.revision}"
        self.state.decisions.note_editing(EditingNotice(approval_id=address, by="ada", seconds=seconds))
        after = self.queue.active_batch.get(call.id)
        assert after is not None
        assert bool(after.editing) == bool(seconds)

    @precondition(lambda self: self.queue.active)
    @rule(seconds=st.sampled_from([10, 45, 100]))
    def time_passes(self, seconds: int) -> None:
        """S28: what is due takes its default, by the runtime; nothing else changes."""
        before = self.calls()
        self.clock.now += timedelta(seconds=seconds)
        self.state.decisions.apply_deadlines()
        for old, new in zip(before, self.calls(), strict=True):
            waits = old.status == "awaiting_approval" and not old.changing
            due = waits and old.deadline_at is not None and old.deadline_at <= self.clock.now
            assert (new.status != old.status) == due
            if due:
                assert old.confirmation is not None
                assert old.confirmation.deadline is not None
                assert new.actor == Actor(kind="runtime", name="deadline")
                allowed = old.confirmation.deadline.default == "allow"
                assert (new.status, new.error.type if new.error else None) == (
                    ("scheduled", None) if allowed else ("error", "expired")
                )

    @precondition(lambda self: self.undecided())
    @rule(place=PLACES)
    def decide_badly(self, place: int) -> None:
        waiting = self.undecided()
        call = waiting[place % len(waiting)]
        for changes, code in BAD:
            said = self.decision(call, **changes)
            self.changes_nothing(lambda said=said: self.state.decisions.check_decision(said), DecisionRefused, code)  # type: ignore[misc]
            self.changes_nothing(lambda said=said: self.state.apply_decision(said), DecisionRefused, code)  # type: ignore[misc]

    @precondition(lambda self: self.given)
    @rule(place=st.integers(0, 100))
    def decide_again(self, place: int) -> None:
        again = self.given[place % len(self.given)]
        self.changes_nothing(lambda: self.state.apply_decision(again), DecisionRefused, "already_counted")

    @precondition(lambda self: self.queue.active and any(call.status != "awaiting_approval" for call in self.calls()))
    @rule(place=PLACES, outcome=st.sampled_from(["proceed_once", "respond", "cancel"]))
    def decide_what_does_not_wait(self, place: int, outcome: str) -> None:
        calls = [call for call in self.calls() if call.status != "awaiting_approval"]
        said = self.decision(calls[place % len(calls)], outcome=outcome)
        self.changes_nothing(lambda: self.state.apply_decision(said), DecisionRefused, "not_waiting")

    @precondition(lambda self: any(call.is_asking for call in self.calls()))
    @rule(place=PLACES, outcome=st.sampled_from(["respond", "cancel"]))
    def answer(self, place: int, outcome: str) -> None:
        """S2: a call that asked in the middle of its run goes on, whatever was said."""
        asking = [call for call in self.calls() if call.is_asking]
        call = asking[place % len(asking)]
        if call.stopping:
            return
        self.decisions += 1
        said = self.decision(call, outcome=outcome, id=f"answer-{self.decisions}", content="this")
        wrong = self.decision(call, outcome="proceed_once", content=None)
        self.changes_nothing(lambda: self.state.apply_decision(wrong), DecisionRefused, "needs_answer")
        assert self.state.apply_decision(said).status == "scheduled"
        self.given.append(said)
        after = self.queue.active_batch.get(call.id)
        assert after is not None
        assert after.pause is not None
        assert after.pause.answer is not None
        assert (after.pause.answer.action == "accept") == (outcome == "respond")
        assert after.approvals == call.approvals

    # What the engine does

    @precondition(lambda self: any(call.is_running and not call.stopping for call in self.calls()))
    @rule(place=PLACES)
    def hold(self, place: int) -> None:
        """A tool asks, and waits where it runs."""
        running = [call for call in self.calls() if call.is_running and not call.stopping]
        call = running[place % len(running)]
        if call.status == "scheduled":
            return
        question = Confirmation(kind="question", title="Which?", question="Which?")
        revision = self.state.executions.hold_call(Question(call=call.id, run=call.run, question=question))
        assert self.state.executions.find_answer(call.id, revision) is None
        assert self.state.executions.find_answer(call.id, revision - 1) == QuestionAnswer(action="cancel")

    @precondition(lambda self: self.queue.active)
    @rule()
    def start(self) -> None:
        chosen = list_startable(self.queue.active_batch)
        self.queue.update_batch(start_calls(self.queue.active_batch, {call.id for call in chosen}, self.clock()))
        self.executed |= {call.id for call in chosen}

    @precondition(lambda self: self.queue.active and any(call.is_running for call in self.calls()))
    @rule(place=PLACES, outcome=OUTCOMES)
    def finish(self, place: int, outcome: ExecutionOutcome) -> None:
        running = [call for call in self.calls() if call.is_running]
        call = running[place % len(running)]
        self.queue.update_batch(apply_outcome(self.queue.active_batch, call.id, outcome, self.clock()))
        after = self.queue.active_batch.get(call.id)
        assert after is not None
        assert after.status != "executing"
        if call.stopping:
            assert after.status == "cancelled" or (after.status == "success" and outcome.kind == "finished")

    @precondition(lambda self: self.queue.active)
    @rule(place=PLACES, outcome=OUTCOMES)
    def finish_what_does_not_execute(self, place: int, outcome: ExecutionOutcome) -> None:
        call = self.calls()[place % len(self.calls())]
        if not call.is_running:
            self.changes_nothing(
                lambda: self.queue.update_batch(apply_outcome(self.queue.active_batch, call.id, outcome, self.clock()))
            )

    @precondition(lambda self: self.queue.active and any(call.is_terminal for call in self.calls()))
    @rule(place=PLACES, outcome=OUTCOMES, verdict=VERDICTS)
    def anything_for_what_has_ended(self, place: int, outcome: ExecutionOutcome, verdict: Verdict) -> None:
        over = [call for call in self.calls() if call.is_terminal]
        call = over[place % len(over)]

        def arrive() -> None:
            self.queue.update_batch(apply_verdicts(self.queue.active_batch, {call.id: verdict}, self.clock()))
            self.queue.update_batch(apply_outcome(self.queue.active_batch, call.id, outcome, self.clock()))
            self.queue.stop_call(call.id, "Too late")

        self.changes_nothing(arrive)

    @precondition(lambda self: self.queue.active)
    @rule(place=PLACES)
    def stop_call(self, place: int) -> None:
        before = self.calls()
        chosen = before[place % len(before)]
        self.queue.stop_call(chosen.id, None)
        for old, new in zip(before, self.calls(), strict=True):
            assert old == new or old.id == chosen.id
            if old.id == chosen.id:
                assert new.is_terminal or new.stopping == (old.stopping or "The call was cancelled")

    @precondition(lambda self: self.queue.active)
    @rule(luck=LUCK)
    def stop_batch(self, luck: bool) -> None:
        if not luck:
            return
        before = self.calls()
        self.state.stop_batch("Enough")
        for old, new in zip(before, self.calls(), strict=True):
            assert new.is_terminal or new.stopping == (old.stopping or "Enough"), "the first reason stands"
        assert not self.queue.stop or self.queue.stop[1] != "Enough"

    @rule(luck=LUCK)
    def stop_turn(self, luck: bool) -> None:
        if luck:
            self.state.stop_turn("cancelled", "The turn was cancelled")
            assert all(call.is_terminal or call.stopping for call in self.calls())

    @precondition(lambda self: self.queue.active and self.queue.active.is_done)
    @rule()
    def retire(self) -> None:
        batch = self.queue.active_batch
        self.state.retire_batch()
        assert self.queue.done[-1] == batch
        if self.queue.queued and not self.queue.stop:
            self.state.activate_batch()

    # What always holds

    @invariant()
    def S1_what_has_ended_never_changes(self) -> None:
        for batch in self.batches():
            for call in batch.calls:
                if call.is_terminal:
                    kept = self.ended.setdefault(call.id, call)
                    assert kept is call or kept == call
                    assert call.response is not None
                    assert call.ended_at is not None
                    assert (call.response.call_id, call.response.status) == (call.id, call.status)
                else:
                    assert call.id not in self.ended
                    assert call.response is None

    @invariant()
    def S9_what_may_start_is_what_the_gate_and_the_order_allow(self) -> None:
        if self.queue.active:
            begun_before = any(call.id in self.executed for call in self.calls())
            check_start(self.calls(), list_startable(self.queue.active_batch), open_already=begun_before)

    @invariant()
    def S10_unsafe_calls_execute_alone(self) -> None:
        executing = [call for call in self.calls() if call.status == "executing"]
        assert len(executing) <= 1 or all(is_safe(call) for call in executing)

    @invariant()
    def S3_responses_are_in_request_order(self) -> None:
        for batch in self.batches():
            answered = [answer.call_id for answer in batch.responses]
            assert answered == [call.id for call in batch.calls if call.is_terminal]

    @invariant()
    def S14_one_batch_at_a_time_and_queued_ones_have_not_begun(self) -> None:
        for batch in self.queue.queued:
            assert {call.status.value for call in batch.calls} == {"validating"}
        for batch in self.queue.done:
            assert batch.is_done

    @invariant()
    def S8_events_tell_every_move_once_in_order(self) -> None:
        for event in self.state.log.events[self.seen :]:
            self.seen += 1
            assert event.seq == self.seen
            if event.kind != "call":
                continue
            assert event.call is not None
            assert event.batch is not None
            known = self.status.get(event.call)
            assert event.before == known
            same = event.before == event.after and event.after in ("executing", "scheduled")  # or answered there
            stopping = same and str(event.note).startswith("stopping")
            assert stopping or event.after in MOVES[known], f"{event.call}: {known} to {event.after}"
            assert (event.place, event.of) == (int(event.call.rpartition("c")[2]), self.sizes[event.batch])
            self.status[event.call] = event.after
        for batch in self.batches():
            for call in batch.calls:
                assert self.status[call.id] == call.status, f"{call.id} moved without an event"
        assert self.state.log.build_page(0).events == tuple(self.state.log.events[:500])

    def teardown(self) -> None:
        """S3: driven to its end, every call of every batch has exactly one response, in order."""
        for _ in range(1_000):
            if self.queue.active is None and (self.queue.stop or not self.queue.queued):
                break
            self.drive()
        assert self.queue.active is None
        self.state.close_turn()
        self.check()
        result = build_result(self.state)
        assert result.status == (self.queue.stop[0] if self.queue.stop else "completed")
        assert {batch.id: len(batch.responses) for batch in result.batches} == self.sizes
        for batch in result.batches:
            expected = [f"{batch.id}c{place}" for place in range(1, self.sizes[batch.id] + 1)]
            assert [answer.call_id for answer in batch.responses] == expected
        last = self.state.log.events[-1]
        assert (last.kind, last.after) == ("turn", result.status)

    def drive(self) -> None:
        if self.queue.active is None:
            self.state.activate_batch()
        elif self.queue.active.is_done:
            self.state.retire_batch()
        else:
            allow = Allow(rule="allows", bound=bound(safe=True, digest="d1"))
            self.queue.update_batch(
                apply_verdicts(self.queue.active_batch, {call.id: allow for call in self.calls()}, self.clock())
            )
            for call in self.queue.active_batch.waiting_calls:
                if call.changing:
                    self.state.decisions.apply_change(call.id, ValidateResult(verdicts={call.id: DENIED}))
            for call in self.queue.active_batch.waiting_calls:
                if call.is_asking:
                    name = f"last-{call.id}-{call.revision}"
                    self.state.apply_decision(self.decision(call, id=name, by=name, outcome="cancel", content=None))
                    continue
                for number in range(2 - len(call.approvals)):
                    if number == 0 or (call.confirmation and call.confirmation.needs.approvals > 1):
                        name = f"last-{number}-{call.id}-{call.revision}"
                        self.state.apply_decision(self.decision(call, id=name, by=name))
            self.start()
            for call in self.calls():
                self.queue.update_batch(
                    apply_outcome(
                        self.queue.active_batch, call.id, Finished(result=Result.from_text("done")), self.clock()
                    )
                )
        self.check()

    def check(self) -> None:
        self.S1_what_has_ended_never_changes()
        self.S9_what_may_start_is_what_the_gate_and_the_order_allow()
        self.S10_unsafe_calls_execute_alone()
        self.S3_responses_are_in_request_order()
        self.S14_one_batch_at_a_time_and_queued_ones_have_not_begun()
        self.S8_events_tell_every_move_once_in_order()

    # Help

    @property
    def queue(self) -> BatchQueue:
        return self.state.queue

    def undecided(self) -> list[Call]:
        """What waits for a decision and is not being changed."""
        waiting = [call for call in self.calls() if call.status == "awaiting_approval" and not call.changing]
        return [call for call in waiting if not call.is_asking]

    def calls(self) -> tuple[Call, ...]:
        return self.queue.active.calls if self.queue.active else ()

    def batches(self) -> list[Batch]:
        return [
            *self.queue.done,
            *([self.queue.active] if self.queue.active else []),
            *self.queue.queued,
        ]

    def decision(self, on: Call, **changes: Any) -> Decision:
        changes = dict(changes)
        turn, call_id = changes.pop("turn", TURN), changes.pop("call", on.id)
        revision = max(0, on.revision + changes.pop("revision", 0))
        body = {
            "approval_id": f"{turn}/{call_id}/{revision}",
            "digest": on.approval_digest or "d1",
            "outcome": "proceed_once",
            "by": "somebody else",
            **changes,
        }
        if body["outcome"] == "respond":
            body.setdefault("content", "answer")
        return Decision.model_validate(body)

    def changes_nothing(
        self, act: Callable[[], object], refusal: type[Refused] | None = None, code: str | None = None
    ) -> None:
        """S1, S22: neither a call, nor an event, nor the queue, nor what counted differs afterwards."""
        before = self.snapshot()
        try:
            act()
        except Refused as error:
            note(f"refused: {error}")
            if refusal is None or not isinstance(error, refusal) or code not in (None, error.code):
                raise
        else:
            assert refusal is None, "it was not refused"
        assert self.snapshot() == before

    def snapshot(self) -> tuple[object, ...]:
        state = self.state
        return (
            state.queue.active,
            list(state.queue.queued),
            list(state.queue.done),
            list(state.log.events),
            state.queue.stop,
            state.is_finishing,
        )


def requests(size: int) -> tuple[CallRequest, ...]:
    return tuple(CallRequest(tool="tool", id="same") for _ in range(size))


def check_start(before: tuple[Call, ...], chosen: tuple[Call, ...], *, open_already: bool) -> None:
    """S9 and S10 on what is about to start, by their words."""
    names = {call.id for call in chosen}
    assert all(call.status == "scheduled" for call in chosen)
    everyone_is_ready = all(call.status in {"scheduled", *ENDS} for call in before)
    if chosen:
        assert open_already or everyone_is_ready, "S9: a call starts while a sibling is not ready"
    at_work = [call for call in before if call.status == "executing" or (call.pause and call.status not in ENDS)]
    beside = list({call.id: call for call in [*at_work, *chosen]}.values())
    assert len(beside) <= 1 or all(is_safe(call) for call in beside), "S10: an unsafe call is not alone"
    for place, call in enumerate(before):
        if call.id in names and not call.pause:  # what was answered only goes on
            held = [other for other in before[:place] if other.status not in ENDS | {"executing"}]
            assert all(other.id in names or is_safe(other) for other in held), "S10: an unsafe call was overtaken"
    if (open_already or everyone_is_ready) and not beside:
        for call in before:
            assert call.status != "scheduled", "S9, S10: the gate is open, nothing executes, and nothing starts"
            if call.status not in ENDS and not is_safe(call):
                break


TestTurn = TurnMachine.TestCase
TestTurn.settings = settings(max_examples=250, stateful_step_count=50)


@settings(max_examples=150)
@given(
    size=st.integers(1, 8),
    moves=st.data(),
)
def test_S3_every_walk_of_progress_ends_with_every_call_answered(size: int, moves: st.DataObject) -> None:
    """S3: whatever comes next, as long as something comes there is always a next thing, until all are answered."""
    machine = TurnMachine()
    machine.begin([size])
    state, again = machine.state, 3
    for _ in range(6 * size + 8 * again):
        if state.queue.active_batch.is_done:
            break
        open_calls = [
            call
            for call in state.queue.active_batch.calls
            if call.status in {"validating", "awaiting_approval", "executing"}
        ]
        choices: list[Call | None] = [*open_calls, *([None] if list_startable(state.queue.active_batch) else [])]
        assert choices, "the batch is not done, and nothing could ever happen to it"
        call = moves.draw(st.sampled_from(choices))
        if call is None:
            machine.start()
        elif call.status == "validating":
            verdict = moves.draw(VERDICTS)
            state.queue.update_batch(apply_verdicts(state.queue.active_batch, {call.id: verdict}, machine.clock()))
        elif call.is_asking:
            machine.answer([one for one in state.queue.active_batch.calls if one.is_asking].index(call), "respond")
        elif call.status == "awaiting_approval":
            machine.decide(machine.undecided().index(call), "proceed_once", True, False)
        else:
            outcome = moves.draw(OUTCOMES if again else ENDINGS)
            again -= outcome.kind in ("reconsider", "asks")
            state.queue.update_batch(apply_outcome(state.queue.active_batch, call.id, outcome, machine.clock()))
        machine.check()
    assert state.queue.active_batch.is_done
    assert [answer.call_id for answer in state.queue.active_batch.responses] == [
        f"b1c{place}" for place in range(1, size + 1)
    ]
