"""Tools for a worker in a process of its own that say what they were told, in every way there is."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Effect, Run
from holdfast.domain.calls.tool import ToolFailure
from holdfast.testing import FakeTool

CANARIES = {
    place: f"canary-{place}-Zk7Qp2"
    for place in (
        "argument", "output", "live", "error", "exception", "prompt", "reply", "note", "answer", "changed", "person",
        "message", "title", "long", "failure", "delegated", "refusal", "summary", "command",
    )
}  # fmt: skip
"""A word for every place where people, models and tools say something."""


async def _speak(arguments: dict[str, Any], run: Run) -> str:
    """Says something, and waits until the test lets it go on."""
    run.write(f"{CANARIES['live']}\n" * 50)
    mark = run.workspace / "begun"
    mark.touch()
    while not await asyncio.to_thread((run.workspace / "go").exists):  # noqa: ASYNC110 - a file gives no notice
        await asyncio.sleep(0.05)
    return CANARIES["output"]


async def _long(arguments: dict[str, Any], run: Run) -> str:
    return f"{CANARIES['long']} " * 1_500


async def _fail(arguments: dict[str, Any], run: Run) -> str:
    raise ToolFailure("broken", CANARIES["error"])


async def _explode(arguments: dict[str, Any], run: Run) -> str:
    try:
        raise LookupError(CANARIES["exception"])
    except LookupError as error:
        raise RuntimeError(CANARIES["exception"]) from error


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


def tools() -> list[FakeTool]:
    """All of them."""
    return [
        FakeTool("speak", _speak, effect=Effect.IDEMPOTENT, heartbeat_seconds=3),
        FakeTool("long", _long, safe=True),
        FakeTool("fail", _fail, safe=True),
        FakeTool("explode", _explode, safe=True),
        FakeTool("asks", _echo, asks=True, safe=True),
    ]
