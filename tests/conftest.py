"""One real Temporal server for each process of the tests.

What is imported here is imported by the process that only hands out the tests too, so it is little.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.programs import require_program
from tests.support.sharing import Sharing

if TYPE_CHECKING:
    from temporalio.testing import WorkflowEnvironment

# Side by side, tests are told the size of a terminal, which every command they start would take for its own.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# A runner in the background ignores Ctrl-C, and so would every process that a test starts and stops with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers that live for a test or a session have memory enough, and less to do if they tidy it up less often.
os.environ.setdefault("GOGC", "400")

# A machine may be slow, and that proves nothing.
settings.register_profile("ours", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is made while the tests are collected lives to the end: the garbage collector need never look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    """For `make test`, which runs several at a time."""
    return Sharing(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose programs are missing here, or fail it in CI."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            require_program(name)


@pytest.fixture(scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkflowEnvironment]:
    """A server with a database on disk, tuned as the embedded one is."""
    from tests.support.server import start_server

    folder: Path = tmp_path_factory.mktemp("server")
    async with await start_server(folder / "temporal.db") as environment:
        yield environment


@pytest.fixture(scope="session")
async def server_address(server: WorkflowEnvironment) -> str:
    """Where it listens."""
    from tests.support.server import address_of

    return address_of(server)
