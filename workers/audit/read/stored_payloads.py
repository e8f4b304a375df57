"""Payloads that a history only refers to: found, fetched, and given to a converter.

Reading an audit writes nothing: what a replay would store is named by its hash and dropped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from holdfast.domain.base import UnreadablePayload
from holdfast.payloads.converter import TolerantStorage
from holdfast.payloads.file_store import MISSING, THRESHOLD


@dataclasses.dataclass(frozen=True)
class Reference:
    """A reference in a history to a payload that is stored elsewhere."""

    driver: str
    claim: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """Its hash, or its claim, for people."""
        claim = dict(self.claim)
        return claim.get("sha256") or json.dumps(claim, sort_keys=True)


Fetch = Callable[[Reference], Awaitable[Payload]]


async def _fetch_nothing(reference: Reference) -> Payload:
    return build_missing_payload(reference)


@dataclasses.dataclass(frozen=True)
class ReadOnlyStorage(TolerantStorage):
    """External storage for reading: one function resolves the references of every driver, nothing is stored."""

    fetch: Fetch = _fetch_nothing

    def find_reference(self, payload: Payload) -> Reference | None:
        """Return the reference that a payload is, if it is one."""
        found = self.decode_reference(payload)
        return Reference(found.driver_name, tuple(sorted(found.claim_data.items()))) if found else None

    def get_driver(self, name: str) -> StorageDriver:
        """A driver that resolves references by `fetch`, whatever its name."""
        return _ReadOnlyDriver(name, self.fetch)


class _ReadOnlyDriver(StorageDriver):
    def __init__(self, name: str, fetch: Fetch) -> None:
        self._name = name
        self._fetch = fetch

    def name(self) -> str:
        """Return the name of the reference's driver."""
        return self._name

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Return claims without storing anything."""
        names = (hashlib.sha256(payload.SerializeToString(deterministic=True)).hexdigest() for payload in payloads)
        return [StorageDriverClaim(claim_data={"sha256": name}) for name in names]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Fetch one payload after another."""
        return [await self._fetch(Reference(self._name, tuple(sorted(claim.claim_data.items())))) for claim in claims]


def build_read_only_converter(converter: DataConverter, fetch: Fetch) -> DataConverter:
    """Build a converter that reads stored payloads by this function and stores nothing."""
    storage = ReadOnlyStorage([_ReadOnlyDriver("audit", fetch)], payload_size_threshold=THRESHOLD, fetch=fetch)
    return dataclasses.replace(converter, external_storage=storage)


def build_storage_fetch(converter: DataConverter) -> Fetch:
    """Build a function that resolves references by the drivers of a converter."""
    storage = converter.external_storage
    drivers = {driver.name(): driver for driver in storage.drivers} if storage else {}

    async def fetch_by_driver(reference: Reference) -> Payload:
        driver = drivers.get(reference.driver)
        if driver is None:
            return build_missing_payload(reference)
        claim = StorageDriverClaim(claim_data=dict(reference.claim))
        [payload] = await driver.retrieve(StorageDriverRetrieveContext(), [claim])
        return payload

    return fetch_by_driver


def build_missing_payload(reference: Reference) -> Payload:
    """Build the placeholder for a missing payload."""
    return Payload(metadata={"encoding": MISSING}, data=reference.name.encode())


def is_missing(payload: Payload) -> bool:
    """Whether a payload is the placeholder for a missing one."""
    return bool(payload.metadata.get("encoding") == MISSING)


def find_reference(payload: Payload) -> Reference | None:
    """Return the reference that a payload is, if it is one."""
    return _PROBE.find_reference(payload)


async def decode_payloads(converter: DataConverter, payloads: Sequence[Payload]) -> list[Any]:
    """Decode payloads to plain data; None for one that cannot be decoded."""
    found: list[Any] = []
    for payload in payloads:
        try:
            [value] = await converter.decode([payload], None)
            found.append(None if isinstance(value, UnreadablePayload) else value)
        except Exception:  # whatever a payload may be
            found.append(None)
    return found


_PROBE = ReadOnlyStorage(drivers=[_ReadOnlyDriver("probe", _fetch_nothing)])
