"""How our data becomes payloads: pydantic, and external storage for what is large.

What arrives where anything may arrive (the input of a turn, the body of a signal) is read by the turn itself. So JSON
that cannot even be parsed becomes a value that says so, instead of a decoding error that Temporal retries for ever.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter, pydantic_data_converter
from temporalio.converter import CompositePayloadConverter, DataConverter, DefaultPayloadConverter, ExternalStorage

from holdfast.payloads import THRESHOLD, FileStorage


@dataclasses.dataclass(frozen=True)
class Unreadable:
    """In the place of a value that could not be read."""

    reason: str


class TolerantJson(PydanticJSONPlainPayloadConverter):
    """Pydantic's JSON, except that an untyped value which is no JSON is `Unreadable` and not an error."""

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """See the base class."""
        try:
            return super().from_payload(payload, type_hint)
        except ValueError as error:
            if type_hint is None or type_hint is Any:
                return Unreadable(str(error))
            raise


class HoldfastPayloadConverter(CompositePayloadConverter):
    """The default converters, with JSON as above."""

    def __init__(self) -> None:
        json = TolerantJson()
        super().__init__(
            *(
                json if converter.encoding == json.encoding else converter
                for converter in DefaultPayloadConverter.default_encoding_payload_converters
            )
        )


def data_converter(existing: DataConverter | None, payloads: Path) -> DataConverter:
    """Ours, as far as the application has not brought its own."""
    converter = existing
    if converter is None or converter is DataConverter.default or converter is pydantic_data_converter:
        converter = DataConverter(payload_converter_class=HoldfastPayloadConverter)
    if converter.external_storage is not None:
        return converter
    storage = ExternalStorage(drivers=[FileStorage(payloads)], payload_size_threshold=THRESHOLD)
    return dataclasses.replace(converter, external_storage=storage)
