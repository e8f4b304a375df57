"""Calls that live on a host, or on a task queue of their own, when nobody is there: none hangs, none runs twice.

Two hosts are two data folders. How long a call waits for its host is minutes; here it is seconds, since a server that
skips time does not while an activity is pending.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import Mode, Turn, TurnInput
from holdfast.testing import build_request, wait_until
from holdfast.workflows import call_activities
from tests.support import marks
from tests.support.commands import answer, approve, begin, kind_of, left, supervisors
from tests.support.engine import Engine
from tests.support.hurried import LIMITS
from tests.support.processes import hurried_worker
from tests.support.waiting import speaking, waiting


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in LIMITS.items():
        monkeypatch.setattr(call_activities, name, limit)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "holdfast.toml"
    made.write_text("")
    return made


@pytest.fixture
def elsewhere(engine: Engine) -> Engine:
    """The same queue and workspace as another host sees them."""
    made = copy(engine)
    made.settings = replace(engine.settings, data=engine.settings.data.with_name("elsewhere"))
    return made


async def asked_on(engine: Engine, command: str) -> Turn:
    """A turn of a command that this host has validated; it waits for approval, and the host is gone."""
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command=command),),)))
        await wait_until(lambda: waiting(turn))
    return turn


async def test_S36_command_that_has_not_begun_moves_to_a_host_that_lives_and_runs_once(
    engine: Engine, elsewhere: Engine
) -> None:
    turn = await asked_on(engine, "echo x >> counted; echo done")
    async with elsewhere.worker():
        await approve(engine, turn)
        response = await answer(turn)
        assert (await turn.fetch_call("b1c1")).revision == 1, "what was approved is what ran: nobody is asked again"
    assert (response.status, response.text) == ("success", "done\n")
    async with engine.worker():  # what was offered to the first host is no longer there
        again = await begin(engine, "echo y >> counted")
        assert (await answer(again)).status == "success"
    assert (engine.workspace / "counted").read_text() == "x\ny\n"


async def test_S36_host_that_is_back_in_time_runs_the_command_itself(engine: Engine, elsewhere: Engine) -> None:
    """Offered once more after its time is up: while a server was away, so were its workers."""
    turn = await asked_on(engine, "echo x >> counted")
    async with elsewhere.worker():
        await approve(engine, turn)
        await wait_until(lambda: _offered(engine, turn, 2))
        async with engine.worker():
            assert (await answer(turn)).status == "success"
    assert not elsewhere.settings.runs_folder.exists()
    assert engine.settings.runs_folder.exists()
    assert (engine.workspace / "counted").read_text() == "x\n"


async def _offered(engine: Engine, turn: Turn, times: int) -> bool:
    return (await engine.history(turn)).count("ACTIVITY_TASK_SCHEDULED") == times


@pytest.mark.parametrize("how", ["turn", "call"])
async def test_S16_command_that_waits_for_its_host_is_stopped_at_once(
    how: str, engine: Engine, elsewhere: Engine
) -> None:
    turn = await asked_on(engine, "touch ran")
    async with elsewhere.worker():
        await approve(engine, turn)
        await wait_until(lambda: _offered(engine, turn, 1))
        await (turn.cancel() if how == "turn" else turn.cancel_call("b1c1"))
        response = await answer(turn)
    assert (response.status, kind_of(response)) == ("cancelled", "cancelled")
    assert not (engine.workspace / "ran").exists()


async def test_S31_command_that_had_begun_on_a_host_that_is_gone_is_asked_about_with_its_last_words(
    engine: Engine, elsewhere: Engine, file: Path
) -> None:
    async with hurried_worker(engine, file) as first:
        turn = await begin(engine, "echo x >> counted; echo so far; while [ ! -e go ]; do sleep 0.05; done")
        await wait_until(lambda: speaking(turn, "so far"))
        await first.kill()
    async with elsewhere.worker():
        [item] = (await wait_until(lambda: waiting(turn), 30)).approvals
        assert item.kind == "outcome_unknown"
        assert "no worker answers on its host. It may have taken effect" in (item.question or "")
        assert (item.question or "").endswith("so far\n")
        await engine.holdfast.decide(item.approval_id, "respond", content="I looked: it was done.")
        assert (await answer(turn)).text == "I looked: it was done."
    (engine.workspace / "go").touch()
    assert (engine.workspace / "counted").read_text() == "x\n"
    await marks.until(lambda: not _go_on(engine))


def _go_on(engine: Engine) -> bool:
    return any(marks.alive(pid) for pid in supervisors(engine.settings))


# Task queues of their own

THERE = """
import asyncio
from pathlib import Path
from holdfast.testing import FakeTool

async def body(arguments, run):
    with Path(run.workspace, "counted").open("a") as file:
        file.write("x")
    run.write("it has begun")
    await asyncio.Event().wait()

there = FakeTool("there", body, heartbeat_seconds=3)
there.task_queue = {queue!r}
"""


@pytest.fixture
def there(engine: Engine, file: Path) -> Engine:
    """The workers of a queue of its own, on which a tool runs that all workers know."""
    made = copy(engine)
    made.queue = f"{engine.queue}-there"
    (file.parent / "elsewhere.py").write_text(THERE.format(queue=made.queue))
    file.write_text('[tools]\nmodules = ["elsewhere:there"]\n')
    return made


async def test_S36_call_whose_task_queue_nobody_polls_is_an_error_and_one_that_had_begun_there_is_asked_about(
    engine: Engine, there: Engine, file: Path
) -> None:
    async with hurried_worker(engine, file):
        async with hurried_worker(there, file) as polling:
            begun = await engine.start(TurnInput(batches=((build_request("there"),),)))
            await wait_until(lambda: speaking(begun, "it has begun"))
            await polling.kill()
        never = await engine.start(TurnInput(batches=((build_request("there"),),)))
        response = await answer(never)
        assert kind_of(response) == "no_worker"
        assert f"No worker of task queue {there.queue!r}, where 'there' must run, took the call" in response.text
        [item] = (await wait_until(lambda: waiting(begun), 30)).approvals
        assert item.kind == "outcome_unknown"
        assert (item.question or "").endswith("it has begun")
        await engine.holdfast.deny(item.approval_id)
        assert kind_of(await answer(begun)) == "outcome_unknown"
    assert (engine.workspace / "counted").read_text() == "x"


# Many

MANY = 200


async def test_S31_two_hundred_commands_all_run_once_and_in_order(engine: Engine) -> None:
    engine.settings = replace(engine.settings, modes=(Mode.YOLO,))
    calls = tuple(build_request("shell", command=f"echo {number}; echo {number} >> all") for number in range(MANY))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(calls,), mode=Mode.YOLO))
        async with asyncio.timeout(100):
            result = await turn.result()
    assert [response.text for response in result.responses] == [f"{number}\n" for number in range(MANY)]
    assert (engine.workspace / "all").read_text().split() == [str(number) for number in range(MANY)]
    assert left(engine.settings) == []
