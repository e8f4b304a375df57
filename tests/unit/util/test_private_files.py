"""Files that only their owner may change or read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import BadInput
from holdfast.util.private_files import (
    UnfitFile,
    check_own,
    check_own_secret,
    check_secret,
    lock_file,
    read_regular_file,
    replace_private,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that was written for its owner alone."""
    made = tmp_path / "file.json"
    replace_private(made, b"content")
    return made


def test_S45_what_was_written_is_read_under_every_check(file: Path) -> None:
    for check in (check_secret, check_own_secret, check_own):
        assert read_regular_file(file, 7, check) == b"content"
    with pytest.raises(UnfitFile, match="is over 6 bytes"):
        read_regular_file(file, 6, check_secret)
    with pytest.raises(FileNotFoundError):
        read_regular_file(file.with_name("gone"), 7, check_secret)


@pytest.mark.parametrize(("mode", "refusing"), [(0o604, {check_secret, check_own_secret}), (0o622, {check_own})])
def test_S45_each_check_refuses_the_modes_that_it_names(file: Path, mode: int, refusing: set[object]) -> None:
    file.chmod(mode)
    for check in refusing:
        with pytest.raises(UnfitFile, match="chmod 600"):
            read_regular_file(file, 7, check)  # type: ignore[arg-type]


def test_S45_a_file_of_another_user_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert read_regular_file(file, 7, check_secret) == b"content"
    for check in (check_own, check_own_secret):
        with pytest.raises(UnfitFile, match="belongs to another user"):
            read_regular_file(file, 7, check)


def test_what_is_no_regular_file_is_refused_at_once(file: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UnfitFile, match="is not a regular file"):
        read_regular_file(tmp_path / "pipe", 7, check_secret)
    with pytest.raises(UnfitFile, match="is a folder"):
        read_regular_file(tmp_path, 7, check_secret)
    (tmp_path / "link").symlink_to(file)
    assert read_regular_file(tmp_path / "link", 7, check_secret) == b"content"
    with pytest.raises(UnfitFile, match="cannot be read"):
        read_regular_file(tmp_path / "link", 7, check_secret, follow=False)


def test_a_lock_is_waited_for_and_not_for_ever(file: Path, tmp_path: Path) -> None:
    with lock_file(file, 1), pytest.raises(BadInput, match="is being changed by another process"), lock_file(file, 0):
        pass
    with lock_file(file, 0):
        pass
    with pytest.raises(BadInput, match="cannot be written"), lock_file(file / "below", 1):
        pass
