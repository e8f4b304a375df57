"""A turn without a workflow, in short words: tools by their names, calls that stream in, what may start."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.domain.calls.batch import apply_verdicts, start_calls
from holdfast.domain.calls.call import Call, CallRequest
from holdfast.domain.calls.scheduling import Schedule, list_startable
from holdfast.domain.calls.tool import AbortsSiblings, Effect, Interrupt, ToolRef, Traits
from holdfast.domain.calls.verdicts import (
    Allow,
    BoundCall,
    Failed,
    Finished,
)
from holdfast.domain.content import CallError, Result
from holdfast.domain.conversation.messages import ModelChoice
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import AddCalls

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STREAMING = Schedule.STREAMING
DONE = Finished(result=Result.from_text("done"))
BROKEN = Failed(error=CallError(type="boom", message="It broke"))


def request(name: str) -> CallRequest:
    return CallRequest(tool=name, arguments={"path": name})


def bound(name: str, **changes: Any) -> BoundCall:
    """By its name: r… reads side by side, i… is safe and changes something, x… must be alone; …! may be interrupted,
    …? brings its siblings down where calls are streamed, …?? always."""
    effects = {"r": Effect.READ, "i": Effect.IDEMPOTENT}
    brings_down: AbortsSiblings = True if name.endswith("??") else "streaming" if name.endswith("?") else False
    traits = Traits(interrupt=Interrupt.CANCEL if name.endswith("!") else Interrupt.BLOCK, aborts_siblings=brings_down)
    return BoundCall(
        tool=ToolRef(name=name, effect=effects.get(name[0], Effect.ONCE), definition="d", traits=traits),
        title=name,
        arguments={"path": name},
        digest=name,
        concurrency_safe=name[0] in "ri",
        timeout_seconds=1,
        heartbeat_seconds=1,
        **changes,
    )


class Turn(TurnState):
    """A turn, and short words for what happens to it."""

    def __init__(self, **input: Any) -> None:
        given: dict[str, Any] = {"keep_open": True, "schedule": STREAMING, **input}
        super().__init__("turn", lambda: NOW, TurnInput(**given))

    def add(self, *names: str, at: int | None = None, stream: str = "s", **more: Any) -> str:
        """Calls of a stream; where they go is known, unless it is said."""
        batch = self.streams.find_growing_batch(stream)
        place = (len(batch.calls) if batch else 0) if at is None else at
        body = AddCalls(stream=stream, at=place, calls=tuple(map(request, names)), **more)
        return self.add_calls(body).id

    def go(self) -> list[str]:
        """Validate what has come and start what may start; which that was."""
        if self.queue.active is None:
            self.activate_batch()
        verdicts = {
            call.id: Allow(rule="r", bound=bound(call.tool)) for call in self.queue.active_batch.unvalidated_calls
        }
        self.queue.update_batch(apply_verdicts(self.queue.active_batch, verdicts, NOW))
        chosen = {call.id for call in list_startable(self.queue.active_batch, self.input.plan)}
        self.queue.update_batch(start_calls(self.queue.active_batch, chosen, NOW))
        return sorted(chosen)

    def of(self, call_id: str) -> Call:
        """A call."""
        found = self.queue.find_call(call_id)
        assert found is not None, call_id
        return found

    def states(self) -> list[str]:
        """How the calls at work stand."""
        return [call.status.value for call in self.queue.active_batch.calls]

    def told(self) -> list[str]:
        """Of which calls the answers were delivered, in order."""
        return [str(event.call) for event in self.log.events if event.kind == "result"]


def talking(**input: Any) -> Turn:
    """A turn whose model writes its first reply."""
    turn = Turn(prompt="Go", model=ModelChoice(), keep_open=False, **input)
    turn.conversation.begin_step()
    return turn


def written(turn: Turn, *names: str, **more: Any) -> str:
    """What the model has written further."""
    return turn.add(*names, stream=f"step-{turn.conversation.steps}", attempt=turn.conversation.attempt, **more)
