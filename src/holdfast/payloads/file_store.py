"""Payloads outside the history: Temporal's external storage with files named by a hash of their content (S42).

A payload over the threshold is written once, synced, and renamed into place; the history holds its hash. Workers and
clients of a turn need the same folder. Storing a payload again renews its time, so that no sweep removes it. The folder
records the namespaces that use it, so that a sweep asks all of them.

Why: docs/decisions/0017-payloads-outside-the-history.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from holdfast.errors import StoreUnavailable
from holdfast.names import FILES_DRIVER, MISSING_DRIVER
from holdfast.util.files import write_whole

THRESHOLD = 16 * 1024
TOO_LARGE = 100_000_000
"""Bytes above which a payload is not loaded: decoding it would exceed the time of a workflow task."""
MISSING = b"holdfast/missing"
SWEPT_PREFIX = ".swept-"
"""The prefix of a file that a sweep is about to remove, and may still restore."""
NAMESPACES = ".namespaces"
SHARED_FOLDER = "outputs"
"""The folder for outputs that workers of other hosts read (`shared_outputs`)."""
_HASH = re.compile(r"[0-9a-f]{64}")

logger = logging.getLogger(__name__)


class FileStorage(StorageDriver):
    """A storage driver over a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._noted: set[str] = set()

    def name(self) -> str:
        """The name of the driver, which histories hold for ever."""
        return FILES_DRIVER

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Write payloads that are not there yet. Raises StoreUnavailable."""
        if context.target and context.target.namespace not in self._noted:
            await asyncio.to_thread(self._note_namespace, context.target.namespace)
        with self._translate_errors():
            return [await asyncio.to_thread(self._store_payload, payload) for payload in payloads]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Load payloads. Raises StoreUnavailable.

        A claim for a file that does not exist becomes a placeholder: a forged signal is dropped, a forged update
        refused, and a turn whose own payload is missing fails its task until the file is back.
        """
        with self._translate_errors():
            return [await asyncio.to_thread(self._retrieve_payload, claim) for claim in claims]

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise StoreUnavailable for errors of the disk."""
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(f"payloads in {self._folder} cannot be written or read: {error.strerror}") from error

    def _store_payload(self, payload: Payload) -> StorageDriverClaim:
        data = payload.SerializeToString(deterministic=True)
        name = hashlib.sha256(data).hexdigest()
        path = self._locate_file(name)
        if not self._touch_file(path, len(data)):
            for made in (self._folder, path.parent):
                made.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, data)
        return StorageDriverClaim(claim_data={"sha256": name})

    def _touch_file(self, path: Path, size: int) -> bool:
        """Renew the time of a complete file; whether there was one."""
        try:
            os.utime(path)
            return path.stat().st_size == size
        except FileNotFoundError:
            return False

    def _note_namespace(self, namespace: str) -> None:
        note_namespace(self._folder, namespace)
        self._noted.add(namespace)

    def _retrieve_payload(self, claim: StorageDriverClaim) -> Payload:
        name = claim.claim_data.get("sha256", "")
        if not _HASH.fullmatch(name):
            return self._build_missing("a malformed reference")
        try:
            data = self._read_data(self._locate_file(name))
        except FileNotFoundError:
            return self._build_missing(name)
        if data is None:
            return build_too_large()
        if hashlib.sha256(data).hexdigest() != name:
            return self._build_missing(f"{name}, whose file was changed")
        return Payload.FromString(data)

    def _read_data(self, path: Path) -> bytes | None:
        """The content of a file, also while a sweep is about to remove it; None when it is too large."""
        try:
            return None if path.stat().st_size > TOO_LARGE else path.read_bytes()
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                return path.with_name(SWEPT_PREFIX + path.name).read_bytes()
            return path.read_bytes()

    def _build_missing(self, what: str) -> Payload:
        logger.warning("No stored payload in %s for %s", self._folder, what)
        return Payload(metadata={"encoding": MISSING}, data=what.encode())

    def _locate_file(self, name: str) -> Path:
        return self._folder / name[:2] / name


def build_too_large() -> Payload:
    """The placeholder for a payload that is too large to load."""
    return Payload(metadata={"encoding": b"json/plain"}, data=b"the payload exceeds 100 MB")


def note_namespace(folder: Path, namespace: str) -> None:
    """Record that a namespace uses a folder. A second call changes nothing."""
    notes = folder / NAMESPACES
    for made in (folder, notes):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    (notes / quote(namespace, safe="")[:200]).touch(mode=0o600)


def forget_namespaces(folder: Path, names: Iterable[str]) -> None:
    """Remove the records of namespaces that were deleted."""
    for name in names:
        (folder / NAMESPACES / quote(name, safe="")[:200]).unlink(missing_ok=True)


def list_namespaces(folder: Path) -> list[str]:
    """The recorded namespaces of a folder."""
    try:
        return sorted(unquote(path.name) for path in (folder / NAMESPACES).iterdir())
    except FileNotFoundError:
        return []


def list_stored_files(folder: Path) -> Iterator[Path]:
    """The files of all payloads in a folder."""
    for part in sorted(folder.glob("[0-9a-f][0-9a-f]")):
        yield from (path for path in sorted(part.iterdir()) if _HASH.fullmatch(path.name))


class MissingDriver(StorageDriver):
    """The driver for references to an unknown driver: every payload is a placeholder."""

    def name(self) -> str:
        """A name that no history holds."""
        return MISSING_DRIVER

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Raises OSError: it is never written to."""
        raise OSError("nothing is stored here")

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """A placeholder for each claim."""
        return [Payload(metadata={"encoding": MISSING}, data=b"a reference to another storage") for _ in claims]
