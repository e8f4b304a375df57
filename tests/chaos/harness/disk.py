"""The disk of the ledgers: a small one of its own that can be filled; without root, one that only says so.

It is mounted in a mount namespace of the harness, so that it is gone when the harness is, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path

from tests.chaos.harness.ledger import full_mark

HOSTS = ("a", "b")
"""Each with a ledger of its own, which the other does not see."""
SIZE = "16m"
CLONE_NEWNS = 0x20000
BLOCKS = (1 << 20, 1 << 12, 1)


class LedgerDisk:
    """A folder per host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._filling = folder / "filling"
        self.real = False

    def prepare(self) -> None:
        """Mount it, where that is allowed. Before any thread or child: what they see is what we see now."""
        self._folder.mkdir(parents=True)
        self.real = _own_mounts() and _mount(self._folder)
        for host in HOSTS:
            self.of(host).mkdir()

    def of(self, host: str) -> Path:
        """Where a host has its ledger."""
        return self._folder / host

    def fill(self) -> None:
        """Leave no byte of it. What room the ledgers' logs have of their own is taken from them first."""
        if not self.real:
            for host in HOSTS:
                full_mark(self.of(host)).touch()
            return
        for host in HOSTS:
            _checkpoint(self.of(host) / "ledger.db")
        with self._filling.open("wb", buffering=0) as file:
            for size in BLOCKS:
                with suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def free(self) -> None:
        """Give the room back."""
        self._filling.unlink(missing_ok=True)
        for host in HOSTS:
            full_mark(self.of(host)).unlink(missing_ok=True)

    def release(self) -> None:
        """Unmount it."""
        if self.real:
            subprocess.run(["umount", "--lazy", str(self._folder)], check=False, timeout=20, capture_output=True)


def _own_mounts() -> bool:
    """Whether what is mounted here is seen by us and our children alone."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return False
    return _run("mount", "--make-rprivate", "/")


def _mount(folder: Path) -> bool:
    return _run("mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "holdfast-chaos", str(folder))


def _run(*command: str) -> bool:
    with suppress(OSError):
        return subprocess.run(command, check=False, timeout=20, capture_output=True).returncode == 0
    return False


def _checkpoint(file: Path) -> None:
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{file}?mode=rw", uri=True, timeout=1)) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
