"""Child workflows that may have to be stopped."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.turn.turn_io import TURN_WORKFLOW, TurnInput, TurnResult
    from holdfast.util.redaction import Redacted
    from holdfast.util.text import shorten_text


class ChildTurn:
    """A turn that another workflow runs.

    It is stopped as anybody would stop it: a stop of the child itself that meets its termination in one workflow task
    is an error inside of Temporal's core, and that task is tried again for ever.
    """

    def __init__(self, handle: workflow.ChildWorkflowHandle[Any, TurnResult]) -> None:
        self._handle = handle
        self._telling: set[asyncio.Task[None]] = set()

    async def result(self) -> TurnResult:
        """What it ends with."""
        return await self._handle

    def cancel(self) -> None:
        """Tell it to stop."""
        outside = workflow.get_external_workflow_handle(self._handle.id)
        self._start_sending(outside.cancel())

    def signal(self, name: str, body: Any) -> None:
        """Tell it something, if it still hears."""
        self._start_sending(self._handle.signal(name, body))

    async def signal_and_wait(self, name: str, body: Any) -> None:
        """The same, and wait until it is on its way."""
        try:
            await self._handle.signal(name, body)
        except FailureError as error:
            workflow.logger.info("The turn did not hear: %s", Redacted(error))

    def _start_sending(self, work: Any) -> None:
        task = asyncio.create_task(_ignore_ended(work))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


async def start_child_turn(input: TurnInput, turn_id: str, title: str) -> ChildTurn:
    """Start a turn as a child; FailureError when it cannot be."""
    handle: workflow.ChildWorkflowHandle[Any, TurnResult] = await workflow.start_child_workflow(
        TURN_WORKFLOW,
        input,
        id=turn_id,
        result_type=TurnResult,
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        static_summary=shorten_text(title, 120),
    )
    return ChildTurn(handle)


async def _ignore_ended(work: Any) -> None:
    try:
        await work
    except FailureError as error:
        workflow.logger.info("The turn has ended: %s", Redacted(error))
