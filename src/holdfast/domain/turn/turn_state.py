"""The state of one turn: its batches, its decisions, its conversation, and how it ends.

Pure and without a clock: whoever holds it says what time it is. The workflow holds one and adds activities and
messages; tests hold one and add nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.domain.approvals.grants import Grant, Grants
from holdfast.domain.background_commands import join_commands
from holdfast.domain.calls.batch import complete_batch, stop_calls
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.conversation.messages import UserMessage
from holdfast.domain.turn.batch_queue import parse_batch_number
from holdfast.domain.turn.carryover import FILES_KEPT, SOURCES_KEPT, STREAMS_KEPT, EarlierRun, RunCarryover, TurnMemory
from holdfast.domain.turn.conversation import ConversationState
from holdfast.domain.turn.limits import TurnLimits, describe_time_limit, explain_no_step, find_reached_limit
from holdfast.domain.turn.turn_io import TurnInput, TurnRemainder, TurnResult
from holdfast.errors import RequestRefused


class TurnState(ConversationState):
    """Everything a turn knows."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        super().__init__(turn_id, clock)
        self.is_finishing = False
        self.began_at = clock()
        self._ended: Counter[str] = Counter()

    def apply_input(self, input: TurnInput) -> None:
        """Take the input: the prompt opens the conversation, the batches are queued."""
        self.input = input
        self.mode = input.mode
        if input.memory:
            self._apply_memory(input.memory)
        if input.carried:
            self._apply_carryover(input.carried)
            return
        if input.prompt is not None:
            self.messages.append(UserMessage(text=input.prompt))
        for calls in input.batches:
            self.enqueue_batch(calls)

    def check_open(self) -> None:
        """RequestRefused when this turn takes no batches from outside."""
        self.check_without_model()
        if self.is_finishing or self.stop or self.is_over:
            raise RequestRefused("not_open", "this turn is ending and takes nothing more")

    def check_without_model(self) -> None:
        """RequestRefused when its model decides which calls there are."""
        if self.input.model is not None:
            raise RequestRefused("has_model", "this turn has a model: it decides which calls there are")

    def finish_turn(self) -> None:
        """End a turn that was kept open, once its queue is empty. Streams that still grow are complete as they are."""
        self.is_finishing = True
        for batch in [*([self.active] if self.active else []), *self.queue]:
            if not batch.complete:
                self._replace_batch(batch, complete_batch(batch))
        self.has_changed = True

    def apply_limits(self, *, before_step: bool = False) -> None:
        """Stop the turn when it has used up what it may (S44). `step`: the model is about to be asked."""
        if self.stop:
            return
        limits, seconds = self.input.limits, (self._clock() - self.began_at).total_seconds()
        why = find_reached_limit(limits, calls=self.call_count, tokens=self.usage.total_tokens, seconds=seconds)
        why = why or (explain_no_step(limits, self.steps) if before_step else None)
        if why:
            self.stop_turn("stopped", why)

    @property
    def has_more_to_do(self) -> bool:
        """Is there anything that it goes on for?"""
        return bool(self.queue) or self.needs_step or (self.input.keep_open and not self.is_finishing)

    @property
    def time_left(self) -> timedelta | None:
        """Until its time is up; None where it was given none."""
        seconds = self.input.limits.seconds
        return None if seconds is None else self.began_at + timedelta(seconds=seconds) - self._clock()

    def stop_at_time_limit(self) -> None:
        """Its time is up."""
        self.stop_turn("stopped", describe_time_limit(self.input.limits))

    def close_turn(self) -> None:
        """Answer what never started, and close the turn."""
        reason = self.stop[1] if self.stop else "The turn ended"
        while self.queue:
            batch = self.queue.pop(0)
            self._close_unstarted(batch, complete_batch(stop_calls(batch, reason, self._clock())))
        if not self.input.session:  # a session gives what its turn did not read a turn of its own
            self._join_messages()
        self.is_over = True
        self._emit_event(
            kind="turn", after=self.build_result().status, note=shorten_line(self.stop[1]) if self.stop else None
        )

    def build_result(self) -> TurnResult:
        """How the turn ended."""
        status, reason = self.stop or ("completed", None)
        return TurnResult(
            status=status,
            reason=reason,
            text=self.text,
            batches=self.list_results(),
            usage=self.usage,
            steps=self.steps,
            calls=self.call_count,
            runs=self.runs,
            left=self._build_remainder() if self.input.session or self.input.depth else None,
        )

    def _build_remainder(self) -> TurnRemainder:
        messages = tuple(self.messages) if self.input.session else ()
        memory = self.build_memory(self._is_lasting)
        if self.model:  # the next turn asks the first model again, whose window is another
            memory = memory.model_copy(update={"window": None, "filled": 0})
        return TurnRemainder(memory=memory, messages=messages, compaction=self.compaction, heard=tuple(self.heard))

    def build_memory(self, holds: Callable[[Grant], bool] = lambda grant: True) -> TurnMemory:
        """What holds for whatever comes next, with the grants that hold there."""
        return TurnMemory(
            mode=self.mode,
            grants=tuple(grant for grant in self.grants.all_grants if holds(grant)),
            grants_given=self.grants.given_count,
            seen=dict(list(self.seen.items())[-FILES_KEPT:]),
            wrote=dict(list(self.wrote.items())[-FILES_KEPT:]),
            context=self.context,
            commands=self.commands,
            tainted=tuple(dict.fromkeys(self.tainted))[:SOURCES_KEPT],
            outside=dict(self.outside),
            replies=self.replies,
            window=self.window,
            filled=self.filled,
            keyed=self.has_keys,
        )

    def _is_lasting(self, grant: Grant) -> bool:
        """Does it answer anything after this turn?"""
        return grant.decision.lasting != "turn" and grant.is_active(self._clock())

    def build_delegated_memory(self) -> TurnMemory:
        """What a turn that a call runs begins with. Every refusal binds it.

        What was granted for a number of calls stays here: two turns at work cannot share a count.
        """
        return self.build_memory(
            lambda grant: not grant.is_allowance or (self._is_lasting(grant) and grant.decision.uses is None)
        )

    def split_limits(self) -> TurnLimits:
        """What is left of the limits for each of the turns that the batch at work delegates."""
        limits = self.input.limits
        delegating = (call for call in self.active_batch.calls if call.bound and call.bound.tool.traits.delegates)
        shares = sum(not call.is_terminal for call in delegating) or 1
        return limits.model_copy(
            update={
                "calls": max(1, (limits.calls - self.call_count) // shares),
                "tokens": None
                if limits.tokens is None
                else max(1, (limits.tokens - self.usage.total_tokens) // shares),
            }
        )

    def adopt_result(self, result: TurnResult, given: TurnInput) -> None:
        """Take what a turn leaves that a call has run: what it used, what it took in, what was allowed in it.

        `given` is what that turn began with: what it was granted by then may have been revoked here meanwhile.
        """
        self.usage += result.usage
        self._calls += result.calls
        if result.left:
            memory = result.left.memory
            self.tainted += [source for source in memory.tainted if source not in self.tainted]
            self.outside |= Counter(memory.outside)
            self.commands = join_commands(self.commands, memory.commands)
            before = given.memory.grants if given.memory else ()
            self.is_stale = self.grants.adopt_grants(memory.grants, before) or self.is_stale

    def _apply_memory(self, memory: TurnMemory) -> None:
        self.mode = memory.mode
        self.grants = Grants(memory.grants, memory.grants_given)
        self.seen, self.wrote, self.context = dict(memory.seen), dict(memory.wrote), memory.context
        self.commands = memory.commands
        self.tainted, self.outside = list(memory.tainted), Counter(memory.outside)
        self.replies = memory.replies
        self.window, self.filled = memory.window, memory.filled
        self._has_keys = memory.keyed

    def build_carryover(self, run_id: str) -> RunCarryover:
        """What its next run goes on from."""
        assert not self.active, "a turn continues between batches"
        ended = min((parse_batch_number(batch) for batch in self.queue), default=self._batches + 1) - 1
        this = EarlierRun(run_id=run_id, events=self.last_event_number, batches=ended)
        return RunCarryover(
            memory=self.build_memory(),
            began_at=self.began_at,
            messages=tuple(self.messages),
            steps=self.steps,
            batches=self._batches,
            calls=self.call_count - sum(map(len, self.queue)),
            events=self.last_event_number,
            usage=self.usage,
            model=self.model,
            compaction=self.compaction,
            approvers=self.approvers,
            heard=tuple(self.heard),
            counts=dict(self.status_counts),
            runs=(*self.runs, this),
            queue=tuple(self.queue),
            streams=dict(list(self._newest.items())[-STREAMS_KEPT:]),
            submitted=self.submitted,
            finishing=self.is_finishing,
            said=tuple(self._pending_messages),
        )

    def _apply_carryover(self, carried: RunCarryover) -> None:
        self._apply_memory(carried.memory)
        self.began_at = carried.began_at
        self.messages = list(carried.messages)
        self.steps, self._batches, self._calls = carried.steps, carried.batches, carried.calls
        self._events, self.usage = carried.events, carried.usage
        self.model = carried.model
        self.compaction, self.approvers = carried.compaction, carried.approvers
        self.queue, self._newest, self.is_finishing = list(carried.queue), dict(carried.streams), carried.finishing
        self.submitted, self._pending_messages = dict(carried.submitted), list(carried.said)
        self.heard, self._ended, self.runs = list(carried.heard), Counter(carried.counts), carried.runs

    @property
    def status_counts(self) -> Counter[str]:
        """How many calls are in which state."""
        batches = (*self.done_batches, *([self.active] if self.active else []))
        return self._ended + Counter(call.status.value for batch in batches for call in batch.calls)
