"""The private attributes of temporalio that Holdfast uses still do what it relies on."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.worker import Replayer, Worker

from holdfast.client.queries import query_turn
from holdfast.temporal_private import replay_within
from tests.support.engine import Engine

LONGER_THAN_THE_DETECTOR = 3.0


@workflow.defn(sandboxed=False)
class Starved:
    """A workflow whose thread gets no processor for a while, in its first task and in its first query."""

    def __init__(self) -> None:
        self.queries = 0

    @workflow.run
    async def run(self) -> str:
        """Take longer than the SDK's deadlock detector allows."""
        threading.Event().wait(LONGER_THAN_THE_DETECTOR)
        return "done"

    @workflow.query
    def count_queries(self) -> int:
        """How often this has been asked."""
        self.queries += 1
        threading.Event().wait(LONGER_THAN_THE_DETECTOR)
        return self.queries


async def test_a_workflow_thread_without_processor_time_is_not_taken_for_a_deadlock(engine: Engine) -> None:
    async with Worker(engine.client, task_queue=engine.queue, workflows=[Starved]):
        handle = await engine.client.start_workflow(Starved.run, id=f"s-{uuid4().hex[:8]}", task_queue=engine.queue)
        assert await handle.result() == "done"
        assert await query_turn(engine.client, handle.id, "count_queries", result_type=int) == 1
    history = await handle.fetch_history()
    assert not [event for event in history.events if event.HasField("workflow_task_failed_event_attributes")]
    replayer = Replayer(workflows=[Starved])
    assert (await replay_within(replayer, history, seconds=60)).replay_failure is None
    with pytest.raises(TimeoutError):
        await replay_within(replayer, history, seconds=1)
