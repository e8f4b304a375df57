"""Globs: what they match, and that no pattern takes long."""

from __future__ import annotations

import time
from contextlib import suppress
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.util.globs import MAX_ALTERNATIVES, PathPattern, PatternError, expand_braces


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
