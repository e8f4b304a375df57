"""The walk: what it finds and leaves out, in which order, and that nothing leads it out of the workspace."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.activities.files import walk as walking
from holdfast.activities.files.walk import Walk, format_path
from holdfast.activities.files.workspace import Workspace


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def rules(root: Path, folder: str, *lines: str) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / ".gitignore").write_text("\n".join(lines))


def walked(root: Path, start: str = ".", **options: Any) -> list[str]:
    with closing(Walk(Workspace(root), start, **options).list_entries()) as entries:
        return [entry.path for entry in entries if entry.name != ".gitignore"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_everything_is_found_once_in_the_order_of_its_path(workspace: Path) -> None:
    make(workspace, "b.txt", "a/z", "a/b/c", "a.txt", ".hidden/x", "B")
    assert walked(workspace) == [".hidden/x", "B", "a/b/c", "a/z", "a.txt", "b.txt"]


def test_entry_says_what_it_is(workspace: Path) -> None:
    make(workspace, "file")
    (workspace / "folder").mkdir()
    (workspace / "link").symlink_to("folder")
    (workspace / "missing").symlink_to("nowhere")
    os.mkfifo(workspace / "pipe")
    kinds = {entry.path: entry.kind for entry in Walk(Workspace(workspace)).list_entries()}
    assert kinds == {"file": "file", "link": "link", "missing": "link", "pipe": "other"}


def test_walk_begins_where_it_is_told(workspace: Path) -> None:
    make(workspace, "a/b/c", "a/d", "e")
    assert walked(workspace, "a/b") == ["a/b/c"]
    assert walked(workspace, "a/d") == ["a/d"], "a file is all there is"


@pytest.mark.parametrize("start", ["missing", "file/x", "link", "link/x"])
def test_start_that_cannot_be_opened_is_an_error(workspace: Path, start: str) -> None:
    make(workspace, "file", "folder/x")
    (workspace / "link").symlink_to("folder")
    with pytest.raises(OSError, match=r"No such file|Not a directory|symbolic links"):
        walked(workspace, start)


# What git ignores


def test_ignored_files_and_folders_are_left_out(workspace: Path) -> None:
    make(workspace, "a.py", "a.pyc", "build/x", "src/build/y", "src/build.py")
    rules(workspace, "", "*.pyc", "build/")
    assert walked(workspace) == ["a.py", "src/build.py"]
    assert walked(workspace, include_ignored=True) == ["a.py", "a.pyc", "build/x", "src/build/y", "src/build.py"]


def test_rules_of_a_folder_are_for_that_folder_and_stronger_than_those_above(workspace: Path) -> None:
    make(workspace, "a.log", "sub/a.log", "sub/b.log", "sub/x", "x", "sub/deep/a.log")
    rules(workspace, "", "*.log")
    rules(workspace, "sub", "!a.log", "/x")
    assert walked(workspace) == ["sub/a.log", "sub/deep/a.log", "x"]


def test_file_in_an_ignored_folder_cannot_be_had_back(workspace: Path) -> None:
    make(workspace, "out/keep", "out/other")
    rules(workspace, "", "out/", "!out/keep")
    rules(workspace, "out", "!*")
    assert walked(workspace) == []


def test_rules_above_the_start_count(workspace: Path) -> None:
    make(workspace, "a/b/x.log", "a/b/y", "a/b/z")
    rules(workspace, "", "*.log")
    rules(workspace, "a", "b/y")
    assert walked(workspace, "a/b") == ["a/b/z"]


def test_ignored_start_holds_nothing_and_says_so(workspace: Path) -> None:
    make(workspace, "out/deep/x")
    rules(workspace, "", "out/")
    walk = Walk(Workspace(workspace), "out/deep")
    assert list(walk.list_entries()) == []
    assert walk.start_ignored
    assert walked(workspace, "out/deep", include_ignored=True) == ["out/deep/x"]
    assert walked(workspace, "out/deep/x") == ["out/deep/x"], "a file that is named is wanted"


def test_git_is_never_entered_and_its_exclude_file_counts(workspace: Path) -> None:
    make(workspace, ".git/config", "a", "b", "sub/.git/HEAD", "sub/a")
    (workspace / ".git/info").mkdir()
    (workspace / ".git/info/exclude").write_text("a\n")
    assert walked(workspace) == ["b", "sub/a"], "a repository in a folder has rules of its own"
    assert walked(workspace, include_ignored=True) == ["a", "b", "sub/a"]


def test_rules_that_are_a_link_a_pipe_or_a_folder_are_none(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("*")
    make(workspace, "a/x", "b/x", "c/x")
    (workspace / "a/.gitignore").symlink_to(tmp_path / "rules")
    os.mkfifo(workspace / "b/.gitignore")
    (workspace / "c/.gitignore").mkdir()
    assert walked(workspace) == ["a/x", "b/x", "c/x"]


def test_rules_that_are_too_long_are_read_in_part(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "RULES_LIMIT", 8)
    make(workspace, "abc", "abcdef", "x")
    rules(workspace, "", "abc", "x*bcdef")
    assert walked(workspace) == ["abcdef", "x"], "no rule is cut in two"


NAMES = st.sampled_from(["a", "b", "ab", "a.c", ".x"])
LINES = st.lists(st.sampled_from(["*", "!", "/", "a", "b", "**", "?", "[ab]", ".c"]), min_size=1, max_size=4).map(
    "".join
)
RULES = st.lists(LINES, max_size=4)
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map(tuple), min_size=1, max_size=12)


@pytest.mark.needs("git")
@settings(max_examples=60)
@given(paths=PATHS, ignored=st.dictionaries(st.sampled_from(["", "a", "b", "a/b"]), RULES), excluded=RULES)
def test_git_finds_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    paths: list[tuple[str, ...]],
    ignored: dict[str, list[str]],
    excluded: list[str],
) -> None:
    root = tmp_path_factory.mktemp("tree")
    alone = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "--quiet", "--template="], cwd=root, env=alone, check=True)
    for path in paths:
        if not any((root / Path(*path[:length])).is_file() for length in range(1, len(path))):
            (root / Path(*path)).parent.mkdir(parents=True, exist_ok=True)
            if not (root / Path(*path)).exists():
                (root / Path(*path)).touch()
    for folder, lines in ignored.items():
        if (root / folder).is_dir():
            rules(root, folder, *lines)
    (root / ".git/info").mkdir()
    (root / ".git/info/exclude").write_text("\n".join(excluded))
    listed = ["git", "ls-files", "--others", "--exclude-standard", "-z"]
    found = subprocess.run(listed, cwd=root, env=alone, check=True, capture_output=True).stdout.decode().split("\0")
    assert walked(root) == [
        path for path in sorted(found, key=lambda one: one.split("/")) if path and ".gitignore" not in path
    ]


# Limits


@pytest.fixture
def deep(workspace: Path) -> Iterator[Path]:
    """A folder for a tree that Python's own clean-up cannot remove."""
    yield workspace
    subprocess.run(["rm", "-rf", str(workspace / "folder")], check=True)


def test_deep_tree_is_walked_to_its_end(deep: Path) -> None:
    """Deeper than Python's stack, than a path may be long, and than files may be open."""
    depth = 1_500
    here = os.open(deep, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("folder", dir_fd=here)
        below = os.open("folder", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("end", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    make(deep, "last")
    before = descriptors()
    [far, last] = walked(deep)
    assert far == "folder/" * depth + "end"
    assert last == "last", "and back again"
    assert descriptors() == before


def test_walk_ends_early_after_many_entries_and_says_so(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(workspace, *(f"{folder}/{name}" for folder in "abc" for name in range(10)))
    monkeypatch.setattr(walking, "MAX_ENTRIES", 18)
    walk = Walk(Workspace(workspace))
    assert len(list(walk.list_entries())) == 15
    assert (walk.ended_early, walk.visited) == (True, 18)


def test_walk_ends_when_it_is_told_to(workspace: Path) -> None:
    make(workspace, "a/1", "a/2", "b/3")
    stop = threading.Event()
    entries = Walk(Workspace(workspace), stop=stop).list_entries()
    assert next(entries).path == "a/1"
    stop.set()
    assert list(entries) == []


def test_walk_that_is_closed_lets_go_of_everything(workspace: Path) -> None:
    make(workspace, "a/b/c/1", "a/b/c/2")
    before = descriptors()
    entries = Walk(Workspace(workspace)).list_entries()
    next(entries)
    assert descriptors() > before
    entries.close()
    assert descriptors() == before


def test_folder_that_cannot_be_read_is_skipped_and_counted(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal is played."""
    make(workspace, "a/1", "secret/2", "z/3")
    really = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if path == "secret":
            raise PermissionError(13, "Permission denied")
        return really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    walk = Walk(Workspace(workspace))
    assert [entry.path for entry in walk.list_entries()] == ["a/1", "z/3"]
    assert walk.unreadable == 1


def test_folders_that_are_not_wanted_are_not_entered(workspace: Path) -> None:
    make(workspace, "a/1", "b/2", "c")
    asked: list[str] = []

    def wanted(folder: str) -> bool:
        asked.append(folder)
        return folder == "b"

    assert walked(workspace, enter=wanted) == ["b/2", "c"]
    assert asked == ["a", "b"]


def test_name_that_is_no_utf8_is_found_and_can_be_shown(workspace: Path) -> None:
    make(workspace, os.fsdecode(b"caf\xe9"), "line\nbreak", "esc\x1b[31m")
    assert [format_path(path) for path in walked(workspace)] == ["caf\ufffd", "esc␛[31m", "line␊break"]


# Confinement


def test_S37_links_are_not_followed(workspace: Path, tmp_path: Path) -> None:
    make(tmp_path, "outside/secret")
    (workspace / "root").symlink_to("/")
    (workspace / "out").symlink_to(tmp_path / "outside")
    (workspace / "self").symlink_to(".")
    (workspace / "file").symlink_to(tmp_path / "outside/secret")
    assert walked(workspace) == ["file", "out", "root", "self"]


def swapped(folder: Path, target: Path) -> None:
    folder.rename(folder.with_name(folder.name + "-before"))
    folder.symlink_to(target)


def test_S37_folder_swapped_for_a_link_before_it_is_entered_leads_nowhere(workspace: Path, tmp_path: Path) -> None:
    make(tmp_path, "outside/secret")
    make(workspace, "a/1", "b/2")
    walk = Walk(Workspace(workspace))
    entries = walk.list_entries()
    assert next(entries).path == "a/1"
    swapped(workspace / "b", tmp_path / "outside")
    assert list(entries) == []
    assert walk.unreadable == 1


def test_S37_folder_swapped_for_a_link_while_we_are_in_it_leads_nowhere(workspace: Path, tmp_path: Path) -> None:
    make(tmp_path, "outside/secret", "outside/b/secret")
    make(workspace, "a/1", "a/2", "a/b/3", "c")
    entries = Walk(Workspace(workspace)).list_entries()
    first = next(entries)
    assert first.path == "a/1"
    swapped(workspace / "a", tmp_path / "outside")
    assert [entry.path for entry in entries] == ["a/2", "a/b/3", "c"], "what is open stays what it was"


def test_S37_folder_moved_out_while_we_are_in_it_does_not_take_us_along(workspace: Path, tmp_path: Path) -> None:
    make(tmp_path, "outside/secret")
    make(workspace, "a/b/1", "a/c/2", "z")
    walk = Walk(Workspace(workspace))
    entries = walk.list_entries()
    assert next(entries).path == "a/b/1"
    (workspace / "a/b").rename(tmp_path / "outside/b")
    assert [entry.path for entry in entries] == ["a/c/2", "z"]
    assert walk.unreadable == 0


def test_S37_folders_moved_away_altogether_are_counted(workspace: Path, tmp_path: Path) -> None:
    make(workspace, "a/b/1", "a/c/2", "z")
    walk = Walk(Workspace(workspace))
    entries = walk.list_entries()
    assert next(entries).path == "a/b/1"
    (workspace / "a/b").rename(tmp_path / "b")
    (workspace / "a").rename(tmp_path / "a")
    assert [entry.path for entry in entries] == ["z"]
    assert walk.unreadable == 1


def test_S37_file_swapped_for_a_link_is_not_opened(workspace: Path, tmp_path: Path) -> None:
    make(tmp_path, "secret")
    make(workspace, "a")
    for entry in Walk(Workspace(workspace)).list_entries():
        (workspace / "a").unlink()
        (workspace / "a").symlink_to(tmp_path / "secret")
        with pytest.raises(OSError, match="symbolic links"):
            entry.open_file()
