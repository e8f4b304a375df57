"""Spans on their way to a collector, by OpenTelemetry's batch processor.

A collector that is away costs a turn nothing: what finds no room in the queue is counted and dropped, and the log says
so once a minute. The packages of OpenTelemetry are needed here alone, and loaded when a worker is to trace. A tracer is
not used: it would give spans other ids than they have.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from socket import gaierror
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit

from holdfast.config.sections import TelemetrySettings
from holdfast.errors import BadInput
from holdfast.telemetry.spans import Span, SpanPlace
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

_LOGGER = logging.getLogger(__name__)

MAX_QUEUED = 20_000
"""Spans that wait at most: those of a turn of a thousand calls come at once."""
BATCH_SIZE = 512
DELAY_SECONDS = 0.5
"""How long a span waits for others to go with it."""
FLUSH_SECONDS = 3.0
"""What is left gets this long when its worker ends."""
QUIET_SECONDS = 60.0
"""Between two lines about a collector that is away."""
PROTOCOL = "http/protobuf"
DEFAULT_ENDPOINT = "http://localhost:4318"
"""Where OpenTelemetry's exporters look when nobody says otherwise."""
CONNECT_SECONDS = 5.0
PACKAGES_MISSING = (
    'telemetry.traces = "otlp" needs packages that are not installed: install "holdfast[otel]", or '
    "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http"
)


class SpanSink(Protocol):
    """Whoever takes spans."""

    def put(self, span: Span) -> None:
        """Take one; at once, whatever happens to it."""

    def close(self) -> None:
        """Send what is left, for a bounded time. Nothing more is taken."""


class SpanSender:
    """Takes spans from any thread. The batch processor takes it for its exporter, so that it can count what arrives."""

    def __init__(self, exporter: SpanExporter, resource: Resource, on_loss: Callable[[int], None]) -> None:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._exporter = exporter
        self._resource = resource
        self._on_loss = on_loss
        self._processor = BatchSpanProcessor(
            cast("SpanExporter", self), MAX_QUEUED, DELAY_SECONDS * 1_000, max_export_batch_size=BATCH_SIZE
        )
        self._lock = Lock()
        self._waiting = 0
        self._closed = False
        self._reported_at = -QUIET_SECONDS
        self._unreported = 0
        self.lost = 0
        """Spans that did not arrive, ever."""
        self.shutdown = exporter.shutdown

    def put(self, span: Span) -> None:
        """Take one; what there is no room for is lost."""
        with self._lock:
            if self._closed or self._waiting >= MAX_QUEUED:
                self._note_lost(1)
                return
            self._waiting += 1
        self._processor.on_end(_convert_span(span, self._resource))

    def export(self, spans: Sequence[ReadableSpan]) -> None:
        """Send a batch. The thread of the processor calls it."""
        with self._lock:
            if not self._waiting:  # `close` gave them up
                return
            self._waiting -= len(spans)
        arrived = self._exporter.export(spans).name == "SUCCESS"
        with self._lock:
            self._note_lost(0 if arrived else len(spans))

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Send what is left, for so long at most; the processor by itself would take up to 30 seconds."""
        self._closed = True
        flushing = Thread(target=self._processor.shutdown, name="holdfast-spans", daemon=True)
        flushing.start()
        flushing.join(seconds)
        with self._lock:
            left, self._waiting = self._waiting, 0
            self._note_lost(left)
        if flushing.is_alive():
            self.shutdown()  # ends the attempt that is under way

    def _note_lost(self, count: int) -> None:
        if not count:
            return
        self.lost += count
        self._unreported += count
        self._on_loss(count)
        if time.monotonic() - self._reported_at >= QUIET_SECONDS:
            _LOGGER.warning("%d spans did not reach the collector of traces", self._unreported)
            self._reported_at, self._unreported = time.monotonic(), 0


def open_sender(worker: str, on_loss: Callable[[int], None] = lambda _: None) -> SpanSender:
    """The way to the collector that OpenTelemetry's variables name; BadInput where that cannot be had.

    `on_loss` is told how many spans did not arrive.
    """
    check_protocol()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
    except ImportError:
        raise BadInput(PACKAGES_MISSING) from None
    _silence_packages()
    try:
        exporter: SpanExporter = OTLPSpanExporter()
    except Exception as error:  # its words may quote variables, and those hold secrets
        raise BadInput(
            "OpenTelemetry's variables (OTEL_EXPORTER_OTLP_…) cannot be used as they are: its exporter refused them "
            f"with {type(error).__name__}"
        ) from None
    service = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "holdfast"}
    return SpanSender(exporter, Resource.create({**service, "service.instance.id": worker}), on_loss)


def check_protocol() -> None:
    """BadInput when OpenTelemetry's variables want what is not spoken here."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if os.environ.get(name, PROTOCOL).strip().lower() != PROTOCOL:
            raise BadInput(f"{name} wants another protocol than {PROTOCOL}, and no other is spoken here: unset it")


def _convert_span(span: Span, resource: Any) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

    def context(place: SpanPlace) -> SpanContext:
        return SpanContext(int(place.trace, 16), int(place.span, 16), True, TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        span.name,
        context(span.place),
        parent=context(span.parent) if span.parent else None,
        resource=resource,
        attributes=dict(span.attributes),
        links=[Link(context(place)) for place in span.links],
        status=Status(StatusCode.ERROR if span.failed else StatusCode.OK),
        start_time=int(span.start.timestamp() * 1e6) * 1_000,
        end_time=int(max(span.start, span.end).timestamp() * 1e6) * 1_000,
        instrumentation_scope=InstrumentationScope("holdfast"),
    )


def _silence_packages() -> None:
    """The packages would tell of each attempt at a collector that is away; we do, once a minute."""
    logger = logging.getLogger("opentelemetry")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


async def check_collector(settings: TelemetrySettings) -> list[Finding]:
    """Does a collector listen, where traces are wanted? BadInput when no worker would start."""
    if settings.traces == "none":
        return [report_ok("no traces are wanted")]
    if find_spec("opentelemetry.exporter.otlp.proto.http") is None:
        raise BadInput(PACKAGES_MISSING)
    check_protocol()
    named = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    try:
        where = urlsplit(named or DEFAULT_ENDPOINT)
        host, port = where.hostname or "", where.port or (443 if where.scheme == "https" else 80)
    except ValueError:  # its words may quote what is secret
        return [report_problem("OTEL_EXPORTER_OTLP_ENDPOINT is no address", "write it as http://HOST:4318")]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError) as error:
        why = "nobody knows that name" if isinstance(error, gaierror) else "nobody listens, or answers in time"
        do = "start the collector, or correct OTEL_EXPORTER_OTLP_ENDPOINT: turns go on, and their spans are lost"
        return [report_warning(f"no collector answers at {host}:{port}: {why}", do)]
    writer.close()
    return [report_ok(f"a collector answers at {host}:{port}")]
