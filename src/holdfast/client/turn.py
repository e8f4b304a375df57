"""One turn, from outside: how it stands, what is said to it, how it ended."""

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
from holdfast.client.handle import whoami
from holdfast.client.turn_reader import TurnReader
from holdfast.domain.approvals.approval import ApprovalId, Decision
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.base import Message, describe_problems
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
from holdfast.util.digests import digest_canonical

M = TypeVar("M", bound=Message)

UPDATE_SECONDS = 5.0
"""How long an update may take before a decision goes by signal instead."""

TRY_SIGNAL = {
    RPCStatusCode.FAILED_PRECONDITION,  # the limit of updates per run
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.UNAVAILABLE,
}


class Turn(TurnReader):
    """One turn, from outside."""

    async def decide(self, decision: Decision, *, seconds: float = UPDATE_SECONDS) -> DecisionResult | None:
        """Send a decision: see `Holdfast.decide`."""
        try:
            async with asyncio.timeout(seconds):
                update_id = digest_canonical([decision.approval_id, decision.key])
                taken = await self._handle.execute_update("decide", decision, id=update_id, result_type=DecisionResult)
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
            await self._handle.signal("decide", decision)
        except Exception as error:
            raise translate_error(error, self.id) from error
        return None

    async def submit(self, calls: list[CallRequest] | tuple[CallRequest, ...], *, key: str | None = None) -> str:
        """Queue a further batch; its id. With a `key` of yours, repeating it queues nothing more."""
        check_batch(tuple(calls))
        check_size(sum(len(call.model_dump_json()) for call in calls))
        update_id = f"submit-{key}" if key else None
        return (await self._send_update("submit", SubmitBatch(calls=tuple(calls)), SubmitResult, update_id)).batch

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
        """Add calls as they come to a reply of your own model, under a name of yours (S11).

        `at` is the place of the first of them in the reply: what is sent twice counts once. Another `attempt` discards
        what came from the one before, for this `reason`. Nothing more comes when it is `complete`.
        """
        calls = tuple(calls)
        check_size(sum(len(call.model_dump_json()) for call in calls))
        place = {"stream": stream, "attempt": attempt, "at": at}
        body = _build_body(AddCalls, **place, calls=calls, complete=complete, reason=reason)
        return await self._send_update("add_calls", body, AddCallsResult)

    async def interrupt(self, message: str, *, by: str | None = None) -> None:
        """Say something meanwhile: tools that may be interrupted stop, and the turn goes on with the message (S18)."""
        body = _build_body(Interruption, message=message, by=by or whoami())
        await self._check_running()
        await self._translate_errors(self._handle.signal("interrupt", body))

    async def withdraw(self, batch_id: str) -> BatchResult:
        """Take a queued batch back."""
        return await self._send_update("withdraw", _build_body(BatchAddress, batch=batch_id), BatchResult)

    async def set_mode(self, mode: Mode | str, by: str | None = None) -> Mode | None:
        """Change how much proceeds without asking; what waits is judged again.

        Answers with the mode that counts, as far as the worker permits; None when nothing waits that would tell.
        """
        if mode not in list(Mode):
            raise BadInput(f"{mode!r} is no mode: say {', '.join(list(Mode)[:-1])} or {list(Mode)[-1]}")
        return (
            await self._send_update(
                "set_mode", _build_body(ModeChange, mode=Mode(mode), by=by or whoami()), SetModeResult
            )
        ).counts

    async def note_editing(self, approval_id: str, *, by: str | None = None, seconds: float = 900) -> None:
        """Tell others that somebody has an approval open in an editor; with 0 seconds, that they are done."""
        notice = _build_body(EditingNotice, approval_id=approval_id, by=by or whoami(), seconds=seconds)
        await self._send_update("editing", notice, None)

    async def revoke(self, grant_id: str, by: str | None = None) -> Grant:
        """Take a standing answer back."""
        return await self._send_update("revoke", _build_body(GrantAddress, grant=grant_id, by=by or whoami()), Grant)

    async def cancel_call(self, call_id: str, reason: str | None = None) -> None:
        """Stop one call; its siblings go on."""
        await self._send_update("cancel_call", _build_body(CallAddress, call=call_id, reason=reason), None)

    async def cancel_batch(self, batch_id: str, reason: str | None = None) -> None:
        """Stop the batch at work; the turn goes on."""
        await self._send_update("cancel_batch", _build_body(BatchAddress, batch=batch_id, reason=reason), None)

    async def finish(self) -> None:
        """End a turn that was kept open, once its queue is empty."""
        await self._send_update("finish", None, None)

    async def cancel(self) -> None:
        """Stop everything; the turn ends as `cancelled`, with every call answered."""
        await self._check_running()
        await self._translate_errors(self._handle.cancel())


def _build_body(kind: type[M], **fields: Any) -> M:
    """The body of a message; BadInput when it cannot be said."""
    try:
        return kind(**fields)
    except ValidationError as error:
        raise BadInput(f"this cannot be said to a turn: {describe_problems(error)}") from error
