"""Spans on their way to a collector: a bounded queue, and a thread that empties it.

A collector that is away costs a turn nothing: what does not fit any more is counted and dropped, and a line a minute
says so. The packages of OpenTelemetry are needed here alone, and loaded when a worker is to trace.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import BadInput
from holdfast.telemetry.spans import Span, SpanPlace

if TYPE_CHECKING:
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
PACKAGES_MISSING = (
    'telemetry.traces = "otlp" needs packages that are not installed: install "holdfast[otel]", or '
    "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http"
)


class SpanSink(Protocol):
    """Whoever takes spans."""

    def put(self, span: Span) -> None:
        """Take one; at once, whatever happens to it."""


class SpanQueue:
    """Takes spans from any thread, and sends them from one of its own."""

    def __init__(
        self, send: Callable[[Sequence[Span]], bool], stop: Callable[[], None], *, most: int = MAX_QUEUED
    ) -> None:
        """`send` may take its time, and says whether they arrived; `stop` makes it give up."""
        self._send = send
        self._stop = stop
        self._most = most
        self._spans: deque[Span] = deque()
        self._more = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._told_at = -QUIET_SECONDS
        self._untold = 0
        self.lost = 0
        """Spans that did not arrive, ever."""
        self.on_loss: Callable[[int], None] | None = None

    def put(self, span: Span) -> None:
        """Take one; what there is no room for is lost."""
        with self._more:
            if self._closing or len(self._spans) >= self._most:
                self._note_lost(1)
                return
            self._spans.append(span)
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_batches, name="holdfast-spans", daemon=True)
                self._thread.start()
            if len(self._spans) == 1 or len(self._spans) >= BATCH_SIZE:
                self._more.notify()

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Send what is left, for so long at most."""
        with self._more:
            self._closing, thread = True, self._thread
            self._more.notify()
        if thread:
            thread.join(seconds)
        with self._more:
            if self._spans:
                self._note_lost(len(self._spans))
                self._spans.clear()
        self._stop()

    def _send_batches(self) -> None:
        while batch := self._take_batch():
            try:
                arrived = self._send(batch)
            except Exception:  # whatever a collector or its package does, spans are only spans
                arrived = False
            if not arrived:
                with self._more:
                    self._note_lost(len(batch))

    def _take_batch(self) -> list[Span]:
        """What goes next; nothing when there will be nothing more."""
        with self._more:
            while not self._spans and not self._closing:
                self._more.wait()
            if not self._closing and len(self._spans) < BATCH_SIZE:
                self._more.wait(DELAY_SECONDS)
            return [self._spans.popleft() for _ in range(min(BATCH_SIZE, len(self._spans)))]

    def _note_lost(self, count: int) -> None:
        self.lost += count
        self._untold += count
        if self.on_loss:
            self.on_loss(count)
        if time.monotonic() - self._told_at >= QUIET_SECONDS:
            _LOGGER.warning("%d spans did not reach the collector of traces", self._untold)
            self._told_at, self._untold = time.monotonic(), 0


def open_queue(worker: str) -> SpanQueue:
    """The queue to the collector that OpenTelemetry's variables name; BadInput where that cannot be had."""
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
    resource = Resource.create({**service, "service.instance.id": worker})

    def send(spans: Sequence[Span]) -> bool:
        return exporter.export([_convert_span(span, resource) for span in spans]).name == "SUCCESS"

    return SpanQueue(send, exporter.shutdown)


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
