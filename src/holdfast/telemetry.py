"""The table `[telemetry]` of the settings file: what a worker tells of its work, how, and how much."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from holdfast.model import Message


def check_listening_address(text: str) -> str:
    """Where something listens: an address and a port."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_address = re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", bare) and all(int(part) < 256 for part in bare.split("."))
    is_six = host.startswith("[") and re.fullmatch(r"[0-9A-Fa-f:.]{2,45}", bare)
    if not (is_address or is_six) or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("must be an address and a port, as 127.0.0.1:9464 or [::1]:9464")
    return text


class TelemetrySettings(Message):
    """Traces, metrics and logs. None of them holds what calls are given or give back, unless `content` says so."""

    traces: Literal["none", "otlp"] = "none"
    """Where to, and with which credentials, is in OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT …"""
    metrics: Annotated[str, AfterValidator(check_listening_address)] | None = None
    """Where a worker answers Prometheus."""
    logs: Literal["text", "json"] = "text"
    content: Annotated[bool, Field(strict=True)] = False
    """May logs and traces hold titles, reasons and the texts of exceptions? They may quote arguments and output."""
