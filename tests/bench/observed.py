"""What being observed costs: the same turns with metrics and traces, and without, side by side.

    python -m tests.bench.observed

Ratios travel between machines, times do not; no test asserts either.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from temporalio.client import Client
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.worker import Worker

from holdfast import Holdfast, HoldfastPlugin, TurnInput
from holdfast.config.sections import TelemetrySettings
from holdfast.telemetry.metrics import BUCKETS
from holdfast.testing import build_request
from tests.bench.turns import MODEL_TURN, TOOLS
from tests.support.engine import Engine, new_engine
from tests.support.server import start_server
from tests.support.services.observed import free_port
from tests.support.services.otlp import collector

ROUNDS = 30
CASES = {
    "model, 3 calls, model": MODEL_TURN,
    "200 calls": TurnInput(batches=(tuple(build_request("nothing") for _ in range(200)),)),
}


def _runtime() -> Runtime:
    served = PrometheusConfig(f"127.0.0.1:{free_port()}", histogram_bucket_overrides=BUCKETS)
    return Runtime(telemetry=TelemetryConfig(metrics=served))


async def _worker(engine: Engine, queue: str, *, observed: bool) -> tuple[Worker, Holdfast]:
    told = TelemetrySettings(traces="otlp") if observed else TelemetrySettings()
    settings = replace(engine.settings, task_queue=queue, telemetry=told)
    plugin = HoldfastPlugin(settings, tools=TOOLS)
    client = await Client.connect(engine.address, plugins=[plugin], runtime=_runtime() if observed else None)
    return Worker(client, task_queue=queue), Holdfast(client, task_queue=queue)


async def main() -> None:
    """Take turns, so that a slow moment of the machine hits both."""
    with tempfile.TemporaryDirectory() as folder, collector() as traces:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = traces.url
        async with await start_server(Path(folder) / "temporal.db") as server:
            address = server.client.service_client.config.target_host
            async with new_engine(address, Path(folder) / "bench") as engine:
                plain, unobserved = await _worker(engine, "plain", observed=False)
                watched, observed = await _worker(engine, "observed", observed=True)
                async with plain, watched:
                    for name, input in CASES.items():
                        print(f"{name:30}{await _ratio(input, unobserved, observed):8.2f}")
        print(f"{len(traces.spans()):,} spans")


async def _ratio(input: TurnInput, plain: Holdfast, observed: Holdfast) -> float:
    times: dict[Holdfast, list[float]] = {plain: [], observed: []}
    for _ in range(ROUNDS):
        for holdfast, known in times.items():
            began = time.monotonic()
            await (await holdfast.start(input)).result()
            known.append(time.monotonic() - began)
    return statistics.median(times[observed]) / statistics.median(times[plain])


if __name__ == "__main__":
    asyncio.run(main())
