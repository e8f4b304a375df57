"""One real Temporal server for the session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.support.server import start_server


@pytest.fixture(scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkflowEnvironment]:
    """A server with a database on disk, tuned as the embedded one is."""
    folder: Path = tmp_path_factory.mktemp("server")
    async with await start_server(folder / "temporal.db") as environment:
        yield environment


@pytest.fixture(scope="session")
async def server_address(server: WorkflowEnvironment) -> str:
    """Where it listens."""
    return server.client.service_client.config.target_host
