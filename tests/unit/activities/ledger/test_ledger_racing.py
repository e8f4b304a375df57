"""The ledger in a file, between real processes: that race for the same effects, and that are killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.activities.ledger.ledger import EffectKey
from holdfast.activities.ledger.sqlite import SqliteLedger

PATIENCE = 60
RACERS = 4
COMMON = """
import asyncio, random, sys
from pathlib import Path
from holdfast.activities.ledger.ledger import EffectKey
from holdfast.activities.ledger.sqlite import SqliteLedger

file, name = sys.argv[1:]
ledger = SqliteLedger(Path(file))

def key(number):
    return EffectKey(turn="turn", call=f"b1c{number}", digest="d")

def say(text):
    print(text, flush=True)
"""
RACER = (
    COMMON
    + """
async def main():
    numbers = list(range(60))
    random.Random(name).shuffle(numbers)
    for number in numbers:
        if await ledger.record_intent(key(number), host=name, tool="shell") is None:
            say(number)
    await ledger.close()

say("ready")
sys.stdin.readline()
asyncio.run(main())
"""
)
WORKER = (
    COMMON
    + """
async def main():
    for number in range(10**9):
        if await ledger.record_intent(key(number), host=name, tool="shell") is None:
            say(f"intended {number}")
            await ledger.record_result(key(number), '"' + "x" * 20_000 + '"')
            say(f"done {number}")

asyncio.run(main())
"""
)


OPENER = (
    COMMON
    + """
async def main():
    for number in range(40):
        new = SqliteLedger(Path(f"{file}-{number}"))
        await new.check()
        await new.close()

say("ready")
sys.stdin.readline()
asyncio.run(main())
"""
)


def key(number: int) -> EffectKey:
    return EffectKey(turn="turn", call=f"b1c{number}", digest="d")


@contextmanager
def process(code: str, file: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", code, str(file), name]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        try:
            yield made
        finally:
            made.kill()


def line(made: subprocess.Popen[str]) -> str:
    """The next one, or nothing when it has ended. Bounded by the time limit of the test."""
    assert made.stdout
    return made.stdout.readline().strip()


def race(code: str, file: Path) -> list[list[str]]:
    """What each of four processes says that begin together."""
    with ExitStack() as stack:
        racers = [stack.enter_context(process(code, file, f"worker-{number}")) for number in range(RACERS)]
        assert [line(racer) for racer in racers] == ["ready"] * RACERS
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("\n")
            racer.stdin.flush()
        said = [racer.communicate(timeout=PATIENCE)[0].split() for racer in racers]
        assert [racer.returncode for racer in racers] == [0] * RACERS
        return said


def test_a_new_ledger_can_be_opened_by_several_processes_at_once(tmp_path: Path) -> None:
    race(OPENER, tmp_path / "ledger.db")


@pytest.mark.parametrize("fresh", [True, False])
async def test_S31_of_several_processes_exactly_one_begins_each_effect(tmp_path: Path, fresh: bool) -> None:
    file = tmp_path / "ledger.db"
    ledger = SqliteLedger(file)
    if not fresh:
        await ledger.check()
    begun = race(RACER, file)
    counted = Counter(number for numbers in begun for number in numbers)
    assert counted == {str(number): 1 for number in range(60)}
    for place, numbers in enumerate(begun):
        for number in numbers:
            entry = await ledger.find(key(int(number)))
            assert entry is not None
            assert entry.host == f"worker-{place}"
    await ledger.close()


@pytest.mark.parametrize("lines", [1, 2, 7, 40, 41])
async def test_S31_what_a_killed_process_was_told_is_recorded_is_recorded(tmp_path: Path, lines: int) -> None:
    """Odd: killed between the intent and the result. Even: after the result. In both, wherever it has got to since."""
    file = tmp_path / "ledger.db"
    with process(WORKER, file, "killed") as worker:
        said = [line(worker) for _ in range(lines)]
        worker.kill()
        assert worker.stdout
        said += worker.stdout.read().split("\n")  # not `communicate`, which passes over what was read ahead
    words = [text.split() for text in said if text.endswith(tuple("0123456789"))]
    assert len(words) >= lines
    ledger = SqliteLedger(file)
    for state, number in words:
        entry = await ledger.record_intent(key(int(number)), host="next", tool="shell")
        assert entry is not None, "an effect that had begun would begin again"
        assert entry.host == "killed"
        assert state == "intended" or entry.state == "done"
    last = int(words[-1][1])
    entries = [await ledger.record_intent(key(last + more), host="next", tool="shell") for more in (2, 3)]
    assert entries == [None, None], "what nobody has begun can be begun"
    await ledger.close()


async def test_S31_a_process_that_waits_with_an_intent_is_killed_and_the_intent_is_there(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    intend = 'asyncio.run(ledger.record_intent(key(1), host=name, tool="shell"))'
    code = COMMON + f'{intend}; say("intended"); sys.stdin.readline()'
    with process(code, file, "killed") as worker:
        assert line(worker) == "intended"
        worker.kill()
        worker.wait(PATIENCE)
    ledger = SqliteLedger(file)
    entry = await ledger.find(key(1))
    assert entry is not None
    assert (entry.state, entry.host, entry.tool) == ("intended", "killed", "shell")
    await ledger.close()
