"""How our data becomes payloads: pydantic, and external storage for what is large.

What arrives where anything may arrive (the input of a turn, the body of a signal) is read by the turn itself. So JSON
that cannot even be parsed becomes a value that says so, instead of a decoding error that Temporal retries for ever.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import ExternalStorageReference
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter, pydantic_data_converter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    ExternalStorage,
    StorageDriver,
)

from holdfast.content import said
from holdfast.payloads import MISSING, THRESHOLD, FileStorage, Nowhere


@dataclasses.dataclass(frozen=True)
class Unreadable:
    """In the place of a value that could not be read."""

    reason: str


class HoldfastPayloadConverter(CompositePayloadConverter):
    """The default converters with pydantic's JSON; an untyped value that none of them can read is `Unreadable`.

    Save one whose file is missing: that is ours, and is tried again until the file is back.
    """

    def __init__(self) -> None:
        json = PydanticJSONPlainPayloadConverter()
        super().__init__(
            *(
                json if converter.encoding == json.encoding else converter
                for converter in DefaultPayloadConverter.default_encoding_payload_converters
            )
        )

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """See the base class."""
        hints: Sequence[type | None] = type_hints or [None] * len(payloads)
        return [self._read(payload, hint) for payload, hint in zip(payloads, hints, strict=True)]

    def _read(self, payload: Payload, hint: type | None) -> Any:
        try:
            return super().from_payloads([payload], [hint] if hint else None)[0]
        except Exception as error:
            if hint not in (None, Any) or payload.metadata.get("encoding") == MISSING:
                raise
            return Unreadable(said(error, 500))


class TolerantStorage(ExternalStorage):
    """External storage that a forged reference cannot stop.

    Temporal reads every reference before any of our code runs, whichever message it came in; an error there fails the
    workflow task, and is retried for ever. So a reference nobody can follow becomes a payload nobody can read.
    """

    def _decode_reference(self, payload: Payload) -> ExternalStorageReference | None:
        try:
            return super()._decode_reference(payload)
        except Exception:
            return ExternalStorageReference(driver_name="unreadable")

    def _get_driver_by_name(self, name: str) -> StorageDriver:
        return self._driver_map.get(name) or Nowhere()


def data_converter(existing: DataConverter | None, payloads: Path) -> DataConverter:
    """Ours, as far as the application has not brought its own."""
    converter = existing
    if converter is None or converter is DataConverter.default or converter is pydantic_data_converter:
        converter = DataConverter(payload_converter_class=HoldfastPayloadConverter)
    if converter.external_storage is not None:
        return converter
    storage = TolerantStorage(drivers=[FileStorage(payloads)], payload_size_threshold=THRESHOLD)
    return dataclasses.replace(converter, external_storage=storage)
