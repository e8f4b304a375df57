"""What a call leaves for the calls after it, in real turns: folder, environment, tools (S47)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Effect, Response, Result, Run, Schedule, Tool, Turn, TurnInput
from holdfast.domain.context import ContextChange
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.processes import hurried_worker
from tests.support.waiting import asked, executing, waiting

SECONDS = 60
FREELY = """
    [[rule]]
    decision = "allow"
    anything = true
"""


def _shell(command: str, **more: Any) -> Any:
    return build_request("shell", command=command, **more)


@pytest.fixture(autouse=True)
def sub(engine: Engine) -> Path:
    folder = engine.workspace / "sub"
    folder.mkdir()
    return folder


def leaving(name: str, change: ContextChange, *, safe: bool = False) -> Tool:
    """A tool that leaves this."""

    async def leave(arguments: dict[str, Any], run: Run) -> Result:
        return Result.from_text("done").model_copy(update={"context": change})

    return FakeTool(name, leave, safe=safe, effect=Effect.READ if safe else Effect.ONCE)


async def responses(engine: Engine, *batches: tuple[Any, ...]) -> tuple[Turn, list[Response]]:
    turn = await engine.start(TurnInput(batches=batches))
    async with asyncio.timeout(SECONDS):
        return turn, list((await turn.result()).responses)


def texts(answers: list[Response]) -> list[str]:
    return [answer.text for answer in answers]


# The folder


async def test_S47_commands_go_on_where_the_last_one_left_off_in_their_batch_and_in_the_next(engine: Engine) -> None:
    engine.with_rules(FREELY)
    async with engine.worker():
        batches = ((_shell("cd sub"), _shell("pwd")), (_shell("pwd"), _shell("pwd", directory="."), _shell("cd ..")))
        turn, answers = await responses(engine, *batches, (_shell("pwd"),))
        here, there = f"{engine.workspace}\n", f"{engine.workspace}/sub\n"
        assert texts(answers) == ["(no output)", there, there, here, "(no output)", here]
        calls = [await turn.fetch_call(call) for call in ("b1c1", "b1c2", "b2c2")]
        assert [call.bound.title for call in calls if call.bound] == ["Run cd sub", "Run pwd (in sub)", "Run pwd"]
        assert (await turn.fetch_view()).context.folder == "."


async def test_S47_folder_outside_the_workspace_is_not_followed_and_the_model_is_told(engine: Engine) -> None:
    engine.with_rules(FREELY)
    (engine.workspace / "out").symlink_to("/usr")
    async with engine.worker():
        leaving_it = (_shell("cd sub"), _shell("cd ../.. && echo up"), _shell("cd ../out"), _shell("pwd"))
        _, answers = await responses(engine, leaving_it)
    assert [answer.status for answer in answers] == ["success"] * 4
    assert answers[1].text.startswith("up\n\n[The calls after it stay in the folder 'sub': ")
    assert "'/usr' is outside the workspace" in answers[2].text
    assert answers[3].text == f"{engine.workspace}/sub\n"


async def test_S47_command_that_failed_leaves_nothing(engine: Engine) -> None:
    engine.with_rules(FREELY)
    async with engine.worker():
        _, answers = await responses(engine, (_shell("cd sub; false"),), (_shell("pwd"),))
    assert answers[1].text == f"{engine.workspace}\n"


async def test_S47_folder_that_is_gone_is_told_to_the_model_with_what_to_do(engine: Engine) -> None:
    engine.with_rules(FREELY)
    async with engine.worker():
        gone = (_shell("cd sub"), _shell("rmdir ../sub"), _shell("pwd"), _shell("pwd", directory="."))
        _, answers = await responses(engine, gone)
    assert [answer.status for answer in answers] == ["success", "success", "error", "success"]
    assert answers[2].error
    assert answers[2].error.type == "invalid_tool_params"
    assert "say in `directory` where this one is to run" in answers[2].text


@pytest.mark.parametrize("folder", ["/usr", "..", "file"])
async def test_S47_folder_that_a_tool_may_not_leave_is_told_and_its_call_succeeds(engine: Engine, folder: str) -> None:
    engine.with_rules(FREELY)
    (engine.workspace / "file").touch()
    async with engine.worker(leaving("mover", ContextChange(folder=folder))):
        _, answers = await responses(engine, (build_request("mover"), _shell("pwd")))
    assert answers[0].status == "success"
    assert answers[0].text.startswith("done\n[The calls after it stay in the folder '.': ")
    assert answers[1].text == f"{engine.workspace}\n"


async def test_S47_what_a_concurrency_safe_call_leaves_is_ignored(engine: Engine) -> None:
    engine.with_rules(FREELY)
    change = ContextChange(folder="sub", tools=("read_file",))
    async with engine.worker(leaving("aside", change, safe=True), leaving("alone", ContextChange(folder="sub"))):
        turn, answers = await responses(
            engine, (build_request("aside"), _shell("pwd"), build_request("alone"), _shell("pwd"))
        )
    assert texts(answers) == ["done", f"{engine.workspace}\n", "done", f"{engine.workspace}/sub\n"]
    assert (await turn.fetch_view()).context.tools is None


@pytest.mark.needs("bwrap")
async def test_S47_commands_in_a_sandbox_are_followed(engine: Engine, tmp_path: Path) -> None:
    rules, file = tmp_path / "rules.toml", tmp_path / "holdfast.toml"
    rules.write_text(FREELY)
    file.write_text(f'policy = ["{rules}"]\n[tools.shell]\nsandbox = "bwrap"\n')
    async with hurried_worker(engine, file):
        _, answers = await responses(engine, (_shell("cd sub"), _shell("pwd"), _shell("cd /tmp"), _shell("pwd")))
    assert [texts(answers)[at] for at in (1, 3)] == [f"{engine.workspace}/sub\n"] * 2
    assert "'/tmp' is outside the workspace" in answers[2].text


# Approvals and rules


async def test_S22_command_that_was_approved_for_one_folder_is_asked_about_again_in_another(engine: Engine) -> None:
    """S47: it has its approval, and would execute elsewhere."""
    fifo = engine.workspace / "go"
    os.mkfifo(fifo)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((_shell("read line < go; cd sub"), _shell("touch made")),)))
        first, second = (await wait_until(lambda: waiting(turn, 2))).approvals
        assert second.title == "Run touch made"
        await engine.holdfast.approve(second.approval_id, digest=second.digest)
        await engine.holdfast.approve(first.approval_id, digest=first.digest)
        await wait_until(lambda: executing(turn, "b1c1"))
        await asyncio.to_thread(fifo.write_text, "go\n")
        [again] = (await wait_until(lambda: asked(turn, "b1c2", 2))).approvals
        assert again.title == "Run touch made (in sub)"
        assert again.digest != second.digest
        await engine.holdfast.approve(again.approval_id, digest=again.digest)
        assert [answer.status for answer in (await turn.result()).responses] == ["success", "success"]
    assert (engine.workspace / "sub" / "made").exists()
    assert not (engine.workspace / "made").exists()


async def test_S22_command_that_says_itself_where_it_runs_is_not_asked_about_again(engine: Engine) -> None:
    async with engine.worker():
        calls = (_shell("cd sub"), _shell("touch made", directory="."))
        turn = await engine.start(TurnInput(batches=(calls,)))
        for item in (await wait_until(lambda: waiting(turn, 2))).approvals:
            await engine.holdfast.approve(item.approval_id, digest=item.digest)
        assert [answer.status for answer in (await turn.result()).responses] == ["success", "success"]
    assert (engine.workspace / "made").exists()


async def test_S22_command_that_waits_while_another_moves_is_asked_about_where_it_would_run(engine: Engine) -> None:
    async with engine.worker():
        calls = (_shell("cd sub"), _shell("touch made"))
        turn = await engine.start(TurnInput(batches=(calls,), schedule=Schedule.STREAMING))
        first, old = (await wait_until(lambda: waiting(turn, 2))).approvals
        await engine.holdfast.approve(first.approval_id)
        [again] = (await wait_until(lambda: asked(turn, "b1c2", 2))).approvals
        assert (again.title, again.digest == old.digest) == ("Run touch made (in sub)", False)
        await engine.holdfast.approve(again.approval_id, digest=again.digest)
        await turn.result()
    assert (engine.workspace / "sub" / "made").exists()


async def test_S47_grant_and_rule_for_one_folder_do_not_cover_another(engine: Engine) -> None:
    engine.with_rules(
        """
        [[rule]]
        decision = "allow"
        tool = "shell"
        command = ["cd", "touch ruled"]
        arguments = { directory = "." }
        """
    )
    granted, ruled = _shell("touch granted"), _shell("touch ruled")
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((granted,), (granted, ruled, _shell("cd sub")), (ruled, granted))))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.decide(item.approval_id, "proceed_always")
        left = (await wait_until(lambda: waiting(turn, 2))).approvals
        assert [item.title for item in left] == ["Run touch ruled (in sub)", "Run touch granted (in sub)"]
        assert [item.approval_id.split("/")[-2] for item in left] == ["b3c1", "b3c2"]
        assert "in the folder `sub`" in left[1].offers[0].covers
        for item in left:
            await engine.holdfast.deny(item.approval_id)
        statuses = [answer.status for answer in (await turn.result()).responses]
    assert statuses == ["success"] * 4 + ["cancelled"] * 2


# The environment


async def test_S47_variables_by_reference_reach_commands_and_their_values_no_history(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.with_rules(FREELY)
    canary = f"canary-{uuid4()}"
    monkeypatch.setenv("WORKER_TOKEN", canary)
    monkeypatch.delenv("NOT_SET", raising=False)
    given = leaving("give", ContextChange(environment={"TOKEN": "WORKER_TOKEN"}))
    wrong = leaving("wrong", ContextChange(environment={"OTHER": "NOT_SET", "TOKEN": None}))
    async with engine.worker(given, wrong):
        uses = (_shell("printf %s $TOKEN | wc -c"), _shell("printf %s $TOKEN > kept"))
        turn, answers = await responses(engine, (build_request("give"), *uses, build_request("wrong"), _shell("true")))
        written = await engine.written(turn)
    assert answers[1].text.strip() == str(len(canary))
    assert (engine.workspace / "kept").read_text() == canary
    assert answers[4].error
    assert "'NOT_SET'" in answers[4].text
    assert "WORKER_TOKEN" in written
    assert canary not in written


# The tools


async def test_S47_tools_that_a_call_takes_away_are_refused_until_one_brings_them_back(engine: Engine) -> None:
    engine.with_rules(FREELY)
    (engine.workspace / "file").write_text("text")
    only = leaving("narrow", ContextChange(tools=("read_file", "widen")))
    every = leaving("widen", ContextChange(tools="all"))
    read = build_request("read_file", path="file")
    async with engine.worker(only, every):
        _, answers = await responses(
            engine,
            (build_request("narrow"),),
            (read, _shell("pwd"), build_request("widen")),
            (_shell("pwd"), build_request("narrow")),
        )
    kinds = [answer.error.type if answer.error else answer.status for answer in answers]
    assert kinds == ["success", "success", "tool_not_available", "success", "success", "success"]
    assert "'read_file', 'widen'" in answers[2].text
