"""What earlier reviews had left out: references, limits, two persons, handles, pipes, slow readers (S22, S42)."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryResponse
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from holdfast import Confirming, Decision, HoldfastPlugin, Settings, TurnInput
from holdfast.activities.builtin.fetch import Fetch
from holdfast.activities.builtin.shell_background import ReadCommand
from holdfast.activities.gate.approval_checks import is_approved
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.supervision.attendant import Attendant
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.supervised_run import CommandOwner
from holdfast.activities.turn_starts import TurnStart, TurnStarts
from holdfast.config.address_rules import AddressRules
from holdfast.config.named_files import NamedFiles
from holdfast.domain.approvals.approval import Approver, Confirmation, DecisionAction, Needs, digest_call
from holdfast.domain.approvals.signing import format_public_key, sign_decision
from holdfast.domain.base import UnreadablePayload
from holdfast.domain.calls.decision_checks import DecisionContext
from holdfast.domain.calls.tool import Effect, ToolFailure, ToolRef
from holdfast.domain.calls.verdicts import UNFINISHED, Ask, BoundCall, NeedsApprovalAgain, Reject
from holdfast.domain.turn.activity_io import BackgroundCommands, ExecuteInput
from holdfast.errors import PayloadUnreadable
from holdfast.names import TURN_WORKFLOW
from holdfast.payloads.converter import build_data_converter
from holdfast.testing import FakeRun, build_request, wait_until
from holdfast.workers.gateway import serve
from holdfast.workers.gateway.serve import open_listener, run_gateway
from tests.security.test_one_approval_one_execution import input_of
from tests.support.engine import Engine

BOUND_SECONDS = 30.0


# References to payloads that are kept outside the history


async def test_S42_many_references_in_one_message_are_read_no_further_than_one_may_be_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference takes 217 bytes, so one signal of 2 MB could name a payload of 1 MB ten thousand times."""
    monkeypatch.setattr("holdfast.payloads.converter.TOO_LARGE", 1_000_000)
    converter = build_data_converter(None, tmp_path / "payloads")
    [reference] = await converter.encode(["x" * 300_000])
    assert reference.ByteSize() < 300
    one, *many = await converter.decode([reference] * 1_000)
    assert one == "x" * 300_000
    assert sum(len(value) for value in many if isinstance(value, str)) < 2_000_000
    assert isinstance(many[-1], UnreadablePayload)
    [again, _, small] = await converter.decode([reference, *await converter.encode(["small", "y" * 20_000])])
    assert (again, small) == ("x" * 300_000, "y" * 20_000), "what is in bounds is read whole"


def made_up(reference: Payload, digest: str) -> Iterator[tuple[str, bytes]]:
    """Bodies of references that name nothing we have, or more than they may."""
    true = reference.data.decode()
    for what, name in {
        "nothing": "",
        "another": "0" * 64,
        "in capitals": digest.upper(),
        "with a blank": f"{digest} ",
        "with a line": f"{digest}\\n",
        "with NUL": f"{digest}\\u0000",
        "half": digest[:32],
        "one more": f"{digest}0",
        "a folder up": f"../{digest[:61]}",
        "a path": "/etc/passwd",
        "the folder of notes": "../.namespaces/default",
        "outputs of others": f"../outputs/{digest}",
        "a part of the folder": digest[:2],
        "full width": "０" * 64,
        "long": "0" * 1_000_000,
    }.items():
        yield f"the name {what}", true.replace(digest, name).encode()
    for driver in ("", "nobody", "holdfast.nowhere", "aws.s3driver", "holdfast.files ", "Holdfast.files", "../x"):
        yield f"the driver {driver!r}", true.replace("holdfast.files", driver).encode()
    for what, text in {
        "no JSON": "{",
        "nothing": "",
        "null": "null",
        "a list": "[]",
        "claims as a list": '{"driverName": "holdfast.files", "claimData": []}',
        "claims as text": '{"driverName": "holdfast.files", "claimData": "x"}',
        "a number for a name": '{"driverName": "holdfast.files", "claimData": {"sha256": 1}}',
        "no claims": '{"driverName": "holdfast.files"}',
        "other claims": '{"driverName": "holdfast.files", "claimData": {"path": "/etc/passwd"}}',
        "deep": '{"a":' * 500 + "1" + "}" * 500,
        "an unknown field": '{"driverName": "holdfast.files", "x": 1}',
    }.items():
        yield what, text.encode()


async def test_S42_no_made_up_reference_is_read_or_stops_what_stands_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "payloads"
    converter = build_data_converter(None, folder)
    [reference] = await converter.encode(["x" * 20_000])
    [file] = [path for path in folder.rglob("*") if path.is_file() and len(path.name) == 64]
    (tmp_path / "outputs").mkdir()
    shutil.copy(file, tmp_path / "outputs" / file.name)
    tries = list(made_up(reference, file.name))
    assert len(tries) > 30
    for what, data in tries:
        forged = Payload(metadata=dict(reference.metadata), data=data)
        found, beside = await converter.decode([forged, reference])
        assert isinstance(found, UnreadablePayload), what
        assert beside == "x" * 20_000, what
    whole = file.read_bytes()
    for what, harm in {"cut": whole[:-1], "empty": b"", "longer": whole + b"x", "other": bytes(len(whole))}.items():
        file.write_bytes(harm)
        [found] = await converter.decode([reference])
        assert isinstance(found, UnreadablePayload), what
    file.unlink()
    [found] = await converter.decode([reference])
    assert isinstance(found, UnreadablePayload)
    assert found.gone


# What a turn was started with


def told(converter: DataConverter, *payloads: Payload) -> Any:
    """A client whose server says that a turn was started with these."""
    event = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED)
    event.workflow_execution_started_event_attributes.input.payloads.extend(payloads)
    response = GetWorkflowExecutionHistoryResponse()
    response.history.events.append(event)

    async def asked(request: Any, *, retry: bool) -> GetWorkflowExecutionHistoryResponse:
        return response

    service = SimpleNamespace(get_workflow_execution_history=asked)
    return SimpleNamespace(namespace="default", data_converter=converter, workflow_service=service)


async def test_S22_limits_that_cannot_be_read_now_are_neither_guessed_nor_remembered_as_none(tmp_path: Path) -> None:
    folder = tmp_path / "payloads"
    converter = build_data_converter(None, folder)
    limits = {"tools": ["glob"], "confirm": "always"}
    payloads = await converter.encode([{**limits, "prompt": "x" * 20_000}])
    beginnings = TurnStarts(told(converter, *payloads))
    folder.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(PayloadUnreadable, match="is missing"):
            await beginnings.find("turn", "run")
    (tmp_path / "away").rename(folder)
    assert await beginnings.find("turn", "run") == TurnStart(tools=("glob",), confirm=Confirming.ALWAYS)
    locked = Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"none"}, data=b"x")
    with pytest.raises(PayloadUnreadable):
        await TurnStarts(told(converter, locked)).find("turn", "run")


async def test_S22_a_call_of_a_turn_whose_limits_cannot_be_read_waits_and_does_not_run(engine: Engine) -> None:
    """The attacker is a worker on the turn's own queue: it says that the turn may use every tool."""
    name = f"{engine.queue}-limited"
    async with engine.worker():
        other = await engine.start(TurnInput(batches=((build_request("list_directory", path="."),),)))
        assert (await other.result()).responses[0].status == "success"
        call = await other.fetch_call("b1c1")
    batches = ((build_request("glob", pattern="x" * 20_000),),)
    limited = TurnInput(batches=batches, tools=("glob",))
    handle = await engine.client.start_workflow(TURN_WORKFLOW, limited, id=name, task_queue=f"{engine.queue}-nobody")
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info,
        workflow_id=name,
        workflow_run_id=handle.first_execution_run_id or "",
        workflow_type=TURN_WORKFLOW,
        workflow_namespace=engine.client.namespace,
    )

    async def executed() -> Any:
        plugin = HoldfastPlugin(engine.settings)  # a worker that has just started, and remembers nothing
        activities: list[Any] = list(plugin.build_activities(engine.client))
        [execute] = [each for each in activities if each.__name__ == "execute"]
        return await environment.run(execute, input_of(call))

    away = engine.settings.payloads_folder.with_name("away")
    engine.settings.payloads_folder.rename(away)
    with pytest.raises(ApplicationError) as failure:
        pytest.fail(f"it ran: {await executed()}")
    assert failure.value.type == UNFINISHED
    away.rename(engine.settings.payloads_folder)
    outcome = await executed()
    assert isinstance(outcome, NeedsApprovalAgain)
    assert isinstance(outcome.verdict, Reject)
    assert outcome.verdict.error.type == "tool_not_available"
    await handle.terminate()


# Two persons' words

KEYS = {name: Ed25519PrivateKey.from_private_bytes(bytes([place]) * 32) for place, name in enumerate("abcg", start=1)}
APPROVERS = (
    Approver(name="ana", key=format_public_key(KEYS["a"].public_key()), roles=("ops",)),
    Approver(name="bob", key=format_public_key(KEYS["b"].public_key()), roles=("ops",)),
    Approver(name="carl", key=format_public_key(KEYS["c"].public_key())),
    Approver(name="gateway", key=format_public_key(KEYS["g"].public_key()), vouches=True),
)
ARGUMENTS: dict[str, JsonValue] = {"x": 1}
EDITED: dict[str, JsonValue] = {"x": 2}


def digest_of(arguments: dict[str, JsonValue], definition: str = "d", tool: str = "act") -> str:
    return digest_call(tool=tool, server=None, definition=definition, arguments=arguments, context={})


def verdict_on(arguments: dict[str, JsonValue], needs: Needs) -> Ask:
    """What a worker makes of the call as it would run."""
    bound = BoundCall(
        tool=ToolRef(name="act", server=None, definition="d", effect=Effect.ONCE),
        title="act",
        arguments=arguments,
        digest=digest_of(arguments),
        timeout_seconds=1,
        heartbeat_seconds=1,
    )
    return Ask(rule="two", bound=bound, confirmation=Confirmation(kind="info", title="act", needs=needs))


def said(by: str, key: str, **more: Any) -> Decision:
    """A decision as somebody with this key signs it."""
    given = {
        "outcome": DecisionAction.PROCEED_ONCE,
        "approval_id": "turn/b1c1/1",
        "digest": digest_of(ARGUMENTS),
        **more,
    }
    return sign_decision(Decision(by=by, at=datetime.now(UTC), **given), KEYS[key])


def pairs() -> Iterator[tuple[str, list[Decision], dict[str, JsonValue] | None]]:
    """Words that are not those of two people with the role, other than who started the turn, on this very call."""
    ana, bob = said("ana", "a"), said("bob", "b")
    yield "nobody", [], None
    yield "one", [ana], None
    yield "one twice", [ana, ana], None
    yield "one, two decisions", [ana, said("ana", "a", note="again")], None
    for name in ("Ana", " ana", "ana ", "ＡＮＡ", "аna", "ana\u200b", "an\u0061", "ana\u0301", "", "*", "root", "bob"):
        yield f"one as {name!r} too", [ana, said(name, "a")], None
        yield f"one as {name!r} by the gateway", [ana, said(name, "g")] if name != "bob" else [ana], None
    yield "one of another role", [ana, said("carl", "c")], None
    yield "the gateway itself", [ana, said("gateway", "g")], None
    yield "by another's key", [ana, said("bob", "a")], None
    yield "by a key that vouches for nobody", [ana, said("bob", "c")], None
    for outcome in (DecisionAction.CANCEL, DecisionAction.RESPOND):
        yield f"one says {outcome.value}", [ana, said("bob", "b", outcome=outcome, content="x")], None
    yield "modify", [ana, said("bob", "b", outcome=DecisionAction.MODIFY, arguments=EDITED)], ARGUMENTS
    edits: list[dict[str, JsonValue]] = [EDITED, {"x": 1, "y": 2}, {}]
    for arguments in edits:
        edited = said("bob", "b", arguments=arguments)
        yield f"one edits in one step to {arguments}", [ana, edited], ARGUMENTS
        yield f"the same, shown {arguments}", [ana, edited], arguments
    for definition, tool in (("other", "act"), ("", "act"), ("d", "act2"), ("d", "ACT")):
        yield (
            f"one on {tool} as {definition!r}",
            [ana, said("bob", "b", digest=digest_of(ARGUMENTS, definition, tool))],
            None,
        )
    for approval in ("turn/b1c2/1", "turn2/b1c1/1", "turn~1/b1c1/1", "Turn/b1c1/1", "turn/b1c1", "x/turn/b1c1/1"):
        with suppress(ValueError):
            yield f"one for {approval}", [ana, said("bob", "b", approval_id=approval)], None
    yield "one over", [ana, said("bob", "b", expires=datetime.now(UTC) - timedelta(seconds=1))], None
    yield "one unsigned", [ana, bob.model_copy(update={"signature": None, "signer": None})], None
    for field, value in {"note": "x", "by": "ana", "digest": digest_of(EDITED), "at": None, "signer": "x"}.items():
        yield f"{field} changed after", [ana, bob.model_copy(update={field: value})], None
    yield "a third who may not", [ana, bob, said("carl", "c")], None


def test_S22_two_persons_words_are_of_two_persons_on_this_very_call() -> None:
    verdict = verdict_on(ARGUMENTS, Needs(role="ops", approvals=2, not_requester=True))

    def changed(shown: dict[str, JsonValue], decision: Decision) -> dict[str, JsonValue]:
        return dict(decision.arguments or {})

    def run(
        decisions: list[Decision], shown: dict[str, JsonValue] | None = None, requester: str | None = "eve", **more: Any
    ) -> bool:
        input = ExecuteInput(call_id="b1c1", bound=verdict.bound, approvals=tuple(decisions), shown=shown, **more)
        return is_approved(input, verdict, DecisionContext("turn", APPROVERS, requester), datetime.now(UTC), changed)

    tries = list(pairs())
    assert len(tries) > 50
    for what, decisions, shown in tries:
        assert not run(decisions, shown), what
        assert not run(decisions, shown, expired=True), f"{what}, and a deadline passed"
    true = [said("ana", "a"), said("bob", "b")]
    for requester in ("ana", "bob", "ANA", " Bob ", "ｂｏｂ", None):
        assert not run(true, requester=requester), requester
    fewer = tuple(replace_roles(each) if each.name == "bob" else each for each in APPROVERS)
    input = ExecuteInput(call_id="b1c1", bound=verdict.bound, approvals=tuple(true))
    assert not is_approved(input, verdict, DecisionContext("turn", fewer, "eve"), datetime.now(UTC), changed), (
        "he lost the role"
    )
    without = tuple(each for each in APPROVERS if each.name != "bob")
    assert not is_approved(input, verdict, DecisionContext("turn", without, "eve"), datetime.now(UTC), changed), (
        "he is gone"
    )
    assert run(true)
    assert run([said("ana", "a"), said("bob", "g")]), "the gateway vouches for bob"


def replace_roles(approver: Approver) -> Approver:
    return approver.model_copy(update={"roles": ()})


# Background commands


async def test_S31_output_beyond_what_a_file_may_hold_is_no_error(tmp_path: Path) -> None:
    """A model gives the place to read from; a file system refuses to go to some."""
    folder = tmp_path / "runs" / ("a" * 32)
    folder.mkdir(parents=True)
    owner = CommandOwner(namespace="default", queue="q", family="turn").model_dump_json()
    (folder / "run.json").write_text(f'{{"key": "turn/b1c1", "owner": {owner}}}')
    (folder / "output").write_text("secret")
    runs = Runs(tmp_path / "runs")
    tool = ReadCommand(OutputStore(tmp_path / "outputs"), runs)
    for start in (0, 5, 6, 7, 2**40, 2**44, 10**15):
        arguments = tool.Parameters(handle="a" * 32, start=start)
        environment = ActivityEnvironment()
        run = SimpleNamespace(key="turn/b1c2")
        result: Any = await environment.run(tool.build(arguments, tmp_path).execute, run)
        assert ("secret"[start:] or "No new output.") in result.parts[0].text
    for key in (
        "other/b1c1",
        "turn2/b1c1",
        "tur/b1c1",
        "/b1c1",
        "x/turn/b1c1",
        "turn /b1c1",
        "Turn/b1c1",
        "turn/x/b1c1",
    ):
        arguments = tool.Parameters(handle="a" * 32)
        with pytest.raises(ToolFailure, match="no background command"):
            await environment.run(tool.build(arguments, tmp_path).execute, SimpleNamespace(key=key))


async def test_S36_however_many_commands_are_asked_about_each_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody in the namespace may ask a host's queue; what takes seconds there has every call's heart miss beats."""
    owner = CommandOwner(namespace="default", queue="q", family="turn").model_dump_json()
    names = [f"{place:032x}" for place in range(3)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(f'{{"key": "turn/{name}", "owner": {owner}}}')
    looked: list[str] = []

    def held(folder: str) -> bool:
        looked.append(folder)
        return True

    monkeypatch.setattr("holdfast.activities.supervision.supervised_run.is_held", held)
    client: Any = SimpleNamespace(namespace="default")
    attendant = Attendant(client, Runs(tmp_path), "q")
    asked = BackgroundCommands(turn="turn", handles=(*names, "*", "../x", "") * 20_000)
    assert await attendant.list_running(asked) == names
    assert len(looked) < 20
    assert await attendant.list_running(asked.model_copy(update={"turn": "other"})) == []


# Files that decide what runs


def test_S29_a_pipe_or_device_in_the_place_of_a_named_file_is_not_that_file(tmp_path: Path) -> None:
    """A pipe says one thing to who looks and another to who runs it, and some devices never end."""
    file = tmp_path / "hook.sh"
    file.write_text("true")
    named = NamedFiles(run=(file,))
    before = named.digests
    file.unlink()
    os.mkfifo(file)
    pipe = os.open(file, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(pipe, b"true")
        assert named.digests == {str(file): ""} != before
    finally:
        os.close(pipe)
    file.unlink()
    file.symlink_to("/dev/null")
    assert named.digests == {str(file): ""}


# The web and the gateway


@pytest.mark.parametrize("packed", ["br", "zstd", " BR", "Zstd "])
async def test_S37_what_is_compressed_in_a_way_that_was_not_asked_for_is_not_unpacked(
    packed: str, tmp_path: Path
) -> None:
    """Where a library for these is installed, a few bytes of them become any number in one step."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {packed}\r\nContent-Length: 4\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + b"\x0b\x00\x80x")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        tool = Fetch(AddressRules(allow=("127.0.0.1",)))
        invocation = tool.build(tool.Parameters(url=f"http://127.0.0.1:{port}/"), tmp_path)
        with pytest.raises(ToolFailure, match="in a way it was not asked for"):
            await invocation.execute(FakeRun())


async def test_S45_whoever_asks_and_takes_no_answer_keeps_no_place_at_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else 64 of them with any token, or 500 with none, would shut everybody else out for as long as they like."""
    monkeypatch.setattr(serve, "TAKE_SECONDS", 0.5)
    stop, listener = asyncio.Event(), open_listener("127.0.0.1", 0)
    listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)  # what a system holds back is not ours
    holdfast: Any = SimpleNamespace(client=None)  # nothing here asks the server
    settings = Settings(data=tmp_path / "data", workspace=tmp_path)
    serving = asyncio.create_task(
        run_gateway(holdfast, settings, listener, host="127.0.0.1", say=lambda _: None, stop=stop)
    )
    try:
        with socket.socket() as greedy:
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            where = urlsplit(listener.url)
            greedy.connect((where.hostname, where.port))
            greedy.setblocking(False)
            poll = select.poll()
            poll.register(greedy, select.POLLHUP | select.POLLERR)
            requests = f"GET /health HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode() * 100

            async def hung_up() -> bool:
                with suppress(BlockingIOError, ConnectionError):
                    greedy.send(requests)
                return bool(poll.poll(0))

            await wait_until(hung_up, BOUND_SECONDS)
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"{listener.url}/health", timeout=BOUND_SECONDS)).status_code == 200
    finally:
        stop.set()
        await serving
