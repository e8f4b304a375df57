"""A worker as it is observed in production: scraped, its log read, its spans collected. What it was told is in none.

The canaries are in arguments, output, prompts, exceptions, answers of people and what an MCP server was given.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.service import RPCError

from holdfast import TurnInput
from holdfast.telemetry.metrics import BUCKETS, COUNTERS, GAUGES, HISTOGRAMS
from holdfast.testing import build_request, script_model, wait_until
from tests.support.engine import Engine
from tests.support.pages import read_page
from tests.support.secrets.canaries import GIVEN, TOLD, leaky_table
from tests.support.secrets.writings import tells
from tests.support.services.observed import Observed, observed_worker, samples
from tests.support.services.otlp import Collector, collector
from tests.support.waiting import waiting

CANARY = "Qv7-zK2_mY9xTb4Lw8"
KEY = "Bearer Jd5Xs8Hc3Nq6Vf1G"
"""The credential of the collector."""


@pytest.fixture
def traces() -> Iterator[Collector]:
    with collector() as made:
        yield made


def otlp(traces: Collector) -> dict[str, str]:
    """What tells a worker of the collector, with a credential."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": traces.url, "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={KEY}"}


async def play(engine: Engine, *places: str) -> None:
    """Turns that succeed, fail, are denied, refused, changed, stopped and shouted at, all about the canary."""
    tools = ("echo", "fail", "refuse", "leave", "tell", "made_up", CANARY)
    model = script_model([build_request(tool, say=CANARY) for tool in tools], f"done {CANARY}")
    spoken = await engine.start(TurnInput(model=model, prompt=CANARY, requester=CANARY))
    await spoken.result()
    asked = await engine.start(TurnInput(batches=(tuple(build_request("ask", say=CANARY) for _ in range(4)),)))
    items = (await wait_until(lambda: waiting(asked, 4))).approvals
    handle = engine.client.get_workflow_handle(asked.id)
    await handle.signal("decide", {"approval_id": CANARY, "digest": CANARY, "outcome": CANARY})
    await handle.signal("decide", {"approval_id": f"{asked.id}/b1c1/1", "digest": CANARY, "outcome": "yes"})
    await handle.signal("decide", CANARY)
    await engine.holdfast.decide(items[0].approval_id, "proceed_once", digest=items[0].digest, by=CANARY, note=CANARY)
    await engine.holdfast.decide(items[1].approval_id, "respond", digest=items[1].digest, content=CANARY)
    await engine.holdfast.decide(items[2].approval_id, "cancel", digest=items[2].digest, note=CANARY)
    await engine.holdfast.decide(items[3].approval_id, "proceed_always_tool", digest=items[3].digest)
    await asked.result()
    nobody = await engine.start(TurnInput(batches=((build_request("ask", say=CANARY),),), interactive=False))
    await nobody.result()
    stopped = await engine.start(TurnInput(batches=((build_request("ask", say=CANARY),),)))
    await wait_until(lambda: waiting(stopped))
    await stopped.cancel()
    await stopped.result()
    shell = await engine.start(
        TurnInput(batches=((build_request("shell", command=f"env; echo {CANARY} >&2; exit 3"),),))
    )
    [item] = (await wait_until(lambda: waiting(shell))).approvals
    await engine.holdfast.approve(item.approval_id)
    [response] = (await shell.result()).responses
    assert CANARY in response.text
    assert KEY not in response.text
    if places:
        calls = tuple(build_request("s__tell", place=place) for place in places)
        await (await engine.start(TurnInput(batches=(calls,)))).result()
    bad = await engine.client.start_workflow(
        "holdfast.turn", {"prompt": {CANARY: 1}}, id=f"bad-{engine.queue}", task_queue=engine.queue
    )
    with pytest.raises(Exception, match="execution failed"):
        await bad.result()


def leaking(folder: Path) -> str:
    """An MCP server that tells all that it was given, in a settings file."""
    (folder / "server").mkdir()
    table = leaky_table(folder / "server")
    return table.replace("[mcp.servers.s.env]", 'effects = { tell = "read" }\n[mcp.servers.s.env]', 1)


PLACES = ("text", "an error of the tool", "a result that is none", "structured")


def found_in(worker: Observed, traces: Collector, metrics: str) -> dict[str, str]:
    return {"log": worker.logged(), "traces": traces.raw.decode("utf-8", "replace"), "metrics": metrics}


@pytest.mark.parametrize("logs", ["text", "json"])
@pytest.mark.parametrize("verbose", [(), ("--verbose",)], ids=["usual", "verbose"])
async def test_S45_what_calls_are_given_and_give_back_is_in_no_log_no_metric_and_no_trace(
    engine: Engine, traces: Collector, tmp_path: Path, logs: str, verbose: tuple[str, ...]
) -> None:
    leaks = leaking(tmp_path)
    told = f'traces = "otlp"\nlogs = "{logs}"'
    async with observed_worker(engine, told, leaks, *verbose, **GIVEN, **otlp(traces)) as worker:
        await play(engine, *PLACES)
        await worker.until_counted("holdfast_turns_total", 7)
        metrics = worker.scraped()
        assert await worker.end() == 0
    assert traces.spans()
    assert traces.headers[0]["authorization"] == KEY
    for place, text in found_in(worker, traces, metrics).items():
        assert tells(text, CANARY, KEY, *TOLD) == [], place
    if logs == "json":
        for line in worker.lines():
            assert {"time", "level", "logger", "message", "worker"} <= set(line)
        assert all("turn" in line for line in worker.lines() if line["logger"] == "temporalio.workflow")


async def test_what_people_are_shown_is_told_where_that_is_allowed_and_credentials_are_not(
    engine: Engine, traces: Collector, tmp_path: Path
) -> None:
    """S45: `content` lets arguments into logs and traces, and no credential of ours or of a server."""
    told = 'traces = "otlp"\nlogs = "json"\ncontent = true'
    options = ("--verbose",)
    async with observed_worker(engine, told, leaking(tmp_path), *options, **GIVEN, **otlp(traces)) as worker:
        await play(engine, *PLACES)
        metrics = worker.scraped()
        assert await worker.end() == 0
    texts = found_in(worker, traces, metrics)
    assert [place for place, text in texts.items() if CANARY in text] == ["log", "traces"]
    assert [place for place, text in texts.items() if tells(text, KEY, *TOLD)] == []
    assert any(CANARY in line.get("error_text", "") for line in worker.lines())


async def test_a_scrape_shows_what_was_run(engine: Engine) -> None:
    async with observed_worker(engine) as worker:
        model = script_model(
            [build_request("echo"), build_request("echo"), build_request("fail"), build_request("made_up")], "done"
        )
        await (await engine.start(TurnInput(model=model, prompt="go"))).result()
        asked = await engine.start(TurnInput(batches=((build_request("ask"), build_request("ask")),)))
        first, second = (await wait_until(lambda: waiting(asked, 2))).approvals
        await worker.until_counted("holdfast_waiting_turns", 1)
        assert await worker.counted("holdfast_live_turns") == 1
        await engine.holdfast.decide(first.approval_id, "yes", digest=first.digest)
        await engine.holdfast.decide(second.approval_id, "no", digest=second.digest)
        await asked.result()
        await asked.fetch_view()
        await worker.until_counted("holdfast_turns_total", 2, outcome="completed")
        expected: list[tuple[str, float, dict[str, str]]] = [
            ("holdfast_calls_total", 2, {"tool": "echo", "outcome": "success"}),
            ("holdfast_calls_total", 1, {"tool": "fail", "outcome": "error", "reason": "other"}),
            ("holdfast_calls_total", 1, {"tool": "unknown", "reason": "tool_not_registered"}),
            ("holdfast_calls_total", 1, {"tool": "ask", "outcome": "cancelled", "reason": "refused"}),
            ("holdfast_calls_total", 6, {}),
            ("holdfast_execution_seconds_count", 4, {}),
            ("holdfast_execution_seconds_count", 1, {"tool": "ask", "outcome": "success"}),
            ("holdfast_approval_wait_seconds_count", 2, {"kind": "info"}),
            ("holdfast_decisions_total", 1, {"outcome": "proceed"}),
            ("holdfast_decisions_total", 1, {"outcome": "refuse"}),
            ("holdfast_outcome_unknown_total", 0, {"tool": "shell"}),
            ("holdfast_batches_total", 2, {"outcome": "done"}),
            ("holdfast_model_steps_total", 1, {"outcome": "asked"}),
            ("holdfast_model_steps_total", 1, {"outcome": "answered"}),
        ]
        for name, value, labels in expected:
            assert await worker.counted(name, **labels) == value, (name, labels)
        text = worker.scraped()
        for name, labels in (
            ("holdfast_turns_total", {"outcome": "failed"}),
            ("holdfast_decisions_total", {"kind": "exec", "outcome": "expired"}),
            ("holdfast_calls_total", {"tool": "shell", "outcome": "error", "reason": "no_worker"}),
        ):
            assert (labels, 0) in [
                ({key: about[key] for key in labels}, value) for about, value in samples(text, name)
            ], "it starts at 0"
        buckets = [about["le"] for about, _ in samples(text, "holdfast_approval_wait_seconds_bucket")]
        assert set(buckets) == {*map("{:g}".format, BUCKETS["holdfast_approval_wait_seconds"]), "+Inf"}
        assert samples(text, "temporal_workflow_completed_total"), "Temporal's own come along"
        assert asked.id not in text
        await wait_until(lambda: _gone(worker), 40)


async def test_what_the_server_has_run_again_is_counted_once(engine: Engine) -> None:
    """It refuses the task that ends a turn when a message has come meanwhile; the second run is no replay."""
    async with observed_worker(engine) as worker:
        ids: list[str] = []
        async with asyncio.timeout(90):
            while len(ids) < 4 or not await _refused(engine, ids):
                ids.append(await _shouted_at(engine))
        await worker.until_counted("holdfast_turns_total", len(ids))
        for name in ("holdfast_turns_total", "holdfast_calls_total", "holdfast_execution_seconds_count"):
            assert await worker.counted(name) == len(ids), name
        assert await worker.counted("holdfast_batches_total") == len(ids)


async def _shouted_at(engine: Engine) -> str:
    """A turn that gets messages until it has ended; its id."""
    turn = await engine.start(TurnInput(batches=((build_request("echo"),),)))
    handle = engine.client.get_workflow_handle(turn.id)

    async def shout() -> None:
        with suppress(RPCError):  # it has ended
            while True:
                await handle.signal("decide", "what?")

    await asyncio.gather(*(shout() for _ in range(4)))
    await turn.result()
    return turn.id


async def _refused(engine: Engine, ids: list[str]) -> bool:
    """Has the server refused the end of any of these?"""
    unhandled = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
    for id in ids:
        async for event in engine.client.get_workflow_handle(id).fetch_history_events():
            if event.workflow_task_failed_event_attributes.cause == unhandled:
                return True
    return False


async def _gone(worker: Observed) -> bool:
    return await worker.counted("holdfast_live_turns") == 0


async def test_a_collector_that_is_away_costs_a_turn_nothing_and_a_line(engine: Engine, traces: Collector) -> None:
    traces.status = 503
    async with observed_worker(engine, 'traces = "otlp"\nlogs = "json"', **otlp(traces)) as worker:
        for _ in range(3):
            turn = await engine.start(TurnInput(batches=(tuple(build_request("echo") for _ in range(50)),)))
            assert (await turn.result()).status == "completed"
        assert await worker.end() == 0
    lines = [line for line in worker.lines() if "collector" in line["message"]]
    assert len(lines) <= 1
    assert [line for line in worker.lines() if line["logger"].startswith("opentelemetry")] == []


async def test_a_port_that_is_taken_is_told_and_nothing_runs_unseen(engine: Engine) -> None:
    async with observed_worker(engine) as worker:
        file = engine.workspace.parent / "second.toml"
        file.write_text(f'[telemetry]\nmetrics = "127.0.0.1:{worker.port}"\n')
        done = await _run(engine, file)
    assert done == (
        2,
        f"holdfast: metrics cannot be served at 127.0.0.1:{worker.port} (telemetry.metrics): "
        "Failed starting Prometheus exporter: Address already in use (os error 98)\n",
    )


async def test_packages_that_are_missing_stop_a_worker_with_a_sentence(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "without" / "opentelemetry").mkdir(parents=True)
    (tmp_path / "without" / "opentelemetry" / "__init__.py").write_text("")
    file = tmp_path / "traced.toml"
    file.write_text('[telemetry]\ntraces = "otlp"\n')
    code, said = await _run(engine, file, PYTHONPATH=str(tmp_path / "without"))
    assert (code, said.count("\n")) == (2, 1)
    assert 'install "holdfast[otel]"' in said


async def _run(engine: Engine, file: Path, **environment: str) -> tuple[int | None, str]:
    command = ["-m", "holdfast.workers.cli", "--config", str(file), "worker", "--address", engine.address]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        env={**os.environ, "HOLDFAST_DATA": str(engine.settings.data), **environment},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(40):
        _, errors = await process.communicate()
    return process.returncode, errors.decode()


def test_every_metric_is_told_in_the_docs() -> None:
    text = read_page("observability")
    names = [f"{name}_total" for name in COUNTERS] + [*HISTOGRAMS, *GAUGES]
    assert [name for name in names if f"`{name}`" not in text] == []


def lines_of(worker: Observed, **fields: Any) -> list[dict[str, Any]]:
    return [line for line in worker.lines() if all(line.get(name) == value for name, value in fields.items())]


async def test_a_line_about_a_call_says_which_it_is(engine: Engine) -> None:
    async with observed_worker(engine, 'logs = "json"') as worker:
        turn = await engine.start(TurnInput(batches=((build_request("echo"), build_request("tell")),)))
        await turn.result()
        await worker.end()
    found = lines_of(worker, logger="a.tool")
    assert [(line["turn"], line["call"], line["tool"], line["attempt"]) for line in found] == [
        (turn.id, "b1c2", "tell", 1)
    ] * 2
    assert [line["message"] for line in found] == ["message of a.tool (withheld: telemetry.content)"] * 2
    assert json.loads(json.dumps(found)) == found
