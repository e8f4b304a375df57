"""Following a turn without a terminal: a line per event, or JSON lines. And the list of turns.

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

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.client.watch import WatchItem
from holdfast.domain.calls.events import Event
from holdfast.domain.turn.activity_io import LiveOutput
from holdfast.domain.turn.turn_io import TURN_WORKFLOW, TurnResult
from holdfast.errors import ServerUnavailable
from holdfast.names import STATE_ATTRIBUTE
from holdfast.workers.terminal import render
from holdfast.workers.terminal.approval_text import format_decide_command
from holdfast.workers.terminal.event_lines import EventTeller
from holdfast.workers.terminal.output import print_json, print_note

QUIET_SECONDS = 6.0
"""After this long without any event, print that no worker seems to run."""
CONCURRENT_QUERIES = 20
OUTCOME_SECONDS = 3.0
"""For the outcomes of all listed turns together; a turn whose outcome is not known by then has just ended."""


class LinePrinter:
    """What happens in one turn, a line per event, and the live output as it grows."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: dict[str, int] = {}
        self._asked: set[str] = set()
        self._teller = EventTeller()

    def print_item(self, item: WatchItem) -> None:
        """Print an item; some print nothing."""
        if isinstance(item, LiveOutput):
            for row in _list_new_lines(item, self._seen):
                self._console.print(Text(f"          {item.call_id:6} │ ").append_text(row), soft_wrap=True)
            return
        if line := self._teller.render_event(item):
            render.print_line(self._console, line)
        if item.approval_id and item.approval_id not in self._asked:
            self._asked.add(item.approval_id)
            self._console.print(
                f"          waits: {format_decide_command(item.approval_id, item.asks)}", soft_wrap=True
            )
        self._console.file.flush()


async def follow_lines(turn: Turn) -> bool:
    """Print a line per event and the live output as it grows; False when the viewer left before the end."""
    lines = LinePrinter(render.build_console())

    async def print_items() -> None:
        async for item in turn.watch():
            silence.cancel()
            lines.print_item(item)

    silence = asyncio.create_task(mention_silence(turn))
    with catch_interrupt() as left:
        try:
            return await run_unless_left(left, print_items())
        finally:
            silence.cancel()


async def follow_json(turn: Turn) -> None:
    """One JSON line per item, until the turn ends."""
    async for item in turn.watch():
        key = "event" if isinstance(item, Event) else "live_output"
        print_json({key: item.model_dump(mode="json")})


async def fetch_turns(holdfast: Holdfast, limit: int) -> list[dict[str, Any]]:
    """The newest turns, each with the state the server knows it by."""
    try:
        found = [
            item async for item in holdfast.client.list_workflows(f"WorkflowType = '{TURN_WORKFLOW}'", limit=limit)
        ]
    except RPCError as error:
        raise ServerUnavailable(f"the turns cannot be listed: {error.message}") from error
    outcomes = await _fetch_outcomes(
        holdfast, [item for item in found if item.status is WorkflowExecutionStatus.COMPLETED]
    )
    return [
        {
            "id": item.id,
            "state": outcomes.get(item.id) or _format_state(item),
            "started": item.start_time.isoformat(timespec="seconds"),
            "ended": item.close_time.isoformat(timespec="seconds") if item.close_time else None,
        }
        for item in found
    ]


def _format_state(item: WorkflowExecution) -> str:
    """The state of a turn as the server lists it."""
    if item.status is WorkflowExecutionStatus.RUNNING:
        return item.typed_search_attributes.get(STATE_ATTRIBUTE) or "running"
    status = item.status.name.lower() if item.status else "unknown"
    return "ended" if status == "completed" else status


async def _fetch_outcomes(holdfast: Holdfast, ended: list[WorkflowExecution]) -> dict[str, str]:
    """How turns ended, by id; without those whose result is not there within OUTCOME_SECONDS."""
    found: dict[str, str] = {}
    room = asyncio.Semaphore(CONCURRENT_QUERIES)

    async def fetch_outcome(item: WorkflowExecution) -> None:
        handle = holdfast.client.get_workflow_handle(item.id, run_id=item.run_id, result_type=TurnResult)
        async with room:
            found[item.id] = (await handle.result()).status

    with suppress(TimeoutError):
        async with asyncio.timeout(OUTCOME_SECONDS):
            await asyncio.gather(*map(fetch_outcome, ended), return_exceptions=True)
    return found


@contextmanager
def catch_interrupt() -> Iterator[asyncio.Event]:
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


async def run_unless_left(left: asyncio.Event, work: Any) -> bool:
    """Run `work` until it ends; cancel it and return False when `left` is set first."""
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
    """Print after QUIET_SECONDS that no event came. Cancel it when one comes."""
    await asyncio.sleep(QUIET_SECONDS)
    print_note(
        f"No events of turn {turn.id} yet: does a worker run? Start one with `holdfast worker` or `holdfast up`."
    )


def _list_new_lines(output: LiveOutput, seen: dict[str, int]) -> list[Text]:
    """The lines of live output that were not shown yet."""
    grown = output.total - seen.get(output.call_id, 0)
    seen[output.call_id] = output.total
    shown = render.render_output(output)
    return list((shown[-grown:] if 0 < grown < len(shown) else shown).split("\n"))
