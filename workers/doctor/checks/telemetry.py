"""What workers tell of themselves: can they, and does anybody listen?"""

from __future__ import annotations

import asyncio
import os
import socket
from importlib.util import find_spec
from urllib.parse import urlsplit

from holdfast.errors import BadInput
from holdfast.telemetry.exporter import check_protocol
from holdfast.util.findings import Finding, ok, problem, warning
from holdfast.workers.doctor.check import Check, CheckContext

DEFAULT_ENDPOINT = "http://localhost:4318"
"""Where OpenTelemetry's exporters look when nobody says otherwise."""
CONNECT_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}


async def _examine_traces(around: CheckContext) -> list[Finding]:
    if around.settings.telemetry.traces == "none":
        return [ok("no traces are wanted")]
    if find_spec("opentelemetry.exporter.otlp.proto.http") is None:
        return [problem("traces are wanted, and OpenTelemetry is not installed", "pip install 'holdfast[otel]'")]
    named = around.environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    try:
        check_protocol()
        where = urlsplit(named or around.environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT)
        host, port = where.hostname or "", where.port or _PORTS.get(where.scheme, 0)
    except BadInput as error:
        return [problem(str(error), "correct it: workers do not start like this")]
    except ValueError:
        return [problem("OTEL_EXPORTER_OTLP_ENDPOINT is no address", "write it as http://HOST:4318")]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError) as error:
        do = "start the collector, or correct OTEL_EXPORTER_OTLP_ENDPOINT: turns go on, and their spans are lost"
        return [warning(f"no collector answers at {host}:{port}: {_describe_error(error)}", do)]
    writer.close()
    return [ok(f"a collector answers at {host}:{port}")]


def _describe_error(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "nobody knows that name"
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it does not answer"


CHECKS = (Check("traces", _examine_traces),)
