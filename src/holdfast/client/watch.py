"""Watching a turn without adding to its history: a long poll of the history waits for changes, a query reads them.

Live output is not in the history; it is read from the heartbeats in `describe`, and only while a call runs. All
watchers of one turn in a process share one feed, so the hundredth costs the server no more than the first.

Why: docs/decisions/0019-watching-adds-no-event.md.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.queries import query_turn
from holdfast.domain.calls.events import Event, EventPage
from holdfast.domain.turn.activity_io import LiveOutput, is_model_call
from holdfast.errors import NoWorker, PayloadUnreadable, TurnNotFound
from holdfast.names import TurnQuery

WatchItem = Event | LiveOutput

LIVE_SECONDS = 0.4
RETRY_SECONDS = 0.5
ENDED_SECONDS = 10.0
"""How long an ended turn is queried for its last events, after the first query without an answer."""

_ENDINGS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
}
_NEWS_EVENTS = {EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, *_ENDINGS}
"""The history events after which the turn may have new events."""


class TurnFeeds:
    """The feeds of one client. A feed lives while somebody watches its turn."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._feeds: dict[str, _TurnFeed] = {}
        self._watchers: dict[str, int] = {}

    async def watch(self, turn_id: str, after: int = 0) -> AsyncIterator[WatchItem]:
        """Yield events with a sequence number above `after`, and live output, until the turn ends; survives
        restarts.
        """
        shown: dict[str, int] = {}
        async with self._open_feed(turn_id) as feed:
            while True:
                change = feed.change
                for event in feed.events[max(0, after) :]:
                    after = event.seq
                    yield event
                for output in list(feed.outputs.values()):
                    if shown.get(output.call_id) != output.total:
                        shown[output.call_id] = output.total
                        yield output
                if feed.failed:
                    raise feed.failed
                if feed.finished and after >= len(feed.events):
                    return
                await change.wait()

    @asynccontextmanager
    async def _open_feed(self, turn_id: str) -> AsyncIterator[_TurnFeed]:
        feed = self._feeds.get(turn_id)
        if feed is None:
            feed = self._feeds[turn_id] = _TurnFeed(self._client, turn_id)
        self._watchers[turn_id] = self._watchers.get(turn_id, 0) + 1
        try:
            yield feed
        finally:
            self._watchers[turn_id] -= 1
            if not self._watchers[turn_id]:
                del self._feeds[turn_id], self._watchers[turn_id]
                await feed.close()


class _TurnFeed:
    """The events and live outputs of one turn, kept up to date."""

    def __init__(self, client: Client, turn_id: str) -> None:
        self.events: list[Event] = []
        self.outputs: dict[str, LiveOutput] = {}
        self.finished = False
        self.failed: Exception | None = None
        self.change = asyncio.Event()
        self._client = client
        self._handle: WorkflowHandle[object, object] = client.get_workflow_handle(turn_id)
        self._news = asyncio.Event()
        self._ended = False
        self._executing: set[str] = set()
        self._thinking = False
        self._earlier: str | None = None
        """The earlier run of the turn whose events are being read."""
        self._tasks = [asyncio.create_task(self._poll_history()), asyncio.create_task(self._follow_turn())]

    async def close(self) -> None:
        """Stop polling."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _poll_history(self) -> None:
        """Set `_news` whenever the history grows; start again after any interruption."""
        while not self._ended:
            try:
                async for event in self._handle.fetch_history_events(wait_new_event=True, skip_archival=True):
                    self._ended = self._ended or event.event_type in _ENDINGS
                    if event.event_type in _NEWS_EVENTS:
                        self._news.set()
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    self.failed = TurnNotFound(f"no turn is called {self._handle.id!r}")
                    self._notify_watchers()
                    return
                await asyncio.sleep(RETRY_SECONDS)

    async def _follow_turn(self) -> None:
        """Query the turn when there is news, and read heartbeats while a call runs."""
        await self._news.wait()
        deadline = math.inf
        while not self.finished:
            ended = self._ended
            self._news.clear()
            seen = await self._fetch_news()
            if ended and not seen:
                deadline = min(deadline, time.monotonic() + ENDED_SECONDS)
                if time.monotonic() >= deadline:
                    what = f"turn {self._handle.id!r} has ended, and no worker answers for its events"
                    self.failed = NoWorker(what)
            if seen or self.failed:
                self.finished = self.finished or ended
                self._notify_watchers()
            if self._is_live and not self.finished:
                await self._read_live_output()
            patience = LIVE_SECONDS if self._is_live else None if seen else RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._news.wait()

    @property
    def _is_live(self) -> bool:
        """Does a call run, or the model write?"""
        return self._thinking or bool(self._executing)

    async def _fetch_news(self) -> bool:
        """Read the events since the last query; False when no worker answers."""
        while True:
            try:
                page = await self._fetch_page()
            except PayloadUnreadable as error:  # a retry would not help
                self.failed, self.finished = error, True
                return True
            except Exception:
                return False
            for event in page.events:
                self._note_event(event)
            if not page.more:
                self.finished = page.finished
                return True

    async def _fetch_page(self) -> EventPage:
        """The next events, from the run of the turn that has them."""
        page = await self._ask_run(self._earlier)
        if page.earlier:
            self._earlier = page.earlier
            page = await self._ask_run(self._earlier)
        if self._earlier is None:
            return page
        self._earlier = self._earlier if page.more else None
        return page.model_copy(update={"more": True, "finished": False})

    async def _ask_run(self, run_id: str | None) -> EventPage:
        after = len(self.events)
        return await query_turn(
            self._client, self._handle.id, TurnQuery.EVENTS, after, result_type=EventPage, run_id=run_id
        )

    def _note_event(self, event: Event) -> None:
        self.events.append(event)
        if event.kind == "model" or (event.kind == "turn" and event.after == "interrupted"):
            self._thinking = event.after == "thinking"
            self.outputs = {call: output for call, output in self.outputs.items() if not is_model_call(call)}
        if event.kind == "call" and event.call:
            if event.after == "executing":
                self._executing.add(event.call)
            else:
                self._executing.discard(event.call)
                self.outputs.pop(event.call, None)

    async def _read_live_output(self) -> None:
        """Read the live output of running calls."""
        try:
            description = await self._handle.describe()
        except RPCError:
            return
        for output in await read_live_outputs(self._client, description):
            known = self.outputs.get(output.call_id)
            runs = output.call_id in self._executing or (self._thinking and is_model_call(output.call_id))
            if runs and (known is None or known.total != output.total):
                self.outputs[output.call_id] = output
                self._notify_watchers()

    def _notify_watchers(self) -> None:
        rung, self.change = self.change, asyncio.Event()
        rung.set()


async def read_live_outputs(client: Client, description: WorkflowExecutionDescription) -> list[LiveOutput]:
    """Return the live output of every running call, from its last heartbeat."""
    found = []
    for pending in description.raw_description.pending_activities:
        if pending.heartbeat_details.payloads:
            with suppress(Exception):  # activities of other programs may heartbeat anything
                [output] = await client.data_converter.decode(pending.heartbeat_details.payloads, [LiveOutput])
                found.append(output)
    return found
