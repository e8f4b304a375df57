"""What a turn may do at most: its own list of tools, and asking about everything (S22, S27)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from holdfast import Confirming, DecisionRefused, Effect, Mode, Response, Run, SessionInput, Turn, TurnInput
from holdfast.activities.turn_starts import TurnStart, TurnStarts
from holdfast.config.schema import ModelServerSettings, ModelsSettings
from holdfast.domain.content import Result
from holdfast.domain.context import ContextChange
from holdfast.domain.conversation.messages import ModelChoice, ScriptedReply
from holdfast.domain.turn.activity_io import ExecuteInput
from holdfast.names import TURN_WORKFLOW
from holdfast.testing import FakeTool, build_request, script_model, wait_until
from tests.support.engine import Engine, new_engine
from tests.support.services.providers import Act, provider
from tests.support.waiting import listed, waiting

ALWAYS = Confirming.ALWAYS
SECONDS = timedelta(seconds=20)


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


async def _free(arguments: dict[str, Any], run: Run) -> Result:
    return Result.from_text("all tools").model_copy(update={"context": ContextChange(tools="all")})


ECHO = FakeTool("files__echo", _echo, safe=True, effect=Effect.READ)
ASK = FakeTool("ask", _echo, asks=True, effect=Effect.READ)
FREE = FakeTool("free", _free, effect=Effect.ONCE)


def kinds(responses: Any) -> list[str]:
    """How calls ended: `ok`, or the type of their error."""
    found: list[Response] = list(responses)
    return ["ok" if response.error is None else response.error.type for response in found]


# The tools of a turn


async def test_S27_a_turn_with_a_list_of_tools_uses_no_other_and_its_model_hears_what_there_is(both: Engine) -> None:
    calls = (
        build_request("files__echo", say=1),
        build_request("list_directory", path="."),
        build_request("read_file", path="x"),
    )
    async with both.worker(ECHO):
        turn = await both.start(TurnInput(batches=(calls,), tools=("files__*", "glob")))
        result = await turn.result()
        view = await turn.fetch_view()
    assert kinds(result.responses) == ["ok", "tool_not_available", "tool_not_available"]
    error = result.responses[1].error
    assert error
    assert error.message == (
        "'list_directory' is not among the tools that this turn was started with. There are 'files__echo', 'glob'."
    )
    assert view.tools == ("files__*", "glob")


async def test_S27_nothing_in_a_turn_adds_to_its_tools(engine: Engine) -> None:
    """A tool's result may give back all tools there are; these are never more than the turn was started with."""
    later = build_request("list_directory", path=".")
    async with engine.worker(ECHO, FREE):
        input = TurnInput(
            batches=((build_request("free"),), (later, build_request("files__echo"))), tools=("free", "files__echo")
        )
        result = await (await engine.start(input)).result()
    assert kinds(result.responses) == ["ok", "tool_not_available", "ok"]


async def test_S27_the_model_is_told_of_the_tools_of_its_turn_alone(engine: Engine) -> None:
    async with provider() as server:
        made = ModelServerSettings(url=f"{server.url}/v1", speaks="openai")
        engine.settings = replace(engine.settings, models=ModelsSettings(servers={"local": made}))
        server.acts += [Act(text="Done.")]
        async with engine.worker(ECHO):
            input = TurnInput(prompt="Do it", model=ModelChoice(name="local:fake"), tools=("files__*", "read_file"))
            assert (await (await engine.start(input)).result()).text == "Done."
        told = [tool["function"]["name"] for tool in server.asked[0]["tools"]]
    assert sorted(told) == ["files__echo", "read_file"]


@pytest.mark.parametrize("model", [False, True], ids=["batches", "model"])
async def test_S27_a_list_that_names_no_tool_ends_the_turn_at_its_start(engine: Engine, *, model: bool) -> None:
    tools = ("files__echo", "read_fil", "github__*")
    input = TurnInput(batches=((build_request("files__echo"),),), tools=tools)
    if model:
        input = TurnInput(prompt="Do it", model=script_model("Done."), tools=tools)
    async with engine.worker(ECHO):
        result = await (await engine.start(input)).result()
    assert result.status == "failed"
    assert result.reason is not None
    assert "list of tools has unknown names: 'read_fil'. Did you mean \"read_file\"" in result.reason
    assert result.reason.endswith("'github__*'.")
    assert kinds(result.responses) == ([] if model else ["cancelled"])


@pytest.mark.parametrize("tools", [[""], ["a b"], ["x" * 301], ["a"] * 1_001, "shell"])
def test_S27_what_cannot_name_a_tool_is_refused(tools: Any) -> None:
    with pytest.raises(ValidationError):
        TurnInput(keep_open=True, tools=tools)


async def test_S27_an_empty_list_is_a_turn_without_tools(engine: Engine) -> None:
    async with engine.worker(ECHO):
        result = await (await engine.start(TurnInput(batches=((build_request("files__echo"),),), tools=()))).result()
    assert kinds(result.responses) == ["tool_not_available"]


async def test_S27_a_delegated_turn_has_the_tools_of_the_one_that_delegates_or_less(engine: Engine) -> None:
    asks = (
        build_request("delegate", prompt="free"),
        build_request("delegate", prompt="narrow", tools=["list_directory"]),
    )
    inner = ScriptedReply(calls=(build_request("files__echo"), build_request("list_directory", path=".")))
    model = ModelChoice(
        script=(ScriptedReply(calls=asks), ScriptedReply(text="Done.")),
        delegated={name: (inner, ScriptedReply(text="So be it.")) for name in ("free", "narrow")},
    )
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(prompt="Do it", model=model, tools=("delegate", "files__echo")))
        assert (await turn.result()).status == "completed"
        free, narrow = [await engine.holdfast.get_turn(f"{turn.id}~b1c{number}").result() for number in (1, 2)]
    assert kinds(free.responses) == ["ok", "tool_not_available"]
    assert kinds(narrow.responses) == ["tool_not_available", "tool_not_available"]


async def test_S27_a_session_gives_its_tools_and_its_asking_to_every_turn(engine: Engine) -> None:
    both = ScriptedReply(calls=(build_request("files__echo"), build_request("list_directory", path=".")))
    model = ModelChoice(script=(both, ScriptedReply(text="One."), both, ScriptedReply(text="Two.")))
    start = SessionInput(turn=TurnInput(model=model, tools=("files__*",), confirm=ALWAYS, interactive=False))
    session = engine.holdfast.get_session()
    async with engine.worker(ECHO):
        for text in ("First", "Second"):
            sent = await session.send(text, start=start)
            result = await (await session.wait_for_turn(sent.turn)).result()
            assert kinds(result.responses) == ["denied", "tool_not_available"]


# Asking about everything


async def test_S27_where_all_is_asked_about_a_read_waits_and_runs_once_it_is_approved(both: Engine) -> None:
    (both.workspace / "a.txt").write_text("hello")
    async with both.worker():
        turn = await both.start(TurnInput(batches=((build_request("read_file", path="a.txt"),),), confirm=ALWAYS))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        assert item.offers == ()
        assert "Every call is asked about here" in (item.reason or "")
        with pytest.raises(DecisionRefused):
            await both.holdfast.decide(item.approval_id, "proceed_always_tool", digest=item.digest)
        await both.holdfast.approve(item.approval_id, digest=item.digest)
        [response] = (await turn.result()).responses
        call = await turn.fetch_call("b1c1")
    assert "hello" in (response.text or "")
    assert (call.rule, call.actor and call.actor.kind) == (
        "default: reads-proceed, and every call is asked about",
        "person",
    )


async def test_S27_an_answer_that_stands_counts_for_no_call_of_a_message_that_wants_all_asked_about(
    engine: Engine,
) -> None:
    asks = ScriptedReply(calls=(build_request("ask", say="a"),))
    model = ModelChoice(script=tuple(ScriptedReply(text=str(at)) if at % 2 else asks for at in range(6)))
    session = engine.holdfast.get_session()
    async with engine.worker(ASK):
        sent = await session.send("First", start=SessionInput(turn=TurnInput(model=model)))
        [item] = await listed(engine.holdfast, sent.turn)
        await engine.holdfast.decide(item.approval_id, "proceed_always_tool")
        await session.get_turn(sent.turn).result()
        sent = await session.send("Second", confirm=ALWAYS)
        [item] = await listed(engine.holdfast, sent.turn)
        await engine.holdfast.approve(item.approval_id)
        await session.get_turn(sent.turn).result()
        sent = await session.send("Third")
        assert kinds((await (await session.wait_for_turn(sent.turn)).result()).responses) == ["ok"]
        assert (await session.get_turn(sent.turn).fetch_call("b1c1")).grant == "g1"


async def test_S27_a_question_is_not_asked_about_as_well(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(
            TurnInput(batches=((build_request("ask_user", question="Which one?"),),), confirm=ALWAYS)
        )
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        assert "Every call" not in (item.reason or "")
        await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content="that one")
        [response] = (await turn.result()).responses
    assert "that one" in (response.text or "")


async def test_S27_where_nobody_can_be_asked_asking_about_everything_denies_everything(engine: Engine) -> None:
    calls = (
        build_request("list_directory", path="."),
        build_request("files__echo"),
        build_request("delegate", prompt="x"),
    )
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(batches=(calls,), confirm=ALWAYS, interactive=False))
        responses = (await turn.result()).responses
    assert kinds(responses) == ["denied"] * 3
    assert all("nobody can be asked" in (one.error.message if one.error else "") for one in responses)


async def test_S27_the_setting_asks_about_every_call_of_every_turn(engine: Engine) -> None:
    engine.with_rules('[[rule]]\ndecision = "allow"\nanything = true\n', confirm=ALWAYS, modes=tuple(Mode))
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(batches=((build_request("files__echo", say=1),),), mode=Mode.YOLO))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.approve(item.approval_id, digest=item.digest)
        assert kinds((await turn.result()).responses) == ["ok"]


async def test_S27_yolo_unattended_says_what_lets_proceed_what_destroys(engine: Engine) -> None:
    engine.settings = replace(engine.settings, modes=(Mode.YOLO,))
    calls = (build_request("shell", command="rm -rf gone"), build_request("shell", command="$NOTHING"))
    input = TurnInput(batches=(calls,), mode=Mode.YOLO, interactive=False)
    (engine.workspace / "gone").mkdir()
    async with engine.worker():
        responses = (await (await engine.start(input)).result()).responses
    assert kinds(responses) == ["denied", "denied"]
    assert all("`yolo_asks = false`" in (one.error.message if one.error else "") for one in responses)
    assert (engine.workspace / "gone").exists()
    engine.settings = replace(engine.settings, yolo_asks=False)
    async with engine.worker():
        responses = (await (await engine.start(input)).result()).responses
    assert kinds(responses)[0] == "ok"
    assert not (engine.workspace / "gone").exists()


# Where calls execute


@workflow.defn(name=TURN_WORKFLOW, sandboxed=False)
class ForgingTurn:
    """An honest turn's input on a dishonest worker: it schedules whatever it is told to."""

    def __init__(self) -> None:
        self._inputs: list[Any] | None = None

    @workflow.signal(name="inputs")
    def take(self, queue: str, inputs: list[Any]) -> None:
        """What to schedule, and where."""
        self._inputs = [(queue, input) for input in inputs]

    @workflow.run
    async def run(self, input: Any) -> list[Any]:
        """What the real worker's executing activity answers to each."""
        await workflow.wait_condition(lambda: self._inputs is not None)
        return [
            await workflow.execute_activity(
                "holdfast.execute",
                each,
                task_queue=queue,
                start_to_close_timeout=SECONDS,
                heartbeat_timeout=SECONDS,
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
            for queue, each in self._inputs or ()
        ]


@asynccontextmanager
async def forging(engine: Engine) -> AsyncIterator[Client]:
    """A client and a worker of somebody else's, on a queue of its own."""
    client = await Client.connect(engine.address, data_converter=pydantic_data_converter)
    async with Worker(client, task_queue=f"{engine.queue}-forger", workflows=[ForgingTurn]):
        yield client


async def forged(engine: Engine, client: Client, input: TurnInput, of: Turn, **more: Any) -> dict[str, Any]:
    """What the real worker answers to the call of another turn, in a turn that was started with this input."""
    bound = (await of.fetch_call("b1c1")).bound
    assert bound is not None
    made = ExecuteInput(call_id="b1c1", bound=bound, **more).model_dump(mode="json")
    handle = await client.start_workflow(
        TURN_WORKFLOW, input.model_dump(mode="json"), id=f"{of.id}-forged", task_queue=f"{engine.queue}-forger"
    )
    await handle.signal("inputs", args=[engine.queue, [made]])
    [answer] = await asyncio.wait_for(handle.result(), 30)
    found: dict[str, Any] = answer
    return found


@pytest.mark.parametrize("claims", [{}, {"tools": ["*"]}, {"confirm": "policy"}], ids=["nothing", "tools", "confirm"])
async def test_S22_an_execution_that_leaves_out_what_its_turn_was_started_with_runs_nothing(
    engine: Engine, claims: dict[str, Any]
) -> None:
    ran: list[str] = []

    async def act(arguments: dict[str, Any], run: Run) -> str:
        ran.append(run.call_id)
        return "ran"

    tool = FakeTool("act", act, effect=Effect.READ)
    batches = ((build_request("act"),),)
    limits: dict[str, Any] = {"confirm": ALWAYS} if "confirm" in claims else {"tools": ("glob",)}
    async with engine.worker(tool), forging(engine) as client:
        free = await engine.start(TurnInput(batches=batches))
        await free.result()
        assert ran == ["b1c1"]
        answer = await forged(engine, client, TurnInput(batches=batches, **limits), free, **claims)
    assert (answer["kind"], answer["verdict"]["kind"]) == ("reconsider", "ask" if "confirm" in limits else "reject")
    assert ran == ["b1c1"]


async def test_S22_the_same_execution_runs_in_a_turn_without_limits(engine: Engine) -> None:
    """What the test above forbids is allowed otherwise: it is the limits that are checked."""
    async with engine.worker(ECHO), forging(engine) as client:
        free = await engine.start(TurnInput(batches=((build_request("files__echo"),),)))
        await free.result()
        answer = await forged(engine, client, TurnInput(keep_open=True), free)
    assert answer["kind"] == "finished"


async def test_S22_a_turn_that_continued_as_new_keeps_the_limits_of_its_start(impatient: str, tmp_path: Path) -> None:
    """Its later runs were started by the turn itself, and so by whoever runs a worker: the first one counts."""
    replies = [[build_request("files__echo", say=at)] for at in range(20)]
    start = TurnInput(prompt="Go on", model=script_model(*replies, "Done."), tools=("files__echo",))
    async with new_engine(impatient, tmp_path) as engine, engine.worker(ECHO):
        turn = await engine.start(start)
        result = await turn.result()
        run_id = (await engine.client.get_workflow_handle(turn.id).describe()).run_id
        asking = TurnStarts(engine.client)
        found = await asking.find(turn.id, run_id)
        unknown = await asking.find(turn.id, str(uuid4()))
    assert result.runs, "it has continued as new"
    assert result.runs[0].run_id != run_id
    assert found == TurnStart(tools=("files__echo",))
    assert unknown is None
