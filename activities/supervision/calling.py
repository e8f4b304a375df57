"""One supervised command from a call's view: its output as it comes, then its end.

What `run_command` is for a command that dies with its worker, this is for one that does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.activities.commands import Command, Sink
from holdfast.activities.processes import to_the_end
from holdfast.activities.supervision.ended import Ended
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.activities.supervision.supervised import Supervised


async def run_supervised(
    runs: Runs,
    command: Command,
    key: str,
    *,
    output: Sink,
    started: Callable[[int], None],
    digest: str = "",
    sandbox: Sandbox | None = None,
    hand_over: Callable[[], bool] = lambda: False,
) -> Ended:
    """How the command ended; ToolFailure when it could not be started at all. A second attempt finds the same run.

    Cancelled, it stops the command and raises, unless that had ended by itself: then it keeps its end. When
    `hand_over` says so the command goes on for the next worker to find.
    """
    run = await to_the_end(runs.supervise(command, key, digest=digest, sandbox=sandbox))
    started(run.run.command)
    read = 0

    def take(data: bytes) -> None:
        nonlocal read
        read += len(data)
        output(data)

    try:
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError  # it came while the command was starting
        await _follow(run, 0, take)
        return await run.wait()
    except asyncio.CancelledError:
        if hand_over():
            raise
        ended = await to_the_end(run.stop())
        await to_the_end(_follow(run, read, take))
        if ended.why != "exited":
            raise
        return ended


async def _follow(run: Supervised, offset: int, take: Callable[[bytes], None]) -> None:
    async for data in run.output(offset):
        take(data)
