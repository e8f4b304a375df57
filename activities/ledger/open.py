"""Opens the ledger of the settings, and the database that a shared one stands in."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.activities.ledger.ledger import Ledger
from holdfast.activities.ledger.sqlite import SqliteLedger
from holdfast.config.ledger_address import resolve_address
from holdfast.config.settings import Settings
from holdfast.errors import BadInput
from holdfast.util.findings import Finding, report_ok, report_problem

if TYPE_CHECKING:
    from holdfast.activities.ledger.postgres_database import Database

DRIVER_MODULE = "asyncpg"
CHECK_SECONDS = 5.0


def open_ledger(settings: Settings) -> Ledger:
    """The ledger of one worker process: a file on its host, or the database of the setting `ledger`.

    It connects at the first call. BadInput for an invalid setting or a missing driver.
    """
    if settings.ledger is None:
        return SqliteLedger(settings.ledger_file)
    address = _resolve_setting(settings.ledger)
    from holdfast.activities.ledger.postgres import PostgresLedger

    return PostgresLedger(address)


def open_database(setting: str, *, answer_seconds: float) -> Database:
    """The database of the setting `ledger`, with one connection. BadInput as in `open_ledger`."""
    address = _resolve_setting(setting)
    from holdfast.activities.ledger.postgres_database import ATTEMPT_SECONDS, Database

    attempt = min(ATTEMPT_SECONDS, answer_seconds)
    return Database(address, attempt_seconds=attempt, answer_seconds=answer_seconds, connections=1)


def _resolve_setting(setting: str) -> str:
    """The address in the setting. BadInput when it is invalid, or the driver (an optional extra) is not installed."""
    address = resolve_address(setting, os.environ)
    try:
        import asyncpg  # type: ignore[import-untyped]  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != DRIVER_MODULE:
            raise
        raise BadInput(
            f"the setting `ledger` names PostgreSQL, and its driver {DRIVER_MODULE} is not installed here: "
            "pip install 'holdfast[postgres]', or leave the setting out"
        ) from None
    return address


async def check_ledger(settings: Settings) -> list[Finding]:
    """Can the ledger of calls that must run once be used? A file is only looked at. LedgerUnavailable, BadInput."""
    if settings.ledger is None:
        return [await asyncio.to_thread(_check_file, settings.ledger_file)]
    database = open_database(settings.ledger, answer_seconds=CHECK_SECONDS)
    await database.check()
    await database.disconnect()
    return [report_ok("the shared ledger answers")]


def _check_file(file: Path) -> Finding:
    if not file.exists():
        return report_ok("none yet: the first call that must run once makes it")
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=CHECK_SECONDS)) as ledger:
            (count,) = ledger.execute("SELECT count(*) FROM effects").fetchone()
    except sqlite3.Error as error:
        do = "stop the workers and restore it from a copy; without it calls that had begun may run a second time"
        return report_problem(f"{file} cannot be read: {error}", do)
    return report_ok(f"{file} holds {count:,} calls")
