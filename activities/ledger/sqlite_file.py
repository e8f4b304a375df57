"""The file of a SQLite ledger: readable by its owner alone, durable after each commit, and never repaired.

Errors of SQLite become messages that say what to do. A damaged file is reported and left unchanged: it holds what must
not be run again.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from holdfast.activities.ledger.ledger import LedgerUnavailable

SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE ledger (version INTEGER NOT NULL);
CREATE TABLE effects (
  id TEXT PRIMARY KEY,
  intent TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER,
  result TEXT
) WITHOUT ROWID;
CREATE INDEX effects_by_age ON effects (ended_at, started_at);
"""
LATER_TABLES = """
CREATE TABLE IF NOT EXISTS decisions (
  id TEXT PRIMARY KEY,
  execution TEXT NOT NULL,
  spent_at INTEGER NOT NULL,
  expires INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_by_age ON decisions (expires) WHERE expires IS NOT NULL;
"""
"""Created in files of the same version that lack it. Times are microseconds since 1970."""
CHECKED_BYTES = 64 * 1024 * 1024
"""The size up to which a file is checked completely when it is opened, in a fraction of a second."""
LOG_BYTES = 16 * 1024 * 1024
"""The size to which the write-ahead log is truncated."""
RETRY_SECONDS = 0.01

_open_lock = threading.Lock()
"""One file at a time: closing any descriptor of a file drops all locks of the process on it (fcntl(2))."""

_ACTIONS = {
    sqlite3.SQLITE_FULL: "its disk is full. Free some space; it is written again as soon as there is some",
    sqlite3.SQLITE_READONLY: "it may only be read. Make the file and its folder writable for this user",
    sqlite3.SQLITE_BUSY: "another process keeps it locked. End that process (`fuser` names it), or wait and try again",
    sqlite3.SQLITE_CORRUPT: (
        "it is damaged, and was left as it is. Stop the workers and restore it from a copy; if you move it away "
        "instead, calls that had begun may run a second time"
    ),
    sqlite3.SQLITE_IOERR: "its disk cannot be read or written. Look at the disk, then try again",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened or made there. Look at its folder, then try again",
}
_SAME_KIND = {
    sqlite3.SQLITE_LOCKED: sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_PROTOCOL: sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_NOTADB: sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_PERM: sqlite3.SQLITE_READONLY,
}


def open_ledger_file(file: Path, seconds: float) -> sqlite3.Connection:
    """Open the ledger, creating it if need be. Waits for locks this long; LedgerUnavailable or sqlite3.Error."""
    with _open_lock:
        _prepare_file(file)
        connection = sqlite3.connect(file, timeout=seconds, isolation_level=None)
        try:
            # FULL: a commit is on disk when it returns, so it survives a power cut.
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA cell_size_check=ON")
            connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
            _use_write_ahead(connection, file, seconds)
            _ensure_schema(connection, file)
            if file.stat().st_size <= CHECKED_BYTES:
                _check_integrity(connection, file)
        except BaseException:
            connection.close()
            raise
        return connection


def build_unavailable(file: Path, error: Exception) -> LedgerUnavailable:
    """A LedgerUnavailable that says what to do about an error of SQLite or the system."""
    if isinstance(error, OSError):
        return _build_unavailable(file, f"{error.strerror or error}. Look at the file and its folder, then try again")
    code = _find_error_kind(error)
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and not os.access(file.parent, os.W_OK):
        code = sqlite3.SQLITE_READONLY
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    action = _ACTIONS.get(code, f"{error}. Look at the file, then try again")
    return _build_unavailable(file, f"{action} ({name})")


def _find_error_kind(error: Exception) -> int:
    """The kind of an error of SQLite, as `_ACTIONS` has it."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return _SAME_KIND.get(code, code)


def build_damaged(file: Path) -> LedgerUnavailable:
    """A LedgerUnavailable for a damaged file."""
    return _build_unavailable(file, _ACTIONS[sqlite3.SQLITE_CORRUPT])


def _build_unavailable(file: Path, why: str) -> LedgerUnavailable:
    return LedgerUnavailable(f"the ledger {str(file)!r} cannot be used: {why}")


def _prepare_file(file: Path) -> None:
    """Create the file for its owner alone, durably. An existing file is not opened here (see `_open_lock`)."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        for folder in (file.parent, file.parent.parent):
            _sync_folder(folder)
    if not stat.S_ISREG(file.stat().st_mode):
        raise _build_unavailable(file, "it is not a regular file. Move it away")
    for suffix in ("", "-wal", "-shm"):
        part = Path(f"{file}{suffix}")
        with suppress(FileNotFoundError):
            if part.stat().st_mode & 0o077:
                part.chmod(0o600)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # a folder that may not be read was not made by us
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _use_write_ahead(connection: sqlite3.Connection, file: Path, seconds: float) -> None:
    """Switch to write-ahead logging. SQLite does not wait by itself when several processes do this at once."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            [mode] = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            if _find_error_kind(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)
    if mode != "wal":
        raise _build_unavailable(file, "its file system has no write-ahead log. Put the data folder on a local disk")


def _ensure_schema(connection: sqlite3.Connection, file: Path) -> None:
    if _read_version(connection, file) is None or not _has_decisions(connection):
        connection.execute("BEGIN IMMEDIATE")
        try:
            made = _read_version(connection, file) is not None  # another process was faster
            for statement in filter(str.strip, (LATER_TABLES if made else SCHEMA + LATER_TABLES).split(";")):
                connection.execute(statement)
            if not made:
                connection.execute("INSERT INTO ledger VALUES (?)", (SCHEMA_VERSION,))
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
    if _read_version(connection, file) != SCHEMA_VERSION:
        raise _build_unavailable(file, "a newer Holdfast wrote it. Run that one here, or use another data folder")


def _has_decisions(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'decisions'").fetchall())


def _read_version(connection: sqlite3.Connection, file: Path) -> int | None:
    """The version of the schema; None when the file is empty. LedgerUnavailable for another database."""
    with closing(connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")) as found:
        tables = {name for [name] in found}
    if not tables:
        return None
    if not {"ledger", "effects"} <= tables:
        raise _build_unavailable(file, "it is a database of something else. Move it away, or use another data folder")
    [version] = connection.execute("SELECT max(version) FROM ledger").fetchone()
    if not isinstance(version, int):
        raise build_damaged(file)
    return version


def _check_integrity(connection: sqlite3.Connection, file: Path) -> None:
    [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise build_damaged(file)
