"""Tools of an observed worker: they do what their argument says, and tell it in every place where a tool can."""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
from typing import Any

from temporalio import activity

from holdfast import Effect, Run, ToolFailure
from holdfast.testing import FakeTool

HEARTBEAT_SECONDS = 2


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    run.write(f"{arguments.get('say')}\n")
    return f"{arguments.get('say')}"


async def _fail(arguments: dict[str, Any], run: Run) -> str:
    raise ValueError(f"no {arguments.get('say')}")


async def _refuse(arguments: dict[str, Any], run: Run) -> str:
    raise ToolFailure(f"{arguments.get('say')}", f"never {arguments.get('say')}")


async def _leave(arguments: dict[str, Any], run: Run) -> str:
    raise SystemExit(f"{arguments.get('say')}")


async def _tell(arguments: dict[str, Any], run: Run) -> str:
    """In its own log, in a warning, in a thread and in a task that nobody waits for."""
    said = f"{arguments.get('say')}"
    logging.getLogger("a.tool").warning("it was given %s", said)
    logging.getLogger("a.tool").error(f"it was given {said}")
    logging.warning(f"it was given {said}")
    activity.logger.warning(f"it was given {said} %s", 1)
    warnings.warn(said, UserWarning, stacklevel=1)

    def broken() -> None:
        raise RuntimeError(said)

    async def unheard() -> None:
        raise RuntimeError(said)

    thread = threading.Thread(target=broken)
    thread.start()
    await asyncio.to_thread(thread.join)
    task = asyncio.create_task(unheard())
    await asyncio.wait({task})
    del task
    return said


async def _hang_once(arguments: dict[str, Any], run: Run) -> str:
    mark = run.workspace / f"{arguments['mark']}"
    if not mark.exists():
        mark.touch()
        await asyncio.Event().wait()
    return "done"


def tools() -> list[FakeTool]:
    """All of them."""
    seconds = HEARTBEAT_SECONDS
    return [
        FakeTool("echo", _echo, effect=Effect.READ, safe=True),
        FakeTool("ask", _echo, asks=True, safe=True),
        FakeTool("fail", _fail, effect=Effect.READ, safe=True),
        FakeTool("refuse", _refuse, effect=Effect.READ, safe=True),
        FakeTool("leave", _leave, effect=Effect.READ, safe=True),
        FakeTool("tell", _tell, effect=Effect.READ, safe=True),
        FakeTool("hang_once", _hang_once, effect=Effect.IDEMPOTENT, safe=True, heartbeat_seconds=seconds),
        FakeTool("once", _hang_once, effect=Effect.ONCE, safe=True, heartbeat_seconds=seconds),
    ]
