"""Both fuzzers for a bounded time; `make fuzz` runs them for an hour."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.commands import fuzz_commands
from tests.fuzz.decisions import DecisionFuzzer, fuzz_decisions
from tests.fuzz.found import Found

SEED = 20_240_817
SECONDS = 12.0
"""Of each, on however slow a machine."""


def test_S30_bash_runs_nothing_that_the_analysis_did_not_list(tmp_path: Path) -> None:
    found = fuzz_commands(tmp_path, SEED, SECONDS)
    assert found.problems == []
    assert found.telling > 20


def test_S22_no_decision_counts_that_nobody_signed_and_every_other_is_refused_in_words() -> None:
    found = fuzz_decisions(SEED, SECONDS)
    assert found.problems == []
    assert found.telling > 20


def test_the_fuzzer_of_decisions_notices_one_that_counts_though_nobody_signed_it() -> None:
    fuzzer, found = DecisionFuzzer(SEED), Found()
    fuzzer._state.decisions.approvers = ()  # without keys anybody's word counts
    for _ in range(2_000):
        fuzzer.try_one(found)
    assert any("nobody signed it" in problem for problem in found.problems)
