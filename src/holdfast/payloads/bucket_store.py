"""Buckets of S3 and Google Cloud Storage as stores of payloads (S42), and the choice of stores by the settings.

Temporal's own drivers read and write the buckets. As for files, a reference to an object that does not exist becomes a
placeholder, since anybody can send one and an error would be retried without end. A store that does not answer raises
StoreUnavailable, so that whoever needs it waits.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

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
from holdfast.util.findings import Finding, report_ok
from holdfast.util.text import shorten_text

if TYPE_CHECKING:
    from holdfast.config.sections import BucketSettings
    from holdfast.config.settings import Settings


T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

IDLE_SECONDS = 30.0
_KEEPER_TASKS: set[asyncio.Task[None]] = set()
"""Strong references: an event loop holds its tasks only weakly."""


class CachedConnection(Generic[T]):
    """A connection that is opened at first use, shared, and closed when nobody has used it for a while.

    One for each event loop. Temporal does not notify a data converter when a client or worker ends, so a task of the
    loop holds the connection, and closes it after a pause, or when the loop ends.
    """

    def __init__(
        self, opening: Callable[[], AbstractAsyncContextManager[T]], idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._opening = opening
        self._idle_seconds = idle_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: asyncio.Future[T] | None = None
        self._users = 0
        self._used = asyncio.Event()

    @asynccontextmanager
    async def use_connection(self) -> AsyncIterator[T]:
        """The connection, for a block. Raises what opening it raises."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._opened is None:
            self._loop, self._opened, self._users, self._used = loop, loop.create_future(), 0, asyncio.Event()
            keeper = loop.create_task(self._hold_open(self._opened))
            _KEEPER_TASKS.add(keeper)
            keeper.add_done_callback(_KEEPER_TASKS.discard)
        opened = self._opened
        self._users += 1
        try:
            yield await asyncio.shield(opened)
        finally:
            if self._opened is opened:
                self._users -= 1
                self._used.set()

    async def _hold_open(self, opened: asyncio.Future[T]) -> None:
        try:
            async with self._opening() as connection:
                opened.set_result(connection)
                await self._wait_until_idle(opened)
        except Exception as error:
            if opened.done():
                _LOGGER.warning("A connection to a store did not close cleanly: %s", type(error).__name__)
            else:
                opened.set_exception(error)
                opened.exception()  # retrieved, in case nobody waits any more
        finally:
            self._forget_connection(opened)
            opened.cancel()

    async def _wait_until_idle(self, opened: asyncio.Future[T]) -> None:
        """Return when nobody has used the connection for a while, after withdrawing it."""
        while self._opened is opened:
            self._used.clear()
            try:
                async with asyncio.timeout(self._idle_seconds):
                    await self._used.wait()
            except TimeoutError:
                if self._users == 0:
                    self._forget_connection(opened)

    def _forget_connection(self, opened: asyncio.Future[T]) -> None:
        if self._opened is opened:
            self._opened = None


MAX_BYTES = 5_000_000_000
"""Bytes of one payload. Temporal's drivers want a limit; exceeding it is an error that is retried without end."""
_NAME = re.compile(r"v0/\S*d/sha256/([0-9a-f]{64})")
_SECONDS = 60.0

logger = logging.getLogger(__name__)


class ObjectNotFound(Exception):
    """The bucket has no such object."""


class ObjectTooLarge(Exception):
    """The object is larger than `TOO_LARGE`."""


@dataclass(frozen=True)
class StoredObject:
    """An object of a bucket: its name, the time of its last write, its size in bytes."""

    name: str
    modified: float
    size: int
    version: str = ""
    """The version that a removal expects, in stores that have versions."""


class Buckets(ABC):
    """The buckets of one kind in the settings. Names of objects are given without the prefix."""

    kind: ClassVar[str]

    def __init__(self, settings: BucketSettings) -> None:
        self.settings = settings
        self.prefix = settings.prefix or ""

    @abstractmethod
    def build_driver(self) -> StorageDriver:
        """Temporal's own driver over these buckets."""

    @abstractmethod
    async def put(self, bucket: str, name: str, data: bytes) -> None:
        """Write an object, also if it exists: that renews its time, so that no sweep removes it."""

    @abstractmethod
    async def get(self, bucket: str, name: str) -> bytes:
        """Read an object. Raises ObjectNotFound, or ObjectTooLarge without reading it."""

    @abstractmethod
    def list_objects(self, start: str) -> AsyncIterator[StoredObject]:
        """The objects of the current bucket with this prefix."""

    @abstractmethod
    async def remove(self, found: StoredObject) -> bool:
        """Remove an object of the current bucket unless it changed; whether it was removed."""

    @abstractmethod
    def explain_error(self, error: BaseException) -> str:
        """A short text for an error of the library."""


class BucketStorage(StorageDriver):
    """Temporal's driver for buckets, made safe against forged references."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._driver = buckets.build_driver()

    def name(self) -> str:
        """The name of the driver, which histories hold for ever."""
        return self._driver.name()

    def type(self) -> str:
        """The type that Temporal's drivers in other languages have too."""
        return self._driver.type()

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Write payloads. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._driver.store(context, payloads)
        except Exception as error:
            raise self._build_unavailable("written", error) from error

    async def check_reachable(self) -> None:
        """StoreUnavailable when a bucket cannot be read."""
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
        """Load payloads; a missing one becomes a placeholder. StoreUnavailable when a store does not answer."""
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
        """Why a reference is invalid; None when it is valid."""
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
    """The buckets of the settings. BadInput when a package for them is not installed."""
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
            f"payloads are stored in a bucket ([storage.{extra}]), and the package {error.name!r} for it is not "
            f"installed: pip install 'holdfast[{extra}]'"
        ) from None
    return found


def build_drivers(settings: Settings) -> list[StorageDriver]:
    """The drivers of all stores in the settings, the one for new payloads first."""
    known: dict[str, StorageDriver] = {"files": FileStorage(settings.payloads_folder)}
    known |= {buckets.kind: BucketStorage(buckets) for buckets in build_buckets(settings)}
    return sorted(known.values(), key=lambda driver: driver is not known[settings.storage.kind])


async def check_stores(settings: Settings) -> list[Finding]:
    """Check that every configured bucket can be read. Writes nothing. Raises BadInput or StoreUnavailable."""
    drivers = [driver for driver in build_drivers(settings) if isinstance(driver, BucketStorage)]
    for driver in drivers:
        await driver.check_reachable()
    return [report_ok(f"{driver.name()} answers") for driver in drivers] or [
        report_ok(f"large payloads are files in {settings.payloads_folder}")
    ]
