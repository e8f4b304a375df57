"""A worker to be killed: a process of its own, with tools that leave marks and then hang where the test wants it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from temporalio.client import Client

from holdfast import Confirmation, Effect, HoldfastPlugin, Invocation, Run, Settings
from holdfast.activities.ledger.ledger import Ledger
from holdfast.testing import FakeTool
from holdfast.workers.runtime.worker import run_worker

HEARTBEAT_SECONDS = 3


class _SlowToValidate(FakeTool):
    """Its first validation leaves a mark and hangs."""

    def build(self, arguments: FakeTool.Parameters, workspace: Path) -> Invocation:
        invocation = super().build(arguments, workspace)
        mark = workspace / "validating"

        async def should_confirm() -> Confirmation | None:
            if not mark.exists():
                mark.touch()
                await asyncio.Event().wait()
            return None

        invocation.should_confirm = should_confirm  # type: ignore[method-assign]
        return invocation


def tools(workspace: Path) -> list[FakeTool]:
    """Each appends to a file to count its effects; the first time, it then hangs until it is killed."""

    async def effect(arguments: dict[str, Any], run: Run) -> str:
        counter = workspace / str(arguments["counter"])
        with counter.open("a") as file:
            file.write("x")
        run.write("it has begun\n")
        mark = workspace / f"{arguments['counter']}.begun"
        if not mark.exists():
            mark.touch()
            await asyncio.Event().wait()
        return "done"

    return [
        FakeTool("once", effect, effect=Effect.ONCE, heartbeat_seconds=HEARTBEAT_SECONDS),
        FakeTool("idempotent", effect, effect=Effect.IDEMPOTENT, heartbeat_seconds=HEARTBEAT_SECONDS),
        FakeTool("read", effect, effect=Effect.READ, safe=True, heartbeat_seconds=HEARTBEAT_SECONDS),
        _SlowToValidate("slow_to_validate", _answer, heartbeat_seconds=HEARTBEAT_SECONDS),
        FakeTool("ask", _answer, asks=True, heartbeat_seconds=HEARTBEAT_SECONDS),
    ]


async def _answer(arguments: dict[str, Any], run: Run) -> str:
    return "done"


class _Dying(HoldfastPlugin):
    """A worker that is killed where the test wants it: around what it records of an effect."""

    @cached_property
    def ledger(self) -> Ledger:
        made = super().ledger
        for name in ("record_intent", "record_result"):
            setattr(made, name, self._killed_around(name, getattr(made, name)))
        return made

    def _killed_around(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def around(*arguments: Any, **more: Any) -> Any:
            self._die_if_told(f"before-{name}")
            made = await method(*arguments, **more)
            self._die_if_told(f"after-{name}")
            return made

        return around

    def _die_if_told(self, point: str) -> None:
        mark = self.settings.data / f"die-{point}"
        if not mark.exists():
            return
        times = int(mark.read_text())
        mark.unlink()
        if times == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        mark.write_text(str(times - 1))


async def _main(address: str, queue: str, data: Path, workspace: Path) -> None:
    settings = Settings(data=data, workspace=workspace, task_queue=queue)
    client = await Client.connect(address, plugins=[_Dying(settings, tools=tools(workspace))])
    await run_worker(client, settings, say=lambda line: print(line, flush=True))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
