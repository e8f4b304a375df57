"""Traces of real turns, as a collector gets them: complete, in the right places, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.worker import Worker

from holdfast import (
    Confirmation,
    Holdfast,
    HoldfastPlugin,
    ModelChoice,
    Run,
    Schedule,
    ScriptedReply,
    SessionInput,
    Settings,
    Turn,
    TurnInput,
)
from holdfast.config.sections import TelemetrySettings
from holdfast.domain.calls.tool import Effect
from holdfast.telemetry.spans import derive_root_place
from holdfast.testing import FakeTool, build_request, decide_all, script_model, wait_until
from tests.support.engine import Engine, new_engine
from tests.support.mcp.mcp_servers import ours, servers
from tests.support.server import address_of, start_server, start_skipping_server
from tests.support.services.observed import observed_worker
from tests.support.services.otlp import Collector, Told, collector
from tests.support.waiting import asked, waiting

TRACED = TelemetrySettings(traces="otlp")


@pytest.fixture
def traces(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that this engine's workers send their traces to."""
    with collector() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        engine.settings = replace(engine.settings, telemetry=TRACED)
        yield made


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


async def _fail(arguments: dict[str, Any], run: Run) -> str:
    raise ValueError("no")


ASK = FakeTool("ask", _echo, asks=True, safe=True)
LOOK = FakeTool("look", _echo, effect=Effect.READ, safe=True)
BAD = FakeTool("bad", _fail, safe=True)


def whole(spans: list[Told]) -> None:
    """Each is there once, within one that is there too, and as long as it should be."""
    assert [id for id, count in Counter(span.id for span in spans).items() if count > 1] == []
    by_id = {span.id: span for span in spans}
    assert [span.name for span in spans if span.parent not in by_id] == ["holdfast.turn"]
    for span in spans:
        above = by_id.get(span.parent)
        assert span.start <= span.end
        assert above is None or above.trace == span.trace
        if above and span.name not in ("holdfast.attempt", "holdfast.mcp"):  # their clock is another
            assert above.start <= span.start <= span.end <= above.end, span


async def test_the_spans_of_a_turn_are_where_they_belong(engine: Engine, traces: Collector) -> None:
    model = script_model([build_request("ask", say=1), build_request("bad"), build_request("made_up")], "done")
    async with engine.worker(ASK, BAD):
        turn = await engine.start(TurnInput(model=model, prompt="go"))
        await decide_all(engine.holdfast, turn)
    found = traces.spans(turn.id)
    whole(found)
    assert sorted(traces.tree(turn.id)) == [
        "turn=completed",
        "turn=completed/call b1c1=success",
        "turn=completed/call b1c1=success/approval b1c1=proceed",
        "turn=completed/call b1c1=success/execute b1c1=success",
        "turn=completed/call b1c1=success/execute b1c1=success/attempt b1c1=finished",
        "turn=completed/call b1c2=error",
        "turn=completed/call b1c2=error/execute b1c2=error",
        "turn=completed/call b1c2=error/execute b1c2=error/attempt b1c2=failed",
        "turn=completed/call b1c3=error",
        "turn=completed/step 1=asked",
        "turn=completed/step 1=asked/attempt 1=answered",
        "turn=completed/step 2=answered",
        "turn=completed/step 2=answered/attempt 2=answered",
        "turn=completed/validate b1",
    ]
    by_label = {f"{span.name} {span.attributes.get('holdfast.call.id', '')}": span for span in found}
    asked, ran = by_label["holdfast.approval b1c1"], by_label["holdfast.attempt b1c1"]
    assert (asked["tool"], asked["asks"], asked["revision"], asked["actor"]) == ("ask", "info", 1, "person")
    assert (ran["tool"], ran["attempt"], ran["worker"]) == ("ask", 1, "engine")
    assert by_label["holdfast.call b1c3"]["tool"] == "unknown"
    assert by_label["holdfast.call b1c3"]["reason"] == "tool_not_registered"
    assert {span.name for span in found if span.failed} == {"holdfast.call", "holdfast.execute", "holdfast.attempt"}
    assert {span.worker for span in found} == {"engine"}


def _but_tasks(history: list[str]) -> Counter[str]:
    """How many workflow tasks there are depends on what comes at the same moment."""
    return Counter(kind for kind in history if not kind.startswith("WORKFLOW_TASK_"))


async def test_tracing_adds_no_event_to_a_history(engine: Engine, traces: Collector) -> None:
    traced, plain = engine.settings, replace(engine.settings, telemetry=TelemetrySettings())
    model = script_model([build_request("look", say=1)], "done")
    counted = []
    for settings in (plain, traced):
        engine.settings = settings
        async with engine.worker(ASK, LOOK):
            turns = [await engine.start(TurnInput(model=model, prompt="go"))]
            turns += [await engine.start(TurnInput(batches=((build_request("ask"), build_request("look")),)))]
            await decide_all(engine.holdfast, turns[1])
            await turns[0].result()
            counted.append([_but_tasks(await engine.history(turn)) for turn in turns])
    assert counted[0] == counted[1]
    assert traces.spans(turns[1].id)


async def test_a_turn_of_two_hundred_calls_is_told_whole(engine: Engine, traces: Collector) -> None:
    calls = tuple(build_request("look", say=number) for number in range(200))
    async with engine.worker(LOOK):
        turn = await engine.start(TurnInput(batches=(calls,)))
        await turn.result()
    found = traces.spans(turn.id)
    whole(found)
    names = Counter(span.name.removeprefix("holdfast.") for span in found)
    assert names == {"turn": 1, "validate": 1, "call": 200, "execute": 200, "attempt": 200}


@pytest.mark.parametrize("order", [(False, True), (True, False)], ids=["on", "off"])
async def test_tracing_may_begin_and_end_in_the_middle_of_a_turn(
    engine: Engine, traces: Collector, order: tuple[bool, bool]
) -> None:
    """What the turn knows of itself is told by whoever ends it, also of the time when nobody traced."""
    traced, plain = engine.settings, replace(engine.settings, telemetry=TelemetrySettings())
    model = script_model([build_request("look")], [build_request("ask")], "done")
    engine.settings = traced if order[0] else plain
    async with engine.worker(ASK, LOOK):
        turn = await engine.start(TurnInput(model=model, prompt="go"))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
    engine.settings = traced if order[1] else plain
    async with engine.worker(ASK, LOOK):
        await engine.holdfast.approve(item.approval_id)
        assert (await turn.result()).status == "completed"
    found = Counter(span.name.removeprefix("holdfast.") for span in traces.spans(turn.id))
    if order[1]:
        whole(traces.spans(turn.id))
        assert found == {"turn": 1, "step": 3, "validate": 2, "call": 2, "approval": 1, "execute": 2, "attempt": 2}
    else:
        assert found == {"attempt": 2}  # the read ran with its validation


async def test_a_turn_that_is_replayed_at_every_step_is_told_once(
    server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as traces:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.url)
        async with new_engine(server_address, tmp_path, cached=0) as engine:
            engine.settings = replace(engine.settings, telemetry=TRACED)
            async with engine.worker(ASK, LOOK):
                model = script_model([build_request("look"), build_request("ask")], [build_request("look")], "done")
                turn = await engine.start(TurnInput(model=model, prompt="go"))
                await decide_all(engine.holdfast, turn)
                await turn.fetch_view()
    whole(traces.spans(turn.id))


async def test_turns_of_a_session_have_traces_of_their_own_and_link_to_it(engine: Engine, traces: Collector) -> None:
    given = SessionInput(turn=TurnInput(model=script_model("one", "two")))
    session = engine.holdfast.get_session()
    async with engine.worker():
        for text in ("first", "second"):
            sent = await session.send(text, start=given)
            await (await session.wait_for_turn(sent.turn)).result()
        await session.close()
        description = await engine.client.get_workflow_handle(session.id).describe()
        await session.result()
    [own] = [span for span in traces.spans() if span.name == "holdfast.session"]
    place = derive_root_place(session.id, description.run_id)
    assert (own.trace, own.id, own["turns"]) == (place.trace, place.span, 2)
    turns = [span for span in traces.spans() if span.name == "holdfast.turn"]
    assert len({span.trace for span in turns} | {own.trace}) == 3
    assert [(span.links, span["session.id"]) for span in turns] == [((f"{own.trace}/{own.id}",), session.id)] * 2


async def test_a_delegated_turn_is_within_the_call_that_runs_it(engine: Engine, traces: Collector) -> None:
    inner = (ScriptedReply(calls=(build_request("look"),)), ScriptedReply(text="seen"))
    model = script_model([build_request("delegate", prompt="look")], "done").model_copy(
        update={"delegated": {"look": inner}}
    )
    async with engine.worker(LOOK):
        turn = await engine.start(TurnInput(model=model, prompt="go"))
        result = await turn.result()
    assert result.status == "completed"
    child = next(span for span in traces.spans(f"{turn.id}~b1c1") if span.name == "holdfast.turn")
    above = next(span for span in traces.spans(turn.id) if span.id == child.parent)
    assert (above.name, above["call.id"], above.trace) == ("holdfast.execute", "b1c1", child.trace)
    assert child["depth"] == 1


async def test_requests_to_an_MCP_server_are_within_the_attempt(
    engine: Engine, traces: Collector, tmp_path: Path
) -> None:
    engine.settings = replace(engine.settings, mcp=servers(s=ours(str(tmp_path))))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("s__act", n=1),),)))
        await decide_all(engine.holdfast, turn)
    [line] = [line for line in traces.tree(turn.id) if "mcp" in line]
    assert line.endswith("/execute b1c1=success/attempt b1c1=finished/mcp b1c1=answered")
    [span] = [span for span in traces.spans(turn.id) if span.name == "holdfast.mcp"]
    assert span.attributes["mcp.server"] == "s"


async def test_a_turn_belongs_to_the_trace_of_whoever_starts_it(engine: Engine, traces: Collector) -> None:
    """Temporal's own tracing of the application that starts it says which that is."""
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("application")
    client = await Client.connect(
        engine.address, plugins=[HoldfastPlugin(engine.settings)], interceptors=[TracingInterceptor(tracer)]
    )
    async with engine.worker(LOOK):
        with tracer.start_as_current_span("request") as span:
            holdfast = Holdfast(client, task_queue=engine.queue)
            turn: Turn = await holdfast.start(TurnInput(batches=((build_request("look"),),)))
        await turn.result()
    own = next(span for span in traces.spans(turn.id) if span.name == "holdfast.turn")
    assert own.trace == f"{span.get_span_context().trace_id:032x}"
    assert own.parent
    assert {one.trace for one in traces.spans(turn.id)} == {own.trace}


async def test_a_turn_that_cannot_begin_is_told_as_failed(engine: Engine, traces: Collector) -> None:
    async with engine.worker():
        handle = await engine.client.start_workflow(
            "holdfast.turn", {"prompt": 7}, id=f"bad-{engine.queue}", task_queue=engine.queue
        )
        with pytest.raises(Exception, match="execution failed"):
            await handle.result()
    [span] = traces.spans(handle.id)
    assert (span.name, span["outcome"], span.failed) == ("holdfast.turn", "failed", True)


async def test_a_killed_worker_takes_no_span_of_a_turn_along_and_nothing_is_counted_twice(
    engine: Engine, traces: Collector
) -> None:
    """It is killed while one call executes and another, of another turn, waits for somebody."""
    model = script_model([build_request("echo", say=1)], [build_request("ask", say=2)], "done")
    told = 'traces = "otlp"'
    async with observed_worker(engine, told) as first:
        waits = await engine.start(TurnInput(model=model, prompt="go"))
        [item] = (await wait_until(lambda: waiting(waits))).approvals
        runs = await engine.start(
            TurnInput(batches=((build_request("hang_once", mark="m"), build_request("once", mark="n")),))
        )
        await wait_until(lambda: _marked(engine, "m", "n"))
        await first.kill()
    async with observed_worker(engine, told) as second:
        await engine.holdfast.approve(item.approval_id)
        [lost] = (await wait_until(lambda: waiting(runs), 60)).approvals
        await engine.holdfast.decide(lost.approval_id, "respond", content="it was done", digest=lost.digest)
        assert [(await turn.result()).status for turn in (waits, runs)] == ["completed"] * 2
        await second.until_counted("holdfast_turns_total", 2)
        assert await second.counted("holdfast_calls_total", outcome="success") == 3  # one ended with the first worker
        assert await second.counted("holdfast_outcome_unknown_total", tool="once") == 1
        assert await second.counted("holdfast_outcome_unknown_total") == 1
        assert await second.counted("holdfast_decisions_total", outcome="proceed") == 1
        assert await second.counted("holdfast_decisions_total", kind="outcome_unknown", outcome="respond") == 1
        assert await second.counted("holdfast_approval_wait_seconds_count", outcome="proceed") == 1
        assert await second.end() == 0
    for turn in (waits, runs):
        facts = [span for span in traces.spans(turn.id) if span.name != "holdfast.attempt"]
        whole(facts)
    names = Counter(span.name.removeprefix("holdfast.") for span in traces.spans(waits.id))
    assert names - Counter(attempt=9) == {"turn": 1, "step": 3, "validate": 2, "call": 2, "approval": 1, "execute": 2}
    ran = [span for span in traces.spans(runs.id) if span.name == "holdfast.execute"]
    assert {(span["tool"], span["outcome"]) for span in ran} == {("hang_once", "success"), ("once", "outcome_unknown")}
    attempts = [span for span in traces.spans(runs.id) if span.name == "holdfast.attempt"]
    assert {(span["tool"], span["attempt"], span["outcome"]) for span in attempts} == {
        ("hang_once", 2, "finished"),
        ("once", 2, "lost"),
    }


async def _marked(engine: Engine, *names: str) -> bool:
    return all((engine.workspace / name).exists() for name in names)


OFTEN = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60")


async def test_a_turn_that_continues_as_new_is_one_trace_told_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [[build_request("look", say=n), build_request("ask", say=n)] for n in range(12)]
    with collector() as traces:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.url)
        async with await start_server(tmp_path / "temporal.db", OFTEN) as server:
            address = address_of(server)
            async with new_engine(address, tmp_path / "engine") as engine:
                engine.settings = replace(engine.settings, telemetry=TRACED)
                async with engine.worker(ASK, LOOK):
                    turn = await engine.start(TurnInput(model=script_model(*batches, "done"), prompt="go"))
                    await decide_all(engine.holdfast, turn)
                    result = await turn.result()
    assert len(result.runs) > 1
    whole(traces.spans(turn.id))
    names = Counter(span.name.removeprefix("holdfast.") for span in traces.spans(turn.id))
    assert names == {
        "turn": 1, "step": 13, "validate": 12, "call": 24, "approval": 12, "execute": 24, "attempt": 37,
    }  # fmt: skip


async def test_a_call_that_lives_on_its_host_is_told_by_the_worker_of_the_host(
    engine: Engine, traces: Collector
) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="true"),),)))
        await decide_all(engine.holdfast, turn)
    whole(traces.spans(turn.id))
    [attempt] = [span for span in traces.spans(turn.id) if span.name == "holdfast.attempt"]
    assert (attempt["tool"], attempt["outcome"], attempt["worker"]) == ("shell", "finished", "engine")


WEEK = """
[[rule]]
name = "slow"
decision = "ask"
tool = "shell"
deadline = "7d"
on_deadline = "deny"
"""


async def test_S28_a_wait_of_a_week_is_a_span_of_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "policy.toml").write_text(WEEK)
    with collector() as traces:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.url)
        places = Settings(data=tmp_path / "data", workspace=tmp_path / "workspace")
        plugin = HoldfastPlugin(replace(places, policy=(tmp_path / "policy.toml",), telemetry=TRACED))
        async with (
            await start_skipping_server(plugin) as environment,
            Worker(environment.client, task_queue="week", max_cached_workflows=0),
        ):
            holdfast = Holdfast(environment.client, task_queue="week")
            turn = await holdfast.start(TurnInput(batches=((build_request("shell", command="true"),),)))
            await turn.result()
    [wait] = [span for span in traces.spans(turn.id) if span.name == "holdfast.approval"]
    assert (wait["outcome"], wait["actor"]) == ("expired", "runtime")
    assert timedelta(days=7) <= timedelta(microseconds=(wait.end - wait.start) / 1_000) < timedelta(days=8)
    whole(traces.spans(turn.id))


async def test_a_streamed_reply_that_breaks_off_is_told_with_what_was_discarded(
    engine: Engine, traces: Collector
) -> None:
    calls = (build_request("look", say=1), build_request("look", say=2))
    script = (ScriptedReply(calls=calls, breaks=(1,)), ScriptedReply(text="done"))
    input = TurnInput(model=ModelChoice(script=script), prompt="go", schedule=Schedule.STREAMING)
    async with engine.worker(LOOK):
        turn = await engine.start(input)
        assert (await turn.result()).status == "completed"
    found = traces.spans(turn.id)
    whole(found)
    [step] = [span for span in found if span.name == "holdfast.step" and span["step"] == 1]
    assert step["attempts"] == 2
    assert Counter(span["batch.id"] for span in found if span.name == "holdfast.call") == {"b1": 1, "b2": 2}


async def _question(arguments: dict[str, Any], run: Run) -> str:
    return (await run.ask(Confirmation(kind="question", title="Who?", question="Who?"))).text


async def test_each_question_about_a_call_and_of_it_is_a_wait_of_its_own(engine: Engine, traces: Collector) -> None:
    """What is changed is asked again; a tool that asks in the middle of its run runs before it and after it."""
    asking = FakeTool("asking", _question, asks=True, questions=True)
    said: list[tuple[str, dict[str, Any]]] = [
        ("modify", {"arguments": {"say": 2}}),
        ("proceed_once", {}),
        ("respond", {"content": "ana"}),
    ]
    async with engine.worker(asking):
        turn = await engine.start(TurnInput(batches=((build_request("asking", say=1),),)))
        for revision, (outcome, more) in enumerate(said, start=1):
            view = await wait_until(lambda revision=revision: asked(turn, "b1c1", revision))  # type: ignore[misc]
            item = view.approvals[0]
            await engine.holdfast.decide(item.approval_id, outcome, digest=item.digest, **more)
        [response] = (await turn.result()).responses
        assert response.text.endswith("ana")
    found = traces.spans(turn.id)
    whole(found)
    waits = sorted((span["revision"], span["asks"], span["outcome"]) for span in found if "approval" in span.name)
    assert waits == [(1, "info", "asked_again"), (2, "info", "proceed"), (3, "question", "answered")]
    assert sorted(span["outcome"] for span in found if span.name == "holdfast.execute") == ["question", "success"]


async def test_a_call_that_is_stopped_is_told_as_cancelled(engine: Engine, traces: Collector) -> None:
    begun = asyncio.Event()

    async def hang(arguments: dict[str, Any], run: Run) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with engine.worker(FakeTool("hang", hang)):
        turn = await engine.start(TurnInput(batches=((build_request("hang"), build_request("hang")),)))
        async with asyncio.timeout(20):
            await begun.wait()
        await turn.cancel()
        await turn.result()
    found = traces.spans(turn.id)
    whole(found)
    assert sorted(traces.tree(turn.id)) == [
        "turn=cancelled",
        "turn=cancelled/call b1c1=cancelled",
        "turn=cancelled/call b1c1=cancelled/execute b1c1=cancelled",
        "turn=cancelled/call b1c1=cancelled/execute b1c1=cancelled/attempt b1c1=stopped",
        "turn=cancelled/call b1c2=cancelled",
        "turn=cancelled/validate b1",
    ]
    assert not any(span.failed for span in found)
