"""A ledger against a model in memory: whatever is asked in whatever order, through two ledgers on one database.

The machine knows no database; tests/integration/workers/test_ledger_postgres.py runs the same one on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Coroutine
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.activities.ledger.ledger import (
    INTENT_FACTOR,
    RESULT_LIMIT,
    EffectKey,
    Ledger,
    LedgerEntry,
    LedgerRefused,
    Spending,
)
from holdfast.activities.ledger.sqlite import SqliteLedger

T = TypeVar("T")

NAMES = [("a/b", "c"), ("a", "b/c"), ("a", "b"), ("\0é", "'; --")]
KEYS = [EffectKey(turn=turn, call=call, digest="d", run=run) for turn, call in NAMES for run in (1, 2)]
RESULTS = ["{}", '{"text": "é \\u0000 😀"}', '"' + "x" * 50_000 + '"', ""]
HOSTS = ["here", "there", "\0\ud800"]
DECISIONS, EXECUTIONS = ["a", "b", "c" * 64], ["run/b1c1/1", "run/b1c1/2", "other/b1c1/1"]
MOMENTS = timedelta(minutes=10)

keys, results, hosts = st.sampled_from(KEYS), st.sampled_from(RESULTS), st.sampled_from(HOSTS)
which = st.integers(0, 1)
decisions = st.lists(st.sampled_from(DECISIONS), min_size=1, max_size=3, unique=True)


class Known:
    """What the model knows of one effect: ages are in days."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.result: str | None = None
        self.began = 0
        self.ended = 0

    def old(self, days: int) -> bool:
        return self.began >= INTENT_FACTOR * days if self.result is None else self.ended >= days


class LedgerMachine(RuleBasedStateMachine):
    """Two workers, one database."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.ledgers = [self.made(), self.made()]
        self.model: dict[EffectKey, Known] = {}
        self.spent: dict[str, str] = {}
        """Decisions, and the executions that they let run."""

    def made(self) -> Ledger:
        raise NotImplementedError

    def grow_older(self, by: timedelta) -> None:
        raise NotImplementedError

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 30))

    @rule(by=which, key=keys, host=hosts)
    def intend(self, by: int, key: EffectKey, host: str) -> None:
        self.same(key, self.run(self.ledgers[by].record_intent(key, host=host, tool="shell")))
        self.model.setdefault(key, Known(host))

    @rule(key=keys, count=st.integers(2, 6))
    def intend_at_once(self, key: EffectKey, count: int) -> None:
        async def race() -> list[LedgerEntry | None]:
            asked = [self.ledgers[at % 2].record_intent(key, host=HOSTS[at % 2], tool="shell") for at in range(count)]
            return await asyncio.gather(*asked)

        answers = self.run(race())
        assert answers.count(None) == (0 if key in self.model else 1)
        winner = answers.index(None) if key not in self.model else 0
        self.model.setdefault(key, Known(HOSTS[winner % 2]))
        for answer in answers:
            if answer:
                self.same(key, answer)

    @rule(by=which, key=keys, result=results)
    def finish(self, by: int, key: EffectKey, result: str) -> None:
        known = self.model.get(key)
        if known is None:
            with pytest.raises(LedgerRefused, match="no intent"):
                self.run(self.ledgers[by].record_result(key, result))
            return
        self.run(self.ledgers[by].record_result(key, result))
        known.result = result if known.result is None else known.result

    @rule(by=which, key=keys, result=st.sampled_from(["\0", '"\udfff"', "é" * RESULT_LIMIT]))
    def finish_with_what_cannot_be_kept(self, by: int, key: EffectKey, result: str) -> None:
        with pytest.raises(LedgerRefused):
            self.run(self.ledgers[by].record_result(key, result))

    @rule(by=which, decisions=decisions, execution=st.sampled_from(EXECUTIONS))
    def spend(self, by: int, decisions: list[str], execution: str) -> None:
        spendings = [Spending(decision=decision, execution=execution) for decision in decisions]
        found = self.run(self.ledgers[by].record_spendings(spendings))
        others = {decision for decision in decisions if self.spent.get(decision, execution) != execution}
        if found is None:
            assert not others
            self.spent |= dict.fromkeys(decisions, execution)
        else:
            assert found.decision in others
            assert (found.execution, found.spent_at is not None) == (self.spent[found.decision], True)

    @rule(decision=st.sampled_from(DECISIONS))
    def spend_at_once(self, decision: str) -> None:
        async def race() -> list[Spending | None]:
            asked = [Spending(decision=decision, execution=execution) for execution in EXECUTIONS]
            return await asyncio.gather(
                *(self.ledgers[at % 2].record_spendings([each]) for at, each in enumerate(asked))
            )

        answers = self.run(race())
        assert answers.count(None) == 1
        self.spent.setdefault(decision, EXECUTIONS[answers.index(None)])
        assert {answer.execution for answer in answers if answer} == {self.spent[decision]}

    @rule(days=st.integers(1, 40))
    def time_passes(self, days: int) -> None:
        self.grow_older(timedelta(days=days))
        for known in self.model.values():
            known.began += days
            known.ended += days if known.result is not None else 0

    @rule(by=which, days=st.integers(1, 30))
    def sweep(self, by: int, days: int) -> None:
        old = [key for key, known in self.model.items() if known.old(days)]
        # A little less: what is exactly so many days old is some moments older by now.
        assert self.run(self.ledgers[by].sweep(timedelta(days=days) - MOMENTS)) == len(old)
        for key in old:
            del self.model[key]

    @rule(by=which)
    def open_anew(self, by: int) -> None:
        self.run(self.ledgers[by].close())
        self.ledgers[by] = self.made()

    @invariant()
    def both_know_what_the_model_knows(self) -> None:
        for place, key in enumerate(KEYS):
            self.same(key, self.run(self.ledgers[place % 2].find(key)))

    def same(self, key: EffectKey, entry: LedgerEntry | None) -> None:
        known = self.model.get(key)
        assert (entry is None) == (known is None)
        if entry and known:
            assert (entry.key, entry.tool, entry.host, entry.result) == (key, "shell", known.host, known.result)
            assert entry.state == ("intended" if known.result is None else "done")
            assert (entry.ended_at is None) == (known.result is None)
            assert entry.ended_at is None or entry.ended_at >= entry.started_at

    def teardown(self) -> None:
        for ledger in self.ledgers:
            self.run(ledger.close())
        self.loop.close()


class SqliteMachine(LedgerMachine):
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "ledger.db"
        super().__init__()

    def made(self) -> Ledger:
        return SqliteLedger(self.file)

    def grow_older(self, by: timedelta) -> None:
        moved = by // timedelta(microseconds=1)
        with closing(sqlite3.connect(self.file)) as connection, connection:
            older = "UPDATE effects SET started_at = started_at - ?, ended_at = ended_at - ?"
            connection.execute(older, (moved, moved))

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


def test_S31_the_file_answers_as_the_model_does_whatever_is_asked() -> None:
    run_state_machine_as_test(SqliteMachine, settings=settings(max_examples=15, stateful_step_count=20))
