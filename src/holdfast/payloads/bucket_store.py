"""Where payloads are kept outside the history: the folder, and buckets of S3 or Google Cloud Storage (S42).

Temporal's own drivers write and read the buckets. Around them stands what `payloads` has for files: a reference that
names nothing we have becomes a payload that nobody can read, for anybody can send one, and an error is retried for
ever; a store that does not answer is an error, and what needs it waits until it does.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from holdfast.errors import BadInput, StoreUnavailable
from holdfast.payloads.file_store import MISSING, FileStorage, build_too_large
from holdfast.util.findings import Finding, ok
from holdfast.util.text import shorten_text

if TYPE_CHECKING:
    from holdfast.config.sections import BucketSettings
    from holdfast.config.settings import Settings

MAX_BYTES = 5_000_000_000
"""Of one payload that is written. A limit of Temporal's drivers, and an error there would be retried for ever."""
_NAME = re.compile(r"v0/\S*d/sha256/([0-9a-f]{64})")
_SECONDS = 60.0

logger = logging.getLogger(__name__)


class ObjectNotFound(Exception):
    """A bucket has no such object."""


class ObjectTooLarge(Exception):
    """An object is larger than anything we take in."""


@dataclass(frozen=True)
class StoredObject:
    """Something that is kept: its name, when it was last written, how large it is."""

    name: str
    modified: float
    size: int
    version: str = ""
    """What a removal must still find, where a store can tell versions apart."""


class Buckets(ABC):
    """The buckets of one kind that these settings know. Names of objects are without the prefix."""

    kind: ClassVar[str]

    def __init__(self, settings: BucketSettings) -> None:
        self.settings = settings
        self.prefix = settings.prefix or ""

    @abstractmethod
    def build_driver(self) -> StorageDriver:
        """Temporal's driver over these buckets."""

    @abstractmethod
    async def put(self, bucket: str, name: str, data: bytes) -> None:
        """Write an object, anew if it is there: what is written again is young again, and no sweep takes it."""

    @abstractmethod
    async def get(self, bucket: str, name: str) -> bytes:
        """Read an object. NotThere, or TooLarge without reading it."""

    @abstractmethod
    def list_objects(self, start: str) -> AsyncIterator[StoredObject]:
        """The objects of the bucket that is written to, whose names begin so."""

    @abstractmethod
    async def remove(self, found: StoredObject) -> bool:
        """Remove an object of the bucket that is written to, if it is as it was found."""

    @abstractmethod
    def explain_error(self, error: BaseException) -> str:
        """What a library's error says, in short."""


class BucketStorage(StorageDriver):
    """Temporal's driver for buckets, which a forged reference cannot stop."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._driver = buckets.build_driver()

    def name(self) -> str:
        """In histories for ever."""
        return self._driver.name()

    def type(self) -> str:
        """As Temporal's drivers of other languages have it."""
        return self._driver.type()

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Write. StoreUnavailable when that cannot be done now."""
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._driver.store(context, payloads)
        except Exception as error:
            raise self._build_unavailable("written", error) from error

    async def check_reachable(self) -> None:
        """StoreUnavailable when the buckets cannot be read."""
        for bucket in sorted(self._buckets.settings.bucket_names):
            try:
                async with asyncio.timeout(_SECONDS):
                    await self._buckets.get(bucket, "v0/none")
            except ObjectNotFound:
                continue
            except Exception as error:
                raise self._build_unavailable("read", error) from error

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Read back. StoreUnavailable when nobody can tell now; what is known not to be there is a missing payload."""
        return list(await asyncio.gather(*(self._retrieve_payload(context, claim) for claim in claims)))

    async def _retrieve_payload(self, context: StorageDriverRetrieveContext, claim: StorageDriverClaim) -> Payload:
        if problem := self._explain_unfit(claim.claim_data):
            return self._build_missing(problem)
        try:
            async with asyncio.timeout(_SECONDS):
                [payload] = await self._driver.retrieve(context, [claim])
                return payload
        except (ValueError, DecodeError):
            return self._build_missing("an object that was changed")
        except Exception as error:
            if isinstance(error.__cause__, ObjectNotFound):
                return self._build_missing(claim.claim_data["hash_value"])
            if isinstance(error.__cause__, ObjectTooLarge):
                return build_too_large()
            raise self._build_unavailable("read", error) from error

    def _explain_unfit(self, claim: Any) -> str | None:
        """What is wrong with a reference that anybody may have written."""
        name = _NAME.fullmatch(claim.get("key") or claim.get("object_name") or "")
        if not name or name[1] != claim.get("hash_value") or claim.get("hash_algorithm") != "sha256":
            return "a malformed reference"
        if claim.get("bucket") not in self._buckets.settings.bucket_names:
            return "a reference to another bucket"
        return None

    def _build_missing(self, what: str) -> Payload:
        logger.warning("No stored payload in %s %s for %s", self._buckets.kind, self._buckets.settings.bucket, what)
        return Payload(metadata={"encoding": MISSING}, data=what.encode())

    def _build_unavailable(self, done: str, error: Exception) -> StoreUnavailable:
        where = f"the bucket {self._buckets.settings.bucket!r} ({self._buckets.kind})"
        why = (
            "it does not answer"
            if isinstance(error, TimeoutError)
            else self._buckets.explain_error(error.__cause__ or error)
        )
        return StoreUnavailable(f"a payload could not be {done}: {where}: {shorten_text(why, 300)}")


def build_buckets(settings: Settings) -> list[Buckets]:
    """The buckets that the settings tell of. BadInput when a package for them is not installed."""
    found: list[Buckets] = []
    try:
        if settings.storage.s3:
            from holdfast.payloads.s3 import S3Buckets

            found.append(S3Buckets(settings.storage.s3))
        if settings.storage.gcs:
            from holdfast.payloads.gcs import GcsBuckets

            found.append(GcsBuckets(settings.storage.gcs))
    except ModuleNotFoundError as error:
        extra = "gcs" if found or not settings.storage.s3 else "s3"
        raise BadInput(
            f"payloads are kept in a bucket ([storage.{extra}]), and the package {error.name!r} for it is not "
            f"installed: pip install 'holdfast[{extra}]'"
        ) from None
    return found


def build_drivers(settings: Settings) -> list[StorageDriver]:
    """Every store that is read from, the one that is written to first."""
    known: dict[str, StorageDriver] = {"files": FileStorage(settings.payloads_folder)}
    known |= {buckets.kind: BucketStorage(buckets) for buckets in build_buckets(settings)}
    return sorted(known.values(), key=lambda driver: driver is not known[settings.storage.kind])


async def check_stores(settings: Settings) -> list[Finding]:
    """Does every bucket answer that is read from? Nothing is written. BadInput, StoreUnavailable."""
    drivers = [driver for driver in build_drivers(settings) if isinstance(driver, BucketStorage)]
    for driver in drivers:
        await driver.check_reachable()
    return [ok(f"{driver.name()} answers") for driver in drivers] or [
        ok(f"large payloads are files in {settings.payloads_folder}")
    ]
