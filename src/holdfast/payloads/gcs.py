"""Buckets of Google Cloud Storage, by gcloud-aio-storage under Temporal's own driver.

Credentials come from Google's defaults: GOOGLE_APPLICATION_CREDENTIALS, the login of `gcloud`, or the machine.
STORAGE_EMULATOR_HOST names an emulator, which needs none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from aiohttp import ClientError, ClientResponseError
from gcloud.aio.storage import Storage
from temporalio.contrib.gcp.gcsdriver import GCSStorageDriver, GCSStorageDriverClient
from temporalio.converter import StorageDriver

from holdfast.config.sections import GcsSettings
from holdfast.payloads.bucket_store import (
    MAX_BYTES,
    Buckets,
    CachedConnection,
    ObjectNotFound,
    ObjectTooLarge,
    StoredObject,
)
from holdfast.payloads.file_store import TOO_LARGE

_SECONDS = 15
_GONE, _CHANGED = 404, 412


class GcsBuckets(Buckets):
    """Access to objects of Google Cloud Storage."""

    kind = "gcs"

    def __init__(self, settings: GcsSettings) -> None:
        super().__init__(settings)
        self._connection: CachedConnection[Storage] = CachedConnection(self._open_client)

    def _open_client(self) -> AbstractAsyncContextManager[Storage]:
        return Storage()

    def build_driver(self) -> StorageDriver:
        """See the base class."""
        return GCSStorageDriver(_Client(self), self.settings.bucket, max_payload_size=MAX_BYTES)

    async def put(self, bucket: str, name: str, data: bytes) -> None:
        """See the base class."""
        async with self._connection.use_connection() as client:
            await client.upload(
                bucket,
                self.prefix + name,
                data,
                content_type="application/octet-stream",
                force_resumable_upload=False,
                timeout=_SECONDS * 2,
            )

    async def get(self, bucket: str, name: str) -> bytes:
        """See the base class."""
        async with self._connection.use_connection() as client:
            try:
                found = await client.download_metadata(bucket, self.prefix + name, timeout=_SECONDS)
                if int(found.get("size", 0)) > TOO_LARGE:
                    raise ObjectTooLarge
                return await client.download(bucket, self.prefix + name, timeout=_SECONDS * 2)
            except ClientResponseError as error:
                if error.status == _GONE:
                    raise ObjectNotFound from error
                raise

    async def list_objects(self, start: str) -> AsyncIterator[StoredObject]:
        """See the base class."""
        asked = {"prefix": self.prefix + start}
        async with self._connection.use_connection() as client:
            while True:
                page = await client.list_objects(self.settings.bucket, params=asked, timeout=_SECONDS)
                for item in page.get("items", ()):
                    name = str(item["name"]).removeprefix(self.prefix)
                    modified = datetime.fromisoformat(item["updated"]).timestamp()
                    yield StoredObject(name, modified, int(item["size"]), str(item["generation"]))
                if not page.get("nextPageToken"):
                    return
                asked["pageToken"] = page["nextPageToken"]

    async def remove(self, found: StoredObject) -> bool:
        """See the base class. Emulators ignore the condition on the generation, so it is also read before."""
        async with self._connection.use_connection() as client:
            try:
                now = await client.download_metadata(self.settings.bucket, self.prefix + found.name, timeout=_SECONDS)
                if str(now.get("generation")) != found.version:
                    return False
                await client.delete(
                    self.settings.bucket,
                    self.prefix + found.name,
                    params={"ifGenerationMatch": found.version},
                    timeout=_SECONDS,
                )
            except ClientResponseError as error:
                if error.status in (_GONE, _CHANGED):
                    return False
                raise
            return True

    def explain_error(self, error: BaseException) -> str:
        """See the base class."""
        if isinstance(error, ClientResponseError):
            return f"{error.status}: {error.message}"
        return str(error) if isinstance(error, ClientError) else f"{type(error).__name__}: {error}"


class _Client(GCSStorageDriverClient):
    """The client of Temporal's driver."""

    def __init__(self, buckets: GcsBuckets) -> None:
        self._buckets = buckets

    async def put_object(self, *, bucket: str, object_name: str, data: bytes) -> None:
        await self._buckets.put(bucket, object_name, data)

    async def object_exists(self, *, bucket: str, object_name: str) -> bool:
        """False, so that the driver writes the object again, which renews its time."""
        return False

    async def get_object(self, *, bucket: str, object_name: str) -> bytes:
        return await self._buckets.get(bucket, object_name)
