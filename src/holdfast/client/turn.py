"""One turn as a client changes it: decisions, further batches, interrupts, cancellation.

Why: docs/decisions/0004-decisions-by-update-and-signal.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from temporalio.client import (
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.error_mapping import translate_error, translate_refusal
from holdfast.client.turn_reader import TurnReader
from holdfast.client.workflow_connection import get_login_name
from holdfast.domain.approvals.approval import ApprovalId, Decision
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.base import StrictData, describe_problems
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.modes import Mode
from holdfast.domain.turn.turn_io import BatchResult, check_batch, check_size
from holdfast.domain.turn.update_bodies import (
    AddCalls,
    AddCallsResult,
    BatchAddress,
    CallAddress,
    DecisionResult,
    EditingNotice,
    GrantAddress,
    Interruption,
    ModeChange,
    SetModeResult,
    SubmitBatch,
    SubmitResult,
)
from holdfast.errors import BadInput, DecisionRefused
from holdfast.names import TurnSignal, TurnUpdate
from holdfast.util.json_values import digest_canonical

M = TypeVar("M", bound=StrictData)

UPDATE_SECONDS = 5.0
"""How long a decision waits for the answer to its update before it is sent as a signal."""

TRY_SIGNAL = {
    RPCStatusCode.FAILED_PRECONDITION,  # the limit of updates per run
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.UNAVAILABLE,
}
"""The errors of an update after which a decision is sent as a signal."""


class Turn(TurnReader):
    """A handle to one turn, made by `Holdfast.start`, `Holdfast.get_turn` or a session.

    Updates are answered by a worker: methods that send one raise NoWorker when none answers within ten seconds. The
    update may still take effect when a worker is back. They raise RequestRefused when the turn does not accept it.
    """

    async def decide(self, decision: Decision, *, seconds: float = UPDATE_SECONDS) -> DecisionResult | None:
        """Send a decision that `Holdfast.prepare_decision` or another program made. Returns and raises what
        `Holdfast.decide` does.

        The same decision sent twice counts once, and the second call returns the status of the call.
        """
        try:
            async with asyncio.timeout(seconds):
                update_id = digest_canonical([decision.approval_id, decision.key])
                taken = await self._handle.execute_update(
                    TurnUpdate.DECIDE, decision, id=update_id, result_type=DecisionResult
                )
                return cast(DecisionResult, taken)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            pass
        except WorkflowUpdateFailedError as error:
            refused = translate_refusal(error, DecisionRefused)
            if refused.code != "already_counted":
                raise refused from None
            call = await self.fetch_call(ApprovalId.parse(decision.approval_id).call)
            return DecisionResult(call=call.id, status=call.status)
        except RPCError as error:
            if error.status not in TRY_SIGNAL:
                raise translate_error(error, self.id) from error
        try:
            await self._handle.signal(TurnSignal.DECIDE, decision)
        except Exception as error:
            raise translate_error(error, self.id) from error
        return None

    async def submit(self, calls: list[CallRequest] | tuple[CallRequest, ...], *, key: str | None = None) -> str:
        """Queue another batch and return its id. For turns without a model.

        `key`: a second call with the same key queues nothing and returns the id of the first batch.
        """
        check_batch(tuple(calls))
        check_size(sum(len(call.model_dump_json()) for call in calls))
        update_id = f"submit-{key}" if key else None
        return (
            await self._send_update(TurnUpdate.SUBMIT, SubmitBatch(calls=tuple(calls)), SubmitResult, update_id)
        ).batch

    async def add_calls(
        self,
        stream: str,
        calls: Iterable[CallRequest] = (),
        *,
        at: int = 0,
        attempt: int = 1,
        complete: bool = False,
        reason: str | None = None,
    ) -> AddCallsResult:
        """Add calls to a reply that the caller's own model is still writing, and return the batch and its size (S11).

        `stream` names the reply. `at` is the index of the first of these calls in the reply: what is sent twice counts
        once. A higher `attempt` discards the calls of the attempt before it, for this `reason`. After `complete` the
        stream takes no more calls. Raises BadInput for an invalid argument.
        """
        calls = tuple(calls)
        check_size(sum(len(call.model_dump_json()) for call in calls))
        place = {"stream": stream, "attempt": attempt, "at": at}
        body = _build_body(AddCalls, **place, calls=calls, complete=complete, reason=reason)
        return await self._send_update(TurnUpdate.ADD_CALLS, body, AddCallsResult)

    async def interrupt(self, message: str, *, by: str | None = None) -> None:
        """Interrupt the turn with a user's message: tools that may be interrupted stop, and the turn goes on with it
        (S18).

        Sent as a signal, so it needs no worker. Raises RequestRefused when the turn has ended, BadInput for an empty
        message.
        """
        body = _build_body(Interruption, message=message, by=by or get_login_name())
        await self._check_running()
        await self._translate_errors(self._handle.signal(TurnSignal.INTERRUPT, body))

    async def withdraw(self, batch_id: str) -> BatchResult:
        """Withdraw a queued batch, which then never starts, and return it. RequestRefused once it has started (S14)."""
        return await self._send_update(TurnUpdate.WITHDRAW, _build_body(BatchAddress, batch=batch_id), BatchResult)

    async def set_mode(self, mode: Mode | str, by: str | None = None) -> Mode | None:
        """Change the mode; pending calls are validated again (S27).

        Returns the mode that the worker permits; None when no call was validated, so that it is not known yet. Raises
        BadInput for an unknown mode.
        """
        if mode not in list(Mode):
            raise BadInput(f"unknown mode {mode!r}: use {', '.join(list(Mode)[:-1])} or {list(Mode)[-1]}")
        return (
            await self._send_update(
                TurnUpdate.SET_MODE, _build_body(ModeChange, mode=Mode(mode), by=by or get_login_name()), SetModeResult
            )
        ).counts

    async def note_editing(self, approval_id: str, *, by: str | None = None, seconds: float = 900) -> None:
        """Show other viewers that `by` edits a pending approval for the next `seconds`; 0 ends that."""
        notice = _build_body(EditingNotice, approval_id=approval_id, by=by or get_login_name(), seconds=seconds)
        await self._send_update(TurnUpdate.EDITING, notice, None)

    async def revoke(self, grant_id: str, by: str | None = None) -> Grant:
        """Revoke a grant of this turn and return it. RequestRefused when the turn has no grant with this id."""
        return await self._send_update(
            TurnUpdate.REVOKE, _build_body(GrantAddress, grant=grant_id, by=by or get_login_name()), Grant
        )

    async def cancel_call(self, call_id: str, reason: str | None = None) -> None:
        """Cancel one call; its siblings go on. The model reads the `reason`."""
        await self._send_update(TurnUpdate.CANCEL_CALL, _build_body(CallAddress, call=call_id, reason=reason), None)

    async def cancel_batch(self, batch_id: str, reason: str | None = None) -> None:
        """Cancel every call of the running batch; the turn goes on. The model reads the `reason`."""
        await self._send_update(TurnUpdate.CANCEL_BATCH, _build_body(BatchAddress, batch=batch_id, reason=reason), None)

    async def finish(self) -> None:
        """End a turn that was started with `keep_open`, once its queue is empty."""
        await self._send_update(TurnUpdate.FINISH, None, None)

    async def cancel(self) -> None:
        """Cancel the turn: running calls are stopped and every call is answered; it ends with the status `cancelled`
        (S16).

        Returns when the request is recorded, not when the turn has ended. RequestRefused when it has ended before.
        """
        await self._check_running()
        await self._translate_errors(self._handle.cancel())


def _build_body(kind: type[M], **fields: Any) -> M:
    """Build the body of an update or signal. BadInput when a field is invalid."""
    try:
        return kind(**fields)
    except ValidationError as error:
        raise BadInput(f"invalid message to a turn: {describe_problems(error)}") from error
