"""Following a turn without a screen: a line per event, its pending approvals alone, or JSON lines.

A viewer that leaves (Ctrl-C) changes nothing: the turn goes on.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.text import Text

from holdfast.client.turn import Turn
from holdfast.client.watch import WatchItem
from holdfast.domain.calls.events import Event
from holdfast.domain.turn.activity_io import LiveOutput
from holdfast.workers.terminal import render
from holdfast.workers.terminal.approval_text import format_decide_command
from holdfast.workers.terminal.event_lines import EventTeller
from holdfast.workers.terminal.output import print_json, print_note

QUIET_SECONDS = 6.0
"""After this long without any event, print that no worker seems to run."""
PrintItem = Callable[[WatchItem], None]


class ApprovalPrinter:
    """Prints, once for each pending approval of a turn, the command that decides on it."""

    def __init__(self, write: Callable[[str], None] = print_note) -> None:
        self._write = write
        self._printed: set[str] = set()

    def print_item(self, item: WatchItem) -> None:
        """Print the command for a new approval; nothing for other items."""
        if isinstance(item, Event) and item.approval_id and item.approval_id not in self._printed:
            self._printed.add(item.approval_id)
            self._write(f"waits: {format_decide_command(item.approval_id, item.asks)}")


class LinePrinter:
    """Prints a line for each event of a turn, and the live output of its calls as it grows."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: dict[str, int] = {}
        self._approvals = ApprovalPrinter(lambda text: console.print(f"          {text}", soft_wrap=True))
        self._teller = EventTeller()

    def print_item(self, item: WatchItem) -> None:
        """Print an item; some print nothing."""
        if isinstance(item, LiveOutput):
            for row in _list_new_lines(item, self._seen):
                self._console.print(Text(f"          {item.call_id:6} │ ").append_text(row), soft_wrap=True)
            return
        if line := self._teller.render_event(item):
            render.print_line(self._console, line)
        self._approvals.print_item(item)
        self._console.file.flush()


def print_item_as_json(item: WatchItem) -> None:
    """Print an item as one line of JSON."""
    key = "event" if isinstance(item, Event) else "live_output"
    print_json({key: item.model_dump(mode="json")})


async def watch_turn(turn: Turn, print_item: PrintItem) -> None:
    """Print every item until the turn ends; a note on standard error if none comes for QUIET_SECONDS."""
    silence = asyncio.create_task(_mention_silence(turn))
    try:
        async for item in turn.watch():
            silence.cancel()
            print_item(item)
    finally:
        silence.cancel()


async def follow_turn(turn: Turn, print_item: PrintItem) -> bool:
    """As `watch_turn`; False when the viewer left before the end."""
    with catch_interrupt() as left:
        return await run_unless_left(left, watch_turn(turn, print_item))


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


async def _mention_silence(turn: Turn) -> None:
    """Print after QUIET_SECONDS that no event came."""
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
