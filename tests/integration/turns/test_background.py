"""Commands that go on after the answer of their call: read, waited for and stopped by other calls, ended with their
turn or session, and never started twice."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import ModelChoice, RequestRefused, Response, ScriptedReply, SessionInput, Turn, TurnInput
from holdfast.config.schema import ShellSettings, ToolSettings
from holdfast.testing import build_request, wait_until
from tests.support import marks
from tests.support.commands import Unlike, approve, kind_of, left
from tests.support.conversations import idle
from tests.support.engine import Engine, new_engine
from tests.support.processes import hurried_worker
from tests.support.waiting import done, waiting

ALLOWED = """
[[rule]]
decision = "allow"
anything = true
"""


def started(command: str, **more: Any) -> Any:
    return build_request("shell", command=command, background=True, **more)


def handle_of(response: Response) -> str:
    found = re.match("Handle: ([0-9a-f]{32})\n", response.text)
    assert found, response.text
    return found[1]


def with_shell(engine: Engine, **given: Any) -> None:
    """Workers from now on run commands so, and ask nobody about them."""
    engine.with_rules(ALLOWED, tools=ToolSettings(shell=ShellSettings(**given)))


@asynccontextmanager
async def open_turn(engine: Engine, *calls: Any) -> AsyncIterator[Turn]:
    """A turn that stays open, with these calls in its first batch."""
    turn = await engine.start(TurnInput(batches=(calls,) if calls else (), keep_open=True))
    try:
        yield turn
    finally:
        with suppress(RequestRefused):  # it has ended
            await turn.cancel()


async def answered(turn: Turn, *calls: Any) -> Response:
    """The last response of a batch that is submitted now."""
    batch = await turn.submit(calls)
    return await response_of(turn, batch)


async def response_of(turn: Turn, batch: str = "b1") -> Response:
    await wait_until(lambda: done(turn, batch), 60)
    return (await turn.fetch_batch(batch)).responses[-1]


async def ended(unlike: Unlike) -> None:
    await marks.until(lambda: not unlike.living())


# Started, read, waited for, stopped


async def test_S31_call_answers_with_a_handle_while_its_command_goes_on_and_others_read_it_to_its_end(
    engine: Engine,
) -> None:
    with_shell(engine)
    text = "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; while [ ! -e end ]; do sleep 0.02; done; exit 3"
    async with engine.worker(), open_turn(engine, started(text)) as turn:
        response = await response_of(turn)
        handle = handle_of(response)
        assert response.status == "success"
        assert "It runs" in response.text
        assert response.text.endswith("Output:\none\n\n[what comes next is read with start 4]")
        (engine.workspace / "go").touch()
        more = await answered(
            turn, build_request("shell_output", handle=handle, start=4, wait_seconds=60, wait_for="output")
        )
        assert "Output:\ntwo\n" in more.text
        assert "one" not in more.text
        assert "It runs" in more.text
        (engine.workspace / "end").touch()
        last = await answered(turn, build_request("shell_output", handle=handle, wait_seconds=60))
        assert "The command exited with code 3" in last.text
        assert last.text.endswith("Output:\none\ntwo\n")
        assert (await turn.fetch_view()).commands == ()


async def test_command_that_ends_at_once_is_told_with_its_end(engine: Engine) -> None:
    with_shell(engine)
    async with engine.worker(), open_turn(engine, started("echo oops; exit 7")) as turn:
        response = await response_of(turn)
        assert "The command exited with code 7" in response.text
        assert response.text.endswith("Output:\noops\n")


async def test_S17_stop_of_a_background_command_ends_its_whole_tree_and_may_be_repeated(engine: Engine) -> None:
    with_shell(engine)
    unlike = Unlike()
    tree = f"env -i setsid sleep {unlike.seconds} & (trap '' TERM; sleep {unlike.seconds}) & echo up; wait"
    async with engine.worker(), open_turn(engine, started(tree)) as turn:
        handle = handle_of(await response_of(turn))
        assert len(unlike.living()) == 2
        assert [one.handle for one in (await turn.fetch_view()).commands] == [handle]
        response = await answered(turn, build_request("shell_stop", handle=handle))
        assert unlike.living() == []
        assert "The command was stopped" in response.text
        again = await answered(turn, build_request("shell_stop", handle=handle))
        assert (again.status, "The command was stopped" in again.text) == ("success", True)
        assert (await turn.fetch_view()).commands == ()


async def test_S16_reader_that_waits_is_cancelled_and_its_command_goes_on(engine: Engine) -> None:
    with_shell(engine)
    unlike = Unlike()
    async with engine.worker(), open_turn(engine, started(f"sleep {unlike.seconds}")) as turn:
        handle = handle_of(await response_of(turn))
        batch = await turn.submit([build_request("shell_output", handle=handle, wait_seconds=600)])
        call = f"{batch}c1"
        await wait_until(lambda: _executing(turn, call))
        await turn.cancel_call(call)
        assert (await response_of(turn, batch)).status == "cancelled"
        assert len(unlike.living()) == 1


async def _executing(turn: Turn, call: str) -> bool:
    return (await turn.fetch_call(call)).status == "executing"


async def test_S33_long_output_is_read_in_parts_that_say_where_to_go_on(engine: Engine) -> None:
    with_shell(engine)
    async with engine.worker(), open_turn(engine, started("seq 1 30000; printf 'ü%.0s' $(seq 40000)")) as turn:
        handle = handle_of(await response_of(turn))
        tail = await answered(turn, build_request("shell_output", handle=handle, wait_seconds=60))
        assert "bytes are left out: read them with start 0]" in tail.text
        assert tail.text.endswith("ü")
        read, start = "", 0
        while True:
            part = (await answered(turn, build_request("shell_output", handle=handle, start=start))).text
            read += part.partition("Output:\n")[2].partition("\n[there is more")[0]
            if not (more := re.search(r"go on with start (\d+)\]$", part)):
                break
            start = int(more[1])
        numbers, _, umlauts = read.rpartition("\n")
        assert numbers.replace("\n", "") == "".join(map(str, range(1, 30001)))
        assert umlauts == "ü" * 40_000


# Ended with its turn or session


@pytest.mark.parametrize("how", ["finished", "cancelled", "terminated"])
async def test_S17_background_command_ends_with_its_turn_however_that_ends(engine: Engine, how: str) -> None:
    with_shell(engine)
    unlike = Unlike()
    async with engine.worker(), open_turn(engine, started(f"setsid sleep {unlike.seconds} & wait")) as turn:
        handle_of(await response_of(turn))
        assert len(unlike.living()) == 1
        if how == "finished":
            await turn.finish()
        elif how == "cancelled":
            await turn.cancel()
        else:
            await engine.client.get_workflow_handle(turn.id).terminate()
        await ended(unlike)
        await marks.until(lambda: left(engine.settings) == [])


def _session(*replies: ScriptedReply) -> SessionInput:
    return SessionInput(turn=TurnInput(model=ModelChoice(script=replies)))


async def test_S17_background_command_lives_across_the_turns_of_its_session_and_ends_with_it(engine: Engine) -> None:
    with_shell(engine)
    unlike = Unlike()
    session = engine.holdfast.get_session()
    start = _session(
        ScriptedReply(calls=(started(f"echo up; sleep {unlike.seconds}"),)),
        ScriptedReply(text="Started."),
        ScriptedReply(text="Still there?"),
    )
    async with engine.worker():
        first = await session.send("Begin", start=start)
        await session.get_turn(first.turn).result()
        await session.send("And now")
        view = await wait_until(lambda: idle(session))
        assert view.turns == 2
        assert len(unlike.living()) == 1
        second = await session.get_turn(f"{session.id}~2").fetch_view()
        assert [(one.turn, one.call) for one in second.commands] == [(first.turn, "b1c1")]
        await session.close()
        await ended(unlike)
        await marks.until(lambda: left(engine.settings) == [])


async def test_S17_background_command_ends_with_its_turn_where_the_settings_say_so(engine: Engine) -> None:
    with_shell(engine, background="turn")
    unlike = Unlike()
    session = engine.holdfast.get_session()
    async with engine.worker():
        start = _session(ScriptedReply(calls=(started(f"sleep {unlike.seconds}"),)), ScriptedReply(text="Started."))
        await session.send("Begin", start=start)
        await wait_until(lambda: idle(session))
        await ended(unlike)
        await session.close()


async def test_detached_command_outlives_its_turn_and_ends_when_its_time_is_up(engine: Engine) -> None:
    with_shell(engine, background="detached", background_seconds=4)
    unlike, second = Unlike(), Unlike()
    async with engine.worker():
        async with open_turn(engine, started(f"sleep {unlike.seconds}")) as turn:
            await response_of(turn)
        await turn.result()
        async with open_turn(engine, started(f"sleep {second.seconds}")) as later:
            await response_of(later)
            assert len(second.living()) == 1
            assert len(unlike.living()) == 1, "its turn has ended before another turn began, had and gave an answer"
            await ended(unlike)


# Killed workers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "holdfast.toml"
    made.write_text("")
    return made


@pytest.fixture
def impatient_file(file: Path) -> Path:
    """By which a command that nobody attends to ends soon."""
    file.write_text("[tools.shell]\nlease_seconds = 5\n")
    return file


async def test_S31_handle_still_works_after_its_worker_was_killed_and_another_attends(
    engine: Engine, file: Path
) -> None:
    unlike = Unlike()
    command = f"echo x >> begun; echo up; while [ ! -e go ]; do sleep 0.05; done; echo more; sleep {unlike.seconds}"
    async with open_turn(engine, started(command)) as turn:
        async with hurried_worker(engine, file) as first:
            await approve(engine, turn)
            handle = handle_of(await response_of(turn))
            await first.kill()
        async with hurried_worker(engine, file):
            (engine.workspace / "go").touch()
            read = await answered(
                turn, build_request("shell_output", handle=handle, start=3, wait_seconds=60, wait_for="output")
            )
            assert "Output:\nmore\n" in read.text
            stopped = await answered(turn, build_request("shell_stop", handle=handle))
            assert "The command was stopped" in stopped.text
            assert unlike.living() == []
    assert (engine.workspace / "begun").read_text() == "x\n"


async def test_S17_background_command_outlives_its_lease_while_a_worker_lives_and_ends_without_one(
    engine: Engine, impatient_file: Path
) -> None:
    unlike = Unlike()
    async with open_turn(engine, started(f"echo up; sleep 8; echo later; sleep {unlike.seconds}")) as turn:
        async with hurried_worker(engine, impatient_file) as first:
            await approve(engine, turn)
            handle = handle_of(await response_of(turn))
            read = await answered(turn, build_request("shell_output", handle=handle, start=3))
            assert "No new output" in read.text
            await marks.until(lambda: b"later" in (left(engine.settings)[0] / "output").read_bytes())
            assert len(unlike.living()) == 1, "nobody reads it, and it goes on"
            await first.kill()
        await ended(unlike)
        async with hurried_worker(engine, impatient_file):
            read = await answered(turn, build_request("shell_output", handle=handle))
            assert "no worker came back for it in time" in read.text


async def test_S17_turn_that_ends_while_no_worker_lives_has_its_command_ended_by_the_next_one(
    engine: Engine, file: Path
) -> None:
    unlike = Unlike()
    async with open_turn(engine, started(f"sleep {unlike.seconds}")) as turn:
        async with hurried_worker(engine, file) as first:
            await approve(engine, turn)
            await response_of(turn)
            await first.kill()
        await engine.client.get_workflow_handle(turn.id).terminate()
        assert len(unlike.living()) == 1
        async with hurried_worker(engine, file):
            await ended(unlike)


async def test_S31_second_attempt_finds_what_the_first_began_and_answers_with_the_same_handle(
    engine: Engine, file: Path
) -> None:
    """The worker is killed between the start of the command and the answer of the call."""
    unlike = Unlike()
    async with open_turn(engine, started(f"echo x >> begun; sleep {unlike.seconds}")) as turn:
        async with hurried_worker(engine, file) as first:
            await approve(engine, turn)
            await marks.until((engine.workspace / "begun").exists)
            os.kill(first.pid, 9)
            await first.died()
        [run] = left(engine.settings)
        async with hurried_worker(engine, file):
            assert handle_of(await response_of(turn)) == run.name
            assert len(unlike.living()) == 1
    assert (engine.workspace / "begun").read_text() == "x\n"


# Other runs, other hosts


async def test_S42_background_command_goes_on_when_its_turn_continues_as_new(impatient: str, tmp_path: Path) -> None:
    unlike = Unlike()
    async with new_engine(impatient, tmp_path) as engine:
        with_shell(engine)
        async with engine.worker(), open_turn(engine, started(f"echo up; sleep {unlike.seconds}")) as turn:
            handle = handle_of(await response_of(turn))
            for _ in range(12):
                await answered(turn, build_request("list_directory", path="."))
            assert (await turn.fetch_view()).runs, "it has continued"
            assert [one.handle for one in (await turn.fetch_view()).commands] == [handle]
            read = await answered(turn, build_request("shell_output", handle=handle))
            assert "It runs" in read.text
            assert len(unlike.living()) == 1
            await turn.cancel()
            await ended(unlike)


async def test_S36_background_command_is_read_and_stopped_on_the_host_that_runs_it(
    server_address: str, tmp_path: Path
) -> None:
    """Whichever host's worker judges the calls: without a cache, either of the two."""
    unlike = Unlike()
    async with new_engine(server_address, tmp_path, cached=0) as engine:
        with_shell(engine)
        elsewhere = copy(engine)
        elsewhere.settings = replace(engine.settings, data=tmp_path / "elsewhere")
        async with engine.worker(), open_turn(engine, started(f"echo up; sleep {unlike.seconds}")) as turn:
            handle = handle_of(await response_of(turn))
            async with elsewhere.worker():
                for _ in range(8):
                    assert "Output:\nup\n" in (await answered(turn, build_request("shell_output", handle=handle))).text
                assert "was stopped" in (await answered(turn, build_request("shell_stop", handle=handle))).text
        assert unlike.living() == []


# Refused


async def test_handle_of_another_turn_or_of_nobody_is_refused_and_the_command_goes_on(engine: Engine) -> None:
    with_shell(engine)
    unlike = Unlike()
    async with (
        engine.worker(),
        open_turn(engine, started(f"echo secret; sleep {unlike.seconds}")) as turn,
        open_turn(engine) as other,
    ):
        handle = handle_of(await response_of(turn))
        for tool in ("shell_output", "shell_stop"):
            foreign = await answered(other, build_request(tool, handle=handle))
            assert (kind_of(foreign), "secret" in foreign.text) == ("no_such_command", False)
            unknown = await answered(turn, build_request(tool, handle="0" * 32))
            assert unknown.text.replace("0" * 32, handle) == foreign.text, "nobody can tell the two apart"
            for garbage in ("../" * 10 + "ab", handle + "\n", "", "A" * 32, "x" * 1_000_000, handle[:-1] + "\0"):
                assert kind_of(await answered(turn, build_request(tool, handle=garbage))) == "invalid_tool_params"
        assert len(unlike.living()) == 1


async def test_output_of_a_call_that_is_no_background_command_is_not_had_by_its_run(engine: Engine) -> None:
    with_shell(engine)
    async with engine.worker(), open_turn(engine) as turn:
        batch = await turn.submit([build_request("shell", command="echo up; while [ ! -e go ]; do sleep 0.02; done")])
        await marks.until(lambda: bool(left(engine.settings)))
        [run] = left(engine.settings)
        async with open_turn(engine) as other:
            assert kind_of(await answered(other, build_request("shell_output", handle=run.name))) == "no_such_command"
        (engine.workspace / "go").touch()
        assert (await response_of(turn, batch)).status == "success"


async def test_one_background_command_too_many_is_refused_until_another_has_ended(engine: Engine) -> None:
    with_shell(engine, background_commands=2)
    first, more = Unlike(), Unlike()
    async with engine.worker(), open_turn(engine, started(f"sleep {first.seconds}")) as turn:
        handle = handle_of(await response_of(turn))
        handle_of(await answered(turn, started(f"sleep {more.seconds}")))
        refused = await answered(turn, started("echo x > third"))
        assert kind_of(refused) == "too_many_background_commands"
        assert "tools.shell.background_commands" in refused.text
        assert not (engine.workspace / "third").exists()
        await answered(turn, build_request("shell_stop", handle=handle))
        handle_of(await answered(turn, started("echo x > third")))
        async with open_turn(engine, started(f"sleep {more.seconds}")) as other:
            handle_of(await response_of(other))


async def test_background_is_refused_where_the_settings_have_none(engine: Engine) -> None:
    with_shell(engine, background="off")
    async with engine.worker(), open_turn(engine, started("echo x > there")) as turn:
        response = await response_of(turn)
        assert kind_of(response) == "invalid_tool_params"
        assert "tools.shell.background is off" in response.text
        assert not (engine.workspace / "there").exists()


# What is shown


async def test_S20_person_who_approves_sees_that_it_goes_on_and_what_the_model_says_of_it(engine: Engine) -> None:
    said = "Start the \x1b[2Jserver\r\n\u202eharmless"
    async with engine.worker(), open_turn(engine, started("sleep 0.1", description=said)) as turn:
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        assert item.title == "Run in the background, beyond this call: sleep 0.1"
        assert item.description == "Start the ␛[2Jserver ⟨U+202E⟩harmless"
        assert (item.others, item.command) == ('{"background": true}', "sleep 0.1")
        [listed] = await wait_until(lambda: _listed(engine, turn))
        assert listed.description == item.description


async def _listed(engine: Engine, turn: Turn) -> list[Any]:
    return [item for item in await engine.holdfast.list_approvals() if item.approval_id.startswith(turn.id)]


async def test_S6_description_of_a_megabyte_is_refused_before_anybody_is_asked(engine: Engine) -> None:
    async with (
        engine.worker(),
        open_turn(engine, build_request("shell", command="ls", description="x" * 1_000_000)) as turn,
    ):
        response = await response_of(turn)
        assert kind_of(response) == "invalid_tool_params"
        assert "500" in response.text
        assert len(response.text) < 2_000


async def test_S24_standing_answer_for_a_command_does_not_look_at_what_the_model_says_of_it(engine: Engine) -> None:
    async with engine.worker(), open_turn(engine, build_request("shell", command="ls .", description="look")) as turn:
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.decide(item.approval_id, "proceed_always")
        await response_of(turn)
        other = await answered(turn, build_request("shell", command="ls .", description="quite another thing"))
        assert other.status == "success"
