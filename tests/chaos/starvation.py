"""A worker that gets almost no processor time, and how soon its turns go on afterwards.

python -m tests.chaos.starvation --seconds 150 --turns 12 --steps 60

One worker at the lowest priority beside busy loops, while scripted turns run. When the loops end, every turn must take
its next step within `LIMIT` seconds and come to its right end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast import ModelChoice, ScriptedReply, Turn, TurnInput
from holdfast.testing import build_request
from tests.support.engine import Engine, new_engine
from tests.support.processes import worker_process
from tests.support.server import address_of, start_server

LIMIT = 15.0
"""Seconds after the end of the starvation within which every turn takes another step."""
LOOPS = 2 * len(os.sched_getaffinity(0))
FINISH_SECONDS = 300.0
BUSY_LOOP = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""Ends with its parent too: whoever is killed in the middle leaves no loop behind."""


@dataclass(frozen=True)
class Starved:
    """What became of the turns."""

    before: list[int]
    """Steps of each turn when the starvation ended."""
    resumed: list[float]
    """Seconds until each turn took another step, or had ended."""
    completed: int
    lost: int
    """Calls without their one right answer."""


@contextmanager
def busy_machine(starved: int, loops: int = LOOPS) -> Iterator[None]:
    """Busy loops beside a process at the lowest priority, until the end of the block."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(loops)]
    try:
        for task in os.listdir(f"/proc/{starved}/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), 19)
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


async def starve(engine: Engine, *, seconds: float, turns: int, steps: int) -> Starved:
    """Run the turns, starve their worker for so long, and see when each goes on."""
    replies = [ScriptedReply(calls=(build_request("read", counter="seen"),)) for _ in range(steps)]
    model = ModelChoice(script=(*replies, ScriptedReply(text="Done.")))
    await asyncio.to_thread((engine.workspace / "seen.begun").touch)
    async with worker_process(engine) as worker:
        started = [await engine.start(TurnInput(prompt="go", model=model)) for _ in range(turns)]
        with busy_machine(worker.pid):
            await asyncio.sleep(seconds)
            before = [await count_events(engine, turn) for turn in started]
        began = time.monotonic()
        pairs = zip(started, before, strict=True)
        resumed = await asyncio.gather(*(goes_on(engine, turn, old, began) for turn, old in pairs))
        async with asyncio.timeout(FINISH_SECONDS):
            results = [await turn.result() for turn in started]
    whole = [f"b{number}c1" for number in range(1, steps + 1)]
    right = [[one.call_id for one in result.responses if one.text == "done"] == whole for result in results]
    completed = sum(result.status == "completed" for result in results)
    return Starved(before, list(resumed), completed, lost=len(right) - sum(right))


async def count_events(engine: Engine, turn: Turn) -> int:
    """Events of the current run, a million for each run before it: it only grows. Asks no worker."""
    described = await engine.client.get_workflow_handle(turn.id).describe()
    runs = described.raw_description.workflow_execution_info.first_run_id != described.run_id
    return described.history_length + 1_000_000 * runs


async def goes_on(engine: Engine, turn: Turn, before: int, began: float) -> float:
    """Seconds until a turn has more events than before, or has ended."""
    handle = engine.client.get_workflow_handle(turn.id)
    async with asyncio.timeout(FINISH_SECONDS):
        while True:
            described = await handle.describe()
            if described.close_time or await count_events(engine, turn) != before:
                return time.monotonic() - began
            await asyncio.sleep(0.1)


async def main() -> int:
    """Print what was found; 1 when a turn stood still for too long or lost anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            await start_server(Path(folder) / "temporal.db") as server,
            new_engine(address_of(server), Path(folder) / "engine") as engine,
        ):
            found = await starve(engine, seconds=given.seconds, turns=given.turns, steps=given.steps)
    print(f"events at the end of the starvation: {found.before}")
    print(f"seconds until each turn went on: {sorted(round(one, 1) for one in found.resumed)}")
    print(f"{found.completed} of {given.turns} completed, {found.lost} with a wrong answer")
    return 0 if max(found.resumed) <= LIMIT and found.completed == given.turns and not found.lost else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
