"""What becomes of a second attempt at a call that must not run twice, by what the ledger knows (S31)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from holdfast.activities.execution.effect_runner import EffectRunner, read_outcome
from holdfast.activities.execution.live_run import LiveRun
from holdfast.activities.ledger.ledger import EffectKey
from holdfast.activities.ledger.sqlite import SqliteLedger
from holdfast.activities.process.proc import read_start_time
from holdfast.domain.calls.tool import Invocation, Run
from holdfast.domain.calls.verdicts import ExecutionOutcome, Failed, Finished, Lost, Stopped
from holdfast.domain.content import CallError, Result

KEY = EffectKey(turn="turn", call="b1c1", digest="d")


class Call(Invocation):
    def __init__(self, verified: Result | bool | Exception | None = None, *, resumable: bool = False) -> None:
        self.verified, self._resumable = verified, resumable

    @property
    def is_resumable(self) -> bool:
        return self._resumable

    def describe(self) -> str:
        return "Do it"

    async def verify(self, run: Run) -> Result | bool | None:
        if isinstance(self.verified, Exception):
            raise self.verified
        return self.verified

    async def execute(self, run: Run) -> Result:
        raise AssertionError("the work is handed in")


def _nothing() -> None:
    """The work begins by itself."""


class Tried:
    """Counts how often the work was done."""

    def __init__(self, ledger: SqliteLedger, outcome: ExecutionOutcome | None = None) -> None:
        self.times = 0
        self.once = EffectRunner(ledger)
        self.outcome = outcome or Finished(result=Result.from_text("done"))

    async def work(self) -> ExecutionOutcome:
        self.times += 1
        return self.outcome

    async def __call__(
        self, call: Call | None = None, *, key: EffectKey = KEY, known_here: bool = True, first: bool = True
    ) -> ExecutionOutcome:
        run = LiveRun("turn", "b1c1", workspace=Path())
        return await self.once.run(
            key, call or Call(), run, _nothing, self.work, tool="tool", known_here=known_here, first=first
        )


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    made = SqliteLedger(tmp_path / "ledger.db")
    yield made
    await made.close()


@pytest.mark.parametrize(
    "outcome",
    [
        Finished(result=Result.from_text("done")),
        Failed(error=CallError(type="boom", message="It broke")),
        Stopped(reason="told to"),
    ],
)
async def test_S31_what_has_a_result_gives_it_back_and_runs_no_more(
    ledger: SqliteLedger, outcome: ExecutionOutcome
) -> None:
    tried = Tried(ledger, outcome)
    assert [await tried() for _ in range(3)] == [outcome] * 3
    assert tried.times == 1
    assert read_outcome(await tried.once.find(KEY)) == outcome


async def test_S31_another_run_of_the_same_call_is_another_effect(ledger: SqliteLedger) -> None:
    tried = Tried(ledger)
    await tried()
    await tried(key=KEY.model_copy(update={"run": 2}))
    assert tried.times == 2


async def test_S31_what_was_begun_and_has_no_result_is_not_run_again(ledger: SqliteLedger) -> None:
    await ledger.record_intent(KEY, host="elsewhere", tool="tool")
    tried = Tried(ledger)
    outcome = await tried()
    assert isinstance(outcome, Lost)
    assert not outcome.repeatable
    assert "on elsewhere" in outcome.message
    assert tried.times == 0


@pytest.mark.parametrize(
    ("verified", "kind", "times"),
    [
        (Result.from_text("it was"), "finished", 0),
        (True, "finished", 0),
        (False, "finished", 1),
        (None, "lost", 0),
        (OSError("no way to tell"), "lost", 0),
    ],
)
async def test_S31_a_tool_may_find_out_whether_it_happened(
    ledger: SqliteLedger, verified: Result | bool | Exception | None, kind: str, times: int
) -> None:
    await ledger.record_intent(KEY, host="here", tool="tool")
    tried = Tried(ledger)
    outcome = await tried(Call(verified))
    assert (outcome.kind, tried.times) == (kind, times)


async def test_S31_what_goes_on_by_itself_is_found_again(ledger: SqliteLedger) -> None:
    await ledger.record_intent(KEY, host="here", tool="tool")
    tried = Tried(ledger)
    assert (await tried(Call(resumable=True))).kind == "finished"
    assert tried.times == 1


async def test_S31_no_entry_says_nothing_where_another_host_may_have_begun(ledger: SqliteLedger) -> None:
    tried = Tried(ledger)
    assert isinstance(await tried(known_here=False), Lost)
    assert tried.times == 0


async def test_S31_without_a_ledger_nothing_runs(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_text("this is no database" * 1_000)
    broken = SqliteLedger(file)
    tried = Tried(broken)
    outcome = await tried()
    await broken.close()
    assert isinstance(outcome, Failed)
    assert outcome.error.type == "ledger_unavailable"
    assert tried.times == 0


async def test_S31_what_nobody_knows_is_not_recorded_as_known(ledger: SqliteLedger) -> None:
    tried = Tried(ledger, Lost(message="gone"))
    await tried()
    assert read_outcome(await tried.once.find(KEY)) is None


async def test_S31_what_another_living_process_has_begun_is_left_to_it(ledger: SqliteLedger) -> None:
    """It may be at it still, whatever a tool finds out: a later attempt asks again."""
    other = await asyncio.create_subprocess_exec("sleep", "60")
    await ledger.record_intent(
        KEY, host=f"{socket.gethostname()} (process {other.pid}.{read_start_time(other.pid)})", tool="tool"
    )
    tried = Tried(ledger)
    for call in (Call(), Call(verified=False)):
        with pytest.raises(ApplicationError, match="another worker"):
            await tried(call)
    assert (await tried(Call(resumable=True))).kind == "finished"
    other.kill()
    await other.wait()
    assert tried.times == 1


async def test_S31_what_a_dead_process_has_begun_is_for_the_tool_or_a_person_to_tell(ledger: SqliteLedger) -> None:
    other = await asyncio.create_subprocess_exec("sleep", "60")
    holder = f"{socket.gethostname()} (process {other.pid}.{read_start_time(other.pid)})"
    other.kill()
    await other.wait()
    await ledger.record_intent(KEY, host=holder, tool="tool")
    tried = Tried(ledger)
    outcome = await tried()
    assert isinstance(outcome, Lost)
    assert f"on {socket.gethostname()}, and" in outcome.message
    assert (await tried(Call(verified=False))).kind == "finished"


async def test_S31_a_ledger_that_cannot_be_read_says_nothing_of_an_earlier_attempt(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_text("this is no database" * 1_000)
    broken = SqliteLedger(file)
    tried = Tried(broken)
    with pytest.raises(ApplicationError, match="cannot be read"):
        await tried(first=False)
    await broken.close()
    assert tried.times == 0
