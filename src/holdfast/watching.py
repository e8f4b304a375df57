"""Watching a turn without touching it: a long poll of its history says when to look, a query says what changed.

Live output is in no history; it is read from the heartbeats that `describe` shows, and only while something runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import TurnNotFound
from holdfast.events import Event, EventPage
from holdfast.turns import LiveOutput

WatchItem = Event | LiveOutput

LIVE_SECONDS = 0.5
RETRY_SECONDS = 0.5
QUERY_TIMEOUT = timedelta(seconds=10)

_TELLING = {
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
}
"""The history events after which there may be something new to see."""
_ENDINGS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
}


async def watch(client: Client, turn_id: str, after: int = 0) -> AsyncIterator[WatchItem]:
    """Events after `after` and live output, until the turn ends. Survives restarts of worker and server."""
    handle = client.get_workflow_handle(turn_id)
    poll = _Poll(handle)
    polling = asyncio.create_task(poll.run())
    executing: set[str] = set()
    shown: dict[str, int] = {}
    try:
        while True:
            ended = poll.ended
            poll.news.clear()
            page = await _look(handle, after)
            if page is None and ended:
                return
            for event in page.events if page else ():
                after = event.seq
                _follow(executing, event)
                yield event
            if page and page.finished and not page.more:
                return
            if page and page.more:
                continue
            if executing:
                for output in await _new_output(client, handle, shown):
                    yield output
            patience = RETRY_SECONDS if page is None else LIVE_SECONDS if executing else None
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await poll.news.wait()
            if poll.failed:
                raise poll.failed
    finally:
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling


async def live_outputs(client: Client, description: WorkflowExecutionDescription) -> list[LiveOutput]:
    """The live output of every running call, from its last heartbeat."""
    found = []
    for pending in description.raw_description.pending_activities:
        if pending.heartbeat_details.payloads:
            with suppress(Exception):  # other people's activities may heartbeat anything
                [output] = await client.data_converter.decode(pending.heartbeat_details.payloads, [LiveOutput])
                found.append(output)
    return found


class _Poll:
    """The long poll of one turn's history."""

    def __init__(self, handle: WorkflowHandle[object, object]) -> None:
        self.news = asyncio.Event()
        self.ended = False
        self.failed: Exception | None = None
        self._handle = handle

    async def run(self) -> None:
        """Set `news` whenever there may be something to see; go on after any interruption."""
        while not self.ended:
            try:
                async for event in self._handle.fetch_history_events(wait_new_event=True, skip_archival=True):
                    self.ended = self.ended or event.event_type in _ENDINGS
                    if event.event_type in _TELLING or self.ended:
                        self.news.set()
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    self.failed = TurnNotFound(f"no turn is called {self._handle.id!r}")
                    self.news.set()
                    return
                await asyncio.sleep(RETRY_SECONDS)


async def _look(handle: WorkflowHandle[object, object], after: int) -> EventPage | None:
    """The next page of events; None when nobody can answer just now."""
    try:
        page: EventPage = await handle.query("events", after, result_type=EventPage, rpc_timeout=QUERY_TIMEOUT)
        return page
    except Exception:
        return None


async def _new_output(
    client: Client, handle: WorkflowHandle[object, object], shown: dict[str, int]
) -> list[LiveOutput]:
    """Live output that has grown since it was last shown."""
    try:
        description = await handle.describe()
    except RPCError:
        return []
    if description.status is not WorkflowExecutionStatus.RUNNING:
        return []
    outputs = await live_outputs(client, description)
    fresh = [output for output in outputs if shown.get(output.call_id) != output.total]
    shown.update({output.call_id: output.total for output in fresh})
    return fresh


def _follow(executing: set[str], event: Event) -> None:
    if event.kind == "call" and event.call:
        (executing.add if event.after == "executing" else executing.discard)(event.call)
