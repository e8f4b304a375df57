"""One supervised command from a call's view: its output as it comes, then its end.

What `run_command` is for a command that dies with its worker, this is for one that does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.activities.commands import Command, Sink
from holdfast.activities.processes import run_to_end
from holdfast.activities.supervision.ended import RunEnd
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.activities.supervision.supervised import SupervisedRun


async def run_supervised(
    runs: Runs,
    command: Command,
    key: str,
    *,
    output: Sink,
    on_start: Callable[[int], None],
    digest: str = "",
    sandbox: Sandbox | None = None,
    hand_over: Callable[[], bool] = lambda: False,
) -> RunEnd:
    """How the command ended; ToolFailure when it could not be started at all. A second attempt finds the same run.

    Cancelled, it stops the command and raises, unless that had ended by itself: then it keeps its end. When
    `hand_over` says so the command goes on for the next worker to find.
    """
    run = await run_to_end(runs.supervise(command, key, digest=digest, sandbox=sandbox))
    on_start(run.record.command)
    read = 0

    def take_data(data: bytes) -> None:
        nonlocal read
        read += len(data)
        output(data)

    try:
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError  # it came while the command was starting
        await _follow_output(run, 0, take_data)
        return await run.wait_for_end()
    except asyncio.CancelledError:
        if hand_over():
            raise
        ended = await run_to_end(run.stop())
        await run_to_end(_follow_output(run, read, take_data))
        if ended.why != "exited":
            raise
        return ended


async def _follow_output(run: SupervisedRun, offset: int, take: Callable[[bytes], None]) -> None:
    async for data in run.stream_output(offset):
        take(data)
