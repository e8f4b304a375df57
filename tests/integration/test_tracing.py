"""Traces of real turns, as a collector gets them: complete, in the right places, once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast import Run, Turn, TurnInput
from holdfast.telemetry import TelemetrySettings
from holdfast.testing import FakeTool, decide_all, request, scripted, until
from holdfast.tools import Effect
from tests.support.engine import Engine
from tests.support.otlp import Collector, collector
from tests.support.waiting import waiting

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
READ = FakeTool("look", _echo, effect=Effect.READ, safe=True)
BAD = FakeTool("bad", _fail, safe=True)


async def test_the_spans_of_a_turn_are_where_they_belong(engine: Engine, traces: Collector) -> None:
    model = scripted([request("ask", say=1), request("bad"), request("made_up")], "done")
    async with engine.worker(ASK, BAD):
        turn = await engine.start(TurnInput(model=model, prompt="go"))
        await decide_all(engine.holdfast, turn)
    print("\n".join(traces.tree(turn.id)))
    assert False
