"""The search attributes of turns: which are missing on a Temporal server, and registering them.

A turn that sets an unregistered attribute fails its workflow task for ever, so every worker checks them first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeIndexedValueType
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import HoldfastError, ServerUnavailable
from holdfast.names import DEADLINE_ATTRIBUTE, STATE_ATTRIBUTE, TOOLS_ATTRIBUTE

APPEAR_SECONDS = 15.0
"""How long a new search attribute may take until the whole server knows it."""

_TYPES = {
    SearchAttributeIndexedValueType.KEYWORD: ("Keyword", IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD),
    SearchAttributeIndexedValueType.KEYWORD_LIST: ("KeywordList", IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST),
    SearchAttributeIndexedValueType.DATETIME: ("Datetime", IndexedValueType.INDEXED_VALUE_TYPE_DATETIME),
}
_KEYS = (STATE_ATTRIBUTE, TOOLS_ATTRIBUTE, DEADLINE_ATTRIBUTE)
ATTRIBUTES: Mapping[str, str] = {key.name: _TYPES[key.indexed_value_type][0] for key in _KEYS}
"""The search attributes of a turn, with their types as the `temporal` command names them."""
_WIRE = {key.name: _TYPES[key.indexed_value_type][1] for key in _KEYS}
_NOT_ALLOWED = {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.UNAUTHENTICATED}


async def ensure_search_attributes(client: Client) -> None:
    """Register missing attributes. HoldfastError, with the command to run, when that is not allowed."""
    missing = await list_missing_attributes(client)
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
            raise HoldfastError(_build_instruction(client.namespace, missing, error)) from error
    try:
        async with asyncio.timeout(APPEAR_SECONDS):
            while await list_missing_attributes(client):  # noqa: ASYNC110 - the server gives no notice
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise HoldfastError(_build_instruction(client.namespace, missing, None)) from None


async def list_missing_attributes(client: Client) -> list[str]:
    """List the unregistered attributes. HoldfastError when one has another type."""
    try:
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
    except RPCError as error:
        if error.status in _NOT_ALLOWED:
            return await _list_missing_by_query(client)
        raise _build_unavailable(error) from error
    found = {**listed.custom_attributes, **listed.system_attributes}
    wrong = [name for name, kind in _WIRE.items() if found.get(name, kind) != kind]
    if wrong:
        kinds = ", ".join(f"{name} must be {ATTRIBUTES[name]}" for name in wrong)
        raise HoldfastError(f"search attributes of namespace {client.namespace!r} have another type: {kinds}")
    return [name for name in _WIRE if name not in found]


async def _list_missing_by_query(client: Client) -> list[str]:
    """Find missing attributes by queries, on servers that do not allow listing them."""
    missing = []
    for name in ATTRIBUTES:
        try:
            await client.count_workflows(f"{name} IS NOT NULL")
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise _build_unavailable(error) from error
            missing.append(name)
    return missing


def _build_unavailable(error: RPCError) -> HoldfastError:
    if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
        return HoldfastError(f"the Temporal server refused: {error.message}")
    return ServerUnavailable(f"the Temporal server does not answer: {error.message}")


def _build_instruction(namespace: str, missing: list[str], error: RPCError | None) -> str:
    reason = f" ({error.message})" if error else ""
    return (
        f"search attributes are missing in namespace {namespace!r} and could not be added{reason}. Ask whoever may: "
        f"{format_add_commands(namespace, missing)}"
    )


def format_add_commands(namespace: str, missing: list[str]) -> str:
    """Format the commands that register attributes."""
    options = " ".join(f"--name {name} --type {ATTRIBUTES[name]}" for name in missing)
    on_cloud = " ".join(f"--sa {name}={ATTRIBUTES[name]}" for name in missing)
    return (
        f"temporal operator search-attribute create --namespace {namespace} {options}; "
        f"on Temporal Cloud: tcld namespace search-attributes add --namespace {namespace} {on_cloud}"
    )
