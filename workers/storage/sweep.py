"""Removing what no history needs any more: stored payloads in the folder and in buckets, and whole outputs.

First everything that is needed is read (`referenced`), then what is not among it and is old enough is removed. A
payload is stored before the event that refers to it, so young ones stay. Storing the same payload again makes it young,
even during the sweep: a file is renamed, checked once more, and restored if it was used. An output stays as long as the
ledger may refer to it.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from holdfast.config.settings import Settings
from holdfast.domain.content import format_output_name
from holdfast.errors import StoreUnavailable
from holdfast.names import FILES_DRIVER, GCS_DRIVER, S3_DRIVER
from holdfast.payloads.bucket_store import Buckets, StoredObject
from holdfast.payloads.file_store import SHARED_FOLDER, SWEPT_PREFIX, list_stored_files
from holdfast.util.text import shorten_text
from holdfast.workers.storage.referenced import NamespaceUsage

DAY = 86_400.0
_OUTPUT = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{2,4}")
_SHARED = re.compile(r"[0-9a-f]{32}-([0-9a-f]{32})")
_SHARED_OBJECT = re.compile(rf"v0/ns/[^/]+/{SHARED_FOLDER}/{_SHARED.pattern}")
_DRIVERS = {"files": FILES_DRIVER, "s3": S3_DRIVER, "gcs": GCS_DRIVER}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass
class SweepResult:
    """What was found in one place, and what was removed, or would be."""

    place: str
    needed: int = 0
    young: int = 0
    removed: int = 0
    removed_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_strange(self) -> bool:
        """Whether nothing here is needed although something is old: the place may belong to another server."""
        return self.needed == 0 and self.removed > 0


@dataclass(frozen=True)
class SweepPlan:
    """What is needed, and how old anything else must be to be removed."""

    reached: NamespaceUsage
    before: float
    outputs_before: float
    delete: bool

    @cached_property
    def needed_outputs(self) -> frozenset[str]:
        """The names of needed outputs, as models see them."""
        return frozenset(map(format_output_name, self.reached.outputs))

    @classmethod
    def from_usage(
        cls, reached: NamespaceUsage, settings: Settings, *, began: float, grace: float, delete: bool
    ) -> SweepPlan:
        """Build a plan. `began`: when reading began, since anything newer may be needed."""
        return cls(reached, began - grace, began - grace - settings.ledger_days * DAY, delete)


def read_clock(folder: Path) -> float:
    """Return the earlier of this machine's time and that of the folder's disk."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".new-", dir=folder) as probe:
            return min(time.time(), os.fstat(probe.fileno()).st_mtime)
    except OSError:
        return time.time()


def sweep_payloads(folder: Path, plan: SweepPlan) -> SweepResult:
    """Sweep stored payloads in a folder, and leftovers of writers and sweeps that were killed."""
    swept = SweepResult(str(folder))
    for path in _list_leftovers(folder):
        _sweep_leftover(path, plan, swept)
    for path in list_stored_files(folder):
        needed = (_DRIVERS["files"], path.name) in plan.reached.stored
        _sweep_file(path, needed, plan.before, plan.delete, swept)
    return swept


def sweep_outputs(folder: Path, plan: SweepPlan) -> SweepResult:
    """Sweep whole outputs in a folder, and unfinished ones."""
    swept = SweepResult(str(folder))
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _OUTPUT.fullmatch(path.name) or path.name.startswith((".spool-", SWEPT_PREFIX)):
            _sweep_file(path, path.name in plan.reached.outputs, plan.outputs_before, plan.delete, swept)
    return swept


def sweep_shared(folder: Path, plan: SweepPlan) -> SweepResult:
    """Sweep the outputs in the folder that hosts share."""
    swept = SweepResult(str(folder / SHARED_FOLDER))
    for path in sorted(folder.glob(f"{SHARED_FOLDER}/*/*")):
        found = _SHARED.fullmatch(path.name.removeprefix(SWEPT_PREFIX))
        needed = found is not None and found[1] in plan.needed_outputs
        if needed and path.name.startswith(SWEPT_PREFIX):
            if plan.delete:
                _restore_file(path, path.with_name(path.name.removeprefix(SWEPT_PREFIX)))
        elif found or path.name.startswith(".new-"):
            _sweep_file(path, needed, plan.outputs_before, plan.delete, swept)
    return swept


async def sweep_bucket(buckets: Buckets, namespaces: list[str], plan: SweepPlan) -> SweepResult:
    """Sweep stored payloads of these namespaces in a bucket. StoreUnavailable when it fails."""
    swept = SweepResult(f"{buckets.kind} bucket {buckets.settings.bucket}")
    try:
        async for found in _list_objects(buckets, namespaces, swept):
            output = _SHARED_OBJECT.fullmatch(found.name)
            stored = (_DRIVERS[buckets.kind], found.name) in plan.reached.stored
            if stored or (output and output[1] in plan.needed_outputs):
                swept.needed += 1
            elif found.modified >= (plan.outputs_before if output else plan.before):
                swept.young += 1
            elif not plan.delete or await buckets.remove(found):
                swept.removed += 1
                swept.removed_bytes += found.size
    except Exception as error:
        raise StoreUnavailable(
            f"the {swept.place} cannot be swept: {shorten_text(buckets.explain_error(error), 300)}"
        ) from error
    return swept


async def _list_objects(buckets: Buckets, namespaces: list[str], swept: SweepResult) -> AsyncIterator[StoredObject]:
    for namespace in namespaces:
        if not _PLAIN_NAME.fullmatch(namespace):
            swept.problems.append(f"objects of namespace {namespace!r} are not swept: the bucket encodes its name")
            continue
        async for found in buckets.list_objects(f"v0/ns/{namespace}/"):
            yield found


def _sweep_file(path: Path, needed: bool, before: float, delete: bool, swept: SweepResult) -> None:
    try:
        status = path.stat()
        if needed:
            swept.needed += 1
        elif status.st_mtime >= before:
            swept.young += 1
        elif not delete or _remove_file(path, before):
            swept.removed += 1
            swept.removed_bytes += status.st_size
    except FileNotFoundError:
        return
    except OSError as error:
        swept.problems.append(f"{path} is not swept: {error.strerror}")


def _remove_file(path: Path, before: float) -> bool:
    """Rename the file, and remove it unless it was used since."""
    renamed = path.with_name(SWEPT_PREFIX + path.name)
    os.rename(path, renamed)
    if renamed.stat().st_mtime >= before:
        _restore_file(renamed, path)
        return False
    renamed.unlink()
    return True


def _restore_file(renamed: Path, path: Path) -> None:
    """Rename a file back. One that was written meanwhile has the same content."""
    with suppress(FileExistsError):
        os.link(renamed, path)
    renamed.unlink()


def _list_leftovers(folder: Path) -> Iterator[Path]:
    for part in sorted(folder.glob("[0-9a-f][0-9a-f]")):
        yield from (path for path in sorted(part.iterdir()) if path.name.startswith((SWEPT_PREFIX, ".new-")))


def _sweep_leftover(path: Path, plan: SweepPlan, swept: SweepResult) -> None:
    """Sweep an unfinished file of a dead writer, or a file that a dead sweep had renamed."""
    name = path.name.removeprefix(SWEPT_PREFIX)
    if path.name.startswith(SWEPT_PREFIX) and (_DRIVERS["files"], name) in plan.reached.stored and plan.delete:
        with suppress(FileNotFoundError):
            _restore_file(path, path.with_name(name))
        return
    with suppress(FileNotFoundError):
        if path.stat().st_mtime < plan.before and plan.delete:
            path.unlink()


async def sweep_folders(settings: Settings, plan: SweepPlan) -> list[SweepResult]:
    """Sweep the folders of this host."""
    work: list[tuple[Callable[[Path, SweepPlan], SweepResult], Path]] = [
        (sweep_payloads, settings.payloads_folder),
        (sweep_shared, settings.payloads_folder),
        (sweep_outputs, settings.outputs_folder),
    ]
    return [await asyncio.to_thread(sweep, folder, plan) for sweep, folder in work]
