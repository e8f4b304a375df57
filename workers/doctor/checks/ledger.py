"""The ledger of calls that must run once: can it be opened? Looked at, never made or repaired."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.util.findings import Finding, ok, problem
from holdfast.util.text import exception_text
from holdfast.workers.doctor.check import Check, CheckContext, run_in_thread

CONNECT_SECONDS = 8.0


async def _examine_ledger(around: CheckContext) -> list[Finding]:
    settings = around.settings
    if settings.ledger is None:
        return [await run_in_thread(lambda: _examine_file(settings.ledger_file))]
    from holdfast.config.ledger_address import resolve_address

    try:
        return [await _examine_shared(resolve_address(settings.ledger, around.environment))]
    except HoldfastError as error:
        return [problem(str(error), "correct it: workers do not start like this")]


def _examine_file(file: Path) -> Finding:
    if not file.exists():
        return ok("none yet: the first call that must run once makes it")
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=5)) as ledger:
            (count,) = ledger.execute("SELECT count(*) FROM effects").fetchone()
    except sqlite3.Error as error:
        do = "stop the workers and restore it from a copy; without it calls that had begun may run a second time"
        return problem(f"{file} cannot be read: {error}", do)
    return ok(f"{file} holds {count:,} calls")


async def _examine_shared(address: str) -> Finding:
    from holdfast.config.ledger_address import hide_passwords

    try:
        import asyncpg  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        return problem("the ledger is PostgreSQL, and asyncpg is not installed", "pip install 'holdfast[postgres]'")
    try:
        connection = await asyncpg.connect(address, timeout=CONNECT_SECONDS)
        try:
            await connection.execute("SELECT 1")
        finally:
            await connection.close()
    except Exception as error:
        do = "look at the database and at the setting `ledger`: calls that must run once do not begin without it"
        return problem(f"the shared ledger does not answer: {hide_passwords(exception_text(error), address)}", do)
    return ok("the shared ledger answers")


CHECKS = (Check("ledger", _examine_ledger, seconds=15),)
