"""What the histories of a namespace need of what is stored outside them: payloads and whole outputs.

Read from every run that the server has, of any workflow type, open or closed, with its memo and its heartbeats, and
from schedules and standalone activities, whose inputs may be stored too. Runs that start meanwhile are read as well.
Payloads are named by references, which are not encrypted; outputs are named inside payloads, which are therefore
decrypted. A payload that cannot be decoded is a problem: then the result is incomplete.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import Header, Payload, SearchAttributes
from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.history.v1 import MarkerRecordedEventAttributes
from temporalio.api.workflowservice.v1 import (
    DescribeActivityExecutionRequest,
    DescribeScheduleRequest,
    DescribeWorkflowExecutionRequest,
)
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.error_mapping import translate_error
from holdfast.errors import BadInput, KeyMissing, PayloadUnreadable
from holdfast.payloads.converter import TolerantConverter, explain_unreadable
from holdfast.payloads.encryption import find_key_id
from holdfast.util.text import shorten_text

OUTPUT_NAME = re.compile(rb"[0-9a-f]{64}\.[a-z0-9]{2,4}(?![0-9a-z])")
_CLAIM_NAMES = ("sha256", "key", "object_name")
"""The fields of the drivers' claims that name a payload."""
_ACTIVITY_QUERY = "ActivityType != 'holdfast.output'"
"""Standalone activities that may have stored a payload; those that ask workers never do."""

Progress = Callable[[int], None]


@dataclass
class NamespaceUsage:
    """What a namespace needs, and the problems of finding it."""

    stored: set[tuple[str, str]] = field(default_factory=set)
    """The driver and the name of every stored payload that is referred to."""
    outputs: set[str] = field(default_factory=set)
    """The names of whole outputs that are mentioned."""
    keys: Counter[str | None] = field(default_factory=Counter)
    """How many payloads each key has encrypted; None for those that are not encrypted."""
    open_keys: Counter[str | None] = field(default_factory=Counter)
    """The same of running workflows and of schedules."""
    runs: int = 0
    troubles: list[str] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    """The problems for lack of a key: outputs may be needed that are not known."""


class _KeyMissing(PayloadUnreadable):
    """A payload cannot be decrypted for lack of a key."""


class NamespaceReader:
    """Reads what a namespace needs."""

    def __init__(self, client: Client, *, progress: Progress = lambda runs: None) -> None:
        converter = client.data_converter
        if not isinstance(converter, TolerantConverter):
            raise BadInput("this client has another data converter than Holdfast's, whose references are unknown")
        self._client = client
        self._converter = converter
        self._progress = progress
        self._seen: set[str] = set()
        self.found = NamespaceUsage()

    async def read(self) -> NamespaceUsage:
        """Read everything. HoldfastError when the server does not answer to the end."""
        try:
            await self._read_runs()
            await self._read_schedules()
            await self._read_activities()
            await self._read_runs()
        except RPCError as error:
            raise translate_error(error, self._client.namespace, "namespace") from error
        return self.found

    async def _read_runs(self) -> None:
        """Read the runs that were not read yet."""
        async for run in self._client.list_workflows(page_size=200):
            if run.run_id not in self._seen:
                self._seen.add(run.run_id)
                await self._read_run(run)
                self.found.runs += 1
                self._progress(self.found.runs)

    async def _read_run(self, run: WorkflowExecution) -> None:
        where = f"workflow {run.id!r}, run {run.run_id}"
        going = run.status is WorkflowExecutionStatus.RUNNING
        handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
        await self._read_message(where, going, run.raw_info)
        try:
            if going:
                await self._read_message(where, going, await self._fetch_description(run))
            async for event in handle.fetch_history_events(page_size=500):
                await self._read_message(where, going, event)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it may be past its retention since it was listed
                raise

    async def _fetch_description(self, run: WorkflowExecution) -> Message:
        execution = Execution(workflow_id=run.id, run_id=run.run_id)
        return await self._client.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(namespace=self._client.namespace, execution=execution), retry=True
        )

    async def _read_schedules(self) -> None:
        async for listed in await self._client.list_schedules(page_size=200):
            try:
                found = await self._client.workflow_service.describe_schedule(
                    DescribeScheduleRequest(namespace=self._client.namespace, schedule_id=listed.id), retry=True
                )
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    continue
                raise
            await self._read_message(f"schedule {listed.id!r}", True, found)

    async def _read_activities(self) -> None:
        async for listed in self._list_standalone():
            asked = DescribeActivityExecutionRequest(
                namespace=self._client.namespace,
                activity_id=listed.activity_id,
                run_id=listed.activity_run_id or "",
                include_input=True,
                include_outcome=True,
            )
            try:
                found = await self._client.workflow_service.describe_activity_execution(asked, retry=True)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    continue
                raise
            await self._read_message(f"activity {listed.activity_id!r}", False, found)

    async def _list_standalone(self) -> AsyncIterator[Any]:
        """The standalone activities, if the server has any."""
        try:
            async for listed in self._client.list_activities(_ACTIVITY_QUERY, page_size=200):
                yield listed
        except RPCError as error:
            if error.status is not RPCStatusCode.UNIMPLEMENTED:
                raise

    async def _read_message(self, where: str, going: bool, message: Message) -> None:
        for payload in list_payloads(message):
            try:
                await self._read_payload(payload, going)
            except PayloadUnreadable as error:
                troubles = self.found.locked if isinstance(error, _KeyMissing) else self.found.troubles
                troubles.append(f"{where}: {shorten_text(str(error), 300)}")

    async def _read_payload(self, payload: Payload, going: bool) -> None:
        reference = await self._converter.find_reference(payload)
        if reference:
            names = [reference.claim_data[name] for name in _CLAIM_NAMES if name in reference.claim_data]
            self.found.stored.update((reference.driver_name, name) for name in names)
        stored = await self._converter.fetch_payload(payload)
        if not explain_unreadable(stored):
            self.found.keys[find_key_id(stored)] += 1
            self.found.open_keys[find_key_id(stored)] += going
        try:
            opened = await self._converter.decrypt_payload(stored)
        except KeyMissing as error:
            raise _KeyMissing(str(error)) from None
        if why := explain_unreadable(opened):
            encrypted = find_key_id(stored) is not None
            raise _KeyMissing(why) if encrypted else PayloadUnreadable(why)
        self.found.outputs.update(name.decode() for name in OUTPUT_NAME.findall(opened.data))


async def read_namespaces(clients: Iterable[Client], *, progress: Progress = lambda runs: None) -> NamespaceUsage:
    """Read what several namespaces need together."""
    whole = NamespaceUsage()
    for client in clients:
        found = await NamespaceReader(client, progress=progress).read()
        whole.stored |= found.stored
        whole.outputs |= found.outputs
        whole.keys += found.keys
        whole.open_keys += found.open_keys
        whole.runs += found.runs
        whole.troubles += found.troubles
        whole.locked += found.locked
    return whole


def list_payloads(message: Message) -> Iterator[Payload]:
    """Yield every payload in a message that a codec has encoded, however deep.

    Search attributes, headers, and what Temporal's core adds to a local activity are not encoded.
    """
    if isinstance(message, Payload):
        yield message
    elif not isinstance(message, SearchAttributes | Header):
        yield from (payload for inner in _list_inner(message) for payload in list_payloads(inner))


def _list_inner(message: Message) -> Iterator[Message]:
    if isinstance(message, MarkerRecordedEventAttributes):
        core = message.marker_name.startswith("core_")
        yield from (one for name, one in message.details.items() if not core or name == "result")
        yield message.failure
        return
    for described, value in message.ListFields():
        if described.message_type is None:
            continue
        several = value.values() if described.message_type.GetOptions().map_entry else value
        yield from (one for one in ([value] if isinstance(value, Message) else several) if isinstance(one, Message))
