"""Looks up how a turn was started, as the server recorded it: this bounds its calls, whatever their input says (S22).

The input of an activity is written by a worker of the turn. The start event is written by whoever started the turn, and
never changes.
"""

from __future__ import annotations

from collections import OrderedDict

from pydantic import ValidationError
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import WorkflowExecutionStartedEventAttributes
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.base import Data, UnreadablePayload
from holdfast.domain.modes import Confirming
from holdfast.errors import PayloadUnreadable

MAX_KNOWN = 1_000
"""The number of cached starts of turns."""
_UNKNOWN_RUN = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)


class TurnStart(Data):
    """The part of a turn's input that bounds its calls."""

    tools: tuple[str, ...] | None = None
    """Names and patterns of the tools that it may call; None for all."""
    confirm: Confirming = Confirming.POLICY


class TurnStarts:
    """Looks up how turns were started: once for each run of a turn."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, str], TurnStart | None] = OrderedDict()

    async def find(self, turn_id: str, run_id: str) -> TurnStart | None:
        """Find how the turn of this run was started; None for a run that the server does not know, or that is no turn.

        Raises RPCError when the server does not answer, and PayloadUnreadable when the turn's input cannot be read
        here: then the bounds are not known, and the activity's input is no substitute.
        """
        key = (turn_id, run_id)
        if key not in self._known:
            self._known[key] = await self._fetch_start(turn_id, run_id)
        self._known.move_to_end(key)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return self._known[key]

    async def _fetch_start(self, turn_id: str, run_id: str) -> TurnStart | None:
        started = await self._fetch_started_event(turn_id, run_id)
        if started is None:
            return None
        first = started.first_execution_run_id
        if first and first != run_id:  # continued as new: the later runs were started by the turn itself
            started = await self._fetch_started_event(turn_id, first) or started
        given = await self._client.data_converter.decode(started.input.payloads[:1])
        if given and isinstance(given[0], UnreadablePayload) and given[0].gone:
            raise PayloadUnreadable(given[0].reason)
        try:
            return TurnStart.model_validate(*given)
        except (TypeError, ValidationError):
            return None  # not the input of a turn, so nothing that Holdfast started

    async def _fetch_started_event(self, turn_id: str, run_id: str) -> WorkflowExecutionStartedEventAttributes | None:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=turn_id, run_id=run_id),
            maximum_page_size=1,
        )
        try:
            response = await self._client.workflow_service.get_workflow_execution_history(request, retry=True)
        except RPCError as error:
            if error.status in _UNKNOWN_RUN:
                return None
            raise
        first = next(iter(response.history.events), None)
        if first is None or first.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            return None
        return first.workflow_execution_started_event_attributes
