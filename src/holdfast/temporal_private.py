"""Private names of temporalio that Holdfast uses, each with the reason. No other module touches one.

tests/unit/test_temporal_private.py and tests/integration/workers/test_temporal_private.py fail when one of them does
something else, and pyproject.toml admits only minor versions that these tests have passed with: raise the bound
together with them. A change that makes a name public is wanted upstream in each case. Why:
docs/decisions/0022-private-sdk-names.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import ExternalStorageReference
from temporalio.converter import DataConverter, ExternalStorage, StorageDriver

if TYPE_CHECKING:
    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer, Worker, WorkflowReplayResult  # half of the time that a user's command takes

REFERENCE_MARKER = "__temporal_external_storage_reference"
"""The metadata key of a payload that is an encoded reference to external storage."""


def lift_deadlock_limit(worker: Worker) -> None:
    """Let a workflow activation of this worker take as long as it needs, instead of two seconds.

    The SDK's detector (TMPRL1101) takes a thread that got no processor for two seconds for a deadlock. It raises an
    exception into workflow code at an arbitrary place, which can leave a run that is never evicted and never taken up
    again; and from the second attempt on it reports nothing to the server, so that the task times out ever more slowly.
    Busy hosts, throttled containers and laptops that slept do that to every turn. Call it before the worker runs.
    """
    workflows = worker._workflow_worker
    if workflows is not None:
        workflows._deadlock_timeout_seconds = None


async def replay_within(replayer: Replayer, history: WorkflowHistory, seconds: float) -> WorkflowReplayResult:
    """Replay a history. Each activation may take so many seconds instead of two; one that takes longer is interrupted.

    TimeoutError when the replay does not end within this time. The replayer has no plugins.
    """

    async def histories() -> AsyncIterator[WorkflowHistory]:
        yield history

    opening: Any = replayer.workflow_replay_iterator(histories())
    async with asyncio.timeout(seconds), opening as results:
        # The worker of a replayer is a variable of the generator behind this block. It has got no history yet.
        opening.gen.ag_frame.f_locals["workflow_worker"]._deadlock_timeout_seconds = seconds
        result: WorkflowReplayResult = await anext(results)
        return result


class OpenDataConverter(DataConverter):
    """A data converter in which a subclass can override how encoded references to external storage are decoded.

    The SDK decodes them before any application code runs, and an error there fails the workflow task for ever.
    """

    async def unmark_references(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads, each encoded reference decoded. RuntimeError for a mark on what is no reference."""
        return await super()._decode_reference_payload_sequence(payloads)

    async def _decode_reference_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self.unmark_references(payloads)


class OpenExternalStorage(ExternalStorage):
    """External storage in which a subclass can override each step of reading a payload.

    The SDK reads every reference of a message before any application code runs, and an error there fails the workflow
    task for ever.
    """

    def decode_reference(self, payload: Payload) -> ExternalStorageReference | None:
        """Return the reference that a payload holds, or None. Raises for a reference that cannot be parsed."""
        return super()._decode_reference(payload)

    def get_driver(self, name: str) -> StorageDriver:
        """Return the driver with this name. ValueError when there is none."""
        return super()._get_driver_by_name(name)

    async def retrieve_all(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads that the references of one message lead to, and its other payloads as they are."""
        return await super()._retrieve_payload_sequence(payloads)

    def _decode_reference(self, payload: Payload) -> ExternalStorageReference | None:
        return self.decode_reference(payload)

    def _get_driver_by_name(self, name: str) -> StorageDriver:
        return self.get_driver(name)

    async def _retrieve_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self.retrieve_all(payloads)


def decode_reference(storage: ExternalStorage, payload: Payload) -> ExternalStorageReference | None:
    """Return the reference that a payload holds, or None, as this storage reads it."""
    return storage._decode_reference(payload)


async def retrieve_payload(storage: ExternalStorage, payload: Payload) -> Payload:
    """Return the payload that a reference leads to in this storage; any other payload as it is."""
    return await storage._retrieve_payload(payload)
