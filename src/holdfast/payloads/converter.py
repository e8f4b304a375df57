"""The data converter: pydantic JSON, encryption where there are keys, and external storage for large payloads.

Where anything may arrive (the input of a turn, the body of a signal), the turn itself reads it. So a payload that
cannot be parsed becomes an `UnreadablePayload` value, instead of a decoding error that Temporal retries without end.

Why: docs/decisions/0003-message-bodies-are-read-by-the-workflow.md.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import SchemaSerializer
from pydantic_core.core_schema import CoreConfig, any_schema
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import ExternalStorageReference
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter, pydantic_data_converter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    StorageDriver,
)

from holdfast.domain.base import UnreadablePayload
from holdfast.errors import BadInput, KeyMissing, PayloadUnreadable
from holdfast.payloads.bucket_store import build_drivers
from holdfast.payloads.encryption import LOCKED, EncryptingCodec
from holdfast.payloads.file_store import MISSING, THRESHOLD, TOO_LARGE, FileStorage, MissingDriver, build_too_large
from holdfast.payloads.keyring import Keyring, load_keyring
from holdfast.temporal_private import (
    REFERENCE_MARKER,
    OpenDataConverter,
    OpenExternalStorage,
    decode_reference,
    retrieve_payload,
)
from holdfast.util.text import exception_text

if TYPE_CHECKING:
    from holdfast.config.settings import Settings

_LOGGER = logging.getLogger(__name__)
_REASONS = {
    MISSING: "a payload that is stored outside the history is missing ({})",
    LOCKED: "a payload cannot be read: {}",
}


class LeanJson(PydanticJSONPlainPayloadConverter):
    """Pydantic's JSON without fields that have their default: the reader fills these in."""

    def to_payload(self, value: Any) -> Payload | None:
        """See the base class."""
        return Payload(
            metadata={"encoding": self.encoding.encode()}, data=_SERIALIZER.to_json(value, exclude_defaults=True)
        )


_SERIALIZER = SchemaSerializer(any_schema(), CoreConfig(ser_json_inf_nan="constants"))
_JSON = LeanJson()
"""Shared: Temporal makes a payload converter for every activity, and this one caches a reader for each type."""


class HoldfastPayloadConverter(CompositePayloadConverter):
    """The default converters with pydantic's JSON. A value without a type that cannot be parsed is `UnreadablePayload`.

    So is one whose file or key is missing: its reader decides whether to wait (the input of a turn) or to drop it (a
    signal). With a type, PayloadUnreadable is raised.
    """

    def __init__(self) -> None:
        super().__init__(
            *(
                _JSON if converter.encoding == _JSON.encoding else converter
                for converter in DefaultPayloadConverter.default_encoding_payload_converters
            )
        )

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """See the base class. Raises PayloadUnreadable as the class says."""
        hints: Sequence[type | None] = type_hints or [None] * len(payloads)
        return [self._read_payload(payload, hint) for payload, hint in zip(payloads, hints, strict=True)]

    def _read_payload(self, payload: Payload, hint: type | None) -> Any:
        if why := explain_unreadable(payload):
            if hint not in (None, Any):
                raise PayloadUnreadable(why)
            return UnreadablePayload(why, gone=True)
        try:
            return super().from_payloads([payload], [hint] if hint else None)[0]
        except Exception as error:
            if hint not in (None, Any):
                raise
            return UnreadablePayload(exception_text(error, 500))


class TolerantConverter(OpenDataConverter):
    """A converter that survives forged references, for which Temporal would fail the workflow task."""

    async def unmark_references(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decode each encoded reference; a payload that only claims to be one becomes an `unreadable` placeholder."""
        return [await self._unmark_reference(payload) for payload in payloads]

    async def _unmark_reference(self, payload: Payload) -> Payload:
        if payload.metadata.get(REFERENCE_MARKER) != b"true":
            return payload
        try:
            [reference] = await super().unmark_references([payload])
        except KeyMissing:
            raise
        except Exception:
            return Payload(metadata={"encoding": MISSING}, data=b"a forged reference")
        return reference

    async def find_reference(self, payload: Payload) -> ExternalStorageReference | None:
        """Return the reference that a payload holds, or None."""
        [unmarked] = await self.unmark_references([payload])
        return decode_reference(self.external_storage, unmarked) if self.external_storage else None

    async def fetch_payload(self, payload: Payload) -> Payload:
        """Return the stored payload of a reference, still encrypted; a placeholder with the reason if it is missing."""
        [unmarked] = await self.unmark_references([payload])
        return await retrieve_payload(self.external_storage, unmarked) if self.external_storage else unmarked

    async def decrypt_payload(self, payload: Payload) -> Payload:
        """Decrypt a retrieved payload; return a placeholder with the reason if that fails."""
        return (await self.payload_codec.decode([payload]))[0] if self.payload_codec else payload


class TolerantStorage(OpenExternalStorage):
    """External storage that a forged reference cannot stop.

    Temporal reads every reference before any of our code runs, whichever message it came in; an error there fails the
    workflow task, and is retried for ever. So a reference that cannot be followed becomes an `unreadable` placeholder;
    and of many in one message, which take a few bytes each and may all name the same large payload, no more is read
    than of one.
    """

    async def retrieve_all(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Retrieve the payloads of one message, up to the size of one that is too large."""
        found, size = [], 0
        for payload in payloads:
            if self.decode_reference(payload) is None:
                found.append(payload)
                continue
            retrieved = await retrieve_payload(self, payload) if size < TOO_LARGE else build_too_large()
            size += retrieved.ByteSize()
            found.append(retrieved)
        return found

    def decode_reference(self, payload: Payload) -> ExternalStorageReference | None:
        """Return the reference that a payload holds; for an invalid one, a reference to an unknown driver."""
        try:
            return super().decode_reference(payload)
        except Exception:
            return ExternalStorageReference(driver_name="unreadable")

    def get_driver(self, name: str) -> StorageDriver:
        """Return the driver with this name, or one that finds nothing."""
        return next((driver for driver in self.drivers if driver.name() == name), MissingDriver())


def build_data_converter(
    existing: DataConverter | None,
    payloads: Path,
    *,
    keyring: Keyring | None = None,
    drivers: Sequence[StorageDriver] = (),
) -> DataConverter:
    """Our converter, with the parts that the application set itself. New payloads go to the first driver."""
    converter = existing
    if converter is None or converter is DataConverter.default or converter is pydantic_data_converter:
        converter = TolerantConverter(payload_converter_class=HoldfastPayloadConverter)
    converter = _add_encryption(converter, keyring or Keyring())
    if converter.external_storage is not None:
        return converter
    known = list(drivers) or [FileStorage(payloads)]
    storage = TolerantStorage(
        drivers=known, driver_selector=lambda context, payload: known[0], payload_size_threshold=THRESHOLD
    )
    return dataclasses.replace(converter, external_storage=storage)


def build_converter(
    settings: Settings, existing: DataConverter | None = None, *, keyring: Keyring | None = None
) -> DataConverter:
    """The converter with the keys and stores of the settings. BadInput when one of them is not available."""
    keyring = load_keyring(settings) if keyring is None else keyring
    return build_data_converter(existing, settings.payloads_folder, keyring=keyring, drivers=build_drivers(settings))


def explain_unreadable(payload: Payload) -> str | None:
    """The reason in a placeholder; None for any other payload."""
    reason = _REASONS.get(payload.metadata.get("encoding", b""))
    return reason.format(payload.data.decode("utf-8", "replace")) if reason else None


def _add_encryption(converter: DataConverter, keyring: Keyring) -> DataConverter:
    """The converter with our codec. Without keys as well, so that encrypted payloads are reported as such."""
    if converter.payload_codec is not None and not isinstance(converter.payload_codec, EncryptingCodec):
        if keyring.keys:
            raise BadInput(
                "the client has a payload codec of its own, and [encryption] has keys: leave one of them out"
            )
        return converter
    failures = converter.failure_converter_class
    if keyring.keys and failures is DefaultFailureConverter:
        failures = DefaultFailureConverterWithEncodedAttributes
    elif keyring.keys and not issubclass(failures, DefaultFailureConverterWithEncodedAttributes):
        _LOGGER.warning("The client has a failure converter of its own: messages of failures may not be encrypted")
    return dataclasses.replace(converter, payload_codec=EncryptingCodec(keyring), failure_converter_class=failures)
