"""Finding and reaching a Temporal server, and making sure that it knows our search attributes.

Which server: `--address` first, then Temporal's own configuration (TEMPORAL_ADDRESS, TEMPORAL_PROFILE, its file), then
the embedded server of the data folder. Always bounded: a server that does not answer is an error in a sentence.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client, Plugin
from temporalio.common import SearchAttributeIndexedValueType
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode

from holdfast.conversion import converter_of
from holdfast.errors import BadInput, HoldfastError, ServerUnavailable
from holdfast.settings import Settings
from holdfast.workers.address import read_server_file
from holdfast.workers.unreachable import why
from holdfast.workflows.attributes import DEADLINE, STATE, TOOLS

CONNECT_SECONDS = 5.0
APPEAR_SECONDS = 15.0
"""How long a new search attribute may take to be known everywhere in the server."""

_TYPES = {
    SearchAttributeIndexedValueType.KEYWORD: ("Keyword", IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD),
    SearchAttributeIndexedValueType.KEYWORD_LIST: ("KeywordList", IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST),
    SearchAttributeIndexedValueType.DATETIME: ("Datetime", IndexedValueType.INDEXED_VALUE_TYPE_DATETIME),
}
_KEYS = (STATE, TOOLS, DEADLINE)
ATTRIBUTES: Mapping[str, str] = {key.name: _TYPES[key.indexed_value_type][0] for key in _KEYS}
"""The search attributes a turn sets, with their types as the `temporal` command names them."""
_WIRE = {key.name: _TYPES[key.indexed_value_type][1] for key in _KEYS}
_NOT_FOR_US = {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.UNAUTHENTICATED}


async def connect(
    settings: Settings, plugin: Plugin | None = None, *, address: str | None = None, embedded: bool = False
) -> Client:
    """A client of the server that the options, the environment or the data folder name.

    Without a plugin it only speaks with turns: what a worker needs is not even imported. `embedded` takes the data
    folder's server whatever the environment says.
    """
    config = {} if embedded else _environment()
    ours: dict[str, Any] = {} if plugin else {"data_converter": converter_of(settings)}
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
        raise ServerUnavailable(f"no Temporal server answers at {address!r}: {why(str(error), config)}") from None


def environment_address() -> str | None:
    """The address Temporal's own configuration gives, if any."""
    return _environment().get("target_host")


def _environment() -> dict[str, Any]:
    """Temporal's own configuration. A variable of its that is empty counts as unset.

    The SDK takes an empty TEMPORAL_API_KEY for a key, and turns TLS on for it. Compose files and secrets of Kubernetes
    leave such variables behind where nobody has a key.
    """
    given = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_") or value.strip()}
    try:
        return dict(ClientConfig.load_client_connect_config(override_env_vars=given))
    except Exception as error:
        raise BadInput(f"Temporal's configuration cannot be read: {' '.join(str(error).split())}") from error


async def ensure_search_attributes(client: Client) -> None:
    """Register what is missing. HoldfastError with the command to run when that is not allowed.

    A turn that sets an attribute nobody registered fails its task for ever, so nothing starts without them.
    """
    missing = await missing_attributes(client)
    if not missing:
        return
    try:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=client.namespace, search_attributes={name: _WIRE[name] for name in missing}
            )
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise HoldfastError(_instruction(client.namespace, missing, error)) from error
    try:
        async with asyncio.timeout(APPEAR_SECONDS):
            while await missing_attributes(client):  # noqa: ASYNC110 - the server gives no notice
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise HoldfastError(_instruction(client.namespace, missing, None)) from None


async def missing_attributes(client: Client) -> list[str]:
    """Those that nobody has registered; HoldfastError when one has another type."""
    try:
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
    except RPCError as error:
        if error.status in _NOT_FOR_US:
            return await _missing_by_query(client)
        raise _unavailable(error) from error
    found = {**listed.custom_attributes, **listed.system_attributes}
    wrong = [name for name, kind in _WIRE.items() if found.get(name, kind) != kind]
    if wrong:
        kinds = ", ".join(f"{name} must be {ATTRIBUTES[name]}" for name in wrong)
        raise HoldfastError(f"search attributes of namespace {client.namespace!r} have another type: {kinds}")
    return [name for name in _WIRE if name not in found]


async def _missing_by_query(client: Client) -> list[str]:
    """Where attributes may not be listed: one that a query cannot name is missing."""
    missing = []
    for name in ATTRIBUTES:
        try:
            await client.count_workflows(f"{name} IS NOT NULL")
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise _unavailable(error) from error
            missing.append(name)
    return missing


def _unavailable(error: RPCError) -> HoldfastError:
    if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
        return HoldfastError(f"the Temporal server refused: {error.message}")
    return ServerUnavailable(f"the Temporal server does not answer: {error.message}")


def _instruction(namespace: str, missing: list[str], error: RPCError | None) -> str:
    reason = f" ({error.message})" if error else ""
    return (
        f"search attributes are missing in namespace {namespace!r} and could not be added{reason}. Ask whoever may: "
        f"{how_to_add(namespace, missing)}"
    )


def how_to_add(namespace: str, missing: list[str]) -> str:
    """The commands that register them."""
    options = " ".join(f"--name {name} --type {ATTRIBUTES[name]}" for name in missing)
    on_cloud = " ".join(f"--sa {name}={ATTRIBUTES[name]}" for name in missing)
    return (
        f"temporal operator search-attribute create --namespace {namespace} {options}; "
        f"on Temporal Cloud: tcld namespace search-attributes add --namespace {namespace} {on_cloud}"
    )
