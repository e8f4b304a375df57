"""The client of the comparison, in a process of its own: plays turns of any subject and says how long each took.

    python -m tests.bench.peers.driver ADDRESS      # orders on standard input, one JSON object per line

An order names the subject, its task queue, how many calls a turn has, how many turns to play and how many at once.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from holdfast import Holdfast, HoldfastPlugin, TurnInput
from holdfast.testing import build_request, script_model

PATIENCE = 120.0
"""Seconds that one turn may take."""


@dataclass(frozen=True)
class Order:
    """What to play."""

    subject: str
    queue: str
    count: int
    turns: int
    at_once: int


class Driver:
    """Plays turns with one connection for the plain workflows and one with our plugin."""

    def __init__(self, plain: Client, ours: Client) -> None:
        self._plain = plain
        self._ours = ours

    async def play(self, order: Order) -> dict[str, Any]:
        """The seconds of each turn, of all of them, and what the server wrote for the last one."""
        free, began = asyncio.Semaphore(order.at_once), time.monotonic()
        ids = [uuid4().hex for _ in range(order.turns)]

        async def play_one(id: str) -> float:
            async with free:
                start = time.monotonic()
                async with asyncio.timeout(PATIENCE):
                    await self._choose(order)(order, id)
                return time.monotonic() - start

        seconds = await asyncio.gather(*map(play_one, ids))
        spent = time.monotonic() - began
        info = (await self._plain.get_workflow_handle(ids[-1]).describe()).raw_description.workflow_execution_info
        return {
            "seconds": seconds,
            "all": spent,
            "events": info.history_length,
            "bytes": info.history_size_bytes,
            "transitions": info.state_transition_count,
        }

    def _choose(self, order: Order) -> Callable[[Order, str], Awaitable[None]]:
        """How turns of this subject are played."""
        chosen = {"ask": self._play_asking, "holdfast": self._play_ours, "holdfast_ask": self._play_ours_asking}
        if order.subject == "holdfast_effect":
            return self._play_ours
        return chosen.get(order.subject, self._play_plain)

    async def _start_plain(self, order: Order, id: str) -> WorkflowHandle[Any, Any]:
        return await self._plain.start_workflow(order.subject, order.count, id=id, task_queue=order.queue)

    async def _play_plain(self, order: Order, id: str) -> None:
        await (await self._start_plain(order, id)).result()

    async def _play_asking(self, order: Order, id: str) -> None:
        handle = await self._start_plain(order, id)
        await poll(lambda: _is_waiting(handle))
        await handle.signal("approve", "0")
        await handle.result()

    async def _play_ours(self, order: Order, id: str) -> None:
        if order.subject == "holdfast_effect":
            input = TurnInput(batches=((build_request("once"),),))
        else:
            calls = [build_request("nothing") for _ in range(order.count)]
            input = TurnInput(prompt="go", model=script_model(calls, "done"))
        result = await (await Holdfast(self._ours, task_queue=order.queue).start(input, turn_id=id)).result()
        assert all(answer.status == "success" for batch in result.batches for answer in batch.responses), result

    async def _play_ours_asking(self, order: Order, id: str) -> None:
        holdfast = Holdfast(self._ours, task_queue=order.queue)
        turn = await holdfast.start(TurnInput(batches=((build_request("ask"),),)), turn_id=id)
        view = await poll(lambda: _find_waiting(turn))
        item = view.approvals[0]
        await holdfast.approve(item.approval_id, digest=item.digest)
        await turn.result()


async def poll(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Ask again every two milliseconds until the answer is true; that answer."""
    while True:
        if found := await condition():
            return found
        await asyncio.sleep(0.002)


async def _is_waiting(handle: WorkflowHandle[Any, Any]) -> bool:
    """Has its first workflow task been completed? A query would wait for that, sometimes for a second."""
    return not (await handle.describe()).raw_description.HasField("pending_workflow_task")


async def _find_waiting(turn: Any) -> Any:
    view = await turn.fetch_view()
    return view if view.approvals else None


async def main() -> None:
    """Answer each order with what was measured."""
    address = sys.argv[1]
    driver = Driver(await Client.connect(address), await Client.connect(address, plugins=[HoldfastPlugin()]))
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await driver.play(Order(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
