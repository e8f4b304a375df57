"""Globs and the rules of .gitignore: what they match, that git agrees, and that no pattern takes long."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.util.globs.charset import PatternError
from holdfast.util.globs.path_globs import MAX_ALTERNATIVES, IgnoreRules, PathPattern, expand_braces

# Globs


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.py", ["a.py", ".py", ".hidden.py"], ["a.pyc", "src/a.py", "py"]),
        ("**/*.py", ["a.py", "src/a.py", "a/b/c.py"], ["a.txt"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "srcs/a", "a/src/b"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/a/b/test_.py"], ["test_a.py", "src/a/b.py"]),
        ("**/a/**/b/**", ["a/b/c", "x/a/y/b/z", "a/b/a/b/c"], ["a/b", "b/a/c"]),
        ("a**b", ["ab", "axxb"], ["a/b"]),
        ("a?c", ["abc", "a✓c"], ["ac", "a/c", "abbc"]),
        ("[abc]x", ["ax", "cx"], ["dx", "x", "[abc]x"]),
        ("[!a-c]x", ["dx", "-x"], ["ax", "bx"]),
        ("[^a-c]x", ["dx"], ["bx"]),
        ("[]-]", ["]", "-"], ["a"]),
        ("[a\\]]", ["a", "]"], ["\\"]),
        ("[[:digit:]]", ["1"], ["a", ":"]),
        ("[a/b]", ["a", "b"], ["/", "a/b"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t", "a.{ts,tsx}"]),
        ("{src,test/{a,b}}/*.c", ["src/x.c", "test/a/x.c", "test/b/x.c"], ["test/x.c"]),
        ("a{,b}", ["a", "ab"], ["abb"]),
        ("{a}", ["a"], ["{a}"]),
        ("a}", ["a}"], ["a"]),
        ("\\{a,b}", ["{a,b}"], ["a", "b"]),
        ("[{,]", ["{", ","], ["a"]),
        ("\\*", ["*"], ["a", "\\*"]),
        ("a\\/b", ["a/b"], []),
        ("*", ["a", ".a"], ["a/b"]),
        ("**", ["a", "a/b"], []),
    ],
)
def test_pattern_matches_what_it_says(pattern: str, matching: list[str], other: list[str]) -> None:
    wanted = PathPattern(pattern)
    assert [path for path in matching + other if wanted.matches(path)] == matching


def test_name_is_looked_for_in_every_folder_when_asked_for_anywhere() -> None:
    assert PathPattern("*.py", anywhere=True).matches("a/b/c.py")
    assert not PathPattern("a/*.py", anywhere=True).matches("b/a/c.py")
    assert PathPattern("{*.js,a/*.py}", anywhere=True).matches("x/y.js")


@pytest.mark.parametrize(("pattern", "words"), [("[a", "bracket"), ("a\\", "backslash"), ("{a,b", "brace")])
def test_pattern_that_says_nothing_is_refused_in_words(pattern: str, words: str) -> None:
    with pytest.raises(PatternError, match=words):
        PathPattern(pattern)


@pytest.mark.parametrize("pattern", ["{a,b}" * 9, "{" * 900, "{" * 450 + "}" * 450, "{a," * 300 + "}" * 300])
def test_braces_are_bounded(pattern: str) -> None:
    began = time.process_time()
    with suppress(PatternError):
        assert len(expand_braces(pattern)) <= MAX_ALTERNATIVES
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 400 + "b", "a" * 10_000),
        ("[a-z]*" * 400 + "!", "a" * 4_000),
        ("**/" * 300 + "b", "a/" * 2_000 + "a"),
        ("**/*a*/" * 100 + "b", "a/" * 2_000 + "a"),
    ],
)
def test_no_pattern_takes_long(pattern: str, path: str) -> None:
    began = time.process_time()
    assert not PathPattern(pattern).matches(path)
    assert time.process_time() - began < 5


@given(pattern=st.text("ab*?[]!-c", max_size=8), name=st.text("abc-!]", min_size=1, max_size=6))
def test_names_match_as_in_the_standard_library(pattern: str, name: str) -> None:
    try:
        wanted = PathPattern(pattern)
    except PatternError:
        return  # the library takes a bracket that is never closed for itself
    if not _is_read_otherwise(pattern):
        assert wanted.matches(name) == fnmatchcase(name, pattern), (pattern, name)


def _is_read_otherwise(pattern: str) -> bool:
    """A hyphen between other signs of a set is a range for one and itself for the other."""
    return "[" in pattern and ("-" in pattern or "[" in pattern.partition("[")[2])


@given(pattern=st.text("ab/*?{},\\[]", max_size=10), path=st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1))
def test_folder_that_is_not_entered_holds_nothing_that_matches(pattern: str, path: list[str]) -> None:
    try:
        wanted = PathPattern(pattern)
    except PatternError:
        return
    if wanted.matches("/".join(path)):
        assert all(wanted.may_reach("/".join(path[:length])) for length in range(1, len(path)))


@pytest.mark.parametrize(
    ("pattern", "entered", "other"),
    [
        ("src/*.py", ["src"], ["lib", "src/a"]),
        ("src/**/*.py", ["src", "src/a/b"], ["lib"]),
        ("*.py", [], ["src"]),
        ("**/x", ["a", "a/b"], []),
    ],
)
def test_folders_where_nothing_can_match_are_not_entered(pattern: str, entered: list[str], other: list[str]) -> None:
    wanted = PathPattern(pattern)
    assert [folder for folder in entered + other if wanted.may_reach(folder)] == entered


# Rules of .gitignore


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
