"""Tools that misbehave in every way: each costs its own call, and nothing else."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from holdfast import BlobPart, Confirmation, Effect, Invocation, Result, Run, ToolFailure, TurnInput, tool
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import executing


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return "echo"


ECHO = FakeTool("echo", _echo)


def _raising(error: BaseException) -> Callable[..., Any]:
    async def body(*_: object) -> str:
        raise error

    return body


class _Asking(FakeTool):
    """Its `should_confirm` is given."""

    def __init__(self, should_confirm: Callable[[], Any]) -> None:
        super().__init__("bad", _echo)
        self._should_confirm = should_confirm

    def build(self, arguments: FakeTool.Parameters, workspace: Path) -> Invocation:
        invocation = super().build(arguments, workspace)
        invocation.should_confirm = self._should_confirm  # type: ignore[method-assign]
        return invocation


async def _answers(engine: Engine, tool: FakeTool) -> list[tuple[str, str | None]]:
    async with engine.worker(tool, ECHO):
        turn = await engine.start(TurnInput(batches=((build_request("bad"), build_request("echo")),)))
        result = await turn.result()
    return [(response.status, response.error.type if response.error else None) for response in result.responses]


ERRORS = [SystemExit(4), KeyboardInterrupt(), asyncio.CancelledError(), TimeoutError("own"), RecursionError("deep")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_S7_whatever_a_tool_raises_is_the_error_of_its_call(engine: Engine, error: BaseException) -> None:
    bad, sibling = await _answers(engine, FakeTool("bad", _raising(error)))
    assert bad[0] == "error"
    assert sibling == ("success", None)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_S7_whatever_validation_raises_is_the_error_of_its_call(engine: Engine, error: BaseException) -> None:
    bad, sibling = await _answers(engine, _Asking(_raising(error)))
    assert bad[0] == "error"
    assert sibling == ("success", None)


async def test_S7_what_cannot_be_written_down_is_the_error_of_its_call(engine: Engine) -> None:
    async def strange() -> Confirmation:
        return Confirmation.model_construct(kind="info", title=object())

    bad, sibling = await _answers(engine, _Asking(strange))
    assert bad[0] == "error"
    assert sibling == ("success", None)


async def test_S7_names_that_are_no_utf_8_are_shown_as_well_as_they_can(engine: Engine) -> None:
    folder = os.fsencode(engine.workspace) + b"/caf\xe9"
    os.mkdir(folder)
    os.symlink(folder, os.fsencode(engine.workspace) + b"/link")
    async with engine.worker(ECHO):
        calls = (build_request("write_file", path="link/a.txt", content="x"), build_request("echo"))
        turn = await engine.start(TurnInput(batches=(calls,)))
        view = await wait_until(lambda: _decidable(turn))
        await engine.holdfast.approve(view.approvals[0].approval_id)
        result = await turn.result()
    assert [response.status for response in result.responses] == ["success", "success"]


async def _decidable(turn: Any) -> Any:
    view = await turn.fetch_view(live=False)
    return view if view.approvals else None


async def test_S22_arguments_that_would_not_execute_as_they_were_given_are_rejected(engine: Engine) -> None:
    class Secretive(FakeTool):
        class Parameters(FakeTool.Parameters):
            password: SecretStr = SecretStr("")

    tool = Secretive("bad", _echo)
    async with engine.worker(tool):
        turn = await engine.start(TurnInput(batches=((build_request("bad", password="hunter2"),),)))
        result = await turn.result()
    assert "do not survive being written down" in result.responses[0].text


async def test_S7_a_tool_that_ignores_its_stop_is_left_behind_and_that_is_said(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.activities.execution.run_tool.STOP_SECONDS", 0.5)
    release = asyncio.Event()

    async def deaf(arguments: dict[str, Any], run: Run) -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    async with engine.worker(FakeTool("bad", deaf)):
        turn = await engine.start(TurnInput(batches=((build_request("bad"),),)))
        await wait_until(lambda: executing(turn, "b1c1"))
        await turn.cancel()
        result = await turn.result()
        release.set()
    assert result.responses[0].status == "cancelled"
    assert "it may still be running" in result.responses[0].text


async def test_S17_a_shell_command_stopped_while_it_starts_leaves_nothing_behind(engine: Engine) -> None:
    seconds = str(600 + random.random())  # of this test alone, whatever else runs on the machine
    async with engine.worker():
        for _ in range(10):
            command = f"sleep {seconds} & sleep {seconds}"
            turn = await engine.start(TurnInput(batches=((build_request("shell", command=command),),)))
            view = await wait_until(lambda turn=turn: _decidable(turn))  # type: ignore[misc]
            await engine.holdfast.approve(view.approvals[0].approval_id)
            await turn.cancel()
            assert (await turn.result()).status == "cancelled"
    assert not _commands(f"sleep\0{seconds}\0".encode())


def _commands(line: bytes) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and sys.platform == "linux":
            try:
                if (entry / "cmdline").read_bytes() == line:
                    found.append(entry.name)
            except OSError:
                continue
    return found


BAD_RESULTS: list[Callable[[], Any]] = [
    lambda: ToolFailure(404, "not a name"),  # type: ignore[arg-type]
    lambda: ToolFailure("x", "y", parts=["a"]),  # type: ignore[arg-type]
    lambda: ToolFailure("x", "y", parts=None),  # type: ignore[arg-type]
    lambda: ToolFailure("x" * 5_000_000, "y"),
    lambda: Result.model_construct(parts=("a",), seen=7),
    lambda: Result(seen={"p" * 100_000: "d" * 100_000}),
    lambda: BlobPart(media_type="image/png", size=1, digest="d" * 1_000_000, whole="/etc/passwd"),
]


@pytest.mark.parametrize("number", range(len(BAD_RESULTS)))
async def test_S7_whatever_a_tool_gives_back_it_runs_once_and_is_answered(engine: Engine, number: int) -> None:
    runs = []

    async def body(arguments: dict[str, Any], run: Run) -> Any:
        runs.append(run)
        made = BAD_RESULTS[number]()
        if isinstance(made, Exception):
            raise made
        return Result(parts=(made,)) if isinstance(made, BlobPart) else made

    async with engine.worker(FakeTool("bad", body, effect=Effect.READ), ECHO):
        turn = await engine.start(TurnInput(batches=((build_request("bad"), build_request("echo")),)))
        bad, sibling = (await turn.result()).responses
    assert len(runs) == 1
    assert len(bad.model_dump_json()) < 5_000
    assert "/etc/passwd" not in bad.text
    assert sibling.status == "success"


async def test_S7_a_tool_that_finishes_after_its_limit_keeps_its_result(engine: Engine) -> None:
    @tool(effect=Effect.ONCE, confirm=False, timeout_seconds=0.2)
    def slow() -> str:
        """Take its time in a thread, which cannot be stopped."""
        time.sleep(1)
        return "done all the same"

    async with engine.worker(slow):
        turn = await engine.start(TurnInput(batches=((build_request("slow"),),)))
        [response] = (await turn.result()).responses
    assert (response.status, response.text) == ("success", "done all the same")


async def test_S17_many_missed_edits_of_a_large_file_keep_nobody_waiting(engine: Engine) -> None:
    """At size: 60 edits of 15 MB that do not apply, beside another turn."""
    await asyncio.to_thread((engine.workspace / "large.txt").write_text, "some words on a line\n" * 700_000)
    edit = build_request("edit", path="large.txt", old_text="not in it", new_text="")
    async with engine.worker(ECHO):
        large = await engine.start(TurnInput(batches=((edit,) * 60,)))
        small = await engine.start(TurnInput(batches=((build_request("echo"),),)))
        async with asyncio.timeout(20):
            assert (await small.result()).responses[0].status == "success"
        async with asyncio.timeout(60):
            assert {response.status for response in (await large.result()).responses} == {"error"}
