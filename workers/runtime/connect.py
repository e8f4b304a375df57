"""Connecting to a Temporal server, with an error that names the cause.

Which server: `--address` first, then Temporal's own configuration (TEMPORAL_ADDRESS, TEMPORAL_PROFILE, its file), then
the embedded server of the data folder. Every connection attempt has a time limit.

Temporal's core reports errors of its libraries, nested and in their terms. They are translated here; an error of a
certificate or a key names the variable to correct. No message contains a key.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from temporalio.client import Client, Plugin
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, TLSConfig

from holdfast.config.settings import Settings
from holdfast.errors import BadInput, ServerUnavailable
from holdfast.payloads.converter import build_converter
from holdfast.util.files import write_whole
from holdfast.util.findings import Finding, report_ok
from holdfast.util.text import shorten_text

TEXT_LIMIT = 300
_CERTIFICATE = "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH"
_EXPLANATIONS: tuple[tuple[str, str], ...] = (
    (
        r"InvalidCertificate\((UnknownIssuer|CaUsedAsEndEntity|BadSignature)",
        "its certificate is not signed by a trusted authority: set TEMPORAL_TLS_SERVER_CA_CERT_PATH to its CA",
    ),
    (
        r"InvalidCertificate\(NotValidForName",
        "its certificate is for another name: set TEMPORAL_TLS_SERVER_NAME to the name in the certificate",
    ),
    (r"InvalidCertificate\(Expired", "its certificate has expired, or this machine's clock is wrong"),
    (r"InvalidCertificate\(NotValidYet", "its certificate is not valid yet, or this machine's clock is wrong"),
    (r"InvalidCertificate", "its certificate cannot be verified"),
    (r"InvalidContentType", "it does not use TLS, but the configuration does: set TEMPORAL_TLS=false"),
    (r"KeyMismatch", f"the client key does not belong to the client certificate: see {_CERTIFICATE}"),
    (
        r"PrivateKeyParseError|CertificateParseError",
        f"the client certificate or key cannot be read: see {_CERTIFICATE}",
    ),
)
_HANG_UP_PATTERN = re.compile(
    r"close_notify|broken pipe|BrokenPipe|ConnectionReset|AlertReceived|stream closed|connection closed"
)
_REFUSED_PATTERN = re.compile(r"code: (Unauthenticated|PermissionDenied)")


def explain_failure(text: str, config: Mapping[str, Any]) -> str:
    """Explain the error of a failed connection, for a client with this configuration."""
    key = config.get("api_key")
    if key:
        text = text.replace(str(key), "…")
    tls = config.get("tls")
    for pattern, sentence in _EXPLANATIONS:
        if re.search(pattern, text):
            return sentence
    if _REFUSED_PATTERN.search(text):
        named = "check TEMPORAL_API_KEY and the namespace" if key else "TEMPORAL_API_KEY is not set"
        return f"access denied ({_find_innermost(text)}): {named}"
    if _HANG_UP_PATTERN.search(text):
        return f"it closed the connection: {_explain_hang_up(tls)}"
    return _find_innermost(text)


def _explain_hang_up(tls: Any) -> str:
    if not tls:
        return "it may use TLS: set TEMPORAL_TLS=true"
    if isinstance(tls, TLSConfig) and tls.client_cert:
        return "it may reject the certificate in TEMPORAL_TLS_CLIENT_CERT_PATH (another authority, expired)"
    return f"it may require a client certificate: set {_CERTIFICATE}"


def _find_innermost(text: str) -> str:
    """The innermost message of a nested error of Temporal's core."""
    quoted = re.findall(r'(?:message|error): "([^"]+)"', text)
    return quoted[-1] if quoted else shorten_text(text, TEXT_LIMIT)


@dataclass(frozen=True)
class ServerAddress:
    """The content of `server.json`."""

    address: str
    pid: int


def read_server_file(settings: Settings) -> ServerAddress:
    """The address of the embedded server; ServerUnavailable when none runs."""
    hint = "start one with `holdfast up`, or set TEMPORAL_ADDRESS"
    try:
        found = ServerAddress(**json.loads(settings.server_file.read_text("utf-8")))
        os.kill(found.pid, 0)
    except FileNotFoundError:
        raise ServerUnavailable(f"no server runs on {settings.data}: {hint}") from None
    except ProcessLookupError:
        raise ServerUnavailable(f"the server on {settings.data} has stopped: {hint}") from None
    except PermissionError:
        raise ServerUnavailable(f"the server on {settings.data} belongs to another user: {hint}") from None
    except (OSError, ValueError, TypeError) as error:
        raise ServerUnavailable(f"{settings.server_file} cannot be read ({error}): {hint}") from error
    return found


def write_server_file(settings: Settings, found: ServerAddress) -> None:
    """Write the file atomically: other processes read it at any moment."""
    write_whole(settings.server_file, json.dumps(asdict(found)).encode())


CONNECT_SECONDS = 5.0


async def connect_client(
    settings: Settings, plugin: Plugin | None = None, *, address: str | None = None, embedded: bool = False
) -> Client:
    """A client of the server that the options, the environment or the data folder name.

    Without a plugin the client can only communicate with turns, and nothing that a worker needs is imported. `embedded`
    uses the data folder's server whatever the environment says.
    """
    config = {} if embedded else _load_environment()
    ours: dict[str, Any] = {} if plugin else {"data_converter": build_converter(settings)}
    if address or config.get("target_host"):
        target = address or str(config.pop("target_host"))
        config.pop("target_host", None)
        return await connect_to(target, plugin, **config, **ours)
    return await connect_to(read_server_file(settings).address, plugin, **ours)


async def connect_to(
    address: str, plugin: Plugin | None = None, *, seconds: float = CONNECT_SECONDS, **config: Any
) -> Client:
    """A client of the server at an address; ServerUnavailable when it does not answer in time."""
    try:
        async with asyncio.timeout(seconds):
            return await Client.connect(address, plugins=[plugin] if plugin else [], **config)
    except TimeoutError:
        raise ServerUnavailable(f"no Temporal server answers at {address!r} within {seconds:g} seconds") from None
    except ValueError as error:
        if "private key" in str(error):
            pair = "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH"
            raise BadInput(
                f"Temporal's configuration has a client certificate or its key, not both: set {pair}"
            ) from None
        raise BadInput(f"{address!r} is not an address (host:port): {error}") from error
    except (RuntimeError, RPCError) as error:
        raise ServerUnavailable(
            f"no Temporal server answers at {address!r}: {explain_failure(str(error), config)}"
        ) from None


def find_environment_address() -> str | None:
    """The address Temporal's own configuration gives, if any."""
    return _load_environment().get("target_host")


def _load_environment() -> dict[str, Any]:
    """Temporal's own configuration. Its empty variables count as unset.

    The SDK would treat an empty TEMPORAL_API_KEY as a key and turn TLS on. Compose files and Kubernetes secrets set
    such variables where there is no key.
    """
    given = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_") or value.strip()}
    try:
        return dict(ClientConfig.load_client_connect_config(override_env_vars=given))
    except Exception as error:
        why = " ".join(str(error).split())
        raise BadInput(f"Temporal's configuration (TEMPORAL_CONFIG_FILE, TEMPORAL_…) cannot be read: {why}") from error


def check_environment() -> Iterator[Finding]:
    """Check Temporal's own configuration. BadInput when it cannot be read."""
    address = find_environment_address()
    yield report_ok(
        f"Temporal's own configuration names {address}"
        if address
        else "Temporal's own configuration names no server: the data folder's embedded one is used"
    )
