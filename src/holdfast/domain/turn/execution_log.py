"""Outcomes of executed calls in a turn: files, context and taint for later calls, and questions of running tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from holdfast.domain.approvals.approval import QuestionAnswer
from holdfast.domain.background_commands import BackgroundCommand, CommandState, find_host, join_commands, note_command
from holdfast.domain.calls.batch import apply_outcome, hold_batch_call, move_to_host, stop_calls
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.calls.scheduling import describe_abort, needs_abort
from holdfast.domain.calls.tool import Effect
from holdfast.domain.calls.transitions import QUESTIONS_LIMIT
from holdfast.domain.calls.verdicts import ExecutionOutcome, Finished, NeedsApprovalAgain
from holdfast.domain.context import Context, apply_context_change, describe_context_change
from holdfast.domain.turn.activity_io import Question
from holdfast.domain.turn.batch_queue import BatchQueue
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.event_log import EventLog
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.errors import RequestRefused


class ExecutionLog:
    """The effects of executed calls on later calls of the turn, and the questions of running tools."""

    def __init__(self, input: TurnInput, queue: BatchQueue, log: EventLog, memory: TurnMemory) -> None:
        self.seen: dict[str, str] = dict(memory.seen)
        """The digests of files as the turn last read or wrote them, by path."""
        self.wrote: dict[str, str] = dict(memory.wrote)
        """The digests of files as the turn last wrote them, by path."""
        self.context = memory.context
        """The context of the next call (S47)."""
        self.tainted: list[str] = list(memory.tainted)
        """The titles of the calls that took in content from outside, in order."""
        self.outside: Counter[str] = Counter(memory.outside)
        """The number of these calls by tool."""
        self.commands: tuple[BackgroundCommand, ...] = memory.commands
        """The background commands of the turn and of earlier turns of its session."""
        self.has_moved = False
        """The context has changed, and no call starts until the calls that depend on it are validated again."""
        self._input = input
        self._queue = queue
        self._log = log
        self._before_batch = (self.seen, self.wrote, self.context)

    def begin_batch(self) -> None:
        """Remember the files and the context at the start of a batch, for `revert_batch`."""
        self.has_moved = False
        self._before_batch = (dict(self.seen), dict(self.wrote), self.context)

    def revert_batch(self) -> None:
        """Restore the files and the context from the start of the active batch, which was discarded (S12)."""
        self.seen, self.wrote, self.context = self._before_batch

    def apply_outcome(self, call_id: str, outcome: ExecutionOutcome) -> bool:
        """Apply the outcome of a running call, and record its effects on later calls.

        Returns True when pending calls depend on a context that it changed: they must be validated again.
        """
        call = self._queue.active_batch.get(call_id)
        moves = self._record_result(call, outcome) if call and isinstance(outcome, Finished) else False
        if call and call.bound and call.bound.takes_in and not isinstance(outcome, NeedsApprovalAgain):
            self.tainted.append(shorten_line(call.bound.title))
            self.outside[call.bound.tool.name] += 1
        ask = self._input.interactive and not self._queue.stop
        self._queue.update_batch(apply_outcome(self._queue.active_batch, call_id, outcome, self._log.now(), ask=ask))
        ended = self._queue.active_batch.get(call_id)
        if ended and ended != call and needs_abort(ended, self._input.plan):
            self._queue.update_batch(stop_calls(self._queue.active_batch, describe_abort(ended), self._log.now()))
        return moves

    def adopt_memory(self, memory: TurnMemory) -> None:
        """Adopt the taint and the background commands of a delegated turn."""
        self.tainted += [source for source in memory.tainted if source not in self.tainted]
        self.outside |= Counter(memory.outside)
        self.commands = join_commands(self.commands, memory.commands)

    def is_stopping(self, call: Call) -> bool:
        """Is a call being stopped, or is its batch no longer active?"""
        now = self._queue.active_batch.get(call.id)
        return now is None or now.stopping is not None

    def move_call(self, call_id: str, host: str | None) -> Call:
        """Bind a call that no worker has started to another host, and return it."""
        self._queue.update_batch(move_to_host(self._queue.active_batch, call_id, host))
        return self._get_active_call(call_id)

    def find_host(self, call: Call) -> str | None:
        """Return the host of the background command that a call reads or stops; None for any other call."""
        return find_host(self.commands, call.bound.tool.name, call.bound.arguments) if call.bound else None

    def list_seen_digests(self, call: Call) -> dict[str, str]:
        """List the digests of the files that a call would change, as the turn last read or wrote them."""
        return _select_files(self.seen, call)

    def list_written_digests(self, call: Call) -> dict[str, str]:
        """List the digests of the files that a call would change, as the turn last wrote them."""
        return _select_files(self.wrote, call)

    # Questions of running tools

    def check_question(self, question: Question) -> None:
        """RequestRefused when the call cannot ask: it does not run, or the turn is not interactive."""
        batch = self._queue.active
        call = batch.get(question.call) if batch and not batch.halted else None
        if call is None or not call.is_running or call.run != question.run or call.stopping:
            raise RequestRefused("not_executing", f"call {question.call!r} is not executing")
        if not self._input.interactive:
            raise RequestRefused("not_interactive", "this turn is not interactive: nobody can be asked")

    def check_question_count(self, question: Question) -> None:
        """RequestRefused when a call has asked too often. For validators only: an accepted question is always asked."""
        call = self._queue.active.get(question.call) if self._queue.active else None
        if call and call.pause and call.pause.times >= QUESTIONS_LIMIT:
            raise RequestRefused("asks_too_much", f"call {call.id!r} has asked {QUESTIONS_LIMIT} times")

    def hold_call(self, question: Question) -> int:
        """Ask a person the question of a running tool. Returns the revision of the call that asks it."""
        self.check_question(question)
        self._queue.update_batch(hold_batch_call(self._queue.active_batch, question.call, question.question))
        return self._get_active_call(question.call).revision

    def find_answer(self, call_id: str, revision: int) -> QuestionAnswer | None:
        """Return the answer to a question: None until there is one, `cancel` when nobody can answer any more."""
        call = self._queue.active.get(call_id) if self._queue.active else None
        if call is None or call.is_terminal or call.revision != revision or call.pause is None:
            return QuestionAnswer(action="cancel")
        return call.pause.answer

    def _get_active_call(self, call_id: str) -> Call:
        call = self._queue.active_batch.get(call_id)
        assert call, "it was just there"
        return call

    def _record_result(self, call: Call, outcome: Finished) -> bool:
        """Record the effects of a finished call. Returns True when pending calls depend on a context that it changed.

        Of a discarded attempt only the background command is recorded: it still runs.
        """
        result, bound, moves = outcome.result, call.bound, False
        if not self._queue.active_batch.discarded:
            self.seen |= result.seen
            if bound and bound.tool.effect is not Effect.READ:
                self.wrote |= result.seen
            if result.context and bound and not bound.concurrency_safe:
                moves = self._set_context(apply_context_change(self.context, result.context))
        if result.command:
            self._note_command(result.command, call)
        return moves

    def _set_context(self, context: Context) -> bool:
        """Change the context of later calls. Returns True when pending or scheduled calls depend on it."""
        if context == self.context:
            return False
        before, self.context = self.context, context
        self._log.emit(kind="turn", after="context", note=shorten_line(describe_context_change(before, context)))
        open_states = (Status.AWAITING_APPROVAL, Status.SCHEDULED)
        ahead = (call.bound for call in self._queue.active_batch.calls if call.status in open_states)
        self.has_moved = any(bound and bound.tool.traits.depends_on for bound in ahead)
        return self.has_moved

    def _note_command(self, state: CommandState, call: Call) -> None:
        """Record the state of a background command from the result of a call."""
        started = BackgroundCommand(
            handle=state.handle,
            turn=self._queue.turn_id,
            call=call.id,
            title=shorten_line(call.bound.title if call.bound else call.tool),
            host=call.bound.host if call.bound else None,
            running=state.running,
        )
        self.commands = note_command(self.commands, state, started)


def _select_files(known: Mapping[str, str], call: Call) -> dict[str, str]:
    touched = call.bound.basis if call.bound else {}
    return {path: known[path] for path in touched if path in known}
