"""A collector of traces: what a worker sends to it by OTLP over HTTP, decoded."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Told:
    """One span, as it arrived."""

    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]
    failed: bool
    links: tuple[str, ...]
    """Of each, its trace and its span."""
    worker: str

    def __getitem__(self, name: str) -> Any:
        """An attribute, without `holdfast.`."""
        return self.attributes[f"holdfast.{name}"]


class Collector:
    """What arrived, in order; nothing is taken out of it."""

    def __init__(self) -> None:
        self.port = 0
        self.status = 200
        self.requests = 0
        self.raw = b""
        """All bodies, as they came."""
        self.headers: list[dict[str, str]] = []
        self._spans: list[Told] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    def spans(self, turn: str | None = None) -> list[Told]:
        """All, or those of a turn."""
        with self._lock:
            return [span for span in self._spans if turn is None or span.attributes.get("holdfast.turn.id") == turn]

    def tree(self, turn: str) -> list[str]:
        """The spans of a turn, each behind those that it is within, in the order in which they began."""
        found = self.spans(turn)
        names = {span.id: span for span in found}

        def path(span: Told) -> str:
            above = names.get(span.parent)
            return f"{path(above)}/{label(span)}" if above else label(span)

        return [path(span) for span in sorted(found, key=lambda span: (span.start, span.name, span.id))]

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        """One request."""
        found = ExportTraceServiceRequest.FromString(body)
        with self._lock:
            self.requests += 1
            self.raw += body
            self.headers.append(headers)
            if self.status == 200:
                self._spans += _told(found)


def label(span: Told) -> str:
    """A span in a few words."""
    about = span.attributes
    what = about.get("holdfast.call.id") or about.get("holdfast.step") or about.get("holdfast.batch.id") or ""
    return f"{span.name.removeprefix('holdfast.')} {what}".rstrip() + f"={about.get('holdfast.outcome', '')}".rstrip(
        "="
    )


def _told(found: ExportTraceServiceRequest) -> Iterator[Told]:
    for resource in found.resource_spans:
        about = {one.key: one.value.string_value for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Told(
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    attributes={
                        one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value")
                        for one in span.attributes
                    },
                    failed=span.status.code == 2,
                    links=tuple(f"{link.trace_id.hex()}/{link.span_id.hex()}" for link in span.links),
                    worker=about.get("service.instance.id", ""),
                )


@contextmanager
def collector() -> Iterator[Collector]:
    """One that listens on this machine until the end of the block."""
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            made.take(body, dict(self.headers.items()))
            self.send_response(made.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Not here."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
