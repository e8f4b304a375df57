"""Outputs that workers of every host can read: whole outputs that were cut, and bytes that tools made (S33, S34).

They are stored where large payloads are, because all workers of a turn share that, and encrypted like payloads. An
output belongs to the session that it was made in, or to the turn without one: its place is derived from the owner and
its name, so a name alone gives no access. A name is the beginning of the SHA-256 of the content.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.domain.content import OUTPUT_NAME, format_output_name
from holdfast.domain.turn.ids import find_family
from holdfast.errors import PayloadUnreadable, StoreUnavailable
from holdfast.payloads.bucket_store import Buckets, ObjectNotFound, build_buckets
from holdfast.payloads.converter import explain_unreadable
from holdfast.payloads.file_store import SHARED_FOLDER
from holdfast.util.files import write_whole
from holdfast.util.text import shorten_text

if TYPE_CHECKING:
    from holdfast.config.settings import Settings

SHARED_BYTES = 8_000_000
"""Bytes of one output. A longer one is complete only on the host where it was made."""
_SECONDS = 60.0
"""The time for one access to a bucket."""


class ObjectStore(Protocol):
    """A store of bytes under names."""

    async def put(self, name: str, data: bytes) -> None:
        """Write an object, replacing an older one. Raises StoreUnavailable."""

    async def get(self, name: str) -> bytes:
        """Read an object. Raises ObjectNotFound or StoreUnavailable."""


class FolderObjects:
    """Objects in a folder that all hosts share."""

    def __init__(self, payloads: Path) -> None:
        self._folder = payloads / SHARED_FOLDER

    async def put(self, name: str, data: bytes) -> None:
        """See the protocol."""
        with self._translate_errors():
            await asyncio.to_thread(self._write_file, self._folder / name, data)

    async def get(self, name: str) -> bytes:
        """See the protocol."""
        with self._translate_errors():
            try:
                return await asyncio.to_thread((self._folder / name).read_bytes)
            except FileNotFoundError:
                raise ObjectNotFound from None

    def _write_file(self, file: Path, data: bytes) -> None:
        for made in (self._folder.parent, self._folder, file.parent):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, data)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(f"outputs in {self._folder} cannot be written or read: {error.strerror}") from error


class BucketObjects:
    """Objects in a bucket, beside the payloads of the namespace."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets

    async def put(self, name: str, data: bytes) -> None:
        """See the protocol."""
        with self._translate_errors():
            async with asyncio.timeout(_SECONDS):
                await self._buckets.put(self._buckets.settings.bucket, format_object_name(name), data)

    async def get(self, name: str) -> bytes:
        """See the protocol."""
        for bucket in (self._buckets.settings.bucket, *self._buckets.settings.formerly):
            try:
                with self._translate_errors():
                    async with asyncio.timeout(_SECONDS):
                        return await self._buckets.get(bucket, format_object_name(name))
            except ObjectNotFound:
                continue
        raise ObjectNotFound

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except ObjectNotFound:
            raise
        except Exception as error:
            where = f"the bucket {self._buckets.settings.bucket!r} ({self._buckets.kind})"
            why = "it does not answer" if isinstance(error, TimeoutError) else self._buckets.explain_error(error)
            raise StoreUnavailable(f"outputs in {where} cannot be written or read: {shorten_text(why, 300)}") from error


def format_object_name(name: str) -> str:
    """The name of an object in a bucket: among those of its namespace, where a sweep finds it."""
    namespace, _, rest = name.partition("/")
    return f"v0/ns/{namespace}/{SHARED_FOLDER}/{rest}"


def build_object_stores(settings: Settings) -> list[ObjectStore]:
    """All stores of the settings, the one for new objects first. BadInput as for `build_buckets`."""
    known: dict[str, ObjectStore] = {"files": FolderObjects(settings.payloads_folder)}
    known |= {buckets.kind: BucketObjects(buckets) for buckets in build_buckets(settings)}
    return sorted(known.values(), key=lambda store: store is not known[settings.storage.kind])


@dataclass(frozen=True)
class SharedOutput:
    """A shared output."""

    data: bytes
    media_type: str
    incomplete: bool = False
    """It was longer than `SHARED_BYTES`."""


class SharedOutputs:
    """The outputs of one namespace."""

    def __init__(self, stores: Sequence[ObjectStore], codec: PayloadCodec | None, namespace: str) -> None:
        """New objects go to the first store; all are read."""
        self._stores = stores
        self._codec = codec
        self._namespace = namespace

    async def share_output(self, turn: str, file: Path, media_type: str) -> None:
        """Share the output in a file of this host with the session of a turn. A second call writes the same again.

        Raises StoreUnavailable or OSError.
        """
        data = await asyncio.to_thread(_read_beginning, file)
        about = {"encoding": b"binary/plain", "media-type": media_type.encode("utf-8", "replace")}
        about |= {"incomplete": b"true"} if len(data) > SHARED_BYTES else {}
        payload = Payload(metadata=about, data=data[:SHARED_BYTES])
        if self._codec:
            [payload] = await self._codec.encode([payload])
        await self._stores[0].put(
            self._format_object_name(turn, format_output_name(file.name)), payload.SerializeToString()
        )

    async def read(self, turn: str, name: str) -> SharedOutput:
        """The output of this name that was shared with the session of a turn.

        Raises ObjectNotFound, or PayloadUnreadable or StoreUnavailable when it cannot be read.
        """
        try:
            payload = Payload.FromString(await self._fetch_object(self._format_object_name(turn, name)))
        except DecodeError:
            raise PayloadUnreadable("the stored output was changed") from None
        if self._codec:
            [payload] = await self._codec.decode([payload])
        if why := explain_unreadable(payload):
            raise PayloadUnreadable(why)
        incomplete = "incomplete" in payload.metadata
        if not incomplete and not hashlib.sha256(payload.data).hexdigest().startswith(name):
            raise PayloadUnreadable("the stored output was changed")
        return SharedOutput(payload.data, _read_media_type(payload), incomplete)

    def _format_object_name(self, turn: str, name: str) -> str:
        owner = hashlib.sha256(find_family(turn).encode("utf-8", "replace")).hexdigest()[:OUTPUT_NAME]
        return f"{quote(self._namespace, safe='')[:200]}/{owner}-{name}"

    async def _fetch_object(self, place: str) -> bytes:
        for store in self._stores:
            try:
                return await store.get(place)
            except ObjectNotFound:
                continue
        raise ObjectNotFound


def _read_media_type(payload: Payload) -> str:
    return payload.metadata.get("media-type", b"").decode("utf-8", "replace")


def _read_beginning(file: Path) -> bytes:
    with open(file, "rb") as opened:
        return opened.read(SHARED_BYTES + 1)
