"""Child processes: however they end, it is known how."""

from __future__ import annotations

import asyncio
import sys

from holdfast.workers.runtime.child_processes import stop_child


async def test_how_a_child_ended_that_is_stopped_just_then_is_not_lost() -> None:
    for _ in range(20):
        child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3", stdout=asyncio.subprocess.PIPE)
        assert child.stdout
        await child.stdout.read()
        await stop_child(child, 10)
        assert child.returncode == 3


async def test_a_child_that_does_not_want_to_end_is_killed() -> None:
    script = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert child.stdout
    await child.stdout.readline()
    await stop_child(child, 0.1)
    assert child.returncode == -9
