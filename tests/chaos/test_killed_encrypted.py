"""With encryption on, what people, models and tools say is found nowhere but in the workspace (S45).

A worker in a process of its own is killed in the middle of it, so that its last heartbeat is in the history too. The
same story without encryption shows that the words would be found.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, ListWorkflowExecutionsRequest
from temporalio.client import Client

from holdfast import Holdfast, ModelChoice, ScriptedReply, SessionInput, TurnInput
from holdfast.errors import HoldfastError
from holdfast.testing import build_request, script_model, wait_until
from tests.support.engine import Engine
from tests.support.processes import ROOT
from tests.support.secrets.canary_tools import CANARIES
from tests.support.secrets.encrypting import encryption, files_of, found_in, payloads_in, settings_text
from tests.support.server import address_of, start_server
from tests.support.waiting import listed, speaking, waiting

WORDS = sorted(CANARIES.values())


@asynccontextmanager
async def worker(engine: Engine, file: Path, log: IO[bytes], *, verbose: bool) -> AsyncIterator[Any]:
    """`holdfast worker` with this settings file, polling; all that it says goes into the log."""
    folders = ("--data", str(engine.settings.data), "--workspace", str(engine.workspace))
    options = ("--address", engine.address, *folders, *(("--verbose",) if verbose else ()))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast.workers.cli", "--config", str(file), "worker", *options,
        cwd=ROOT,
        env={**os.environ, "HOLDFAST_TASK_QUEUE": engine.queue},
        stdout=log,
        stderr=log,
    )  # fmt: skip
    try:
        await wait_until(lambda: _said(Path(log.name), b"worker ready", process.pid), seconds=60)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _said(file: Path, words: bytes, pid: int) -> bool:
    said = await asyncio.to_thread(file.read_bytes)
    return any(words in line and str(pid).encode() in line for line in said.splitlines())


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def everything(engine: Engine, database: Path, log: Path) -> Iterator[tuple[str, bytes]]:
    """All that there is to see for somebody without the keys, but for the workspace and whole outputs."""
    bare = await Client.connect(engine.address)
    found: list[tuple[str, bytes]] = []
    listed = await bare.workflow_service.list_workflow_executions(ListWorkflowExecutionsRequest(namespace="default"))
    found.append(("the list", _seen(listed)))
    for run in listed.executions:
        execution = WorkflowExecution(workflow_id=run.execution.workflow_id, run_id=run.execution.run_id)
        described = await bare.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(namespace="default", execution=execution)
        )
        found.append((f"the description of {execution.workflow_id}", _seen(described)))
        handle = bare.get_workflow_handle(execution.workflow_id, run_id=execution.run_id)
        history = await handle.fetch_history()
        found.append((f"the history of {execution.workflow_id}", history.to_json().encode()))
        found += [(f"an event of {execution.workflow_id}", _seen(event)) for event in history.events]
    folders = [engine.settings.payloads_folder, *database.parent.glob(f"{database.name}*"), log]
    return iter([*found, *files_of(*folders)])


def _seen(message: Any) -> bytes:
    """A message as it is, as text, and its payloads."""
    payloads = b"\n".join(one.data for one in payloads_in(message))
    return b"\n".join([message.SerializeToString(), str(message).encode(), payloads])


async def heartbeats(engine: Engine, turn_id: str) -> bytes:
    """What running calls said last, as `describe` shows it."""
    bare = await Client.connect(engine.address)
    found = await bare.workflow_service.describe_workflow_execution(
        DescribeWorkflowExecutionRequest(namespace="default", execution=WorkflowExecution(workflow_id=turn_id))
    )
    assert [one.HasField("heartbeat_details") for one in found.pending_activities]
    return _seen(found)


async def story(engine: Engine, file: Path, log: IO[bytes]) -> bytes:
    """Everything that can be said is said, and a worker dies over it. What a running call showed."""
    c, holdfast = CANARIES, engine.holdfast
    calls = [
        build_request("speak", say=c["argument"]),
        build_request("long"),
        build_request("fail"),
        build_request("explode"),
        build_request("shell", command=f"echo {c['command']}; exit 3"),
        build_request("asks", say=c["title"], data="x" * 20_000),
        build_request("asks", say="denied"),
        build_request("asks", say="answered"),
        build_request("asks", say="changed"),
        build_request("delegate", prompt=c["delegated"]),
    ]
    model = ModelChoice(
        script=(ScriptedReply(text=c["reply"], calls=tuple(calls)), ScriptedReply(text=c["reply"])),
        delegated={c["delegated"]: (ScriptedReply(text=c["delegated"]),)},
    )
    async with worker(engine, file, log, verbose=True) as first:
        session = holdfast.get_session("story")
        start = SessionInput(turn=TurnInput(model=model, requester=c["person"]))
        sent = await session.send(f"{c['prompt']} {c['summary']}", start=start, by=c["person"])
        turn = session.get_turn(sent.turn)
        view = await wait_until(lambda: waiting(turn, 5), seconds=60)
        await listed(holdfast, turn.id, count=5)
        by_say = {item.title.split("'say': '")[-1][:8]: item for item in view.approvals if item.title}
        decided: dict[str, dict[str, Any]] = {
            c["title"][:8]: {"outcome": "proceed_once", "note": c["note"]},
            "denied'}": {"outcome": "cancel", "note": c["refusal"]},
            "answered": {"outcome": "respond", "content": c["answer"]},
            "changed'": {"outcome": "proceed_once", "arguments": {"say": c["changed"]}},
        }
        for say, what in decided.items():
            item = by_say[say]
            await holdfast.decide(item.approval_id, by=c["person"], digest=item.digest, **what)
        [shell] = [item for item in view.approvals if item.command]
        await holdfast.approve(shell.approval_id, note=c["note"], by=c["person"])
        await wait_until(lambda: _exists(engine.workspace / "begun"))
        await wait_until(lambda: speaking(turn, c["live"]))
        assert await turn.fetch_output("b1c1")
        shown = await heartbeats(engine, turn.id)
        await session.send(c["message"], by=c["person"], how="append")
        first.send_signal(signal.SIGKILL)
        await first.wait()
    (engine.workspace / "go").touch()
    async with worker(engine, file, log, verbose=False):
        async with asyncio.timeout(120):
            result = await turn.result()
        texts = [response.text for response in result.responses]
        assert texts[0] == c["output"]
        assert c["error"] in texts[2]
        assert c["exception"] in texts[3]
        assert c["answer"] in texts[7]
        assert c["changed"] in texts[8]
        assert result.text == c["reply"]
        bad = await engine.client.start_workflow(
            "holdfast.turn", {"surprise": c["failure"], c["failure"]: 1}, id="bad", task_queue=engine.queue
        )
        with pytest.raises(HoldfastError, match=c["failure"]):
            await holdfast.get_turn(bad.id).result()
        last = await holdfast.start(TurnInput(prompt=c["prompt"], model=script_model(c["reply"])), turn_id="last")
        await last.result()
        await session.close()
    return shown


@pytest.mark.parametrize("encrypted", [True, False], ids=["encrypted", "plain"])
async def test_S45_with_encryption_on_nothing_that_was_said_is_found_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    database = tmp_path / "server" / "temporal.db"
    database.parent.mkdir()
    keys = encryption(monkeypatch, *(["a", "b"] if encrypted else []))
    file = tmp_path / "holdfast.toml"
    text = settings_text("a", "b") if encrypted else ""
    file.write_text(f'{text}[tools]\nmodules = ["tests.support.secrets.canary_tools:tools"]\n')
    async with await start_server(database) as server:
        engine = Engine(address_of(server), tmp_path, 1000)
        engine.settings = replace(engine.settings, encryption=keys)
        engine.client = await engine.connect()
        engine.holdfast = Holdfast(engine.client, task_queue=engine.queue)
        with (tmp_path / "log").open("wb") as log:
            shown = await story(engine, file, log)
        places = {"a running call": shown}
        places |= {f"{number} {name}": data for number, (name, data) in enumerate(
            await everything(engine, database, tmp_path / "log"))}  # fmt: skip
    leaks = {name: found for name, data in places.items() if (found := found_in(data, WORDS))}
    if encrypted:
        assert leaks == {}
    else:
        assert {word for found in leaks.values() for word in found} == set(WORDS)
        assert any("temporal.db" in name for name in leaks), "the database is looked into"
        assert any("payloads" in name for name in leaks), "what is stored is looked into"
        assert "a running call" in leaks
