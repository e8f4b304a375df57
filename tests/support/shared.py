"""Two hosts that share a ledger: what tests of it start from."""

from __future__ import annotations

import os
from typing import Any

import asyncpg  # type: ignore[import-untyped]

VARIABLE = "HOLDFAST_LEDGER"


async def query(statement: str, *values: Any) -> Any:
    """The first value of what the ledger's database answers."""
    connection = await asyncpg.connect(os.environ[VARIABLE], timeout=60)
    try:
        return await connection.fetchval(statement, *values)
    finally:
        await connection.close()
