"""The signals, updates and queries of a turn.

`handlers.py` reads their bodies. A handler refuses a message by raising Refused: a refused update leaves nothing in the
history, a refused signal changes nothing.
"""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.approvals.approval import Decision, QuestionAnswer
    from holdfast.domain.approvals.grants import Grant
    from holdfast.domain.calls.call import Call
    from holdfast.domain.calls.events import EventPage
    from holdfast.domain.content import Response
    from holdfast.domain.conversation.messages import Conversation, ConversationPage
    from holdfast.domain.turn.activity_io import Question
    from holdfast.domain.turn.carryover import EarlierRun
    from holdfast.domain.turn.delegation import find_stricter_mode
    from holdfast.domain.turn.turn_io import BatchResult, check_batch, check_waiting
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.domain.turn.turn_view import TurnView, build_turn_view
    from holdfast.domain.turn.update_bodies import (
        AddCalls,
        AddCallsResult,
        BatchAddress,
        CallAddress,
        DecisionResult,
        EditingNotice,
        GrantAddress,
        Interruption,
        ModeChange,
        RevokeDecisions,
        SetModeResult,
        SubmitBatch,
        SubmitResult,
    )
    from holdfast.errors import RequestRefused
    from holdfast.names import TurnQuery, TurnSignal, TurnUpdate
    from holdfast.workflows.batch_runner import BatchRunner
    from holdfast.workflows.handlers import DroppedSignals, query, signal, update
    from holdfast.workflows.pending_approvals import PendingApprovals


class TurnHandlers:
    """The handlers of a turn."""

    _state: TurnState
    _approvals: PendingApprovals
    _runner: BatchRunner
    _dropped: DroppedSignals

    @property
    def observed_state(self) -> TurnState:
        """The state as telemetry reads it."""
        return self._state

    # Decisions. An update for clients that wait for the answer; a signal for everything else, the stock command
    # included, as it works without a worker. Each decision counts once, whichever way it comes.
    @update(TurnUpdate.DECIDE, Decision)
    async def decide(self, decision: Decision) -> DecisionResult:
        """Apply a decision, and return the status of its call; for a change, once that is validated."""
        taken = self._state.apply_decision(decision)
        if not decision.has_changes:
            return taken
        decisions = self._state.decisions
        await workflow.wait_condition(lambda: not decisions.is_changing(taken.call, decision))
        return decisions.acknowledge_change(taken.call)

    @decide.validator
    def validate_decide(self, decision: Decision) -> None:
        """Refuse an invalid decision, which then leaves nothing in the history."""
        self._state.decisions.check_decision(decision)

    @signal(TurnSignal.DECIDE, Decision)
    def decide_by_signal(self, decision: Decision) -> None:
        """Apply a decision; an invalid one is logged."""
        self._state.apply_decision(decision)

    @update(TurnUpdate.EDITING, EditingNotice)
    def note_editing(self, body: EditingNotice) -> None:
        """Record that a person has an approval open in an editor."""
        self._state.decisions.note_editing(body)

    @note_editing.validator
    def validate_editing(self, body: EditingNotice) -> None:
        """Refuse an approval that is not pending."""
        self._state.decisions.check_editing(body)

    @update(TurnUpdate.ASK, Question)
    async def ask(self, body: Question) -> QuestionAnswer:
        """Ask a person the question of a running tool. Returns when they have answered, or when nobody can any more."""
        executions = self._state.executions
        revision = executions.hold_call(body)
        await workflow.wait_condition(lambda: executions.find_answer(body.call, revision) is not None)
        answer = executions.find_answer(body.call, revision)
        assert answer, "it was just there"
        return answer

    @ask.validator
    def validate_ask(self, body: Question) -> None:
        """Refuse a question that is not from a running call, or one too many."""
        self._state.executions.check_question(body)
        self._state.executions.check_question_count(body)

    # Mode and grants. `tighten` and `take_back` are signals: a turn sends them to its delegated turns, which answer
    # nothing, and pass them on to theirs.
    @update(TurnUpdate.SET_MODE, ModeChange)
    async def set_mode(self, body: ModeChange) -> SetModeResult:
        """Change the mode. Returns once pending calls are validated with it."""
        decisions = self._state.decisions
        decisions.set_mode(body.mode, body.by)
        self._runner.signal_children(TurnSignal.TIGHTEN, body)
        await workflow.wait_condition(
            lambda: decisions.permitted_mode is not None or not decisions.has_pending_validation
        )
        return SetModeResult(counts=decisions.permitted_mode)

    @signal(TurnSignal.TIGHTEN, ModeChange)
    def tighten(self, body: ModeChange) -> None:
        """Adopt the mode of the delegating turn, if it is stricter."""
        decisions = self._state.decisions
        decisions.set_mode(find_stricter_mode(decisions.mode, body.mode), body.by)
        self._runner.signal_children(TurnSignal.TIGHTEN, body)

    @update(TurnUpdate.REVOKE, GrantAddress)
    def revoke(self, body: GrantAddress) -> Grant:
        """Revoke a grant, here and in delegated turns."""
        grant = self._state.decisions.revoke_grant(body.grant, body.by)
        self._runner.signal_children(TurnSignal.TAKE_BACK, RevokeDecisions(decisions=(grant.decision.key,), by=body.by))
        return grant

    @revoke.validator
    def validate_revoke(self, body: GrantAddress) -> None:
        """Refuse an unknown grant, and a remembered refusal if approvers have keys."""
        self._state.decisions.check_revoke(body.grant)

    @signal(TurnSignal.TAKE_BACK, RevokeDecisions)
    def revoke_decisions(self, body: RevokeDecisions) -> None:
        """Revoke the grants that were revoked in the delegating turn."""
        self._state.decisions.revoke_decisions(body.decisions, body.by)
        self._runner.signal_children(TurnSignal.TAKE_BACK, body)

    # Batches. Updates: their senders need the answer, and can repeat a request whose answer was lost.
    @update(TurnUpdate.SUBMIT, SubmitBatch)
    def submit(self, body: SubmitBatch) -> SubmitResult:
        """Queue a batch. A second update of the same id queues nothing, also in a later run of the turn."""
        return SubmitResult(batch=self._state.queue.submit_batch(body.calls, _find_update_id()))

    @submit.validator
    def validate_submit(self, body: SubmitBatch) -> None:
        """Refuse an empty or oversized batch, and any batch when the turn takes none."""
        queue = self._state.queue
        if _find_update_id() in queue.submitted:
            return
        self._state.check_open()
        check_batch(body.calls, queued=len(queue.queued))
        check_waiting(len(body.calls) + sum(map(len, queue.queued)))

    # Also a signal: a model step adds its calls by signal, one event each, where a caller needs the answer.
    @update(TurnUpdate.ADD_CALLS, AddCalls)
    def add_calls(self, body: AddCalls) -> AddCallsResult:
        """Add calls of a stream, whose reply is still being written."""
        batch = self._state.add_calls(body)
        return AddCallsResult(batch=batch.id, calls=len(batch.calls))

    @add_calls.validator
    def validate_add_calls(self, body: AddCalls) -> None:
        """Refuse calls of a stream that has ended, or of an attempt that was discarded."""
        self._state.check_open()
        self._state.streams.check_calls(body)

    @signal(TurnSignal.ADD_CALLS, AddCalls)
    def add_calls_by_signal(self, body: AddCalls) -> None:
        """Add calls that the current model step has streamed."""
        if self._state.input.model is None:
            self._state.check_open()
        self._state.add_calls(body)

    @update(TurnUpdate.WITHDRAW, BatchAddress)
    def withdraw(self, body: BatchAddress) -> BatchResult:
        """Withdraw a queued batch; it never starts."""
        return self._state.queue.withdraw_batch(body.batch)

    @withdraw.validator
    def validate_withdraw(self, body: BatchAddress) -> None:
        """Refuse a batch that is not queued, and any batch of a turn with a model."""
        self._state.check_without_model()
        self._state.queue.get_queued_batch(body.batch)

    @update(TurnUpdate.CANCEL_CALL, CallAddress)
    def cancel_call(self, body: CallAddress) -> None:
        """Stop one call; its siblings go on."""
        self._state.queue.stop_call(body.call, body.reason)

    @cancel_call.validator
    def validate_cancel_call(self, body: CallAddress) -> None:
        """Refuse a call that is not in the active batch, or has ended."""
        batch = self._state.queue.active
        call = batch.get(body.call) if batch else None
        if call is None or call.is_terminal:
            raise RequestRefused("not_active", f"call {body.call!r} is not active in this turn")

    @update(TurnUpdate.CANCEL_BATCH, BatchAddress)
    def cancel_batch(self, body: BatchAddress) -> None:
        """Stop every call of the active batch; the turn goes on."""
        self._state.stop_batch(body.reason)

    @cancel_batch.validator
    def validate_cancel_batch(self, body: BatchAddress) -> None:
        """Refuse a batch that is not the active one."""
        batch = self._state.queue.active
        if batch is None or batch.id != body.batch:
            raise RequestRefused("not_active", f"batch {body.batch!r} is not active; withdraw a queued one")

    @update(TurnUpdate.FINISH)
    def finish(self) -> None:
        """Let a turn that is kept open end when its queue is empty."""
        self._state.finish_turn()

    @finish.validator
    def validate_finish(self) -> None:
        """Refuse when the turn takes no batches."""
        self._state.check_open()

    # The user's messages. Signals: the session that sends them learns from the turn's result which were read.
    @signal(TurnSignal.INTERRUPT, Interruption)
    def interrupt(self, body: Interruption) -> None:
        """Handle a message of the user that stops the calls that may be interrupted."""
        self._state.conversation.apply_interruption(body)

    @signal(TurnSignal.APPEND, Interruption)
    def append(self, body: Interruption) -> None:
        """Handle a message of the user that stops nothing."""
        self._state.conversation.append_message(body)

    @query(TurnQuery.VIEW)
    def view(self) -> TurnView:
        """The view of the turn, with long values shortened."""
        return build_turn_view(self._state, self._approvals.since)

    @query(TurnQuery.EVENTS)
    def events(self, after: int = 0) -> EventPage:
        """The events after a sequence number, oldest first."""
        return self._state.log.build_page(after)

    @query(TurnQuery.CALL)
    def call(self, call_id: str) -> Call | None:
        """The record of one call."""
        return self._state.queue.find_call(call_id)

    @query(TurnQuery.BATCH)
    def batch(self, batch_id: str) -> BatchResult | None:
        """One batch, with its responses so far."""
        return next((result for result in self._state.queue.list_batches() if result.id == batch_id), None)

    @query(TurnQuery.BATCHES)
    def batches(self) -> tuple[BatchResult, ...]:
        """The batches that ended in this run."""
        return self._state.queue.list_done_batches()

    @query(TurnQuery.ANSWERS)
    def answers(self, call_id: str) -> tuple[Response, ...]:
        """A page of responses, from that of this call on."""
        return self._state.queue.list_answers(call_id)

    @query(TurnQuery.RUNS)
    def runs(self) -> tuple[EarlierRun, ...]:
        """The earlier runs of this turn, which answer queries about their own batches and events."""
        return self._state.log.runs

    @query(TurnQuery.GRANTS)
    def grants(self) -> tuple[Grant, ...]:
        """The grants of this turn."""
        return self._state.decisions.grants.all_grants

    @query(TurnQuery.CONVERSATION)
    def conversation(self) -> Conversation | None:
        """The conversation with the model; None for a turn without one."""
        return self._state.conversation.build_conversation(self._state.executions.context.tools)

    @query(TurnQuery.MESSAGES)
    def messages(self, after: int = 0, epoch: int | None = None) -> ConversationPage:
        """The messages that a model step does not have yet."""
        return self._state.conversation.build_page(after, epoch, self._state.executions.context.tools)


def _find_update_id() -> str:
    """The id of the current update. Temporal deduplicates updates within one run; a turn does so across its runs."""
    info = workflow.current_update_info()
    assert info, "only updates ask"
    return info.id
