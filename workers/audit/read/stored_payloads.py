"""Payloads that histories only refer to: found, fetched, and given to whoever reads.

Reading an audit writes nothing: what a replay would store is named by its hash, and dropped.
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

from holdfast.domain.base import Unreadable
from holdfast.payloads.converter import TolerantStorage
from holdfast.payloads.file_store import MISSING, THRESHOLD


@dataclasses.dataclass(frozen=True)
class Reference:
    """What stands in a history for a payload that is kept elsewhere."""

    driver: str
    claim: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """For people."""
        said = dict(self.claim)
        return said.get("sha256") or json.dumps(said, sort_keys=True)


Fetch = Callable[[Reference], Awaitable[Payload]]


async def _fetch_nothing(reference: Reference) -> Payload:
    return build_missing_payload(reference)


@dataclasses.dataclass(frozen=True)
class ReadOnlyStorage(TolerantStorage):
    """External storage to read from: references of every driver are followed by one function, nothing is stored."""

    fetch: Fetch = _fetch_nothing

    def find_reference(self, payload: Payload) -> Reference | None:
        """What a payload refers to, if it does."""
        found = self.decode_reference(payload)
        return Reference(found.driver_name, tuple(sorted(found.claim_data.items()))) if found else None

    def get_driver(self, name: str) -> StorageDriver:
        """A driver that follows references by `fetch`, whatever its name."""
        return _ReadOnlyDriver(name, self.fetch)


class _ReadOnlyDriver(StorageDriver):
    def __init__(self, name: str, fetch: Fetch) -> None:
        self._name = name
        self._fetch = fetch

    def name(self) -> str:
        """As the reference has it."""
        return self._name

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Named, and dropped."""
        names = (hashlib.sha256(payload.SerializeToString(deterministic=True)).hexdigest() for payload in payloads)
        return [StorageDriverClaim(claim_data={"sha256": name}) for name in names]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """One after another."""
        return [await self._fetch(Reference(self._name, tuple(sorted(claim.claim_data.items())))) for claim in claims]


def build_read_only_converter(converter: DataConverter, fetch: Fetch) -> DataConverter:
    """The same converter, that reads what lies outside by a function and stores nothing."""
    storage = ReadOnlyStorage([_ReadOnlyDriver("audit", fetch)], payload_size_threshold=THRESHOLD, fetch=fetch)
    return dataclasses.replace(converter, external_storage=storage)


def build_storage_fetch(converter: DataConverter) -> Fetch:
    """Follows references by the drivers of a converter."""
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
    """In the place of a payload that nobody has."""
    return Payload(metadata={"encoding": MISSING}, data=reference.name.encode())


def is_missing(payload: Payload) -> bool:
    """Is it one that nobody has?"""
    return bool(payload.metadata.get("encoding") == MISSING)


def find_reference(payload: Payload) -> Reference | None:
    """What a payload refers to, if it does."""
    return _PROBE.find_reference(payload)


async def decode_payloads(converter: DataConverter, payloads: Sequence[Payload]) -> list[Any]:
    """What payloads say, as plain data; None for one that cannot be read."""
    found: list[Any] = []
    for payload in payloads:
        try:
            [value] = await converter.decode([payload], None)
            found.append(None if isinstance(value, Unreadable) else value)
        except Exception:  # whatever a payload may be
            found.append(None)
    return found


_PROBE = ReadOnlyStorage(drivers=[_ReadOnlyDriver("probe", _fetch_nothing)])
