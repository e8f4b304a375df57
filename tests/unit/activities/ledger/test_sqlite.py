"""The ledger in a file, on a real disk: what it keeps, what it refuses, and what it says when the file is of no use."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.activities.ledger.ledger import RESULT_LIMIT, EffectKey, LedgerRefused, LedgerUnavailable, Spending
from holdfast.activities.ledger.sqlite import SWEPT_AT_ONCE, SqliteLedger
from holdfast.activities.ledger.sqlite_file import open_ledger_file

DAY = timedelta(days=1)


def key(number: int = 0) -> EffectKey:
    return EffectKey(turn="turn", call=f"b1c{number}", digest="d" * 64)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "ledger.db"


@pytest.fixture
async def ledger(file: Path) -> AsyncIterator[SqliteLedger]:
    made = SqliteLedger(file, busy_seconds=0.2)
    yield made
    await made.close()


async def intended(ledger: SqliteLedger, *numbers: int) -> None:
    for number in numbers:
        assert await ledger.record_intent(key(number), host="here", tool="shell") is None


def change(file: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement, values)


# What it keeps


async def test_S31_an_intent_is_recorded_once_and_whoever_comes_later_is_given_it(ledger: SqliteLedger) -> None:
    before = datetime.now(UTC)
    assert await ledger.find(key()) is None
    assert await ledger.record_intent(key(), host="one", tool="shell") is None
    entry = await ledger.record_intent(key(), host="two", tool="shell")
    assert entry is not None
    assert entry == await ledger.find(key())
    assert (entry.key, entry.state, entry.host, entry.tool, entry.ended_at) == (key(), "intended", "one", "shell", None)
    assert before <= entry.started_at <= datetime.now(UTC)
    assert await ledger.record_intent(key().model_copy(update={"run": 2}), host="one", tool="shell") is None


async def test_S31_the_first_result_stands_whatever_comes_after_it(
    ledger: SqliteLedger, caplog: pytest.LogCaptureFixture
) -> None:
    await intended(ledger, 1)
    for result in ('{"kind": "finished"}', '{"kind": "finished"}', '{"kind": "lost"}'):
        await ledger.record_result(key(1), result)
    entry = await ledger.record_intent(key(1), host="two", tool="shell")
    assert entry is not None
    assert entry.ended_at is not None
    assert (entry.state, entry.result, entry.host) == ("done", '{"kind": "finished"}', "here")
    assert entry.started_at <= entry.ended_at <= datetime.now(UTC)
    [told] = caplog.messages
    assert told == "The ledger keeps the first result of turn/b1c1, run 1; a different one was not written"


async def test_a_result_of_nothing_and_one_without_end_are_refused(ledger: SqliteLedger) -> None:
    with pytest.raises(LedgerRefused, match="no intent is recorded for 'turn/b1c0, run 1'"):
        await ledger.record_result(key(), "{}")
    await intended(ledger, 0)
    with pytest.raises(LedgerRefused, match="cut it first"):
        await ledger.record_result(key(), "x" * (RESULT_LIMIT + 1))
    await ledger.record_result(key(), "x" * RESULT_LIMIT)
    entry = await ledger.find(key())
    assert entry is not None
    assert entry.result == "x" * RESULT_LIMIT


async def test_of_many_at_once_in_one_process_exactly_one_begins(ledger: SqliteLedger) -> None:
    answers = await asyncio.gather(*(ledger.record_intent(key(), host=str(number), tool="t") for number in range(50)))
    assert answers.count(None) == 1
    assert len({answer.host for answer in answers if answer}) == 1


async def test_results_are_swept_by_age_and_open_questions_ten_times_later(ledger: SqliteLedger, file: Path) -> None:
    await intended(ledger, 1, 2)
    await ledger.record_result(key(1), "{}")
    for days, left in ((29, {1, 2}), (2, {2}), (268, {2}), (2, set())):
        moved = days * DAY // timedelta(microseconds=1)
        change(file, "UPDATE effects SET started_at = started_at - ?, ended_at = ended_at - ?", moved, moved)
        before = {number for number in (1, 2) if await ledger.find(key(number))}
        assert await ledger.sweep(30 * DAY) == len(before) - len(left)
        assert {number for number in (1, 2) if await ledger.find(key(number))} == left


async def test_sweeping_many_goes_on_until_all_are_gone_and_lets_others_in_between(
    ledger: SqliteLedger, file: Path
) -> None:
    await intended(ledger, 0)
    count = 4 * SWEPT_AT_ONCE + 1
    with closing(sqlite3.connect(file)) as connection, connection:
        rows = [(f"old{number}", "{}", 1, 1, "{}") for number in range(count)]
        connection.executemany("INSERT INTO effects VALUES (?, ?, ?, ?, ?)", rows)
    sweeping = asyncio.create_task(ledger.sweep(DAY))
    for number in range(1, 20):
        await intended(ledger, number)
        await ledger.record_result(key(number), "{}")
    assert await sweeping == count
    assert all([await ledger.find(key(number)) for number in range(20)])


# The file


async def test_S31_a_commit_is_on_disk_before_it_returns(file: Path) -> None:
    """What is not in the file when the power goes is not recorded: SQLite's own words for it are FULL and WAL."""
    with closing(open_ledger_file(file, 1)) as connection:
        settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]
    assert settings == [2, "wal"]


async def test_the_file_is_its_owners_alone(ledger: SqliteLedger, file: Path) -> None:
    await intended(ledger, 1)
    parts = sorted(file.parent.iterdir())
    assert [part.name for part in parts] == ["ledger.db", "ledger.db-shm", "ledger.db-wal"]
    assert {part.stat().st_mode & 0o777 for part in parts} == {0o600}
    for part in parts:
        part.chmod(0o644)
    again = SqliteLedger(file)
    assert await again.find(key(1))
    assert {part.stat().st_mode & 0o777 for part in parts} == {0o600}
    await again.close()
    assert await ledger.find(key(1)), "the other one still has it open"


async def test_a_closed_ledger_says_so_and_can_be_closed_again(ledger: SqliteLedger, file: Path) -> None:
    await intended(ledger, 1)
    await asyncio.gather(ledger.close(), ledger.close())
    with pytest.raises(LedgerUnavailable, match="was closed"):
        await ledger.find(key(1))
    assert [part.name for part in file.parent.iterdir()] == ["ledger.db"], "the last one tidies up"


def take_away(file: Path, to: Path, replaced: bool) -> None:
    file.rename(to)
    if replaced:
        file.touch()


@pytest.mark.parametrize("replaced", [False, True])
async def test_S31_a_file_that_was_taken_away_is_not_taken_for_an_empty_one(
    ledger: SqliteLedger, file: Path, tmp_path: Path, replaced: bool
) -> None:
    await intended(ledger, 1)
    take_away(file, tmp_path / "away", replaced)
    for _ in range(2):
        with pytest.raises(LedgerUnavailable, match="was removed or replaced while this worker ran"):
            await ledger.record_intent(key(1), host="here", tool="shell")
    assert (file.name in os.listdir(file.parent)) == replaced
    os.replace(tmp_path / "away", file)
    assert await ledger.find(key(1))


# Locked


async def test_a_lock_that_is_never_let_go_is_not_waited_for_without_end(ledger: SqliteLedger, file: Path) -> None:
    await intended(ledger, 1)
    slow = SqliteLedger(file, busy_seconds=60, answer_seconds=0.3)
    await slow.check()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(LedgerUnavailable, match="another process keeps it locked"):
            await intended(ledger, 2)
        with pytest.raises(LedgerUnavailable, match=r"did not answer within 0\.3 seconds"):
            await intended(slow, 3)
        assert time.monotonic() - began < 30
        assert await ledger.find(key(1)), "reading goes on"
        other.execute("ROLLBACK")
    await intended(ledger, 2)
    await slow.close()


async def test_a_file_that_is_locked_when_it_is_opened_is_told_too(file: Path) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        ledger = SqliteLedger(file, busy_seconds=0.1)
        with pytest.raises(LedgerUnavailable, match="another process keeps it locked"):
            await ledger.check()
        other.execute("ROLLBACK")
        await ledger.check()
        await ledger.close()


# Damaged


def _overwrite(offset: int, data: bytes) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        with file.open("r+b") as opened:
            opened.seek(offset)
            opened.write(data)

    return spoil


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no database": (lambda file: file.write_bytes(b"not a database " * 400), "it is damaged, and was left as it is"),
    "a few bytes": (lambda file: file.write_bytes(b"{}"), "it is damaged"),
    "its beginning": (_overwrite(0, b"\xff" * 100), "it is damaged"),
    "a page in the middle": (_overwrite(4 * 4096, os.urandom(2 * 4096)), "it is damaged"),
    "cut off": (lambda file: os.truncate(file, 3 * 4096), "it is damaged"),
    "an entry": (lambda file: change(file, "UPDATE effects SET intent = '[]'"), "it is damaged"),
    "a time": (lambda file: change(file, "UPDATE effects SET started_at = 'soon'"), "it is damaged"),
    "its version gone": (lambda file: change(file, "DELETE FROM ledger"), "it is damaged"),
    "a newer version": (lambda file: change(file, "UPDATE ledger SET version = 2"), "a newer Holdfast wrote it"),
    "another database": (
        lambda file: change(file, "DROP TABLE effects"),
        "it is a database of something else",
    ),
}


def content(file: Path) -> bytes:
    return file.read_bytes()


@pytest.mark.parametrize("name", DAMAGE)
async def test_S31_a_damaged_ledger_is_told_and_left_as_it_is(ledger: SqliteLedger, file: Path, name: str) -> None:
    await intended(ledger, *range(100))
    await ledger.close()
    spoil, words = DAMAGE[name]
    spoil(file)
    before = content(file)
    again = SqliteLedger(file, busy_seconds=0.2)
    for _ in range(2):
        with pytest.raises(LedgerUnavailable, match=words) as told:
            await again.record_intent(key(50), host="here", tool="shell")
    assert str(file) in str(told.value)
    await again.close()
    assert content(file) == before


NO_FILES: dict[str, Callable[[Path], None]] = {
    "folder": os.mkdir,
    "pipe": os.mkfifo,
    "link to nowhere": lambda file: file.symlink_to("nowhere"),
}


@pytest.mark.parametrize("kind", NO_FILES)
async def test_what_is_no_file_is_told_and_never_waited_for(file: Path, kind: str) -> None:
    file.parent.mkdir()
    NO_FILES[kind](file)
    ledger = SqliteLedger(file, answer_seconds=5)
    with pytest.raises(LedgerUnavailable, match=r"cannot be used: (it is not a regular file|No such file)"):
        await ledger.check()
    await ledger.close()


async def test_a_file_in_the_place_of_the_folder_is_told(file: Path) -> None:
    file.parent.touch()
    ledger = SqliteLedger(file)
    with pytest.raises(LedgerUnavailable, match="Look at the file and its folder"):
        await ledger.check()
    await ledger.close()


# The disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "holdfast-test", str(folder)]
    done = subprocess.run(mounting, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip() or 'mount was refused'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=20)


def fill(folder: Path) -> Path:
    """Leave no byte of the disk."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as opened:
        for size in (65_536, 4_096, 1):
            try:
                while opened.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return file


async def as_many_as_it_takes(ledger: SqliteLedger, recorded: list[int]) -> None:
    """The write-ahead log may have room for a few."""
    for number in range(10, 1_000):
        await intended(ledger, number)
        recorded.append(number)


async def test_S31_on_a_full_disk_nothing_is_recorded_by_halves_and_what_was_is_found(disk: Path) -> None:
    ledger = SqliteLedger(disk / "ledger.db")
    await intended(ledger, 1, 2)
    await ledger.record_result(key(1), '{"text": "kept"}')
    filler = fill(disk)
    recorded: list[int] = []
    with pytest.raises(LedgerUnavailable, match="its disk is full") as told:
        await as_many_as_it_takes(ledger, recorded)
    assert "(SQLITE_FULL)" in str(told.value)
    with pytest.raises(LedgerUnavailable, match="its disk is full"):
        await ledger.record_result(key(2), '"' + "x" * 500_000 + '"')
    entries = [await ledger.find(key(number)) for number in (1, 2, 10 + len(recorded))]
    assert [entry and entry.state for entry in entries] == ["done", "intended", None]
    filler.unlink()
    await intended(ledger, 10 + len(recorded))
    await ledger.record_result(key(2), "{}")
    assert all([await ledger.find(key(number)) for number in recorded])
    await ledger.close()


async def test_a_disk_that_was_full_from_the_start_is_told_and_works_once_it_is_not(disk: Path) -> None:
    filler = fill(disk)
    ledger = SqliteLedger(disk / "ledger.db")
    with pytest.raises(LedgerUnavailable, match=r"its disk is full|No space left|disk cannot be"):
        await intended(ledger, 1)
    filler.unlink()
    await intended(ledger, 1)
    await ledger.close()


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True, timeout=20)


async def test_a_disk_that_may_only_be_read_is_told_and_works_once_it_may_be_written(disk: Path) -> None:
    ledger = SqliteLedger(disk / "ledger.db")
    await intended(ledger, 1)
    await ledger.close()
    ledger = SqliteLedger(disk / "ledger.db")
    remount(disk, "ro")
    with pytest.raises(LedgerUnavailable, match=r"it may only be read\. Make the file and its folder writable"):
        await intended(ledger, 2)
    remount(disk, "rw")
    await intended(ledger, 2)
    assert await ledger.find(key(1))
    await ledger.close()


async def test_S22_a_spent_decision_is_forgotten_when_it_has_expired_and_never_before(tmp_path: Path) -> None:
    ledger, now = SqliteLedger(tmp_path / "ledger.db"), datetime.now(UTC)
    moments = {"gone": now - timedelta(days=3), "young": now - timedelta(hours=1), "later": now + DAY, "never": None}
    for decision, expires in moments.items():
        assert await ledger.record_spendings([Spending(decision=decision, execution="one", expires=expires)]) is None
    assert await ledger.sweep(2 * DAY) == 1
    known = [name for name in moments if await ledger.record_spendings([Spending(decision=name, execution="two")])]
    assert known == ["young", "later", "never"]
    await ledger.close()


async def test_a_file_from_before_decisions_were_recorded_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    ledger = SqliteLedger(file)
    await ledger.record_intent(key(), host="here", tool="shell")
    await ledger.close()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DROP TABLE decisions")
    ledger = SqliteLedger(file)
    assert await ledger.record_spendings([Spending(decision="d", execution="one")]) is None
    assert await ledger.find(key())
    await ledger.close()
