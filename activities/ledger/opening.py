"""Which ledger a worker has, by its settings."""

from __future__ import annotations

import os

from holdfast.activities.ledger.addresses import resolved
from holdfast.activities.ledger.protocol import Ledger
from holdfast.activities.ledger.sqlite import SqliteLedger
from holdfast.errors import BadInput
from holdfast.settings import Settings

DRIVER = "asyncpg"


def open_ledger(settings: Settings) -> Ledger:
    """The ledger of one worker process: a file of its host, or the database that the settings name.

    It connects when it is first asked; `check` does that at once. BadInput when the settings cannot be followed.
    """
    if settings.ledger is None:
        return SqliteLedger(settings.ledger_file)
    address = resolved(settings.ledger, os.environ)
    try:
        from holdfast.activities.ledger.postgres import PostgresLedger  # its driver is an extra, which few need
    except ModuleNotFoundError as error:
        if error.name != DRIVER:
            raise
        raise BadInput(
            f"the setting `ledger` names PostgreSQL, and its driver {DRIVER} is not installed here: "
            "pip install 'holdfast[postgres]', or leave the setting out"
        ) from None
    return PostgresLedger(address)
