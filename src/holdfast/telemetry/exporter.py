"""Export of spans to a collector, with OpenTelemetry's batch processor.

A collector that does not answer costs a turn nothing: spans that find no room in the queue are counted and dropped, and
a log line says so once a minute. Only this module needs the packages of OpenTelemetry, and loads them when a worker
traces. It uses no tracer, which would give spans new ids.
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
"""The longest queue of spans: a turn of a thousand calls reports all of its spans at once."""
BATCH_SIZE = 512
DELAY_SECONDS = 0.5
"""The longest time that a span waits for its batch."""
FLUSH_SECONDS = 3.0
"""The time for the last spans when a worker shuts down."""
QUIET_SECONDS = 60.0
"""The pause between two log lines about a collector that does not answer."""
PROTOCOL = "http/protobuf"
DEFAULT_ENDPOINT = "http://localhost:4318"
"""The default of OpenTelemetry's exporters."""
CONNECT_SECONDS = 5.0
PACKAGES_MISSING = (
    'telemetry.traces = "otlp" needs packages that are not installed: install "holdfast[otel]", or '
    "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http"
)


class SpanSink(Protocol):
    """A receiver of spans."""

    def put(self, span: Span) -> None:
        """Take a span. Returns at once."""

    def close(self) -> None:
        """Send the remaining spans, for a bounded time, and take no others."""


class SpanSender:
    """Sends spans, from any thread. It is the exporter of its batch processor, so that it can count what arrives."""

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
        """The number of spans that did not arrive."""
        self.shutdown = exporter.shutdown

    def put(self, span: Span) -> None:
        """Queue a span. It is lost when the queue is full or closed."""
        with self._lock:
            if self._closed or self._waiting >= MAX_QUEUED:
                self._note_lost(1)
                return
            self._waiting += 1
        self._processor.on_end(_convert_span(span, self._resource))

    def export(self, spans: Sequence[ReadableSpan]) -> None:
        """Send a batch. The thread of the processor calls it."""
        with self._lock:
            if not self._waiting:  # `close` has counted them as lost
                return
            self._waiting -= len(spans)
        arrived = self._exporter.export(spans).name == "SUCCESS"
        with self._lock:
            self._note_lost(0 if arrived else len(spans))

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Send the remaining spans, for `seconds` at most; the processor by itself takes up to 30 seconds."""
        self._closed = True
        flushing = Thread(target=self._processor.shutdown, name="holdfast-spans", daemon=True)
        flushing.start()
        flushing.join(seconds)
        with self._lock:
            left, self._waiting = self._waiting, 0
            self._note_lost(left)
        if flushing.is_alive():
            self.shutdown()  # ends the running export

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
    """Open a sender to the collector that OpenTelemetry's variables name. BadInput when they or packages are unusable.

    `on_loss` is called with the number of spans that did not arrive.
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
    except Exception as error:  # its message may quote variables, which hold secrets
        raise BadInput(
            "OpenTelemetry's variables (OTEL_EXPORTER_OTLP_…) cannot be used as they are: its exporter refused them "
            f"with {type(error).__name__}"
        ) from None
    service = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "holdfast"}
    return SpanSender(exporter, Resource.create({**service, "service.instance.id": worker}), on_loss)


def check_protocol() -> None:
    """BadInput when OpenTelemetry's variables name a protocol that is not supported."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if os.environ.get(name, PROTOCOL).strip().lower() != PROTOCOL:
            raise BadInput(f"{name} names another protocol than {PROTOCOL}, and no other is supported: unset it")


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
    """Silence the packages, which log every failed export; `SpanSender` logs once a minute."""
    logger = logging.getLogger("opentelemetry")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


async def check_collector(settings: TelemetrySettings) -> list[Finding]:
    """Check that a collector listens, if traces are on. BadInput when no worker could start with these settings."""
    if settings.traces == "none":
        return [report_ok("traces are off")]
    if find_spec("opentelemetry.exporter.otlp.proto.http") is None:
        raise BadInput(PACKAGES_MISSING)
    check_protocol()
    named = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    try:
        where = urlsplit(named or DEFAULT_ENDPOINT)
        host, port = where.hostname or "", where.port or (443 if where.scheme == "https" else 80)
    except ValueError:  # its message may quote secrets
        return [report_problem("OTEL_EXPORTER_OTLP_ENDPOINT is not an address", "write it as http://HOST:4318")]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError) as error:
        why = "unknown host name" if isinstance(error, gaierror) else "nothing listens there, or answers in time"
        do = "start the collector, or correct OTEL_EXPORTER_OTLP_ENDPOINT: turns go on, and their spans are lost"
        return [report_warning(f"no collector answers at {host}:{port}: {why}", do)]
    writer.close()
    return [report_ok(f"a collector answers at {host}:{port}")]
