"""Calls of a reply that is still being written, on their way to the turn that waits for it (S11)."""

from __future__ import annotations

from temporalio.client import Client

from holdfast.domain.calls.call import CallRequest
from holdfast.domain.turn.activity_io import ModelStepInput
from holdfast.domain.turn.update_bodies import AddCalls


class CallStream:
    """Where a model step says which calls it has written so far; without a stream nobody wants to know yet."""

    def __init__(self, client: Client, turn_id: str, run_id: str | None, step: ModelStepInput) -> None:
        self._turn = client.get_workflow_handle(turn_id, run_id=run_id)
        self._step = step
        self._sent = 0

    async def send(self, *calls: CallRequest) -> None:
        """These calls are written, and complete."""
        if self._step.stream is None or not calls:
            return
        body = AddCalls(stream=self._step.stream, attempt=self._step.attempt, at=self._sent, calls=calls)
        await self._turn.signal("add_calls", body)
        self._sent += len(calls)
