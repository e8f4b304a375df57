"""The same turn on DBOS with PostgreSQL, without Temporal. It takes its orders on standard input, one per line."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from dbos import DBOS, DBOSConfig


@DBOS.step()
async def model(messages: list[str], count: int) -> list[str]:
    """A model that asks for `count` tools, then answers."""
    return [f"{number}" for number in range(count)] if len(messages) == 1 else []


@DBOS.step()
async def tool(name: str) -> str:
    """A tool that does nothing."""
    return "done"


@DBOS.workflow()
async def turn(count: int) -> list[str]:
    """Model, tools side by side, model."""
    messages = ["go"]
    while calls := await model(messages, count):
        messages += await asyncio.gather(*(tool(call) for call in calls))
    return messages


async def play(count: int) -> float:
    """Seconds that one turn took."""
    began = time.monotonic()
    handle = await DBOS.start_workflow_async(turn, count)
    await handle.get_result()
    return time.monotonic() - began


async def main() -> None:
    """Answer each order `{"count": …, "turns": …, "at_once": …}` with the seconds of each turn, and of all."""
    config: DBOSConfig = {"name": "bench", "system_database_url": sys.argv[2], "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        free, began = asyncio.Semaphore(order["at_once"]), time.monotonic()

        async def limited(count: int, free: asyncio.Semaphore = free) -> float:
            async with free:
                return await play(count)

        seconds = await asyncio.gather(*(limited(order["count"]) for _ in range(order["turns"])))
        print(json.dumps({"seconds": seconds, "all": time.monotonic() - began}), flush=True)
    DBOS.destroy()
