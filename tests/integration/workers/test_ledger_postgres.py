"""The ledger in PostgreSQL, on a real server: many workers, restarts and crashes in the middle, and what goes wrong."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast import Settings
from holdfast.activities.ledger.ledger import (
    RESULT_LIMIT,
    EffectKey,
    Ledger,
    LedgerEntry,
    LedgerRefused,
    LedgerUnavailable,
)
from holdfast.activities.ledger.open import open_ledger
from holdfast.testing import wait_until as eventually
from tests.support.marks import until
from tests.support.services.postgres import PASSWORD, USER, PostgresServer, Proxy, postgres_server
from tests.unit.activities.ledger.test_ledger_machine import LedgerMachine

asyncpg = pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'holdfast[postgres]'")
postgres = pytest.importorskip("holdfast.activities.ledger.postgres")
pytestmark = pytest.mark.needs("postgres")

PATIENCE = 60
DAY = timedelta(days=1)
TABLES = "DROP TABLE IF EXISTS holdfast_effects, holdfast_decisions, holdfast_ledger"


def key(number: int = 0) -> EffectKey:
    return EffectKey(turn="turn", call=f"b1c{number}", digest="d" * 64)


def opened(address: str, **options: float) -> Ledger:
    made: Ledger = postgres.PostgresLedger(address, **options)
    return made


async def query(address: str, statement: str) -> Any:
    connection = await asyncpg.connect(address, timeout=PATIENCE)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    """Tests kill it only as a process: what the system holds for it is enough."""
    with postgres_server("fsync=off", "synchronous_commit=off") as made:
        yield made


@pytest.fixture
async def address(running: PostgresServer) -> str:
    """A new database."""
    name = f"ledger_{uuid4().hex}"
    await query(running.address(), f"CREATE DATABASE {name}")
    return running.address(database=name)


@pytest.fixture
async def ledger(address: str) -> AsyncIterator[Ledger]:
    made = opened(address)
    yield made
    await made.close()


# What it keeps


async def test_S31_an_intent_on_one_host_is_seen_by_all_and_the_first_result_stands(
    ledger: Ledger, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = opened(address)
    assert ledger.is_shared
    assert await ledger.record_intent(key(), host="one", tool="shell") is None
    entry = await other.record_intent(key(), host="two", tool="shell")
    assert entry is not None
    assert (entry.key, entry.state, entry.host, entry.tool, entry.ended_at) == (key(), "intended", "one", "shell", None)
    assert entry.started_at.tzinfo
    await other.record_result(key(), "{}")
    for result in ("{}", '{"other": 1}'):
        await ledger.record_result(key(), result)
    found = await ledger.find(key())
    assert found is not None
    assert (found.state, found.result) == ("done", "{}")
    assert "keeps the first result of turn/b1c0, run 1" in caplog.messages[0]
    assert len(caplog.messages) == 1
    await other.close()


async def test_results_of_four_megabytes_are_kept_and_larger_ones_refused(ledger: Ledger) -> None:
    await ledger.record_intent(key(), host="here", tool="shell")
    with pytest.raises(LedgerRefused, match="cut it first"):
        await ledger.record_result(key(), "x" * (RESULT_LIMIT + 1))
    await ledger.record_result(key(), "x" * RESULT_LIMIT)
    entry = await ledger.find(key())
    assert entry is not None
    assert entry.result == "x" * RESULT_LIMIT


async def test_S31_a_commit_is_on_disk_whatever_the_servers_own_setting(ledger: Ledger, address: str) -> None:
    assert await query(address, "SHOW synchronous_commit") == "off"
    # Only the ledger's own connection can tell.
    assert await ledger.run_query(lambda connection: connection.fetchval("SHOW synchronous_commit")) == "on"  # type: ignore[attr-defined]


async def test_sweeping_many_goes_on_until_all_are_gone(ledger: Ledger, address: str) -> None:
    await ledger.record_intent(key(), host="here", tool="shell")
    rows = "SELECT n::text, '{}', '', '2020-01-01', '2020-01-01', '{}' FROM generate_series(1, 1201) AS n"
    await query(address, f"INSERT INTO holdfast_effects (id, intent, mark, started_at, ended_at, result) {rows}")
    assert await ledger.sweep(30 * DAY) == 1_201
    assert await query(address, "SELECT count(*) FROM holdfast_effects") == 1


async def test_a_closed_ledger_says_so(ledger: Ledger) -> None:
    await ledger.check()
    await asyncio.gather(ledger.close(), ledger.close())
    with pytest.raises(LedgerUnavailable, match="it was closed"):
        await ledger.find(key())


def test_S31_postgresql_answers_as_the_model_does_whatever_is_asked(running: PostgresServer) -> None:
    class PostgresMachine(LedgerMachine):
        def __init__(self) -> None:
            super().__init__()
            self.run(query(running.address(), TABLES))

        def made(self) -> Ledger:
            return opened(running.address())

        def grow_older(self, by: timedelta) -> None:
            moved = f"interval '{by.days} days'"
            older = f"UPDATE holdfast_effects SET started_at = started_at - {moved}, ended_at = ended_at - {moved}"
            self.run(query(running.address(), older))

    limits = settings(max_examples=20, stateful_step_count=20, deadline=None, database=None)
    run_state_machine_as_test(PostgresMachine, settings=limits)


# Many workers

RACER = """
import asyncio, os, random, sys
from holdfast.activities.ledger.ledger import EffectKey
from holdfast.activities.ledger.open import open_ledger
from holdfast.config.settings import Settings

async def main(name):
    ledger = open_ledger(Settings(ledger="env:HOLDFAST_LEDGER"))
    numbers = list(range(60))
    random.Random(name).shuffle(numbers)
    for number in numbers:
        key = EffectKey(turn="turn", call=f"b1c{number}", digest="d" * 64)
        if await ledger.record_intent(key, host=name, tool="shell") is None:
            print(number, flush=True)
    await ledger.close()

print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main(sys.argv[1]))
"""


def race(address: str) -> list[list[str]]:
    """The effects that each of four processes began."""
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RACER, f"worker-{number}"],
                    env={"HOLDFAST_LEDGER": address},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(4)
        ]
        for racer in racers:
            stack.callback(racer.kill)
            assert racer.stdout
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("\n")
            racer.stdin.flush()
        said = [racer.communicate(timeout=PATIENCE)[0].split() for racer in racers]
        assert [racer.returncode for racer in racers] == [0] * 4
        return said


async def test_S31_of_several_processes_exactly_one_begins_each_effect(address: str) -> None:
    """They make the tables at the same time, too."""
    begun = await asyncio.to_thread(race, address)
    counted = Counter(number for numbers in begun for number in numbers)
    assert counted == {str(number): 1 for number in range(60)}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_S31_a_server_that_restarts_in_the_middle_is_waited_for_and_no_effect_begins_twice(
    running: PostgresServer, address: str, how: signal.Signals
) -> None:
    ledgers = [opened(address, answer_seconds=PATIENCE) for _ in range(3)]
    begun: Counter[int] = Counter()
    going = True

    async def work(ledger: Ledger) -> None:
        number = 0
        while going or number < 100:
            number += 1
            if await ledger.record_intent(key(number), host="here", tool="shell") is None:
                begun[number] += 1
                await ledger.record_result(key(number), str(number))

    working = [asyncio.create_task(work(ledger)) for ledger in ledgers for _ in range(2)]
    for _ in range(3):
        before = len(begun)
        await until(lambda: len(begun) > before + 20 or any(task.done() for task in working))  # noqa: B023
        assert [task for task in working if task.done()] == []
        await asyncio.to_thread(running.restart, how)
    going = False
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*working)
    assert begun == dict.fromkeys(range(1, len(begun) + 1), 1)
    entries = [await ledgers[0].find(key(number)) for number in begun]
    assert [entry and entry.result for entry in entries] == [str(number) for number in begun]
    for ledger in ledgers:
        await ledger.close()


@pytest.mark.parametrize("lost", [b"INSERT 0 1", b"UPDATE 1"])
async def test_S31_what_was_recorded_though_its_acknowledgement_was_lost_is_known_to_be_our_own(
    address: str, tmp_path: Path, lost: bytes
) -> None:
    async with Proxy(address, tmp_path) as proxy:
        ledger = opened(proxy.address)
        await ledger.check()
        proxy.lose = lost
        assert await ledger.record_intent(key(), host="here", tool="shell") is None
        assert isinstance(await ledger.record_intent(key(), host="here", tool="shell"), LedgerEntry)
        await ledger.record_result(key(), "{}")
        assert proxy.lose is None, "it was not lost"
        assert await query(address, "SELECT result FROM holdfast_effects") == "{}"
        await ledger.close()


@pytest.mark.alone
async def test_connections_that_went_silent_are_not_tried_one_after_another(address: str, tmp_path: Path) -> None:
    async with Proxy(address, tmp_path) as proxy:
        ledger = opened(proxy.address, attempt_seconds=2, answer_seconds=5)
        await asyncio.gather(*(ledger.find(key(number)) for number in range(8)))
        proxy.silence()
        began = time.monotonic()
        assert await ledger.find(key()) is None
        assert 1 < time.monotonic() - began < 4, "one of four was tried"
        await ledger.close()


# What goes wrong


@pytest.mark.alone
async def test_a_server_that_is_down_or_hangs_is_told_in_time_and_used_again_when_it_is_back(
    running: PostgresServer, address: str
) -> None:
    ledger = opened(address, attempt_seconds=0.5, answer_seconds=1)
    await ledger.record_intent(key(), host="here", tool="shell")
    for stop, start, words in (
        (
            running.stop,
            running.start,
            r"no answer within 1 seconds: the server cannot be reached\. Look whether it runs",
        ),
        (running.hang, running.resume, r"no answer within 1 seconds: the server does not answer"),
    ):
        await asyncio.to_thread(stop)
        began = time.monotonic()
        with pytest.raises(LedgerUnavailable, match=words):
            await ledger.find(key())
        with pytest.raises(LedgerUnavailable, match=words):
            await ledger.record_intent(key(1), host="here", tool="shell")
        assert time.monotonic() - began < 4
        await asyncio.to_thread(start)
        patient = opened(address)
        assert await patient.find(key())
        await patient.close()
    assert await ledger.find(key())
    await ledger.close()


@pytest.mark.alone
async def test_a_lock_that_is_never_let_go_is_not_waited_for_without_end(ledger: Ledger, address: str) -> None:
    await ledger.check()
    hasty = opened(address, attempt_seconds=0.3, answer_seconds=1)
    await hasty.check()
    holder = await asyncpg.connect(address, timeout=PATIENCE)
    async with holder.transaction():
        await holder.execute("LOCK TABLE holdfast_effects")
        began = time.monotonic()
        with pytest.raises(LedgerUnavailable, match="no answer within 1 seconds"):
            await hasty.record_intent(key(), host="here", tool="shell")
        assert time.monotonic() - began < 3
    await holder.close()
    assert await hasty.record_intent(key(), host="here", tool="shell") is None
    await hasty.close()


async def test_a_call_that_is_stopped_while_it_waits_leaves_the_ledger_usable(ledger: Ledger, address: str) -> None:
    await ledger.check()
    holder = await asyncpg.connect(address, timeout=PATIENCE)
    async with holder.transaction():
        await holder.execute("LOCK TABLE holdfast_effects")
        asked = [asyncio.create_task(ledger.find(key(number))) for number in range(10)]
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%effects%'"
        await eventually(lambda: query(address, blocked))
        for one in asked:
            one.cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(answer, asyncio.CancelledError) for answer in answers)
    await holder.close()
    assert await ledger.find(key()) is None


WRONG = {
    "password": ({"password": "hunter2-wrong"}, "it does not let this user in. Look at the user and the password"),
    "user": ({"user": "nobody_we_know"}, "it does not let this user in"),
    "same": ({"user": "hunter2", "password": "hunter2"}, "it does not let this user in"),
    "database": ({"database": "nothing"}, "it has no such database"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_S45_a_wrong_address_is_told_at_once_and_without_its_password(
    running: PostgresServer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG)
    changes, words = WRONG[name]
    ledger = opened(running.address(**changes))
    began = time.monotonic()
    with pytest.raises(LedgerUnavailable) as told:
        await ledger.check()
    assert time.monotonic() - began < 5, "asking again would not help"
    assert words in str(told.value)
    everything = "".join([*traceback.format_exception(told.value), caplog.text, repr(told.value), repr(ledger)])
    for secret in (PASSWORD, "hunter2", running.address().split(":")[2].split("@")[0]):
        assert secret not in everything


@pytest.mark.parametrize("option", ["sslmode=nonsense", "sslmode=verify-full&sslrootcert=/nowhere", "port=abc"])
async def test_options_that_the_driver_cannot_follow_are_told(running: PostgresServer, option: str) -> None:
    ledger = opened(f"{running.address()}&{option}", answer_seconds=1)
    with pytest.raises(LedgerUnavailable) as told:
        await ledger.check()
    assert PASSWORD not in str(told.value)
    await ledger.close()


async def test_a_user_who_may_not_make_tables_is_told_and_one_for_whom_they_were_made_needs_not(
    running: PostgresServer, address: str, ledger: Ledger
) -> None:
    await query(running.address(), "DROP ROLE IF EXISTS worker")
    await query(running.address(), "CREATE ROLE worker LOGIN PASSWORD 'w'")
    limited = opened(address.replace(f"{USER}:", "worker:").replace(address.split(":")[2].split("@")[0], "w"))
    with pytest.raises(LedgerUnavailable, match="this user may not use its tables, or make them"):
        await limited.check()
    await ledger.check()
    with pytest.raises(LedgerUnavailable, match="this user may not use its tables"):
        await limited.check()
    await query(address, "GRANT SELECT ON holdfast_ledger TO worker")
    await query(address, "GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_effects, holdfast_decisions TO worker")
    assert await limited.record_intent(key(), host="here", tool="shell") is None
    await limited.record_result(key(), "{}")
    assert await limited.sweep(DAY) == 0
    await limited.close()


SPOILED = {
    "DROP TABLE holdfast_effects": "its tables are gone",
    "UPDATE holdfast_effects SET intent = '[]'": "an entry in its tables is damaged",
}


@pytest.mark.parametrize("statement", SPOILED)
async def test_S31_tables_that_were_spoiled_are_told_and_not_made_anew(
    ledger: Ledger, address: str, statement: str
) -> None:
    await ledger.record_intent(key(), host="here", tool="shell")
    await query(address, statement)
    for _ in range(2):
        with pytest.raises(LedgerUnavailable, match=SPOILED[statement]):
            await ledger.record_intent(key(), host="here", tool="shell")


async def test_tables_of_a_newer_version_are_left_alone(ledger: Ledger, address: str) -> None:
    await ledger.check()
    await query(address, "UPDATE holdfast_ledger SET version = 2")
    newer = opened(address)
    with pytest.raises(LedgerUnavailable, match="a newer Holdfast made its tables"):
        await newer.check()
    await newer.close()


async def test_a_server_that_only_reads_is_told(running: PostgresServer, address: str, ledger: Ledger) -> None:
    await ledger.check()
    await query(
        running.address(),
        f"ALTER DATABASE {address.split('/')[3].split('?')[0]} SET default_transaction_read_only = on",
    )
    reading = opened(address)
    assert await reading.find(key()) is None
    with pytest.raises(LedgerUnavailable, match="it only reads: a replica"):
        await reading.record_intent(key(), host="here", tool="shell")
    await reading.close()


# Settings


async def test_S45_a_worker_finds_the_address_in_a_variable_and_shows_no_password(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LEDGER", address)
    configured = Settings(ledger="env:HOLDFAST_LEDGER")
    ledger = open_ledger(configured)
    await ledger.check()
    assert ledger.is_shared
    assert PASSWORD not in repr(configured) + repr(ledger)
    await ledger.close()
