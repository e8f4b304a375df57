"""A worker, a client and a workspace for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.engine import Engine, new_engine


@pytest.fixture
async def engine(server_address: str, tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine whose workers keep turns in memory."""
    async with new_engine(server_address, tmp_path) as made:
        yield made
