"""temporalio still calls, and still has, each private name that `temporal_private` overrides or uses.

The real SDK does the work: a test fails when a step that we take over is no longer part of it, or is another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.sdk.v1 import ExternalStorageReference
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from holdfast.temporal_private import (
    REFERENCE_MARKER,
    OpenDataConverter,
    OpenExternalStorage,
    decode_reference,
    retrieve_payload,
)

LARGE = "x" * 1_000


class Memory(StorageDriver):
    def __init__(self) -> None:
        self._kept: list[Payload] = []

    def name(self) -> str:
        return "memory"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        self._kept += payloads
        first = len(self._kept) - len(payloads)
        return [StorageDriverClaim(claim_data={"at": str(first + at)}) for at in range(len(payloads))]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        return [self._kept[int(claim.claim_data["at"])] for claim in claims]


@dataclasses.dataclass(frozen=True)
class NotingStorage(OpenExternalStorage):
    steps: list[str] = dataclasses.field(default_factory=list)

    def decode_reference(self, payload: Payload) -> ExternalStorageReference | None:
        self.steps.append("decode_reference")
        return super().decode_reference(payload)

    def get_driver(self, name: str) -> StorageDriver:
        self.steps.append(f"get_driver {name}")
        return super().get_driver(name)

    async def retrieve_all(self, payloads: Sequence[Payload]) -> list[Payload]:
        self.steps.append("retrieve_all")
        return await super().retrieve_all(payloads)


class NotingConverter(OpenDataConverter):
    async def unmark_references(self, payloads: Sequence[Payload]) -> list[Payload]:
        assert isinstance(self.external_storage, NotingStorage)
        self.external_storage.steps.append("unmark_references")
        return await super().unmark_references(payloads)


@pytest.fixture
def storage() -> NotingStorage:
    return NotingStorage([Memory()], payload_size_threshold=100)


@pytest.fixture
def converter(storage: NotingStorage) -> DataConverter:
    return dataclasses.replace(NotingConverter(), external_storage=storage)


@pytest.mark.parametrize("count", [1, 2])
async def test_every_step_of_reading_values_can_be_overridden(
    converter: DataConverter, storage: NotingStorage, count: int
) -> None:
    references = await converter.encode([LARGE] * count)
    assert await converter.decode(references) == [LARGE] * count
    assert list(dict.fromkeys(storage.steps)) == [
        *("unmark_references", "retrieve_all", "decode_reference", "get_driver memory")
    ]


@pytest.mark.parametrize("count", [1, 2])
async def test_every_step_of_reading_a_message_can_be_overridden(
    converter: DataConverter, storage: NotingStorage, count: int
) -> None:
    """A worker reads the payloads of an activation and of a task in another way than a client reads a result."""
    message = Payloads(payloads=await converter.encode([LARGE] * count))
    await converter._transform_inbound_payloads(message)
    assert [payload.data for payload in message.payloads] == [f'"{LARGE}"'.encode()] * count
    assert list(dict.fromkeys(storage.steps)) == [
        *("unmark_references", "retrieve_all", "decode_reference", "get_driver memory")
    ]


async def test_a_copy_with_a_context_is_still_ours(storage: NotingStorage) -> None:
    """The SDK copies the storage for each workflow and activity."""
    copied = storage._with_store_context(StorageDriverStoreContext())
    assert isinstance(copied, NotingStorage)
    assert copied.steps is storage.steps


async def test_a_reference_is_decoded_and_followed_in_any_storage() -> None:
    plain = ExternalStorage([Memory()], payload_size_threshold=100)
    [reference] = await dataclasses.replace(DataConverter(), external_storage=plain).encode([LARGE])
    found = decode_reference(plain, reference)
    assert found
    assert (found.driver_name, dict(found.claim_data)) == ("memory", {"at": "0"})
    assert (await retrieve_payload(plain, reference)).data == f'"{LARGE}"'.encode()
    other = Payload(metadata={"encoding": b"json/plain"}, data=b"1")
    assert decode_reference(plain, other) is None
    assert await retrieve_payload(plain, other) is other


async def test_an_encoded_reference_has_the_marker(converter: DataConverter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("temporalio.converter._extstore._ENCODE_STORAGE_REFERENCES", True)
    [reference] = await converter.encode([LARGE])
    assert reference.metadata[REFERENCE_MARKER] == b"true"
