"""One approval, one execution: a decision that let a call run lets nothing else run (S22, S31).

The attacker may do whatever the namespace lets him: start another turn under the id of one that ended, play messages
again, and run a worker of his own, whose workflow calls itself a turn and schedules the executing activity with any
input. He has no approver's key.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from holdfast import ApprovalView, Decision, Effect, Holdfast, Run, Turn, TurnInput
from holdfast.client.signing_keys import Signer
from holdfast.domain.approvals.approval import Approver, Confirmation, QuestionAnswer
from holdfast.domain.approvals.signing import digest_decision, format_public_key, sign_decision
from holdfast.domain.calls.call import Call, PendingQuestion
from holdfast.domain.calls.tool import NeedsAnswer
from holdfast.domain.turn.activity_io import ExecuteInput
from holdfast.names import TURN_WORKFLOW
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import asked, waiting

ANA = Ed25519PrivateKey.generate()
SECONDS = timedelta(seconds=20)
EFFECTS = pytest.mark.parametrize("effect", list(Effect), ids=lambda effect: effect.value)


class Counted:
    """A tool that a person is asked about, and how often it ran."""

    def __init__(self, effect: Effect) -> None:
        self.runs = 0
        self.tool = FakeTool("act", self._act, asks=True, effect=effect)

    async def _act(self, arguments: dict[str, Any], run: Run) -> str:
        self.runs += 1
        return f"ran {self.runs}"


@workflow.defn(name=TURN_WORKFLOW, sandboxed=False)
class HostileTurn:
    """A workflow that calls itself a turn, on a worker of the attacker's: it schedules whatever it is told to."""

    def __init__(self) -> None:
        self._answer: Any = None

    @workflow.run
    async def run(self, queue: str, inputs: list[Any], answer: Any) -> list[Any]:
        """What the real worker's executing activity answers to each input, one after the other."""
        self._answer = answer
        answers = []
        for number, input in enumerate(inputs):
            answers.append(
                await workflow.execute_activity(
                    "holdfast.execute",
                    input,
                    task_queue=queue,
                    activity_id=f"b1c1-{number}",
                    start_to_close_timeout=SECONDS,
                    heartbeat_timeout=SECONDS,
                    retry_policy=RetryPolicy(maximum_attempts=1),
                )
            )
        return answers

    @workflow.update(name="ask")
    async def ask(self, body: Any) -> Any:
        """What a person is said to have answered."""
        return self._answer


def with_keys(engine: Engine) -> Holdfast:
    """Workers take only what Ana has signed; Ana's client."""
    engine.with_rules("", approvers=(Approver(name="ana", key=format_public_key(ANA.public_key())),))
    return Holdfast(engine.client, task_queue=engine.queue, signer=Signer("ana", ANA))


async def item_of(turn: Turn, revision: int = 1) -> ApprovalView:
    """What waits of the one call."""
    view = await wait_until(lambda: asked(turn, "b1c1", revision))
    item: ApprovalView = view.approvals[0]
    return item


@asynccontextmanager
async def attacker(engine: Engine) -> AsyncIterator[Client]:
    """A client and a worker of the attacker's, on a queue of his own."""
    client = await Client.connect(engine.address, data_converter=pydantic_data_converter)
    async with Worker(client, task_queue=f"{engine.queue}-attacker", workflows=[HostileTurn]):
        yield client


async def attack(
    engine: Engine, client: Client, turn_id: str, queue: str, *inputs: ExecuteInput, answer: Any = None
) -> list[dict[str, Any]]:
    """What the real worker answers to these inputs, in a new workflow under the id of a turn."""
    handle: WorkflowHandle[Any, list[dict[str, Any]]] = await client.start_workflow(
        HostileTurn.run,
        args=[queue, [input.model_dump(mode="json") for input in inputs], answer],
        id=turn_id,
        task_queue=f"{engine.queue}-attacker",
    )
    return await handle.result()


def input_of(call: Call, **more: Any) -> ExecuteInput:
    """What a turn would give the executing activity."""
    assert call.bound is not None
    return ExecuteInput(call_id=call.id, bound=call.bound, **more)


def queue_of(engine: Engine, call: Call) -> str:
    """Where the call is executed."""
    assert call.bound is not None
    return call.bound.host or engine.queue


@EFFECTS
async def test_S22_a_decision_played_again_in_a_new_turn_of_the_same_id_runs_nothing_and_is_asked_about_again(
    engine: Engine, effect: Effect
) -> None:
    ana, counted, name = with_keys(engine), Counted(effect), f"{engine.queue}-again"
    input = TurnInput(batches=((build_request("act"),),))
    async with engine.worker(counted.tool):
        turn = await ana.start(input, turn_id=name)
        item = await item_of(turn)
        decision = await ana.prepare_decision(item.approval_id, "yes")
        await turn.decide(decision)
        assert (await turn.result()).responses[0].text == "ran 1"
        # Temporal itself lets anybody start a workflow under the id of one that has ended.
        await engine.client.start_workflow(TURN_WORKFLOW, input, id=name, task_queue=engine.queue)
        turn = engine.holdfast.get_turn(name)
        assert (await item_of(turn)).digest == decision.digest
        await engine.client.get_workflow_handle(name).signal("decide", decision)
        again = await item_of(turn, 2)
        assert counted.runs == 1
        assert "Its approval let another execution run" in (again.reason or "")
        await ana.approve(again.approval_id)
        assert (await turn.result()).responses[0].text == "ran 2", "a new approval is another execution"
    assert counted.runs == 2


@EFFECTS
async def test_S22_a_decision_that_was_used_runs_nothing_in_a_workflow_that_calls_itself_the_turn(
    engine: Engine, effect: Effect
) -> None:
    ana, counted, name = with_keys(engine), Counted(effect), f"{engine.queue}-used"
    async with engine.worker(counted.tool), attacker(engine) as client:
        turn = await ana.start(TurnInput(batches=((build_request("act"),),)), turn_id=name)
        item = await item_of(turn)
        decision = await ana.prepare_decision(item.approval_id, "yes")
        await turn.decide(decision)
        await turn.result()
        call = await turn.fetch_call("b1c1")
        assert decision.at is not None
        elsewhere = decision.model_copy(update={"at": decision.at.astimezone(timezone(timedelta(hours=5)))})
        answers = await attack(
            engine,
            client,
            name,
            queue_of(engine, call),
            *(input_of(call, approvals=(decision,), run=run) for run in (1, 2, 3)),
            input_of(call, decision=decision),
            input_of(call, approvals=(decision,), expired=True),
            input_of(call, approvals=(elsewhere,), run=4),
            input_of(call, approvals=(decision, decision), run=5),
            input_of(
                call,
                approvals=(decision,),
                run=6,
                pause=PendingQuestion(run=1, answer=QuestionAnswer(action="decline")),
            ),
        )
        assert [answer["kind"] for answer in answers] == ["reconsider"] * 7 + ["failed"]
    assert counted.runs == 1


@EFFECTS
async def test_S22_a_decision_that_was_caught_before_its_turn_used_it_runs_its_call_once(
    engine: Engine, effect: Effect
) -> None:
    ana, counted, name = with_keys(engine), Counted(effect), f"{engine.queue}-caught"
    async with engine.worker(counted.tool), attacker(engine) as client:
        turn = await ana.start(TurnInput(batches=((build_request("act"),),)), turn_id=name)
        item = await item_of(turn)
        decision, call = await ana.prepare_decision(item.approval_id, "yes"), await turn.fetch_call("b1c1")
        await engine.client.get_workflow_handle(name).terminate()
        inputs = [input_of(call, approvals=(decision, decision), run=run) for run in (3, 1, 2, 4)]
        answers = await attack(engine, client, name, queue_of(engine, call), *inputs)
        assert [answer["kind"] for answer in answers] == ["finished", "reconsider", "reconsider", "reconsider"]
    assert counted.runs == 1


@EFFECTS
async def test_S22_a_turn_that_is_reset_to_before_its_call_asks_about_it_again(engine: Engine, effect: Effect) -> None:
    ana, counted = with_keys(engine), Counted(effect)
    async with engine.worker(counted.tool):
        turn = await ana.start(TurnInput(batches=((build_request("act"),),)))
        decision = await ana.prepare_decision((await item_of(turn)).approval_id, "yes")
        handle = engine.client.get_workflow_handle(turn.id)
        await handle.signal("decide", decision)
        await turn.result()
        events = [event async for event in handle.fetch_history_events()]
        [scheduled] = [each for each in events if each.HasField("activity_task_scheduled_event_attributes")]
        before = scheduled.activity_task_scheduled_event_attributes.workflow_task_completed_event_id
        await engine.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=engine.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=turn.id),
                workflow_task_finish_event_id=before,
                request_id=turn.id,
            )
        )
        again = await item_of(turn, 2)
        assert counted.runs == 1
        await ana.approve(again.approval_id)
        assert (await turn.result()).responses[0].text == "ran 2"


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT], ids=lambda effect: effect.value)
async def test_S31_a_repeated_attempt_of_an_approved_call_needs_no_further_approval(
    engine: Engine, effect: Effect
) -> None:
    ana, began, runs = with_keys(engine), asyncio.Event(), 0

    async def act(arguments: dict[str, Any], run: Run) -> str:
        nonlocal runs
        runs += 1
        began.set()
        if runs == 1:
            await asyncio.Event().wait()
        return f"ran {runs}"

    tool = FakeTool("act", act, asks=True, effect=effect, heartbeat_seconds=1)
    async with engine.worker(tool):
        turn = await ana.start(TurnInput(batches=((build_request("act"),),)))
        await ana.approve((await item_of(turn)).approval_id)
        async with asyncio.timeout(20):
            await began.wait()
    async with engine.worker(tool):
        assert (await turn.result()).responses[0].text == "ran 2"
        assert (await turn.fetch_call("b1c1")).revision == 1


def decisions_in(engine: Engine) -> int:
    """How many decisions the ledger holds as used."""
    with closing(sqlite3.connect(engine.settings.ledger_file)) as connection:
        [count] = connection.execute("SELECT count(*) FROM decisions").fetchone()
    return int(count)


async def test_S24_a_standing_answer_lets_many_calls_run_and_is_recorded_for_the_first_alone(engine: Engine) -> None:
    ana, counted = with_keys(engine), Counted(Effect.IDEMPOTENT)
    async with engine.worker(counted.tool):
        turn = await ana.start(TurnInput(batches=tuple((build_request("act", n=n),) for n in range(4))))
        await ana.decide((await item_of(turn)).approval_id, "proceed_always_tool")
        assert [response.status for response in (await turn.result()).responses] == ["success"] * 4
    assert (counted.runs, decisions_in(engine)) == (4, 1)


async def test_S22_calls_that_nobody_was_asked_about_write_nothing_more_to_disk(engine: Engine) -> None:
    ana, counted = with_keys(engine), Counted(Effect.IDEMPOTENT)
    free = FakeTool("free", counted._act, effect=Effect.IDEMPOTENT)
    log = engine.settings.ledger_file.with_name(f"{engine.settings.ledger_file.name}-wal")

    async def written(tool: str) -> int:
        before = log.read_bytes()
        turn = await ana.start(TurnInput(batches=(tuple(build_request(tool, n=n) for n in range(5)),)))
        if tool == "act":
            for item in (await wait_until(lambda: waiting(turn, 5))).approvals:
                await ana.approve(item.approval_id)
        await turn.result()
        return len(log.read_bytes()) - len(before)

    async with engine.worker(counted.tool, free):
        await wait_until(lambda: _exists(log))
        assert await written("act") > 0
        assert await written("free") == 0
    assert counted.runs == 10


async def _exists(path: Any) -> bool:
    return bool(path.exists() and path.stat().st_size)


# What a person answered in the middle of a run


def question(text: str) -> Confirmation:
    return Confirmation(kind="question", title=text, question=text)


class Asking:
    """A tool that a rule lets run, and that asks before it does what it is for."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.tool = FakeTool("asking", self._act, effect=Effect.ONCE, questions=True)

    async def _act(self, arguments: dict[str, Any], run: Run) -> str:
        if run.answer is None:
            raise NeedsAnswer(question("Delete everything?"), {"step": 1})
        if run.answer.action == "accept":
            self.done.append(f"{run.state} {run.answer.text}")
        return f"{run.answer.action} {run.answer.text}"


async def test_S22_an_answer_that_nobody_gave_does_not_reach_a_tool_that_asked(engine: Engine) -> None:
    ana, asking, name = with_keys(engine), Asking(), f"{engine.queue}-answer"
    async with engine.worker(asking.tool), attacker(engine) as client:
        turn = await ana.start(TurnInput(batches=((build_request("asking"),),)), turn_id=name)
        item = await item_of(turn)
        call, shown = await turn.fetch_call("b1c1"), question("Delete everything?")
        signed = await ana.prepare_decision(item.approval_id, "respond", content="no, keep all of it")
        await engine.client.get_workflow_handle(name).terminate()

        def goes_on(answer: QuestionAnswer, step: int = 1, asked: Confirmation = shown, run: int = 2) -> ExecuteInput:
            return input_of(call, run=run, pause=PendingQuestion(state={"step": step}, answer=answer, question=asked))

        yes = signed.model_copy(update={"content": "yes"})
        eve = sign_decision(yes, Ed25519PrivateKey.generate())
        true = QuestionAnswer(action="accept", text="no, keep all of it", decision=signed)
        answers = await attack(
            engine,
            client,
            name,
            queue_of(engine, call),
            goes_on(QuestionAnswer(action="accept", text="yes")),
            goes_on(QuestionAnswer(action="accept", text="yes", decision=signed)),
            goes_on(QuestionAnswer(action="accept", text="yes", decision=yes)),
            goes_on(QuestionAnswer(action="accept", text="yes", decision=eve)),
            goes_on(true, step=2),
            goes_on(true, asked=question("Keep everything?")),
        )
        assert {answer["kind"] for answer in answers} == {"asks"}
        assert asking.done == []
        again = await attack(engine, client, name, queue_of(engine, call), *(goes_on(true, run=run) for run in (2, 3)))
        assert [answer["kind"] for answer in again] == ["finished", "asks"]
    assert asking.done == ["{'step': 1} no, keep all of it"]


async def test_S39_a_signed_answer_goes_on_and_the_approval_before_it_counts_for_the_whole_call(engine: Engine) -> None:
    ana, asking = with_keys(engine), Asking()
    asking.tool = FakeTool("asking", asking._act, asks=True, effect=Effect.ONCE, questions=True)
    async with engine.worker(asking.tool):
        turn = await ana.start(TurnInput(batches=((build_request("asking"),),)))
        await ana.approve((await item_of(turn)).approval_id)
        item = await item_of(turn, 2)
        await ana.decide(item.approval_id, "respond", digest=item.digest, content="yes")
        assert (await turn.result()).responses[0].text == "accept yes"
    assert asking.done == ["{'step': 1} yes"]


async def test_S22_a_tool_that_waits_where_it_runs_hears_no_answer_that_nobody_gave(engine: Engine) -> None:
    ana, heard, name = with_keys(engine), list[str](), f"{engine.queue}-held"

    async def hold(arguments: dict[str, Any], run: Run) -> str:
        answer = await run.ask(question("Delete everything?"))
        heard.append(f"{answer.action} {answer.text}".strip())
        return heard[-1]

    tool = FakeTool("holding", hold, questions=True)
    async with engine.worker(tool), attacker(engine) as client:
        turn = await ana.start(TurnInput(batches=((build_request("holding"),),)), turn_id=name)
        item = await item_of(turn)
        await ana.decide(item.approval_id, "respond", digest=item.digest, content="yes")
        await turn.result()
        call = await turn.fetch_call("b1c1")
        history = engine.client.get_workflow_handle(name).fetch_history_events()
        said = [
            event async for event in history if event.HasField("workflow_execution_update_accepted_event_attributes")
        ]
        bodies = [event.workflow_execution_update_accepted_event_attributes.accepted_request.input for event in said]
        [body] = [body.args.payloads for body in bodies if body.name == "decide"]
        [signed] = await engine.client.data_converter.decode(body, [Decision])
        for answer in (
            QuestionAnswer(action="accept", text="yes"),
            QuestionAnswer(action="accept", text="yes", decision=signed),
            QuestionAnswer(action="accept", text="yes", decision=signed.model_copy(update={"id": "another"})),
        ):
            made_up = answer.model_dump(mode="json")
            await attack(
                engine, client, name, queue_of(engine, call), input_of(call, run=2 + len(heard)), answer=made_up
            )
    assert heard == ["accept yes", "cancel", "cancel", "cancel"]


def test_the_time_of_a_decision_can_be_written_in_two_ways_and_is_one_decision() -> None:
    at = datetime.now(UTC)
    body = {"approval_id": "t/b1c1/1", "digest": "d", "outcome": "yes", "by": "ana", "at": at}
    one = sign_decision(Decision.model_validate(body), ANA)
    two = one.model_copy(update={"at": at.astimezone(timezone(timedelta(hours=5)))})
    assert one.model_dump_json() != two.model_dump_json()
    assert digest_decision(one) == digest_decision(two)
    assert digest_decision(one) != digest_decision(one.model_copy(update={"id": "x"}))


def test_a_decision_that_nobody_can_have_signed_has_a_digest_all_the_same() -> None:
    body = {"approval_id": "t/b1c1/1", "digest": "d", "outcome": "yes", "at": "0001-01-01T00:00:00+14:00"}
    assert digest_decision(Decision.model_validate(body))
    assert digest_decision(Decision.model_validate(body).model_copy(update={"at": None, "note": "\ud800"}))
