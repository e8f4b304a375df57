"""The rules of .gitignore: what they ignore, and that git agrees."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.activities.files.ignore_rules import IgnoreRules


@pytest.mark.parametrize(
    ("rules", "path", "ignored"),
    [
        ("*.log", "a/b.log", True),
        ("# a", "# a", None),
        ("\\# a", "# a", True),
        ("\\!a", "!a", True),
        ("a \n", "a", True),
        ("a\\ ", "a ", True),
        ("a\\ ", "a", None),
        ("a\r\n", "a", True),
        ("\ufeffa", "a", True),
        ("/a", "a", True),
        ("/a", "b/a", None),
        ("b/a", "b/a", True),
        ("b/a", "c/b/a", None),
        ("**/b/a", "c/b/a", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", None),
        ("*.log\n!b.log", "b.log", False),
        ("!b.log\n*.log", "b.log", True),
        ("a/", "a", None),
        ("", "a", None),
        ("/", "a", None),
        ("!", "a", None),
        ("[a", "[a", None),
        ("a\\", "a\\", None),
    ],
)
def test_rule_decides(rules: str, path: str, ignored: bool | None) -> None:
    assert IgnoreRules(rules).find_verdict(path, is_folder=False) is ignored


def test_rule_with_a_slash_at_its_end_is_about_folders() -> None:
    assert IgnoreRules("a/").find_verdict("b/a", is_folder=True) is True


NAMES = ["a", "b", "ab", "a.c", ".x", "a b", "[a]", "!b", "#a", "a*", "b-"]
FOLDERS = ["", "a/", "b/", "a/b/", "ab/", "ab/a/", "a/b/ab/"]


class Repository:
    """A tree that git is asked about."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = sorted({f"{folder}{name}" for folder in FOLDERS for name in NAMES})
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for path in self.paths:
            if not (root / path).is_dir():
                (root / path).touch()
        self._git("init", "--quiet")

    def ignored(self) -> set[str]:
        asked = "\0".join(self.paths).encode()
        return set(self._git("check-ignore", "--no-index", "-z", "--stdin", given=asked).decode().split("\0")) - {""}

    def _git(self, *arguments: str, given: bytes = b"") -> bytes:
        alone = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        done = subprocess.run(["git", *arguments], cwd=self.root, env=alone, input=given, capture_output=True)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("repository"))


def ignored_by_us(rules: dict[str, IgnoreRules], path: str, is_folder: Callable[[str], bool]) -> bool:
    """A path is ignored when it or a folder above it is: the nearest file that says something decides."""
    names = path.split("/")
    return any(
        _ignored(rules, names[:length], is_folder("/".join(names[:length]))) for length in range(1, len(names) + 1)
    )


def _ignored(rules: dict[str, IgnoreRules], names: list[str], is_folder: bool) -> bool:
    for depth in range(len(names) - 1, -1, -1):
        one = rules.get("".join(f"{name}/" for name in names[:depth]))
        verdict = one.find_verdict("/".join(names[depth:]), is_folder=is_folder) if one else None
        if verdict is not None:
            return verdict
    return False


PIECES = ["*", "**", "***", "/", "/", "a", "b", "ab", "c", "?", "[ab]", "[!a]", "[^b]", "[", "]", "\\", "!", " ", "#"]
PIECES += [
    ".",
    "-",
    "[a-b]",
    "[[:alpha:]]",
    "[[:x:]]",
    "[]a]",
    "[a/b]",
    "[\\]a]",
    "[b-",
    "{a,b}",
    "\t",
    "\r",
    "**/",
    "/**",
]
LINE = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
LINE = LINE.filter(lambda line: "\\/" not in line)  # after `**` git wants a folder there, and nowhere else
RULES = st.lists(LINE, max_size=4).map("\n".join)


@pytest.mark.needs("git")
@settings(max_examples=150)
@given(top=RULES, nested=RULES, inner=RULES)
@example(top="*\n!a\n!*/", nested="!b", inner="a")
@example(top="a/\n!a/b", nested="", inner="!*")
@example(top="", nested="", inner="a**/*")
@example(top="/**/ab\n!**/b/", nested="*\n!/ab", inner="/*\n!a.c")
def test_git_ignores_the_same(repository: Repository, top: str, nested: str, inner: str) -> None:
    files = {"": top, "a/": nested, "a/b/": inner}
    for folder, rules in files.items():
        (repository.root / folder / ".gitignore").write_bytes(rules.encode())
    read = {folder: IgnoreRules(rules) for folder, rules in files.items()}
    ours = {
        path for path in repository.paths if ignored_by_us(read, path, lambda one: (repository.root / one).is_dir())
    }
    assert ours == repository.ignored()
