"""Spans on their way: bounded, never in anybody's way, and quiet about a collector that is away."""

from __future__ import annotations

import builtins
import logging
import socket
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.errors import BadInput
from holdfast.telemetry.exporter import BATCH_SIZE, SpanQueue, open_queue
from holdfast.telemetry.spans import Span, SpanPlace, derive_root_place
from tests.support.otlp import collector

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def span(number: int = 0, **more: Any) -> Span:
    return Span("holdfast.call", derive_root_place("turn", str(number)), NOW, NOW, **more)


def test_what_is_put_arrives_in_order_and_what_is_left_at_the_end_too() -> None:
    sent: list[Span] = []

    def send(spans: Sequence[Span]) -> bool:
        assert 0 < len(spans) <= BATCH_SIZE
        sent.extend(spans)
        return True

    queue = SpanQueue(send, lambda: None)
    given = [span(number) for number in range(3 * BATCH_SIZE + 7)]
    for one in given:
        queue.put(one)
    queue.close(30)
    assert (sent, queue.lost) == (given, 0)


def test_a_collector_that_hangs_takes_no_memory_and_nobodys_time(caplog: pytest.LogCaptureFixture) -> None:
    going_on, lost = threading.Event(), list[int]()

    def send(spans: Sequence[Span]) -> bool:
        return not going_on.wait(60)

    queue = SpanQueue(send, going_on.set, most=100)
    queue.on_loss = lost.append
    for number in range(1_000):
        queue.put(span(number))
    queue.close(0.1)
    queue.put(span())
    assert queue.lost == sum(lost) >= 900
    assert [record.name for record in caplog.records] == ["holdfast.telemetry.exporter"]  # one line, not nine hundred


def test_a_collector_that_raises_is_a_collector_that_is_away() -> None:
    def send(spans: Sequence[Span]) -> bool:
        raise RuntimeError("broken")

    queue = SpanQueue(send, lambda: None)
    queue.put(span())
    queue.close(30)
    assert queue.lost == 1


def test_a_collector_that_is_not_there_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        queue = open_queue("w")
        for number in range(3 * BATCH_SIZE):
            queue.put(span(number))
        queue.close(30)
    assert queue.lost == 3 * BATCH_SIZE
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"{BATCH_SIZE} spans did not reach the collector of traces"
    ]


def test_a_span_is_told_as_it_is_with_what_OpenTelemetry_s_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        queue = open_queue("worker-1")
        parent, link = SpanPlace("a" * 32, "b" * 16), SpanPlace("c" * 32, "d" * 16)
        about = {"holdfast.turn.id": "t", "holdfast.attempt": 2}
        queue.put(span(parent=parent, links=(link,), attributes=about, failed=True))
        queue.close(30)
    [told] = found.spans("t")
    place = derive_root_place("turn", "0")
    assert (told.trace, told.id, told.parent) == (place.trace, place.span, parent.span)
    assert (told.failed, told.worker, told["attempt"]) == (True, "worker-1", 2)
    assert told.links == (f"{link.trace}/{link.span}",)
    assert told.start == told.end == int(NOW.timestamp() * 1e9)
    assert found.headers[0]["x-token"] == "secret"


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadInput, match=r'install "holdfast\[otel\]"'):
        open_queue("w")


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_a_protocol_that_is_not_spoken_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "grpc")
    with pytest.raises(BadInput, match=f"{name} wants another protocol than http/protobuf"):
        open_queue("w")
    monkeypatch.setenv(name, "HTTP/protobuf")
    open_queue("w").close()


@pytest.mark.parametrize("name", ["ENDPOINT", "HEADERS", "TIMEOUT", "COMPRESSION", "CERTIFICATE", "CLIENT_KEY"])
def test_S45_variables_that_make_no_sense_are_quoted_nowhere(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", "my-secret ][ /x")
    said = ""
    try:
        queue = open_queue("w")
        queue.put(span())
        queue.close(20)
    except BadInput as error:
        said = str(error)
    assert "my-secret" not in caplog.text + said
