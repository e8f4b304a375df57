"""Keeps background commands going while their turn or session is open, and ends them with it.

A supervisor ends a command that no worker attends to, and only this does so after the call of a background command. The
turn takes no part: the server is asked for its state, so commands also end with a terminated turn, and histories hold
nothing of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.process.command import run_to_end
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.supervised_run import CommandOwner, SupervisedRun
from holdfast.domain.turn.activity_io import BackgroundCommands
from holdfast.domain.turn.ids import find_family
from holdfast.names import BACKGROUND_ACTIVITY
from holdfast.util.redaction import Redacted

LOOK_SECONDS = 1.0
"""The interval for finding new background commands and renewing leases."""
RETRY_SECONDS = 1.0
"""The pause after an error of the server."""
_LOGGER = logging.getLogger(__name__)


class Attendant:
    """Attends to the background commands of one task queue on this host.

    Any number of workers of the host may do so at the same time; a command is stopped once.
    """

    def __init__(self, client: Client, runs: Runs, queue: str) -> None:
        """`queue` is the task queue of the host: workers of other queues and namespaces may share its data folder."""
        self._client = client
        self._runs = runs
        self._queue = queue
        self._attending: dict[str, asyncio.Task[None]] = {}

    async def attend(self) -> None:
        """Run until cancelled. Commands then go on for their lease, or until another worker attends."""
        try:
            while True:
                await self._attend_new()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for task in self._attending.values():
                task.cancel()

    @activity.defn(name=BACKGROUND_ACTIVITY)
    async def list_running(self, input: BackgroundCommands) -> list[str]:
        """The handles of those background commands of a turn that still run on this host.

        In a thread, so that heartbeats go on: it reads the folder of every background command once.
        """
        return await asyncio.to_thread(self._running, frozenset(input.handles), input.turn)

    def _running(self, names: frozenset[str], turn: str) -> list[str]:
        found = self._runs.list_owned().items()
        return [name for name, command in found if name in names and self._is_running_for(command, turn)]

    def _is_running_for(self, command: SupervisedRun, turn: str) -> bool:
        owner = command.record.owner
        return command.is_alive and owner is not None and self._is_ours(owner) and owner.family == find_family(turn)

    def _is_ours(self, owner: CommandOwner) -> bool:
        return (owner.namespace, owner.queue) == (self._client.namespace, self._queue)

    async def _attend_new(self) -> None:
        try:
            found = await asyncio.to_thread(self._runs.list_owned, frozenset(self._attending))
        except OSError as error:
            _LOGGER.warning("Background commands cannot be looked for: %s", Redacted(error))
            return
        for name, command in found.items():
            owner = command.record.owner
            if owner and self._is_ours(owner):
                task = self._attending[name] = asyncio.create_task(self._attend_command(command, owner))
                task.add_done_callback(self._build_callback(name))

    def _build_callback(self, name: str) -> Callable[[asyncio.Task[None]], None]:
        def forget_task(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error:
                _LOGGER.warning(
                    "Attending to background command %s failed, and begins again: %s", name, Redacted(error)
                )
            if error or self._runs.find(name) is None:  # an ended one that is kept for reading needs no attendant
                self._attending.pop(name, None)

        return forget_task

    async def _attend_command(self, command: SupervisedRun, owner: CommandOwner) -> None:
        """Attend to one command until it has ended or its owner has."""
        ending = asyncio.create_task(self._wait_for_owner(command, owner))
        try:
            while command.is_alive and not ending.done():
                command.renew_lease()
                await asyncio.wait({ending}, timeout=LOOK_SECONDS)
            if not owner.workflow or not await ending:
                return  # its lease ends it, or the sweep removes it
            await run_to_end(command.stop())
            await self._runs.remove_run(command.record.key)
        finally:
            ending.cancel()

    async def _wait_for_owner(self, command: SupervisedRun, owner: CommandOwner) -> bool:
        """Wait for the end of the owning workflow. False when the server does not know it: it may be another server."""
        if not owner.workflow:
            return await asyncio.Event().wait()
        while True:
            try:
                description = await self._client.get_workflow_handle(owner.workflow).describe()
                info = description.raw_description.workflow_execution_info
                of_chain = command.is_of_chain(info.first_run_id or info.execution.run_id)
                if description.status is not WorkflowExecutionStatus.RUNNING or not of_chain:
                    return True
                await self._wait_for_run(owner.workflow, info.execution.run_id)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return False
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait_for_run(self, workflow: str, run_id: str) -> None:
        """Wait for the end of this workflow run, by one long poll for its close event."""
        closing = self._client.get_workflow_handle(workflow, run_id=run_id).fetch_history_events(
            page_size=1,
            wait_new_event=True,
            event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT,
            skip_archival=True,
        )
        async for _ in closing:
            return
