"""Names of servers' tools: what models take, the same each time, and never two alike."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.util.mcp_names import NAME_LIMIT, build_prefix, build_tool_name

SERVERS = st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True)


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("git", "status", "git__status"),
        ("a_b", "c", "a_b__c"),
        ("a", "b_c", "a__b_c"),
        ("a", "b__c", "a__b__c"),
        ("a", "_b", "a___b"),
        ("a", "b-c", "a__b-c"),
    ],
)
def test_S39_ordinary_names_are_plain(server: str, tool: str, name: str) -> None:
    assert build_tool_name(server, tool) == name


@pytest.mark.parametrize(
    ("server", "tool"), [("a__b", "c"), ("a_", "b"), ("a", "b.c"), ("a", "b c"), ("a", "x" * 62), ("a", "é"), ("a", "")]
)
def test_S39_others_get_a_part_of_a_hash(server: str, tool: str) -> None:
    name = build_tool_name(server, tool)
    assert re.fullmatch(r"[A-Za-z0-9_-]+_[0-9a-f]{8}", name)
    assert name.startswith(build_prefix(server)[:50])
    assert name == build_tool_name(server, tool)


@given(SERVERS, st.text(max_size=200), SERVERS, st.text(max_size=200))
def test_S39_two_tools_never_have_one_name(server: str, tool: str, other: str, another: str) -> None:
    first, second = build_tool_name(server, tool), build_tool_name(other, another)
    assert (first == second) == ((server, tool) == (other, another))
    assert re.fullmatch(r"[A-Za-z0-9_-]+", first)
    assert len(first) <= NAME_LIMIT


@given(st.text("a_", min_size=1, max_size=6), st.text("a_", max_size=6))
def test_S39_underscores_do_not_confuse(server: str, tool: str) -> None:
    whole = f"{server}__{tool}"
    alike = {
        build_tool_name(whole[:at], whole[at + 2 :]) for at in range(1, len(whole) - 1) if whole[at : at + 2] == "__"
    }
    pairs = {(whole[:at], whole[at + 2 :]) for at in range(1, len(whole) - 1) if whole[at : at + 2] == "__"}
    assert len(alike) == len(pairs)


def test_S39_a_name_that_looks_like_anothers_with_its_hash_is_not_that_one() -> None:
    theirs = build_tool_name("a__b", "pay")
    assert build_tool_name("a", theirs.removeprefix("a__")) != theirs
