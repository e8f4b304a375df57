"""Telemetry of a process: an interceptor that counts turns and calls, and gauges of open turns.

The interceptor is the client's, so every worker of the process has it, those of the host's queue too. A worker knows
only the turns in its cache, but the server's visibility knows all of them, with some delay. Every worker queries it,
and all report the same numbers: take the maximum.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from threading import Lock

from temporalio import client, worker
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.runtime import Runtime
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from holdfast.config.sections import TelemetrySettings
from holdfast.names import STATE_ATTRIBUTE, TURN_WORKFLOW
from holdfast.telemetry.activity import ObservedActivity
from holdfast.telemetry.exporter import SpanSink, open_sender
from holdfast.telemetry.metrics import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    LIVE_TURNS,
    SPANS_LOST,
    WAITING_TURNS,
    CountedKey,
    CountedKeys,
    Measurement,
    list_zero_series,
)
from holdfast.telemetry.phases import OTHER
from holdfast.telemetry.spans import Span
from holdfast.workflows.telemetry import OBSERVER, ObservedWorkflow, Observer

EVERY_SECONDS = 15.0
"""The interval of the gauges, which need two small queries each time."""
RPC_TIMEOUT = timedelta(seconds=5)


async def keep_counting(client: Client, task_queue: str, show: Callable[[str, int], None]) -> None:
    """Query the number of open turns until cancelled. A query that fails changes nothing."""
    live = f"WorkflowType = '{TURN_WORKFLOW}' AND ExecutionStatus = 'Running' AND TaskQueue = {_quote_text(task_queue)}"
    asked = {LIVE_TURNS: live, WAITING_TURNS: f"{live} AND {STATE_ATTRIBUTE.name} = 'awaiting_approval'"}
    while True:
        for name, query in asked.items():
            try:
                show(name, (await client.count_workflows(query, rpc_timeout=RPC_TIMEOUT)).count)
            except (RPCError, RuntimeError):
                continue
        await asyncio.sleep(EVERY_SECONDS)


def _quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


TOOLS_COUNTED = 1_000
"""The number of tools with labels of their own: an MCP server may rename its tools at any time."""


class Instruments:
    """The metric instruments of a process."""

    def __init__(self, meter: MetricMeter) -> None:
        self._counters = {name: meter.create_counter(name, about) for name, about in COUNTERS.items()}
        self._histograms = {
            name: meter.create_histogram_float(name, about, "s") for name, (about, _) in HISTOGRAMS.items()
        }
        self._gauges = {name: meter.create_gauge(name, about) for name, about in GAUGES.items()}
        self._tools: set[str] = set()

    def expect_tools(self, tools: Iterable[str]) -> None:
        """Start counters at zero: the first increase of a series cannot be seen otherwise."""
        self.count_measurements(list_zero_series(tools))

    def set_gauge(self, name: str, value: int) -> None:
        """Set a gauge."""
        self._gauges[name].set(value)

    def count_measurements(self, found: Iterable[Measurement]) -> None:
        """Add measurements."""
        for name, value, labels in found:
            bounded = self._bound_labels(labels) if "tool" in labels else labels
            if name in self._counters:
                self._counters[name].add(int(value), bounded)
            else:
                self._histograms[name].record(value, bounded)

    def _bound_labels(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        tool = labels["tool"]
        if len(self._tools) < TOOLS_COUNTED:
            self._tools.add(tool)
        return labels if tool in self._tools else {**labels, "tool": OTHER}


class TelemetryInterceptor(client.Interceptor, worker.Interceptor):
    """Observes the workers of a process."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self._settings = settings
        self.counting: Instruments | None = None
        self.sink: SpanSink | None = None
        self._counted = CountedKeys()
        self._asking = Lock()
        """Workflows run in several threads."""
        self._users = 0
        self.worker = ""
        """The identity of the workers of this process."""

    def start_observing(self, client_used: client.Client) -> None:
        """Observe workers of this client from now on, as the settings say. BadInput when that is not possible.

        Metrics go to the meter of the client's runtime, and nowhere if it has none.
        """
        self.worker = client_used.identity
        meter = (client_used.service_client.config.runtime or Runtime.default()).metric_meter
        if self.counting is None and meter is not MetricMeter.noop:
            self.counting = Instruments(meter)
        if self.sink is None and self._settings.traces == "otlp":
            self.sink = open_sender(self.worker, self._count_lost)

    @asynccontextmanager
    async def observe_worker(self, client_used: client.Client, task_queue: str) -> AsyncIterator[None]:
        """Count open turns during the block. The remaining spans are sent at its end."""
        self._users += 1
        looking = (
            asyncio.create_task(keep_counting(client_used, task_queue, self.counting.set_gauge))
            if self.counting
            else None
        )
        try:
            yield
        finally:
            if looking:
                looking.cancel()
            self._users -= 1
            if not self._users and self.sink:
                sink, self.sink = self.sink, None
                await asyncio.to_thread(sink.close)

    def _count_lost(self, spans: int) -> None:
        if self.counting:
            self.counting.count_measurements([Measurement(SPANS_LOST, spans, {})])

    def build_observer(self) -> Observer | None:
        """Build what workflows report to; None when nothing is observed."""
        if self.counting is None and self.sink is None:
            return None
        return Observer(self._count_once, self._send_spans if self.sink else None, self._settings.content)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Observe attempts of activities."""
        return ObservedActivity(next, self.sink.put if self.sink else None, self.worker)

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Observe turns and sessions."""
        input.unsafe_extern_functions[OBSERVER] = self.build_observer
        return ObservedWorkflow

    def _count_once(self, what: CountedKey, found: Iterable[Measurement]) -> None:
        if self.counting:
            with self._asking:
                first = self._counted.add_if_new(what)
            if first:
                self.counting.count_measurements(found)

    def _send_spans(self, spans: Iterable[Span]) -> None:
        if self.sink:
            for span in spans:
                self.sink.put(span)
