"""Spans on their way: bounded, never in anybody's way, and quiet about a collector that is away."""

from __future__ import annotations

import builtins
import logging
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.errors import BadInput
from holdfast.telemetry import exporter
from holdfast.telemetry.exporter import BATCH_SIZE, open_sender
from holdfast.telemetry.spans import Span, SpanPlace, derive_root_place
from tests.support.services.otlp import collector

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def span(number: int = 0, **more: Any) -> Span:
    return Span("holdfast.call", derive_root_place("turn", str(number)), NOW, NOW, **more)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A collector that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield


def test_what_is_put_arrives_in_order_and_what_is_left_at_the_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        sender = open_sender("w")
        given = [span(number, attributes={"number": number}) for number in range(3 * BATCH_SIZE + 7)]
        for one in given:
            sender.put(one)
        sender.close(30)
    assert [one.attributes["number"] for one in found.spans()] == list(range(len(given)))
    assert found.requests >= 4
    assert sender.lost == 0


@pytest.mark.usefixtures("silent")
def test_a_collector_that_hangs_takes_no_memory_and_nobodys_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporter, "MAX_QUEUED", 2 * BATCH_SIZE)
    lost = list[int]()
    sender = open_sender("w", lost.append)
    began = time.monotonic()
    for number in range(10 * BATCH_SIZE):
        sender.put(span(number))
    sender.close(0.1)
    sender.put(span())
    assert time.monotonic() - began < 5, "an attempt at the collector takes ten seconds"
    assert sender.lost == sum(lost) >= 9 * BATCH_SIZE, "all but one batch, which is on its way"
    assert [record.name for record in caplog.records] == ["holdfast.telemetry.exporter"]  # one line, not five thousand


def test_a_collector_that_is_not_there_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        sender = open_sender("w")
        for number in range(3 * BATCH_SIZE):
            sender.put(span(number))
        sender.close(30)
    assert sender.lost == 3 * BATCH_SIZE
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"{BATCH_SIZE} spans did not reach the collector of traces"
    ]


def test_a_span_is_told_as_it_is_with_what_OpenTelemetry_s_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        sender = open_sender("worker-1")
        parent, link = SpanPlace("a" * 32, "b" * 16), SpanPlace("c" * 32, "d" * 16)
        about = {"holdfast.turn.id": "t", "holdfast.attempt": 2}
        sender.put(span(parent=parent, links=(link,), attributes=about, failed=True))
        sender.close(30)
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
        open_sender("w")


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_a_protocol_that_is_not_spoken_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "grpc")
    with pytest.raises(BadInput, match=f"{name} names another protocol than http/protobuf"):
        open_sender("w")
    monkeypatch.setenv(name, "HTTP/protobuf")
    open_sender("w").close()


@pytest.mark.parametrize("name", ["ENDPOINT", "HEADERS", "TIMEOUT", "COMPRESSION", "CERTIFICATE", "CLIENT_KEY"])
def test_S45_variables_that_make_no_sense_are_quoted_nowhere(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", "my-secret ][ /x")
    said = ""
    try:
        sender = open_sender("w")
        sender.put(span())
        sender.close(20)
    except BadInput as error:
        said = str(error)
    assert "my-secret" not in caplog.text + said
