"""Words of a rule against those of a program: against a plain definition, and whatever unknown words become."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.policy.command_phrases import parse_phrase
from holdfast.activities.policy.subject import Truth
from holdfast.util.globs import Glob, PatternError, escape_glob

letters = st.sampled_from(["a", "b", "c"])
patterns = st.lists(letters | st.just("**"), min_size=1, max_size=4)
known = st.lists(letters, max_size=5)
unknown = st.lists(letters | st.none(), max_size=4)


def means(pattern: list[str], words: list[str], *, exact: bool) -> bool:
    """The definition."""
    if not pattern:
        return not (exact and words)
    if pattern[0] == "**":
        return any(means(pattern[1:], words[start:], exact=exact) for start in range(len(words) + 1))
    return bool(words) and words[0] == pattern[0] and means(pattern[1:], words[1:], exact=exact)


@given(patterns, known, st.booleans())
def test_known_words_are_compared_as_the_definition_says(pattern: list[str], words: list[str], exact: bool) -> None:
    phrase = parse_phrase(" ".join(pattern + ["$"] * exact))
    expected = means(pattern, words, exact=exact)
    assert phrase.covers_words(words) is expected
    assert phrase.touches_words(words) is (Truth.YES if expected else Truth.NO)


@given(patterns, unknown, st.lists(known, min_size=4, max_size=4), st.booleans())
def test_what_unknown_words_may_become_was_not_ruled_out(
    pattern: list[str], words: list[str | None], fillings: list[list[str]], exact: bool
) -> None:
    phrase = parse_phrase(" ".join(pattern + ["$"] * exact))
    filled = [one for place, word in enumerate(words) for one in (fillings[place] if word is None else [word])]
    if means(pattern, filled, exact=exact):
        assert phrase.touches_words(words) is not Truth.NO
    elif phrase.covers_words(words):
        raise AssertionError("what was covered turned out to be something else")


@given(patterns, unknown)
def test_what_is_covered_is_touched(pattern: list[str], words: list[str | None]) -> None:
    phrase = parse_phrase(" ".join(pattern))
    assert not phrase.covers_words(words) or phrase.touches_words(words) is Truth.YES


@given(st.text(max_size=10))
def test_any_text_is_a_phrase_or_an_error(text: str) -> None:
    with suppress(PatternError):
        parse_phrase(text).touches_words(["a", None])


@given(st.text(max_size=10), st.text(max_size=10))
def test_an_escaped_text_means_itself_and_nothing_else(text: str, other: str) -> None:
    glob = Glob(escape_glob(text))
    assert glob.is_literal
    assert glob.literals == {text}
    assert glob.matches(text)
    assert glob.matches(other) is (text == other)


@pytest.mark.parametrize(
    ("text", "literals"),
    [("a", {"a"}), ("{a,b}c", {"ac", "bc"}), (r"a\*", {"a*"}), ("{a,b*}", {"a"}), ("a?", set[str]())],
)
def test_a_glob_knows_what_it_spells_out(text: str, literals: set[str]) -> None:
    assert Glob(text).literals == literals


def test_the_worst_glob_takes_little_time() -> None:
    assert not Glob("*a" * 30 + "b").matches("a" * 5_000)
    assert parse_phrase("** a " * 20 + "z $").touches_words(["a"] * 5_000) is Truth.NO
