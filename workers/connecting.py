"""Finding and reaching a Temporal server.

Which server: `--address` first, then Temporal's own configuration (TEMPORAL_ADDRESS, TEMPORAL_PROFILE, its file), then
the embedded server of the data folder. Always bounded: a server that does not answer is an error in a sentence.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from temporalio.client import Client, Plugin
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError

from holdfast.conversion import build_converter
from holdfast.errors import BadInput, ServerUnavailable
from holdfast.settings import Settings
from holdfast.workers.address import read_server_file
from holdfast.workers.unreachable import explain_failure

CONNECT_SECONDS = 5.0


async def connect(
    settings: Settings, plugin: Plugin | None = None, *, address: str | None = None, embedded: bool = False
) -> Client:
    """A client of the server that the options, the environment or the data folder name.

    Without a plugin it only speaks with turns: what a worker needs is not even imported. `embedded` takes the data
    folder's server whatever the environment says.
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
            raise BadInput(f"Temporal's configuration names a certificate or a key, not both: {pair}") from None
        raise BadInput(f"{address!r} is not an address (host:port): {error}") from error
    except (RuntimeError, RPCError) as error:
        raise ServerUnavailable(
            f"no Temporal server answers at {address!r}: {explain_failure(str(error), config)}"
        ) from None


def find_environment_address() -> str | None:
    """The address Temporal's own configuration gives, if any."""
    return _load_environment().get("target_host")


def _load_environment() -> dict[str, Any]:
    """Temporal's own configuration. A variable of its that is empty counts as unset.

    The SDK takes an empty TEMPORAL_API_KEY for a key, and turns TLS on for it. Compose files and secrets of Kubernetes
    leave such variables behind where nobody has a key.
    """
    given = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_") or value.strip()}
    try:
        return dict(ClientConfig.load_client_connect_config(override_env_vars=given))
    except Exception as error:
        raise BadInput(f"Temporal's configuration cannot be read: {' '.join(str(error).split())}") from error
