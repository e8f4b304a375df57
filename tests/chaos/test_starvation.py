"""Turns go on as soon as their starved worker gets processor time again (S42)."""

from __future__ import annotations

import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest
from temporalio.client import Client

from holdfast import Holdfast, HoldfastPlugin, TurnInput
from holdfast.testing import build_request
from tests.chaos.harness.hurry import Hurry
from tests.chaos.starvation import LIMIT, starve
from tests.support.engine import Engine, new_engine

ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = 6
"""After so many, a server with default settings waits for over `LIMIT` seconds for the answer to the last of them."""


@pytest.mark.alone
async def test_turns_of_a_starved_worker_go_on_when_it_has_time_again(server_address: str, tmp_path: Path) -> None:
    async with new_engine(server_address, tmp_path) as engine:
        found = await starve(engine, seconds=12, turns=4, steps=30)
    assert (found.completed, found.lost) == (4, 0)
    assert max(found.resumed) <= LIMIT


async def take_task(engine: Engine, attempt: int) -> None:
    """Take the next workflow task, as a worker does that then gets no time to answer it."""
    request = PollWorkflowTaskQueueRequest(namespace=engine.client.namespace, task_queue=TaskQueue(name=engine.queue))
    taken = await engine.client.workflow_service.poll_workflow_task_queue(request)
    assert taken.attempt == attempt


async def test_a_turn_whose_task_timed_out_again_and_again_goes_on_within_the_limit(
    server_address: str, tmp_path: Path
) -> None:
    """A starved worker may take every attempt and then be killed. The task timeout is the shortest there is."""
    async with new_engine(server_address, tmp_path) as engine:
        plugin = HoldfastPlugin(engine.settings)
        hurried = await Client.connect(engine.address, plugins=[plugin], interceptors=[Hurry(timedelta(seconds=1))])
        holdfast = Holdfast(hurried, task_queue=engine.queue)
        turn = await holdfast.start(TurnInput(batches=((build_request("list_directory"),),)))
        for attempt in range(1, ATTEMPTS + 1):
            await take_task(engine, attempt)
        began = time.monotonic()
        async with engine.worker():
            assert (await turn.result()).status == "completed"
        assert time.monotonic() - began <= LIMIT


def test_make_chaos_starves_a_worker_for_as_long_as_it_is_told() -> None:
    shown = subprocess.run(["make", "-n", "chaos", "STARVE=150"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "-m tests.chaos.starvation --seconds 150" in shown.stdout
