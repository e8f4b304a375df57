"""Asking a turn: with patience for a worker that is busy."""

from __future__ import annotations

import threading
from uuid import uuid4

from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast.queries import ask
from tests.support.engine import Engine

STALLED = threading.Event()
"""Set once a query has been kept longer than Temporal's worker lets it."""


@workflow.defn(sandboxed=False)
class Stalling:
    """Answers only the second time it is asked."""

    @workflow.run
    async def run(self) -> None:
        """Nothing."""

    @workflow.query
    def answer(self) -> str:
        """Late, the first time."""
        if not STALLED.is_set():
            STALLED.set()
            threading.Event().wait(3)
        return "here"


async def test_S40_a_worker_that_had_no_time_for_a_question_is_asked_again(engine: Engine) -> None:
    STALLED.clear()
    runner = UnsandboxedWorkflowRunner()
    async with Worker(engine.client, task_queue=engine.queue, workflows=[Stalling], workflow_runner=runner):
        handle = await engine.client.start_workflow(Stalling.run, id=f"s-{uuid4().hex[:8]}", task_queue=engine.queue)
        await handle.result()
        assert await ask(engine.client, handle.id, "answer", result_type=str) == "here"
    assert STALLED.is_set()
