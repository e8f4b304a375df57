"""Bundles of real turns: they verify and replay in an empty folder with no server, and tell all that happened (S43)."""

from __future__ import annotations

import asyncio
import io
import os
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from temporalio.api.common.v1 import Payloads
from temporalio.client import WorkflowFailureError

from holdfast import Effect, Holdfast, ModelChoice, Run, ScriptedReply, SessionInput, TurnInput
from holdfast.client.signing_keys import Signer
from holdfast.domain.approvals.approval import Approver
from holdfast.domain.approvals.signing import format_public_key
from holdfast.testing import FakeTool, build_request, decide_all, wait_until
from holdfast.workers.audit.read.stored_payloads import build_read_only_converter, build_storage_fetch
from holdfast.workers.audit.read.workflow_runs import gather_runs
from holdfast.workers.audit.render.html import render_page
from holdfast.workers.audit.render.timeline_text import render_timeline
from holdfast.workers.audit.timeline.build import build_timeline
from holdfast.workers.audit.timeline.timeline import Timeline
from tests.chaos.worker_process import HEARTBEAT_SECONDS
from tests.support.bundles import answered, elsewhere, exported, members
from tests.support.conversations import idle, pending
from tests.support.engine import Engine, new_engine
from tests.support.mcp.mcp_servers import ours, servers
from tests.support.processes import worker_process
from tests.support.secrets.encrypting import encryption, found_in, settings_text, variable
from tests.support.waiting import executing, waiting

ANA = Ed25519PrivateKey.generate()
LARGE = "seq 1 800000"
"""Puts out over 5 MB."""


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ECHO = FakeTool("echo", _echo, safe=True, effect=Effect.READ)


@pytest.fixture
async def engine(impatient: str, tmp_path: Path) -> AsyncIterator[Engine]:
    async with new_engine(impatient, tmp_path) as made:
        yield made


async def _verifies_and_replays(folder: Path, file: Path, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What verifying and showing say, on a machine with nothing but the bundle."""
    verified = await answered(folder, "audit", "verify", str(file), *options)
    assert verified["intact"], verified["findings"]
    replayed = await elsewhere(folder, "audit", "replay", str(file))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "acts the same" in replayed.stdout
    return verified, await answered(folder, "audit", "show", str(file))


async def test_S43_approvals_a_change_signatures_an_mcp_call_and_five_megabytes(engine: Engine, tmp_path: Path) -> None:
    approver = Approver(name="ana", key=format_public_key(ANA.public_key()))
    (tmp_path / "server").mkdir()
    engine.settings = replace(
        engine.settings, approvers=(approver,), mcp=servers(s=ours(str(tmp_path / "server"))), modes=None
    )
    ana = Holdfast(engine.client, task_queue=engine.queue, signer=Signer("ana", ANA))
    calls = (
        build_request("write_file", path="a.txt", content="one\ntwo\n"),
        build_request("shell", command=LARGE),
        build_request("s__act", n=7),
        build_request("list_directory"),
    )
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(calls,), requester="ben"))
        view = await wait_until(lambda: waiting(turn, 3))
        first = view.approvals[0].approval_id
        await ana.decide(first, "modify", content="one\nthree\n", note="not two")
        await decide_all(ana, turn)
        result = await turn.result()
    assert [response.status for response in result.responses] == ["success"] * 4
    made = await exported(engine, turn.id, tmp_path / "turn.tar", signer=Signer("ana", ANA))
    assert made.absent == ()
    verified, shown = await _verifies_and_replays(
        tmp_path / "empty", tmp_path / "turn.tar", "--key", format_public_key(ANA.public_key())
    )
    assert verified["signature"] == "valid"
    assert verified["head"] == made.head
    write, shell, act, listing = shown["calls"]
    assert (shown["requester"], shown["status"]) == ("ben", "completed")
    assert (write["verdict"], listing["verdict"]) == ("ask", "allow")
    assert (write["rule"], listing["rule"]) == ("default: changes-ask", "default: reads-proceed")
    assert "-  two\n+  three" in write["changes"]
    assert [(said["outcome"], said["by"], said["signature"]) for said in write["decisions"]] == [
        ("modify", "ana", "valid"),
        ("proceed_once", "ana", "valid"),
    ]
    assert all(
        said["digest"] == question["digest"]
        for said, question in zip(write["decisions"], write["questions"], strict=True)
    )
    assert act["server"] == "s"
    assert all(call["ran_seconds"] >= 0 and call["attempts"][0]["worker"] for call in shown["calls"])
    assert all(call["waited_seconds"] > 0 for call in (write, shell, act))
    held = dict(members(tmp_path / "turn.tar"))
    [output] = [data for name, data in held.items() if name.startswith("outputs/")]
    assert output == b"".join(b"%d\n" % number for number in range(1, 800_001))
    assert len(output) > 5_000_000
    kinds = [name.split("/")[1] for name in held if name.startswith("records/")]
    assert {kind: kinds.count(kind) for kind in kinds} == {"policy": 1, "hooks": 1, "catalogue": 1, "definition": 4}
    assert held["decisions.jsonl"].count(b'"signature":"valid"') == 4


async def test_S43_a_turn_of_several_runs_with_a_delegated_one(engine: Engine, tmp_path: Path) -> None:
    replies = [ScriptedReply(calls=(build_request("delegate", prompt="inner"),))]
    replies += [ScriptedReply(calls=(build_request("echo", say=number),)) for number in range(20)]
    inner = (ScriptedReply(calls=(build_request("echo", say="inside"),)), ScriptedReply(text="Inside."))
    model = ModelChoice(script=(*replies, ScriptedReply(text="Done.")), delegated={"inner": inner})
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(prompt="Go", model=model))
        result = await turn.result()
    assert len(result.runs) >= 2
    made = await exported(engine, turn.id, tmp_path / "turn.tar")
    assert {run.workflow for run in made.runs} == {turn.id, f"{turn.id}~b1c1"}
    _, shown = await _verifies_and_replays(tmp_path / "empty", tmp_path / "turn.tar")
    assert len(shown["runs"]) == len(result.runs) + 1
    assert [call["id"] for call in shown["calls"]] == [f"b{number}c1" for number in range(1, 22)]
    assert all(call["status"] == "success" for call in shown["calls"])
    [within] = shown["turns"]
    assert (within["id"], within["answer"]) == (f"{turn.id}~b1c1", "Inside.")
    assert [call["result"] for call in within["calls"]] == ["echo inside"]


async def test_S43_a_crash_is_told_with_both_workers(engine: Engine, tmp_path: Path) -> None:
    async with worker_process(engine) as first:
        turn = await engine.start(TurnInput(batches=((build_request("idempotent", counter="c"),),)))
        await wait_until(lambda: asyncio.to_thread((engine.workspace / "c.begun").exists))
        await first.kill()
    async with worker_process(engine) as second:
        result = await turn.result()
    assert [response.text for response in result.responses] == ["done"]
    await exported(engine, turn.id, tmp_path / "turn.tar")
    _, shown = await _verifies_and_replays(tmp_path / "empty", tmp_path / "turn.tar")
    [call] = shown["calls"]
    [attempt] = call["attempts"]
    assert attempt["number"] == 2
    assert attempt["worker"].startswith(f"{second.pid}@")
    assert "heartbeat timeout" in attempt["before"]
    [retry] = [entry for entry in shown["entries"] if entry["kind"] == "retry"]
    assert retry["call"] == "b1c1"
    assert any(worker.startswith(f"{first.pid}@") for run in shown["runs"] for worker in run["workers"])
    [ran] = re.findall(r"<title>ran: success, ([0-9.]+) s<", render_page(await _told(engine, turn.id)))
    assert float(ran) > HEARTBEAT_SECONDS  # until its worker's death was noticed it was not waiting


async def test_S43_a_session_is_told_with_its_turns_and_what_was_said(engine: Engine, tmp_path: Path) -> None:
    replies = tuple(
        ScriptedReply(text=f"Answer {number}.")
        if number % 2
        else ScriptedReply(calls=(build_request("echo", say=number),))
        for number in range(12)
    )
    session = engine.holdfast.get_session()
    async with engine.worker(ECHO):
        start = SessionInput(turn=TurnInput(model=ModelChoice(script=replies), requester="ben"))
        for number in range(6):
            await session.send(f"Message {number}", start=start, by="ben")
            await wait_until(lambda: idle(session))
        await session.close()
        await session.result()
    made = await exported(engine, session.id, tmp_path / "session.tar")
    assert made.kind == "session"
    _, shown = await _verifies_and_replays(tmp_path / "empty", tmp_path / "session.tar")
    said = [entry["words"] for entry in shown["entries"] if entry["kind"] == "message"]
    assert said[:6] == [f"send by ben: Message {number}" for number in range(6)]
    assert [turn["id"] for turn in shown["turns"]] == [f"{session.id}~{number}" for number in range(1, 7)]
    assert [turn["prompt"] for turn in shown["turns"]] == [f"Message {number}" for number in range(6)]
    assert [turn["answer"] for turn in shown["turns"]] == [f"Answer {number}." for number in range(1, 12, 2)]


async def test_S43_a_session_in_which_somebody_said_always_is_told_with_how_each_turn_ended(
    engine: Engine, tmp_path: Path
) -> None:
    asks = ScriptedReply(calls=(build_request("ask", say="a"),))
    hangs = ScriptedReply(calls=(build_request("hang"),))
    other = ScriptedReply(calls=(build_request("shell", command="true"),))
    script = (asks, ScriptedReply(text="Done."), hangs, other)
    session = engine.holdfast.get_session()
    tools = (FakeTool("ask", _echo, asks=True), FakeTool("hang", _hang, effect=Effect.READ))
    async with engine.worker(*tools):
        start = SessionInput(turn=TurnInput(model=ModelChoice(script=script)))
        await session.send("Always", start=start, by="ben")
        view = await wait_until(lambda: pending(session))
        await engine.holdfast.decide(view.pending[0], "proceed_always")
        await wait_until(lambda: idle(session))
        await session.send("Cancelled", by="ben")
        await wait_until(lambda: executing(engine.holdfast.get_turn(f"{session.id}~2"), "b1c1"))
        await session.interrupt()
        await wait_until(lambda: idle(session))
        await session.send("Stopped", by="ben")
        view = await wait_until(lambda: pending(session))
        await engine.holdfast.decide(view.pending[0], "no", by="ben", stop_turn=True)
        await wait_until(lambda: idle(session))
        await session.send("Failed")  # the script has no reply for it
        await wait_until(lambda: idle(session))
    await exported(engine, session.id, tmp_path / "session.tar")
    _, shown = await _verifies_and_replays(tmp_path / "empty", tmp_path / "session.tar")
    endings = ["completed", "cancelled", "stopped", "failed"]
    assert [turn["status"] for turn in shown["turns"]] == endings
    turns = [entry["words"] for entry in shown["entries"] if entry["kind"] == "turn"]
    ended = [words for words in turns if "started" not in words]
    assert [words.split(":")[0].rsplit(" ", 1)[1] for words in ended] == endings
    assert "ben refused 'shell' and stopped the turn" in ended[2]
    found = await _told(engine, session.id)
    text = io.StringIO()
    Console(file=text, width=200).print(render_timeline(found, uncut=True))
    assert f"(from workflow {session.id})" in text.getvalue()
    for told_as in (text.getvalue(), render_page(found)):
        assert "(from )" not in told_as
        assert "started by \n" not in told_as


async def _hang(arguments: dict[str, Any], run: Run) -> str:
    await asyncio.Event().wait()
    return "never"


async def test_S43_what_an_unnamed_program_sent_says_so(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="true"),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        body = {"approval_id": item.approval_id, "digest": item.digest, "outcome": "yes"}
        payload = engine.client.data_converter.payload_converter.to_payload(body)
        await engine.raw_signal(turn.id, "decide", Payloads(payloads=[payload]))
        await turn.result()
    found = await _told(engine, turn.id)
    [words] = [entry.words for entry in found.entries if entry.kind == "decision"]
    assert words.startswith("somebody: proceed_once by signal from an unnamed program")
    assert "by signal from an unnamed program, event" in render_page(found)


async def test_S43_a_decision_that_is_sent_again_in_another_name_counts_for_whoever_was_first(engine: Engine) -> None:
    handle = engine.client.get_workflow_handle
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="true"),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        body = {"approval_id": item.approval_id, "digest": item.digest, "id": "same"}
    for by, outcome in (("ada", "yes"), ("mallory", "no"), ("ceo", "yes")):
        await handle(turn.id).signal("decide", {**body, "by": by, "outcome": outcome})
    async with engine.worker():
        await turn.result()
    found = await _told(engine, turn.id)
    [call] = found.calls
    assert [(said.by, said.counted) for said in call.decisions] == [("ada", True), ("mallory", False), ("ceo", False)]
    words = [entry.words for entry in found.entries if entry.kind == "decision"]
    assert [by.split()[0] for by in words if "did not count" in by] == ["mallory:", "ceo:"]


async def test_S43_why_a_turn_was_terminated_or_failed_is_told(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="true"),),)))
        await wait_until(lambda: waiting(turn))
        await engine.client.get_workflow_handle(turn.id).terminate(reason="the operator had enough")
        bad = await engine.client.start_workflow(
            "holdfast.turn", {"prompt": 3}, id="bad-input", task_queue=engine.queue
        )
        with pytest.raises(WorkflowFailureError):
            await bad.result()
    found = await _told(engine, turn.id)
    assert (found.status, found.reason) == ("terminated", "the operator had enough")
    [question] = found.calls[0].questions
    assert question.until == found.ended
    failed = await _told(engine, "bad-input")
    assert failed.status == "failed"
    assert "The turn cannot start" in (failed.reason or "")


async def _told(engine: Engine, workflow: str) -> Timeline:
    fetch = build_storage_fetch(engine.client.data_converter)
    return await build_timeline(
        await gather_runs(engine.client, workflow), build_read_only_converter(engine.client.data_converter, fetch)
    )


async def test_S43_what_a_bundle_lacks_is_named_and_the_rest_still_verifies(engine: Engine, tmp_path: Path) -> None:
    calls = (build_request("shell", command=LARGE), build_request("echo", say="x" * 30_000))
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(batches=(calls,)))
        await decide_all(engine.holdfast, turn)
        await turn.result()
    for file in [*engine.settings.outputs_folder.iterdir(), *engine.settings.records_folder.rglob("*.json")]:
        await asyncio.to_thread(file.write_bytes, b"something else")
    made = await exported(engine, turn.id, tmp_path / "turn.tar")
    lacking = sorted(words.split()[0] for words in made.absent)
    assert lacking == ["catalogue", "definition", "definition", "hooks", "output", "policy"]
    verified = await answered(tmp_path / "empty", "audit", "verify", str(tmp_path / "turn.tar"))
    assert verified["intact"]
    assert verified["manifest"]["absent"] == list(made.absent)


async def test_S43_S45_an_encrypted_turn_is_told_and_replayed_with_its_key_and_verified_without(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.settings = replace(engine.settings, encryption=encryption(monkeypatch, "new"))
    engine.client = await engine.connect()
    sealed = Holdfast(engine.client, task_queue=engine.queue)
    calls = (
        build_request("echo", say="canary-4711"),
        build_request("echo", say="canary-4711" + "x" * 30_000),
        build_request("fail"),
    )
    async with engine.worker(ECHO, FakeTool("fail", _fail)):
        turn = await sealed.start(TurnInput(batches=(calls,)))
        await turn.result()
    file = tmp_path / "turn.tar"
    await exported(engine, turn.id, file)
    held = dict(members(file))
    stored = [data for name, data in held.items() if name.startswith(("histories/", "payloads/"))]
    assert found_in(b"".join(stored), ["canary-4711"]) == []
    empty = tmp_path / "empty"
    assert (await elsewhere(empty, "audit", "verify", str(file))).returncode == 0
    monkeypatch.setenv("KEPT", os.environ[variable("new")])
    without = await elsewhere(empty, "audit", "replay", str(file))
    assert without.returncode == 1
    assert "cannot be replayed: " in without.stdout
    assert "key 'new'" in without.stdout
    told_without = await answered(empty, "audit", "show", str(file))
    assert told_without["calls"] == []
    assert "key" in told_without["notes"][0]
    await asyncio.to_thread((empty / "keys.toml").write_text, settings_text("new"))
    key = {variable("new"): os.environ["KEPT"]}
    with_key = await elsewhere(empty, "--config", "keys.toml", "audit", "replay", str(file), **key)
    assert with_key.returncode == 0, with_key.stdout + with_key.stderr
    shown = await elsewhere(empty, "--config", "keys.toml", "audit", "show", str(file), **key)
    assert "canary-4711" in shown.stdout
    assert "LookupError: nothing there" in shown.stdout


async def _fail(arguments: dict[str, Any], run: Run) -> str:
    raise LookupError("nothing there")


async def test_S43_at_size_two_hundred_calls_with_long_results(engine: Engine, tmp_path: Path) -> None:
    async def long(arguments: dict[str, Any], run: Run) -> str:
        return f"{arguments['n']} " + "r" * 40_000

    calls = tuple(build_request("long", n=number) for number in range(200))
    async with engine.worker(FakeTool("long", long, safe=True, effect=Effect.READ)):
        turn = await engine.start(TurnInput(batches=(calls,)))
        await turn.result()
    made = await exported(engine, turn.id, tmp_path / "turn.tar")
    assert made.absent == ()
    _, shown = await _verifies_and_replays(tmp_path / "empty", tmp_path / "turn.tar")
    assert [call["result"].split()[0] for call in shown["calls"]] == [str(number) for number in range(200)]


async def test_S43_code_that_takes_another_path_is_told_where(engine: Engine, tmp_path: Path) -> None:
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(batches=((build_request("echo", say=1),),)))
        await turn.result()
    await exported(engine, turn.id, tmp_path / "turn.tar")
    changed = await asyncio.to_thread(_other_code, tmp_path / "changed")
    found = await elsewhere(tmp_path / "empty", "audit", "replay", str(tmp_path / "turn.tar"), PYTHONPATH=str(changed))
    assert found.returncode == 1, found.stdout + found.stderr
    assert f"turn {turn.id}, run " in found.stdout
    assert "Nondeterminism" in found.stdout
    assert "1 would act differently" in found.stdout


def _other_code(folder: Path) -> Path:
    """The package with a workflow that does something else first."""
    import shutil

    import holdfast

    source = Path(holdfast.__file__).parent
    shutil.copytree(source, folder / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "holdfast" / "workflows" / "turn.py"
    text = file.read_text()
    place = "        steps = asyncio.create_task(self._take_steps())\n"
    assert place in text
    file.write_text(text.replace(place, "        await workflow.sleep(1)\n" + place))
    return folder
