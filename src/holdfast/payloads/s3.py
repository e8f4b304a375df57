"""Buckets of S3, or of a store with its API, by aioboto3 under Temporal's own driver.

Credentials come from the default chain of AWS: AWS_ACCESS_KEY_ID and its like, a profile, a role.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import aioboto3
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError, ClientError
from temporalio.contrib.aws.s3driver import S3StorageDriver, S3StorageDriverClient
from temporalio.converter import StorageDriver

from holdfast.config.sections import S3Settings
from holdfast.payloads.bucket_store import (
    MAX_BYTES,
    Buckets,
    CachedConnection,
    ObjectNotFound,
    ObjectTooLarge,
    StoredObject,
)
from holdfast.payloads.file_store import TOO_LARGE

_CONFIG = AioConfig(connect_timeout=3, read_timeout=15, retries={"max_attempts": 2, "mode": "standard"})
_GONE = ("NoSuchKey", "404")


class S3Buckets(Buckets):
    """Access to objects of S3."""

    kind = "s3"

    def __init__(self, settings: S3Settings) -> None:
        super().__init__(settings)
        self._region, self._endpoint = settings.region, settings.endpoint
        self._session = aioboto3.Session()
        self._connection: CachedConnection[Any] = CachedConnection(self._open_client)

    def _open_client(self) -> AbstractAsyncContextManager[Any]:
        opening: AbstractAsyncContextManager[Any] = self._session.client(
            "s3", region_name=self._region, endpoint_url=self._endpoint, config=_CONFIG
        )
        return opening

    def build_driver(self) -> StorageDriver:
        """See the base class."""
        return S3StorageDriver(_Client(self), self.settings.bucket, max_payload_size=MAX_BYTES)

    async def put(self, bucket: str, name: str, data: bytes) -> None:
        """See the base class."""
        async with self._connection.use_connection() as client:
            await client.put_object(Bucket=bucket, Key=self.prefix + name, Body=data)

    async def get(self, bucket: str, name: str) -> bytes:
        """See the base class."""
        async with self._connection.use_connection() as client:
            try:
                found = await client.get_object(Bucket=bucket, Key=self.prefix + name)
            except ClientError as error:
                if _find_error_code(error) in _GONE:
                    raise ObjectNotFound from error
                raise
            async with found["Body"] as body:
                if found["ContentLength"] > TOO_LARGE:
                    raise ObjectTooLarge
                data: bytes = await body.read()
                return data

    async def list_objects(self, start: str) -> AsyncIterator[StoredObject]:
        """See the base class."""
        async with self._connection.use_connection() as client:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=self.settings.bucket, Prefix=self.prefix + start
            )
            async for page in pages:
                for item in page.get("Contents", ()):
                    name = item["Key"].removeprefix(self.prefix)
                    yield StoredObject(name, item["LastModified"].timestamp(), item["Size"])

    async def remove(self, found: StoredObject) -> bool:
        """See the base class. S3 has no conditional removal by time, so the object is read just before."""
        async with self._connection.use_connection() as client:
            place = {"Bucket": self.settings.bucket, "Key": self.prefix + found.name}
            try:
                now = await client.head_object(**place)
            except ClientError as error:
                if _find_error_code(error) in _GONE:
                    return False
                raise
            if int(now["LastModified"].timestamp()) != int(
                found.modified
            ):  # head_object has no fractions of a second, list_objects has
                return False
            await client.delete_object(**place)
            return True

    def explain_error(self, error: BaseException) -> str:
        """See the base class."""
        if isinstance(error, ClientError):
            return f"{_find_error_code(error)}: {error.response.get('Error', {}).get('Message', 'no reason given')}"
        return str(error) if isinstance(error, BotoCoreError) else f"{type(error).__name__}"


class _Client(S3StorageDriverClient):
    """The client of Temporal's driver."""

    def __init__(self, buckets: S3Buckets) -> None:
        self._buckets = buckets

    async def put_object(self, *, bucket: str, key: str, data: bytes) -> None:
        await self._buckets.put(bucket, key, data)

    async def object_exists(self, *, bucket: str, key: str) -> bool:
        """False, so that the driver writes the object again, which renews its time."""
        return False

    async def get_object(self, *, bucket: str, key: str) -> bytes:
        return await self._buckets.get(bucket, key)


def _find_error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "no code"))
