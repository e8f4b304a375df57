"""Which ledger a worker has, by its settings; and the database of a shared one, for what else is kept there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.activities.ledger.ledger import Ledger
from holdfast.activities.ledger.sqlite import SqliteLedger
from holdfast.config.ledger_address import resolve_address
from holdfast.config.settings import Settings
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.activities.ledger.postgres_database import Database

DRIVER_MODULE = "asyncpg"


def open_ledger(settings: Settings) -> Ledger:
    """The ledger of one worker process: a file of its host, or the database that the settings name.

    It connects when it is first asked; `check` does that at once. BadInput when the settings cannot be followed.
    """
    if settings.ledger is None:
        return SqliteLedger(settings.ledger_file)
    address = _resolve_setting(settings.ledger)
    from holdfast.activities.ledger.postgres import PostgresLedger

    return PostgresLedger(address)


def open_database(setting: str, *, answer_seconds: float) -> Database:
    """The database that the setting `ledger` names, on one connection. BadInput when it cannot be followed."""
    address = _resolve_setting(setting)
    from holdfast.activities.ledger.postgres_database import ATTEMPT_SECONDS, Database

    attempt = min(ATTEMPT_SECONDS, answer_seconds)
    return Database(address, attempt_seconds=attempt, answer_seconds=answer_seconds, connections=1)


def _resolve_setting(setting: str) -> str:
    """The address; its driver is there, which is an extra that few need."""
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
