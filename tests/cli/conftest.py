"""One `holdfast up` for the tests that only need a running one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Home


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A data folder with a running server and worker."""
    made = Home(tmp_path_factory.mktemp("home"))
    with made.up():
        yield made


@pytest.fixture
def empty(tmp_path: Path) -> Home:
    """A data folder on which nothing runs."""
    return Home(tmp_path / "home")
