"""What can be said to a turn while it runs, and asked of it: signals, updates and queries.

Their bodies are read by `handlers.py`. A handler refuses by raising Refused: a refused update leaves nothing in the
history, a signal that does not count changes nothing.
"""

from __future__ import annotations

from typing import Any

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
    from holdfast.domain.turn.views import TurnView, build_turn_view
    from holdfast.errors import RequestRefused
    from holdfast.workflows.handlers import query, signal, update
    from holdfast.workflows.inbox import Inbox
    from holdfast.workflows.unreadable_signals import DroppedSignals


class TurnHandlers:
    """The handlers of a turn."""

    _state: TurnState
    _inbox: Inbox
    _dropped: DroppedSignals

    @property
    def observed_state(self) -> TurnState:
        """What is told of it to whoever watches all turns."""
        return self._state

    # Decisions come as an update from clients that want to know that they counted, and as a signal from everything
    # else, the stock command included: a signal needs no live worker. Both count once.
    @update("decide", Decision)
    async def decide(self, decision: Decision) -> DecisionResult:
        """Take a decision; answers with the state its call went to, or why a change of it was not taken."""
        taken = self._state.apply_decision(decision)
        if not decision.has_changes:
            return taken
        await workflow.wait_condition(lambda: not self._state.decisions.is_changing(taken.call, decision))
        return self._state.decisions.acknowledge_change(taken.call)

    @decide.validator
    def validate_decide(self, decision: Decision) -> None:
        """Refuse what does not count, without a trace in the history."""
        self._state.decisions.check_decision(decision)

    @signal("decide", Decision)
    def decide_by_signal(self, decision: Decision) -> None:
        """Take a decision that nobody waits for; what does not count is only logged."""
        self._state.apply_decision(decision)

    @update("set_mode", ModeChange)
    async def set_mode(self, body: ModeChange) -> SetModeResult:
        """Change how much proceeds without asking; answers once what waits has been judged again."""
        self._state.decisions.set_mode(body.mode, body.by)
        self._signal_children("tighten", body)
        await workflow.wait_condition(
            lambda: self._state.decisions.permitted_mode is not None or not self._state.decisions.has_pending_validation
        )
        return SetModeResult(counts=self._state.decisions.permitted_mode)

    @signal("tighten", ModeChange)
    def tighten(self, body: ModeChange) -> None:
        """From the turn that delegated to this one: let no more proceed than in that one."""
        self._state.decisions.set_mode(find_stricter_mode(self._state.decisions.mode, body.mode), body.by)
        self._signal_children("tighten", body)

    def _signal_children(self, signal: str, body: Any) -> None:
        """Tell the turns that were delegated."""
        raise NotImplementedError

    @update("editing", EditingNotice)
    def note_editing(self, body: EditingNotice) -> None:
        """Tell others that somebody has an approval open in an editor."""
        self._state.decisions.note_editing(body)

    @note_editing.validator
    def validate_editing(self, body: EditingNotice) -> None:
        """Only what waits can be edited."""
        self._state.decisions.check_editing(body)

    @update("revoke", GrantAddress)
    def revoke(self, body: GrantAddress) -> Grant:
        """Take a standing answer back, here and in the turns that were delegated."""
        grant = self._state.decisions.revoke_grant(body.grant, body.by)
        self._signal_children("take_back", RevokeDecisions(decisions=(grant.decision.key,), by=body.by))
        return grant

    @revoke.validator
    def validate_revoke(self, body: GrantAddress) -> None:
        """Only what there is can be revoked."""
        self._state.decisions.check_revoke(body.grant)

    @signal("take_back", RevokeDecisions)
    def revoke_decisions(self, body: RevokeDecisions) -> None:
        """From the turn that delegated to this one: what was revoked there allows nothing here."""
        self._state.decisions.revoke_decisions(body.decisions, body.by)
        self._signal_children("take_back", body)

    @update("ask", Question)
    async def ask(self, body: Question) -> QuestionAnswer:
        """Ask a person what a tool at work asks; answers once they have, or once nobody will."""
        revision = self._state.executions.hold_call(body)
        await workflow.wait_condition(lambda: self._state.executions.find_answer(body.call, revision) is not None)
        found = self._state.executions.find_answer(body.call, revision)
        assert found, "it was just there"
        return found

    @ask.validator
    def validate_ask(self, body: Question) -> None:
        """Only a call at work asks, and only where somebody is to be asked."""
        self._state.executions.check_question(body)
        self._state.executions.check_question_count(body)

    # The rest are updates: their senders need the answer, and can repeat a lost one.
    @update("submit", SubmitBatch)
    def submit(self, body: SubmitBatch) -> SubmitResult:
        """Queue a further batch; one that was queued under the same id by an earlier run is not queued again."""
        return SubmitResult(batch=self._state.queue.submit_batch(body.calls, _find_update_id()))

    @submit.validator
    def validate_submit(self, body: SubmitBatch) -> None:
        """Refuse an empty or oversized batch, and any batch to a turn that takes none."""
        if _find_update_id() in self._state.queue.submitted:
            return
        self._state.check_open()
        check_batch(body.calls, queued=len(self._state.queue.queued))
        check_waiting(len(body.calls) + sum(map(len, self._state.queue.queued)))

    # A model step adds its calls by signal, one event each; a caller by update, to hear what became of it.
    @update("add_calls", AddCalls)
    def add_calls(self, body: AddCalls) -> AddCallsResult:
        """Take further calls of a stream: a reply that is still being written."""
        batch = self._state.add_calls(body)
        return AddCallsResult(batch=batch.id, calls=len(batch.calls))

    @add_calls.validator
    def validate_add_calls(self, body: AddCalls) -> None:
        """Refuse what belongs to no stream, to one that has ended, or to an attempt that was discarded."""
        self._state.check_open()
        self._state.streams.check_calls(body)

    @signal("add_calls", AddCalls)
    def add_calls_by_signal(self, body: AddCalls) -> None:
        """The same from the model step at work; what does not count is only logged."""
        if self._state.input.model is None:
            self._state.check_open()
        self._state.add_calls(body)

    @signal("interrupt", Interruption)
    def interrupt(self, body: Interruption) -> None:
        """Take a user's new message: what may be interrupted stops, and the turn goes on with it."""
        self._state.conversation.apply_interruption(body)

    @signal("append", Interruption)
    def append(self, body: Interruption) -> None:
        """Take a user's message that stops nothing: the model reads it after the batch at work."""
        self._state.conversation.append_message(body)

    @update("withdraw", BatchAddress)
    def withdraw(self, body: BatchAddress) -> BatchResult:
        """Take a queued batch back; it never starts."""
        return self._state.queue.withdraw_batch(body.batch)

    @withdraw.validator
    def validate_withdraw(self, body: BatchAddress) -> None:
        """Only what has not started can be withdrawn, and only by whoever submits batches."""
        self._state.check_without_model()
        self._state.queue.get_queued_batch(body.batch)

    @update("cancel_call", CallAddress)
    def cancel_call(self, body: CallAddress) -> None:
        """Stop one call; its siblings go on."""
        self._state.queue.stop_call(body.call, body.reason)

    @cancel_call.validator
    def validate_cancel_call(self, body: CallAddress) -> None:
        """Only a call that has not ended can be stopped."""
        call = self._state.queue.active.get(body.call) if self._state.queue.active else None
        if call is None or call.is_terminal:
            raise RequestRefused("not_active", f"call {body.call!r} is not at work in this turn")

    @update("cancel_batch", BatchAddress)
    def cancel_batch(self, body: BatchAddress) -> None:
        """Stop every call of the batch at work; the turn goes on."""
        self._state.stop_batch(body.reason)

    @cancel_batch.validator
    def validate_cancel_batch(self, body: BatchAddress) -> None:
        """Only the batch at work can be cancelled; a queued one is withdrawn."""
        if self._state.queue.active is None or self._state.queue.active.id != body.batch:
            raise RequestRefused("not_active", f"batch {body.batch!r} is not at work; withdraw a queued one")

    @update("finish")
    def finish(self) -> None:
        """End a turn that was kept open, once its queue is empty."""
        self._state.finish_turn()

    @finish.validator
    def validate_finish(self) -> None:
        """Only a turn that was kept open has to be finished."""
        self._state.check_open()

    @query("view")
    def view(self) -> TurnView:
        """Everything a viewer needs, with long values cut."""
        return build_turn_view(self._state, self._inbox.since)

    @query("events")
    def events(self, after: int = 0) -> EventPage:
        """The events after a sequence number, oldest first."""
        return self._state.log.build_page(after)

    @query("call")
    def call(self, call_id: str) -> Call | None:
        """The whole record of one call."""
        return self._state.queue.find_call(call_id)

    @query("batch")
    def batch(self, batch_id: str) -> BatchResult | None:
        """One batch and the responses it has."""
        return next((result for result in self._state.queue.list_batches() if result.id == batch_id), None)

    @query("batches")
    def batches(self) -> tuple[BatchResult, ...]:
        """The batches that ended in this run."""
        return self._state.queue.list_done_batches()

    @query("answers")
    def answers(self, call_id: str) -> tuple[Response, ...]:
        """The delivered answers from that of this call on: a page of them."""
        return self._state.queue.list_answers(call_id)

    @query("runs")
    def runs(self) -> tuple[EarlierRun, ...]:
        """The runs of this turn before this one: what happened in them, they tell."""
        return self._state.log.runs

    @query("grants")
    def grants(self) -> tuple[Grant, ...]:
        """The standing answers of this turn."""
        return self._state.decisions.grants.all_grants

    @query("conversation")
    def conversation(self) -> Conversation | None:
        """What the turn's model is told; None for a turn without one."""
        return self._state.conversation.build_conversation(self._state.executions.context.tools)

    @query("messages")
    def messages(self, after: int = 0, epoch: int | None = None) -> ConversationPage:
        """Of that, what a model step does not have yet."""
        return self._state.conversation.build_page(after, epoch, self._state.executions.context.tools)


def _find_update_id() -> str:
    """Of the update at work. Temporal knows those of one run; a turn, those of all of its runs."""
    info = workflow.current_update_info()
    assert info, "only updates ask"
    return info.id
