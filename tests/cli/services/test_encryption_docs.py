"""The pages on encryption and storage do what they say: every block with a test mark is executed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config.settings import load_settings
from tests.cli.support import Home, call
from tests.cli.test_readme import _shell
from tests.support.pages import read_blocks, read_page, read_samples

ENCRYPTION, STORAGE = "encryption", "storage"


@pytest.fixture
def place(tmp_path: Path) -> Home:
    """A folder, with nothing running."""
    return Home(tmp_path)


def test_S45_the_key_of_the_page_encrypts_and_its_use_is_counted(place: Home) -> None:
    told = _shell(place, read_blocks(ENCRYPTION)["make"])
    for line in read_samples(ENCRYPTION)["make"].splitlines():
        assert line in told
    assert (place.folder / "keys" / "2026-11").stat().st_mode & 0o077 == 0
    with Up(place, "../encrypted.toml"):
        calls = json.dumps([call("list_directory")])
        started = _shell(
            place, f"holdfast --config ../encrypted.toml turn start --calls - --id one --wait <<< '{calls}'"
        )
        assert "completed" in started
        used = _shell(place, read_blocks(ENCRYPTION)["usage"])
    assert re.search(r"2026-11 +\d", used)
    assert "(not encrypted)" not in used


class Up:
    """`holdfast up` with a settings file of the workspace."""

    def __init__(self, home: Home, config: str) -> None:
        self._home, self._config = home, config

    def __enter__(self) -> None:
        words = ["-m", "holdfast.workers.cli", "--config", self._config, "up", "--port", "0"]
        self._process = subprocess.Popen(
            [sys.executable, *words, "--no-gateway", "--json"],
            env=self._home.env,
            cwd=self._home.workspace,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        assert '"address"' in self._process.stdout.readline()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=60)


@pytest.mark.parametrize(("page", "block"), [(ENCRYPTION, "settings"), (STORAGE, "s3"), (STORAGE, "gcs")])
def test_the_settings_of_the_pages_are_right(page: str, block: str, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(read_blocks(page)[block])
    found = load_settings(file)
    assert found.encryption.keys or found.storage.kind == block


def test_S42_the_commands_of_the_storage_page_work(home: Home) -> None:
    assert "holdfast.files  written and read  works" in _shell(home, read_blocks(STORAGE)["check"])
    swept = home.run("storage", "sweep", "--json")
    assert swept.returncode in (0, 1), swept.stderr
    assert json.loads(swept.stdout)["deleted"] is False
    assert "holdfast storage sweep --delete" in read_blocks(STORAGE)["sweep"]


def test_every_reason_to_sweep_nothing_has_an_option_that_is_told() -> None:
    told = read_page(STORAGE)
    options = ("--also", "--ignore-unreadable", "--all", "--grace", "--delete")
    assert [option for option in options if option not in told] == []
