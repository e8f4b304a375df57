"""Commands of `shell` whose workers are killed, replaced or gone: they go on, once, and end with their call."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Turn, TurnInput
from holdfast.domain.turn.activity_io import LiveOutput
from holdfast.testing import build_request, wait_until
from tests.support import marks
from tests.support.commands import Unlike, answer, approve, begin, kind_of, left, supervisors, text_of
from tests.support.engine import Engine, new_engine
from tests.support.processes import command_line_worker, hurried_worker
from tests.support.waiting import speaking, waiting

SECONDS = float(os.environ.get("HOLDFAST_COMMAND_SECONDS", "10"))
"""How long the long command runs: 600 for ten minutes."""
DEATHS = 3


@pytest.fixture
async def engine(server_address: str, tmp_path: Path) -> AsyncIterator[Engine]:
    async with new_engine(server_address, tmp_path) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file that says nothing."""
    made = tmp_path / "holdfast.toml"
    made.touch()
    return made


@pytest.fixture
def impatient(file: Path) -> Path:
    """One by which a command that nobody attends to ends soon."""
    file.write_text("[tools.shell]\nlease_seconds = 5\n")
    return file


async def said(turn: Turn, call_id: str = "b1c1") -> str:
    """What a running call has said, as its worker tells whoever asks."""
    output = await turn.fetch_output(call_id)
    assert output
    return output.tail


# Killed workers

PART = 50
"""Lines between two deaths."""
LONG = f"""
echo begun >> begun
for part in $(seq 0 {DEATHS}); do
    for line in $(seq $((part * {PART} + 1)) $(((part + 1) * {PART}))); do
        echo "line $line."
        sleep {SECONDS / (DEATHS + 1) / PART}
    done
    while [ $part -lt {DEATHS} ] && [ ! -e go$part ]; do sleep 0.05; done
done
exit 7
"""


@pytest.mark.timeout(2 * SECONDS + 120)
async def test_S31_long_command_survives_three_deaths_of_its_worker_with_its_whole_output_and_real_end(
    engine: Engine, file: Path
) -> None:
    """Ten minutes of it with HOLDFAST_COMMAND_SECONDS=600."""
    long = build_request("shell", command=LONG, timeout_seconds=SECONDS + 600)
    turn = await engine.start(TurnInput(batches=((long,),)))
    for death in range(DEATHS):
        async with hurried_worker(engine, file) as worker:
            if death == 0:
                await approve(engine, turn)
            line = f"line {death * PART + PART // 2}."
            await wait_until(lambda line=line: speaking(turn, line), SECONDS + 60)  # type: ignore[misc]
            assert (await said(turn)).startswith("line 1.\nline 2.\n"), "all of it, whoever was there to hear it"
            await worker.kill()
        (engine.workspace / f"go{death}").touch()
    async with hurried_worker(engine, file):
        response = await answer(turn, SECONDS + 60)
    assert kind_of(response) == "command_failed"
    assert "code 7" in response.text
    assert text_of(response) == "".join(f"line {line}.\n" for line in range(1, PART * (DEATHS + 1) + 1))
    assert (engine.workspace / "begun").read_text() == "begun\n"
    assert left(engine.settings) == []


TREE = """
echo before
env -i setsid sleep {seconds} &
(env -i setsid bash -c 'trap "" TERM; sleep {seconds} & wait' &)
while [ ! -e go ]; do sleep 0.05; done
echo after
sleep {seconds}
"""


async def test_S17_command_that_was_found_again_goes_on_speaking_and_is_stopped_with_all_it_started(
    engine: Engine, file: Path
) -> None:
    """Children of other sessions, of dead parents, without any mark, deaf to SIGTERM: a stop leaves none."""
    ones, others = Unlike(), Unlike()
    async with hurried_worker(engine, file) as first:
        turn, other = [await begin(engine, TREE.format(seconds=each.seconds)) for each in (ones, others)]
        watching = asyncio.create_task(_heard(turn))
        await wait_until(lambda: speaking(other, "before"))
        await marks.until(lambda: (len(ones.living()), len(others.living())) == (2, 2))
        await first.kill()
    (engine.workspace / "go").touch()
    async with hurried_worker(engine, file):
        await wait_until(lambda: speaking(turn, "after"))
        await wait_until(lambda: speaking(other, "after"))
        assert [await said(each) for each in (turn, other)] == ["before\nafter\n"] * 2
        assert (len(ones.living()), len(others.living())) == (3, 3)
        await asyncio.gather(turn.cancel(), other.cancel_call("b1c1"))
        responses = [await answer(each) for each in (turn, other)]
        heard = await asyncio.wait_for(watching, 20)
    assert [(response.status, text_of(response)) for response in responses] == [("cancelled", "before\nafter\n")] * 2
    assert (heard[0], heard[-1]) == ("before\n", "before\nafter\n")
    assert ones.living() == others.living() == []
    assert left(engine.settings) == []


async def _heard(turn: Turn) -> list[str]:
    """What somebody who watches to the end is shown."""
    return [item.tail async for item in turn.watch() if isinstance(item, LiveOutput)]


async def test_S47_command_that_outlives_its_worker_is_followed_where_it_goes(engine: Engine, file: Path) -> None:
    (engine.workspace / "sub").mkdir()
    moving = build_request("shell", command="cd sub && echo up && while [ ! -e ../go ]; do sleep 0.05; done; echo done")
    turn = await engine.start(TurnInput(batches=((moving,), (build_request("shell", command="pwd"),))))
    async with hurried_worker(engine, file) as first:
        await approve(engine, turn)
        await wait_until(lambda: speaking(turn, "up"))
        await first.kill()
    (engine.workspace / "go").touch()
    async with hurried_worker(engine, file):
        [item] = (await wait_until(lambda: waiting(turn), 60)).approvals
        assert item.title == "Run pwd (in sub)"
        await engine.holdfast.approve(item.approval_id, digest=item.digest)
        async with asyncio.timeout(60):
            moved, next_one = (await turn.result()).responses
    assert (moved.status, text_of(moved)) == ("success", "up\ndone\n")
    assert text_of(next_one) == f"{engine.workspace}/sub\n"
    assert left(engine.settings) == []


# Workers that are replaced, or are not

WAITING = "echo {name} >> {name}; echo up; while [ ! -e {name}.go ]; do sleep 0.02; done; echo done"


async def test_S36_worker_that_is_told_to_end_finishes_short_calls_and_hands_long_commands_over(
    engine: Engine, file: Path
) -> None:
    async with command_line_worker(engine, file) as first:
        short, long = [await begin(engine, WAITING.format(name=name)) for name in ("short", "long")]
        for turn in (short, long):
            await wait_until(lambda turn=turn: speaking(turn, "up"))  # type: ignore[misc]
        os.kill(first.pid, signal.SIGTERM)
        (engine.workspace / "short.go").touch()
        assert await first.died() == 0
    assert (await engine.history(short)).count("ACTIVITY_TASK_COMPLETED") == 1, "answered by whoever ran it"
    assert len(left(engine.settings)) == 1
    async with command_line_worker(engine, file):
        assert (await answer(short)).text == "up\ndone\n"
        await wait_until(lambda: speaking(long, "up"))
        (engine.workspace / "long.go").touch()
        assert (await answer(long)).text == "up\ndone\n"
        assert (await long.fetch_call("b1c1")).revision == 1, "nobody was asked again"
    assert [(engine.workspace / name).read_text() for name in ("short", "long")] == ["short\n", "long\n"]
    assert left(engine.settings) == []


async def test_S17_command_for_which_no_worker_comes_back_is_ended_and_the_next_one_says_so(
    engine: Engine, impatient: Path
) -> None:
    unlike = Unlike()
    async with hurried_worker(engine, impatient) as first:
        turn = await begin(engine, f"echo up; env -i setsid sleep {unlike.seconds} & sleep {unlike.seconds}")
        await wait_until(lambda: speaking(turn, "up"))
        await first.kill()
    assert unlike.living()
    await marks.until(lambda: not unlike.living())
    async with hurried_worker(engine, impatient):
        response = await answer(turn)
    assert (kind_of(response), text_of(response)) == ("abandoned", "up\n")
    assert left(engine.settings) == []


async def test_S17_a_stop_reaches_a_command_whose_worker_is_dead_as_soon_as_its_host_answers(
    engine: Engine, file: Path
) -> None:
    unlike = Unlike()
    async with hurried_worker(engine, file) as first:
        turn = await begin(engine, f"echo so far; sleep {unlike.seconds}")
        await wait_until(lambda: speaking(turn, "so far"))
        await first.kill()
    await turn.cancel()
    assert unlike.living()
    async with hurried_worker(engine, file):
        response = await answer(turn)
        assert unlike.living() == []
    assert (response.status, text_of(response)) == ("cancelled", "so far\n")
    assert left(engine.settings) == []


# Killed supervisors


async def test_S31_somebody_is_asked_what_became_of_a_command_whose_supervisor_was_killed(
    engine: Engine, file: Path
) -> None:
    """Run again is a new run; taken as done or as failed it stays as it is."""
    unlike = Unlike()
    text = f"echo x >> {{name}}; echo begun; [ $(wc -l < {{name}}) = 2 ] || sleep {unlike.seconds}; echo done"
    ways = {"proceed_once": None, "respond": "It was done.", "cancel": None}
    async with command_line_worker(engine, file):
        turns = {way: await begin(engine, text.format(name=way)) for way in ways}
        for turn in turns.values():
            await wait_until(lambda turn=turn: speaking(turn, "begun"))  # type: ignore[misc]
        for pid in supervisors(engine.settings):
            os.kill(pid, signal.SIGKILL)
        for way, turn in turns.items():
            [item] = (await wait_until(lambda turn=turn: waiting(turn))).approvals  # type: ignore[misc]
            assert item.kind == "outcome_unknown"
            assert "its supervisor has ended" in (item.question or "")
            assert "begun" in (item.question or "")
            await engine.holdfast.decide(item.approval_id, way, content=ways[way])
        responses = {way: await answer(turn) for way, turn in turns.items()}
    assert [kind_of(response) for response in responses.values()] == ["success", "success", "outcome_unknown"]
    assert responses["proceed_once"].text == "begun\ndone\n"
    assert responses["respond"].text == "It was done."
    assert {way: (engine.workspace / way).read_text() for way in ways} == {
        "proceed_once": "x\nx\n",
        "respond": "x\n",
        "cancel": "x\n",
    }
    assert unlike.living() == []
    assert len(left(engine.settings)) == 3, "of what nobody knows the traces are kept, until they are swept"
