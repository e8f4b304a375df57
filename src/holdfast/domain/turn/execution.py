"""Calls at work as a turn has them: what they leave for the calls after them, what they ask, what they bring down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime

from holdfast.domain.approvals.approval import QuestionAnswer
from holdfast.domain.background_commands import BackgroundCommand, CommandState, find_host, note_command
from holdfast.domain.calls.batch import (
    Batch,
    apply_outcome,
    complete_batch,
    hold_batch_call,
    interrupt_calls,
    move_to_host,
    stop_calls,
)
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.calls.scheduling import describe_abort, needs_abort
from holdfast.domain.calls.tool import Effect
from holdfast.domain.calls.transitions import QUESTIONS_LIMIT
from holdfast.domain.calls.verdicts import Deny, ExecutionOutcome, Failed, Finished, NeedsApprovalAgain, Verdict
from holdfast.domain.context import Context, apply_context_change, describe_context_change
from holdfast.domain.turn.activity_io import Question
from holdfast.domain.turn.streams import StreamState
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.errors import RequestRefused


class ExecutionState(StreamState):
    """Batches whose calls run."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        super().__init__(turn_id, clock)
        self.input = TurnInput()
        self.seen: dict[str, str] = {}
        """Files as the turn last read or wrote them, by their digests."""
        self.wrote: dict[str, str] = {}
        """The same of those that it wrote."""
        self.context = Context()
        """What the next call runs within."""
        self._before = (dict(self.seen), dict(self.wrote), self.context)
        """What of that held when the batch at work began: so it is again when that is discarded."""
        self.tainted: list[str] = []
        """What took in content from outside, in order."""
        self.outside: Counter[str] = Counter()
        """By which tools, and how often."""
        self.commands: tuple[BackgroundCommand, ...] = ()
        """Its background commands, and those of earlier turns of its session."""
        self.has_moved = False
        """The context has changed, and calls that go by it have not been judged within it yet: none begins before."""
        self.is_stale = False
        """A grant, the mode or the context has changed since the waiting calls were judged."""

    def activate_batch(self) -> Batch:
        """Take the next batch of the queue to work."""
        self.has_moved = False
        self._before = (dict(self.seen), dict(self.wrote), self.context)
        return super().activate_batch()

    def discard_attempt(self, stream: str, reason: str) -> None:
        """Nothing that an attempt saw or changed counts for what comes after it; what it took in from outside does."""
        super().discard_attempt(stream, reason)
        if self.active and self.active.discarded:
            self.seen, self.wrote, self.context = self._before

    def apply_outcome(self, call_id: str, outcome: ExecutionOutcome) -> None:
        """Take what became of a running call. What it saw of files, and leaves, counts for the calls after it."""
        call = self.active_batch.get(call_id)
        bound = call.bound if call else None
        if isinstance(outcome, Finished) and not self.active_batch.discarded:
            self.seen |= outcome.result.seen
            if bound and bound.tool.effect is not Effect.READ:
                self.wrote |= outcome.result.seen
            if outcome.result.context and bound and not bound.concurrency_safe:
                self._set_context(apply_context_change(self.context, outcome.result.context))
        if isinstance(outcome, Finished) and outcome.result.command and call:
            self._note(outcome.result.command, call)
        if bound and bound.takes_in and not isinstance(outcome, NeedsApprovalAgain):
            self.tainted.append(shorten_line(bound.title))
            self.outside[bound.tool.name] += 1
        ask = self.input.interactive and not self.stop
        self.update_batch(apply_outcome(self.active_batch, call_id, outcome, self._clock(), ask=ask))
        over = self.active_batch.get(call_id)
        if over and over != call and needs_abort(over, self.input.plan):
            self.update_batch(stop_calls(self.active_batch, describe_abort(over), self._clock()))
        self._apply_hook_stops({call_id: outcome.verdict if isinstance(outcome, NeedsApprovalAgain) else outcome})

    def _set_context(self, context: Context) -> None:
        """The context of the calls after this one. What people are asked about is asked within it."""
        if context == self.context:
            return
        before, self.context = self.context, context
        self._emit_event(kind="turn", after="context", note=shorten_line(describe_context_change(before, context)))
        ahead = (
            call for call in self.active_batch.calls if call.status in (Status.AWAITING_APPROVAL, Status.SCHEDULED)
        )
        self.has_moved = any(call.bound and call.bound.tool.traits.depends_on for call in ahead)
        self.is_stale = self.is_stale or self.has_moved

    def interrupt_work(self, reason: str) -> None:
        """Stop what may be interrupted of the batch at work, and begin nothing more of it (S18)."""
        if self.active:
            self.update_batch(complete_batch(interrupt_calls(self.active, reason, self._clock())))

    def check_question(self, question: Question) -> None:
        """RequestRefused for what no tool at work could ask."""
        call = self.active.get(question.call) if self.active and not self.active.halted else None
        if call is None or not call.is_at_work or call.run != question.run or call.stopping:
            raise RequestRefused("not_executing", f"call {question.call!r} is not at work, and asks nothing")
        if not self.input.interactive:
            raise RequestRefused("not_interactive", "nobody is there to be asked in this turn")

    def check_question_count(self, question: Question) -> None:
        """RequestRefused for a tool that asks without end. Not for a question that was taken before this was asked."""
        call = self.active.get(question.call) if self.active else None
        if call and call.pause and call.pause.times >= QUESTIONS_LIMIT:
            raise RequestRefused("asks_too_much", f"call {call.id!r} has asked {QUESTIONS_LIMIT} times")

    def hold_call(self, question: Question) -> int:
        """Ask what a tool at work asks; which revision of its call that is."""
        self.check_question(question)
        self.update_batch(hold_batch_call(self.active_batch, question.call, question.question))
        call = self.active_batch.get(question.call)
        assert call, "it was just there"
        return call.revision

    def find_answer(self, call_id: str, revision: int) -> QuestionAnswer | None:
        """What was answered to that; `cancel` when nobody will any more."""
        call = self.active.get(call_id) if self.active else None
        if call is None or call.is_terminal or call.revision != revision or call.pause is None:
            return QuestionAnswer(action="cancel")
        return call.pause.answer

    def is_stopping(self, call: Call) -> bool:
        """Has a call been told to stop, or is its batch no longer at work?"""
        now = self.active_batch.get(call.id)
        return now is None or now.stopping is not None

    def move_call(self, call_id: str, host: str | None) -> Call:
        """A running call that nobody has begun, bound to another host."""
        self.update_batch(move_to_host(self.active_batch, call_id, host))
        call = self.active_batch.get(call_id)
        assert call, "it was just there"
        return call

    def _note(self, said: CommandState, call: Call) -> None:
        """What a call says of a background command. That of an attempt that was discarded runs all the same."""
        started = BackgroundCommand(
            handle=said.handle,
            turn=self.turn_id,
            call=call.id,
            title=shorten_line(call.bound.title if call.bound else call.tool),
            host=call.bound.host if call.bound else None,
            running=said.running,
        )
        self.commands = note_command(self.commands, said, started)

    def find_host(self, call: Call) -> str | None:
        """Where a call must run that reads or stops a background command; None for every other call."""
        return find_host(self.commands, call.bound.tool.name, call.bound.arguments) if call.bound else None

    def list_seen_digests(self, call: Call) -> dict[str, str]:
        """Of the files a call touches, what the turn last saw."""
        return _select_files(self.seen, call)

    def list_written_digests(self, call: Call) -> dict[str, str]:
        """Of the files a call touches, what the turn last wrote."""
        return _select_files(self.wrote, call)

    def _apply_hook_stops(self, answers: Mapping[str, Verdict | ExecutionOutcome]) -> None:
        """End the turn when a hook wants that."""
        wishes = (one.stop_turn for one in answers.values() if isinstance(one, Deny | Finished | Failed))
        if reason := next(filter(None, wishes), None):
            self.stop_turn("stopped", reason)


def _select_files(known: Mapping[str, str], call: Call) -> dict[str, str]:
    touched = call.bound.basis if call.bound else {}
    return {path: known[path] for path in touched if path in known}
