"""A worker, a client and a workspace for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.engine import Engine, new_engine
from tests.support.server import address_of, start_server

OFTEN = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60")


@pytest.fixture(scope="session")
async def impatient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a server that wants histories of some sixty events."""
    folder: Path = tmp_path_factory.mktemp("impatient")
    async with await start_server(folder / "temporal.db", OFTEN) as server:
        yield address_of(server)


@pytest.fixture
async def engine(server_address: str, tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine whose workers keep turns in memory."""
    async with new_engine(server_address, tmp_path) as made:
        yield made


@pytest.fixture(params=[1000, 0], ids=["cached", "uncached"])
async def both(server_address: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    """Once with a workflow cache and once without one: then every step replays the whole turn."""
    async with new_engine(server_address, tmp_path, cached=request.param) as made:
        yield made
