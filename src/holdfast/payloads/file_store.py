"""Payloads outside the history: Temporal's external storage, with files named by the hash of what they hold (S42).

A payload over the threshold is written once, synced, and renamed into place; the history keeps its hash. Workers and
clients of one turn must see the same folder. What is stored again is marked as used, so that no sweep takes it away;
and the folder remembers for which namespaces it was used, so that no sweep looks at one of them alone.

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
from holdfast.util.files import write_whole

THRESHOLD = 16 * 1024
TOO_LARGE = 100_000_000
"""Bytes above which a payload is not even read: decoding it would take longer than a workflow task may."""
MISSING = b"holdfast/missing"
SWEPT_PREFIX = ".swept-"
"""Before the name of a file that a sweep is about to remove, and may yet put back."""
NAMESPACES = ".namespaces"
SHARED_FOLDER = "outputs"
"""The folder beside payloads for outputs that workers of other hosts read (`shared_outputs`)."""
_HASH = re.compile(r"[0-9a-f]{64}")

logger = logging.getLogger(__name__)


class FileStorage(StorageDriver):
    """A content-addressed folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._noted: set[str] = set()

    def name(self) -> str:
        """In histories for ever."""
        return "holdfast.files"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Write what is not there yet."""
        if context.target and context.target.namespace not in self._noted:
            await asyncio.to_thread(self._note_namespace, context.target.namespace)
        with self._translate_errors():
            return [await asyncio.to_thread(self._store_payload, payload) for payload in payloads]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Read back.

        A claim that names nothing we have becomes a payload that nothing can decode: a made-up signal is then
        dropped and a made-up update refused, while a turn whose own payload is missing fails its task and is
        retried until the file is back.
        """
        with self._translate_errors():
            return [await asyncio.to_thread(self._retrieve_payload, claim) for claim in claims]

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """A disk that does not do what it should is a store that does not answer, as a bucket would be."""
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
        """Is it there? Then it is young from now on."""
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
        """What a file holds, also while a sweep has it in its hands; None when it is too much."""
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
    """In the place of a payload that is not even read."""
    return Payload(metadata={"encoding": b"json/plain"}, data=b"larger than anything we take in")


def note_namespace(folder: Path, namespace: str) -> None:
    """Remember for whom a folder is used: a sweep asks all of them."""
    notes = folder / NAMESPACES
    for made in (folder, notes):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    (notes / quote(namespace, safe="")[:200]).touch(mode=0o600)


def forget_namespaces(folder: Path, names: Iterable[str]) -> None:
    """The contrary, of namespaces that are gone for good."""
    for name in names:
        (folder / NAMESPACES / quote(name, safe="")[:200]).unlink(missing_ok=True)


def list_namespaces(folder: Path) -> list[str]:
    """The namespaces that a folder is known to have been used for."""
    try:
        return sorted(unquote(path.name) for path in (folder / NAMESPACES).iterdir())
    except FileNotFoundError:
        return []


def list_stored_files(folder: Path) -> Iterator[Path]:
    """Every payload in a folder."""
    for part in sorted(folder.glob("[0-9a-f][0-9a-f]")):
        yield from (path for path in sorted(part.iterdir()) if _HASH.fullmatch(path.name))


class MissingDriver(StorageDriver):
    """The driver of references that name no driver we have: finds nothing, stores nothing."""

    def name(self) -> str:
        """Never in a history."""
        return "holdfast.nowhere"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Not for storing."""
        raise OSError("nothing is stored here")

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """A payload nobody can read, for each."""
        return [Payload(metadata={"encoding": MISSING}, data=b"a reference to another storage") for _ in claims]
