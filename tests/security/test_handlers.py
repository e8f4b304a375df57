"""No message hangs a turn or a session: every handler of every workflow is sent what nobody should send.

The handlers are found by reflection, so one that is added is covered. An exception other than ApplicationError in one,
or a body that Temporal itself fails to decode, would fail the workflow task, which is tried again for ever.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any, cast, get_args, get_type_hints

import pytest
from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError

from holdfast import Run, ScriptedReply, TurnInput
from holdfast.client.queries import query_turn
from holdfast.domain.base import StrictData, describe_problems
from holdfast.domain.conversation.messages import ModelChoice
from holdfast.domain.session.session_io import SessionInput
from holdfast.testing import FakeTool, build_request, wait_until
from holdfast.workflows.handlers import REFUSAL_LIMIT
from holdfast.workflows.session import SessionWorkflow
from holdfast.workflows.turn import TurnWorkflow
from tests.support.engine import Engine
from tests.support.waiting import waiting

SECONDS = 20.0
GIANT = 1_500_000
"""Characters: what Temporal lets through in one payload is 2 MB."""
JSON = {"encoding": b"json/plain"}
REFERENCE = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}


def raw(data: bytes, metadata: dict[str, bytes] = JSON) -> RawValue:
    """A body of these bytes."""
    return RawValue(Payload(metadata=metadata, data=data))


BODIES: dict[str, list[Any]] = {
    "null": [None],
    "no argument": [],
    "two arguments": [{}, {}],
    "a thousand arguments": [None] * 1_000,
    "a word": ["garbage"],
    "a number": [-(10**30)],
    "a list": [[{}]],
    "not JSON": [raw(b"{")],
    "nothing": [raw(b"")],
    "NaN": [raw(b'{"at": NaN}')],
    "half a character": [raw(b'"\\ud800"')],
    "no text": [raw(b"\xff\xfe")],
    "a long number": [raw(b"9" * 5_000)],
    "deep": [raw(b"[" * 150 + b"]" * 150)],
    "very deep": [raw(b'{"arguments":' * 50_000 + b"1" + b"}" * 50_000)],
    "20,000 unknown fields": [{f"field{number}": number for number in range(20_000)}],
    "150,000 unknown fields": [raw(b"{%s}" % b",".join(b'"%d":0' % number for number in range(150_000)))],
    "a field with a giant name": [raw(b'{"%s":0}' % (b"\\u0001" * (GIANT // 6)))],
    "a giant": [raw(b'"%s"' % (b"x" * GIANT))],
    "an unknown encoding": [raw(b"x", {"encoding": b"unknown"})],
    "no encoding": [raw(b"x", {})],
    "a reference to nothing": [raw(b'{"driverName": "holdfast.files", "claimData": {"sha256": "00"}}', REFERENCE)],
}
"""What each handler is sent."""

Definition = workflow._Definition


def handlers(cls: type, kind: str) -> list[str]:
    """The names of a workflow's updates, signals or queries."""
    found = sorted(str(name) for name in getattr(Definition.must_from_class(cls), kind))
    assert found
    return found


def takes_nothing(cls: type, kind: str, name: str) -> bool:
    """May the handler be called without an argument, so that this is no wrong message?"""
    if kind == "queries":
        return True
    return (cls, name) in {(TurnWorkflow, "finish"), (SessionWorkflow, "move")}


async def offend(client: Client, cls: type, kind: str, id: str) -> None:
    """Send every body to every handler, and look at what is answered: most are refused."""
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(id)
    refused = sent = 0
    for name in handlers(cls, kind):
        for body, args in BODIES.items():
            if not args and takes_nothing(cls, kind, name):
                continue
            where = f"{kind} {name!r} with {body}"
            if kind == "signals":
                await handle.signal(name, args=args)
            elif kind == "updates":
                refused += await refusal(handle, name, args, where)
            else:
                refused += await answered_or_refused(client, id, name, args, where)
            sent += 1
    assert sent == refused or (kind == "queries" and refused > sent / 2) or (kind == "signals" and refused == 0)


async def refusal(handle: WorkflowHandle[Any, Any], name: str, args: list[Any], where: str) -> int:
    """An update must be refused, in words of bounded length."""
    with pytest.raises(WorkflowUpdateFailedError) as failure:
        async with asyncio.timeout(SECONDS):
            await handle.execute_update(name, args=args)
    words = f"{failure.value.cause}"
    assert words, where
    assert len(words) <= REFUSAL_LIMIT + 100, f"{where}: {len(words):,} characters"
    return 1


async def answered_or_refused(client: Client, id: str, name: str, args: list[Any], where: str) -> int:
    """A query is answered where the argument happens to fit; else it says why not."""
    words = ""
    try:
        await query_turn(client, id, name, *args, result_type=cast(Any, None), seconds=SECONDS)
    except (WorkflowQueryFailedError, RPCError) as error:
        words = str(error) or "nothing"
    assert len(words) <= REFUSAL_LIMIT + 100, f"{where}: {words}"
    return bool(words)


async def _done(arguments: dict[str, Any], run: Run) -> str:
    return "done"


async def failed_tasks(client: Client, id: str) -> list[str]:
    """The workflow tasks that a worker failed, by the history. One that the server ends since too many bytes of signals
    wait for it (FORCE_CLOSE_COMMAND) is no failure: the next one takes them."""
    events = [event async for event in client.get_workflow_handle(id).fetch_history_events()]
    failed = [event.workflow_task_failed_event_attributes for event in events]
    causes = [attributes.cause for attributes in failed if attributes.cause]
    full = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND
    return [WorkflowTaskFailedCause.Name(cause) for cause in causes if cause != full]


KINDS = pytest.mark.parametrize("kind", ["signals", "updates", "queries"])


@KINDS
async def test_S23_no_message_of_any_shape_hangs_a_turn_or_fails_its_task(engine: Engine, kind: str) -> None:
    asking = FakeTool("asking", _done, asks=True)
    stranger = await Client.connect(engine.address)
    async with engine.worker(asking):
        turn = await engine.start(TurnInput(batches=((build_request("asking"),),), keep_open=True))
        view = await wait_until(lambda: waiting(turn))
        await offend(stranger, TurnWorkflow, kind, turn.id)
        assert (await turn.fetch_view(live=False)).approvals == view.approvals
        await engine.holdfast.approve(view.approvals[0].approval_id)
        await turn.finish()
        assert [response.text for response in (await turn.result()).responses] == ["done"]
        assert await failed_tasks(stranger, turn.id) == []


@KINDS
async def test_S23_no_message_of_any_shape_hangs_a_session_or_fails_its_task(engine: Engine, kind: str) -> None:
    model = ModelChoice(script=(ScriptedReply(text="Still here."), ScriptedReply(text="And still.")))
    stranger = await Client.connect(engine.address)
    async with engine.worker():
        session = engine.holdfast.get_session(f"{engine.queue}-session")
        sent = await session.send("Hello", start=SessionInput(turn=TurnInput(model=model)))
        assert (await engine.holdfast.get_turn(sent.turn).result()).text == "Still here."
        await offend(stranger, SessionWorkflow, kind, session.id)
        sent = await session.send("Are you there?")
        await session.close()
        assert (await session.result()).turns == 2
        assert (await engine.holdfast.get_turn(sent.turn).result()).text == "And still."
        assert await failed_tasks(stranger, session.id) == []


async def test_what_was_sent_while_no_worker_was_there_hangs_nothing_when_one_comes(engine: Engine) -> None:
    asking = FakeTool("asking", _done, asks=True)
    stranger = await Client.connect(engine.address)
    async with engine.worker(asking):
        turn = await engine.start(TurnInput(batches=((build_request("asking"),),), keep_open=True))
        view = await wait_until(lambda: waiting(turn))
    handle: WorkflowHandle[Any, Any] = stranger.get_workflow_handle(turn.id)
    names = handlers(TurnWorkflow, "updates")[:9]
    sending = [asyncio.create_task(handle.execute_update(name, args=[None])) for name in names]
    await asyncio.wait(sending, timeout=1)
    async with engine.worker(asking):
        await asyncio.wait(sending, timeout=SECONDS)
        answers = [sent.exception() for sent in sending if sent.done()]
        assert len(answers) == len(names)
        assert all(isinstance(answer, WorkflowUpdateFailedError) for answer in answers), answers
        await engine.holdfast.approve(view.approvals[0].approval_id)
        await turn.finish()
        assert [response.text for response in (await turn.result()).responses] == ["done"]
        assert await failed_tasks(stranger, turn.id) == []


def functions(cls: type) -> list[Callable[..., Any]]:
    """The handlers of a workflow."""
    known = Definition.must_from_class(cls)
    signals, updates = known.signals.values(), known.updates.values()
    return [
        *(each.fn for each in signals),
        *(each.fn for each in updates),
        *(each.fn for each in known.queries.values()),
    ]


def handled_by(handler: Callable[..., Any]) -> Callable[..., Any] | None:
    """What `holdfast.workflows.handlers` calls with the body that it has read; None where it did not declare this."""
    handle: Callable[..., Any] | None = inspect.getclosurevars(handler).nonlocals.get("handle")
    return handle


@pytest.mark.parametrize("cls", [TurnWorkflow, SessionWorkflow])
def test_every_handler_is_declared_by_what_reads_bodies_by_hand(cls: type) -> None:
    assert [handler.__name__ for handler in functions(cls) if handled_by(handler) is None] == []


def bodies() -> list[type[BaseModel]]:
    """What the handlers of all workflows read."""
    found: set[type[BaseModel]] = set()
    for handler in filter(None, map(handled_by, [*functions(TurnWorkflow), *functions(SessionWorkflow)])):
        hints = get_type_hints(handler).values()
        found |= {hint for hint in hints if isinstance(hint, type) and issubclass(hint, StrictData)}
    return sorted(found, key=lambda kind: kind.__name__)


def paths(model: type[BaseModel], depth: int = 2) -> Iterator[tuple[str, ...]]:
    """The fields of a message, and of what is in them."""
    for name, field in model.model_fields.items():
        yield (name,)
        for inner in models_in(field.annotation) if depth else ():
            yield from ((name, *path) for path in paths(inner, depth - 1))


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, not those in lists."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from models_in(each)


FLOODS: tuple[Any, ...] = ([0] * 900_000, [{}] * 600_000, {str(number): 0 for number in range(200_000)}, "x" * GIANT)
"""As much as fits into 2 MB."""


@pytest.mark.parametrize("kind", bodies(), ids=lambda kind: kind.__name__)
def test_a_message_with_a_flood_in_any_field_is_read_in_a_fraction_of_what_a_workflow_task_has(
    kind: type[BaseModel],
) -> None:
    for path in paths(kind):
        for flood in FLOODS:
            body = flood
            for name in reversed(path):
                body = {name: body}
            began = time.process_time()
            try:
                kind.model_validate(body)
            except ValidationError as error:
                describe_problems(error)
            took = time.process_time() - began
            assert took < 3, f"{'.'.join(path)} took {took:.2f} seconds"
