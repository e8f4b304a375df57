"""Following a turn where nobody can be asked: a line per event, or JSON lines. And the list of turns.

A viewer that leaves (Ctrl-C) changes nothing: the turn goes on.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.text import Text
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError

from holdfast.client import Holdfast, Turn
from holdfast.errors import ServerUnavailable
from holdfast.events import Event
from holdfast.turns import WORKFLOW, TurnResult
from holdfast.watching import WatchItem
from holdfast.work import LiveOutput
from holdfast.workers import render
from holdfast.workers.commands.options import emit, note
from holdfast.workers.questions import how_to_decide
from holdfast.workers.telling import Telling
from holdfast.workflows.attributes import STATE

QUIET_SECONDS = 6.0
"""After this long without any event, say that no worker seems to be there."""
AT_ONCE = 20
OUTCOME_SECONDS = 3.0
"""For the outcomes of all listed turns together; a turn whose outcome is not known by then has just ended."""


class Lines:
    """What happens in one turn, a line per event, and the live output as it grows."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: dict[str, int] = {}
        self._asked: set[str] = set()
        self._telling = Telling()

    def show(self, item: WatchItem) -> None:
        """Print what an item is worth."""
        if isinstance(item, LiveOutput):
            for row in _fresh(item, self._seen):
                self._console.print(Text(f"          {item.call_id:6} │ ").append_text(row), soft_wrap=True)
            return
        if line := self._telling.line(item):
            render.print_line(self._console, line)
        if item.approval_id and item.approval_id not in self._asked:
            self._asked.add(item.approval_id)
            self._console.print(f"          waits: {how_to_decide(item.approval_id, item.asks)}", soft_wrap=True)
        self._console.file.flush()


async def follow_lines(turn: Turn) -> bool:
    """Print a line per event and the live output as it grows; False when the viewer left before the end."""
    lines = Lines(render.console())

    async def work() -> None:
        async for item in turn.watch():
            silence.cancel()
            lines.show(item)

    silence = asyncio.create_task(mention_silence(turn))
    with interruption() as left:
        try:
            return await unless(left, work())
        finally:
            silence.cancel()


async def follow_json(turn: Turn) -> None:
    """One JSON line per item, until the turn ends."""
    async for item in turn.watch():
        key = "event" if isinstance(item, Event) else "live_output"
        emit({key: item.model_dump(mode="json")})


async def listed(holdfast: Holdfast, limit: int) -> list[dict[str, Any]]:
    """The newest turns, each with the state the server knows it by."""
    try:
        found = [item async for item in holdfast.client.list_workflows(f"WorkflowType = '{WORKFLOW}'", limit=limit)]
    except RPCError as error:
        raise ServerUnavailable(f"the turns cannot be listed: {error.message}") from error
    outcomes = await _outcomes(holdfast, [item for item in found if item.status is WorkflowExecutionStatus.COMPLETED])
    return [
        {
            "id": item.id,
            "state": outcomes.get(item.id) or _state(item),
            "started": item.start_time.isoformat(timespec="seconds"),
            "ended": item.close_time.isoformat(timespec="seconds") if item.close_time else None,
        }
        for item in found
    ]


def _state(item: WorkflowExecution) -> str:
    """The state of a turn as the server lists it."""
    if item.status is WorkflowExecutionStatus.RUNNING:
        return item.typed_search_attributes.get(STATE) or "running"
    status = item.status.name.lower() if item.status else "unknown"
    return "ended" if status == "completed" else status


async def _outcomes(holdfast: Holdfast, ended: list[WorkflowExecution]) -> dict[str, str]:
    """How turns ended, by id, as far as can be told soon."""
    found: dict[str, str] = {}
    room = asyncio.Semaphore(AT_ONCE)

    async def read(item: WorkflowExecution) -> None:
        handle = holdfast.client.get_workflow_handle(item.id, run_id=item.run_id, result_type=TurnResult)
        async with room:
            found[item.id] = (await handle.result()).status

    with suppress(TimeoutError):
        async with asyncio.timeout(OUTCOME_SECONDS):
            await asyncio.gather(*map(read, ended), return_exceptions=True)
    return found


@contextmanager
def interruption() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C sets, instead of ending the process."""
    left = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, left.set)
    try:
        yield left
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def unless(left: asyncio.Event, work: Any) -> bool:
    """Do the work; False when the viewer left before it was done."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.create_task(left.wait())
    await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    if task.done():
        task.result()
        return True
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return False


async def mention_silence(turn: Turn) -> None:
    """Say after a while that nobody answers. Cancel it once somebody does."""
    await asyncio.sleep(QUIET_SECONDS)
    note(f"Nothing heard of turn {turn.id} yet: does a worker run? Start one with `holdfast worker` or `holdfast up`.")


def _fresh(output: LiveOutput, seen: dict[str, int]) -> list[Text]:
    """The lines of live output that were not shown yet."""
    grown = output.total - seen.get(output.call_id, 0)
    seen[output.call_id] = output.total
    shown = render.output(output)
    return list((shown[-grown:] if 0 < grown < len(shown) else shown).split("\n"))
