"""One turn, from outside: how it stands, what is said to it, how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.approvals import ApprovalId, Decision, canonical_digest
from holdfast.calls import Call, CallRequest
from holdfast.errors import BadInput, DecisionRefused, HoldfastError, NoWorker, RequestRefused
from holdfast.events import EventPage
from holdfast.grants import Grant
from holdfast.identity import whoami
from holdfast.modes import Mode
from holdfast.outcomes import Outcome, Scope
from holdfast.queries import SECONDS, ask
from holdfast.tails import ask_output
from holdfast.translating import no_worker, refusal, translated
from holdfast.turns import (
    Acknowledged,
    BatchAddress,
    BatchResult,
    CallAddress,
    EditingNotice,
    GrantAddress,
    LiveOutput,
    ModeChange,
    ModeTaken,
    RunningCall,
    SubmitBatch,
    Submitted,
    TurnResult,
    check_batch,
    check_size,
)
from holdfast.views import InboxSummary, TurnView, as_of, brief_result
from holdfast.watching import Feeds, WatchItem, live_outputs
from holdfast.workflows.attributes import MEMO_KEY

T = TypeVar("T")

UPDATE_SECONDS = 5.0
"""How long an update may take before a decision goes by signal instead."""

TRY_SIGNAL = {
    RPCStatusCode.FAILED_PRECONDITION,  # the limit of updates per run
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.UNAVAILABLE,
}


class Turn:
    """One turn, from outside."""

    def __init__(self, client: Client, turn_id: str, feeds: Feeds) -> None:
        self.id = turn_id
        self._client = client
        self._feeds = feeds
        self._handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(turn_id, result_type=TurnResult)

    async def result(self) -> TurnResult:
        """Wait for the end."""
        try:
            return cast(TurnResult, await self._handle.result())
        except Exception as error:
            raise translated(error, self.id) from error

    async def view(self, *, live: bool = True) -> TurnView:
        """How it stands: bounded, with live output while something runs, with the result once it has ended."""
        description = await self._call(self._handle.describe())
        if description.status is not WorkflowExecutionStatus.RUNNING:
            return await self._ended_view(description.status)
        view = await self._query("view", TurnView)
        view = view.model_copy(update={"approvals": as_of(datetime.now(UTC), view.approvals)})
        if not live or view.batch is None:
            return view
        outputs = {item.call_id: item for item in await live_outputs(self._client, description)}
        calls = tuple(
            call.model_copy(update={"live_output": found.tail, "pid": found.pid})
            if (found := outputs.get(call.id)) and call.status == "executing"
            else call
            for call in view.batch.calls
        )
        return view.model_copy(update={"batch": view.batch.model_copy(update={"calls": calls})})

    async def _ended_view(self, status: WorkflowExecutionStatus | None) -> TurnView:
        """An ended turn's result needs no worker; its last view does, and is left out when none answers."""
        result = await self.result() if status is WorkflowExecutionStatus.COMPLETED else None
        try:
            view = await self._query("view", TurnView)
        except (NoWorker, HoldfastError):
            view = TurnView(id=self.id, state="ended")
        if result is None:
            result = TurnResult(status="failed", reason=await self._failure(status))
        return view.model_copy(update={"state": "ended", "result": brief_result(result)})

    async def _failure(self, status: WorkflowExecutionStatus | None) -> str:
        try:
            await self.result()
        except HoldfastError as error:
            return str(error)
        return f"the workflow is {status.name if status else 'gone'}"

    async def events(self, after: int = 0) -> EventPage:
        """The events after a sequence number."""
        return await self._query("events", EventPage, after)

    async def call(self, call_id: str) -> Call:
        """The whole record of one call."""
        call = await self._query("call", cast("type[Call | None]", Call | None), call_id)
        if call is None:
            raise BadInput(f"turn {self.id!r} has no call {call_id!r}")
        return call

    async def output(self, call_id: str) -> LiveOutput | None:
        """The last 100,000 characters a running call has put out; None when it does not run."""
        description = await self._call(self._handle.describe())
        running = {item.call_id: item for item in await live_outputs(self._client, description)}
        shown = running.get(call_id)
        if shown is None or shown.host is None or shown.total <= len(shown.tail):
            return shown
        return await ask_output(self._client, shown.host, RunningCall(turn=self.id, call=call_id)) or shown

    async def batch(self, batch_id: str) -> BatchResult:
        """One batch and the responses it has."""
        batch = await self._query("batch", cast("type[BatchResult | None]", BatchResult | None), batch_id)
        if batch is None:
            raise BadInput(f"turn {self.id!r} has no batch {batch_id!r}")
        return batch

    def watch(self, after: int = 0) -> AsyncIterator[WatchItem]:
        """Events and live output as they happen, until the turn ends."""
        return self._feeds.watch(self.id, after)

    async def decide(self, decision: Decision, *, seconds: float = UPDATE_SECONDS) -> Acknowledged | None:
        """Send a decision: see `Holdfast.decide`."""
        try:
            async with asyncio.timeout(seconds):
                update_id = canonical_digest([decision.approval_id, decision.key])
                taken = await self._handle.execute_update("decide", decision, id=update_id, result_type=Acknowledged)
                return cast(Acknowledged, taken)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            pass
        except WorkflowUpdateFailedError as error:
            refused = refusal(error, DecisionRefused)
            if refused.code != "already_counted":
                raise refused from None
            call = await self.call(ApprovalId.parse(decision.approval_id).call)
            return Acknowledged(call=call.id, status=call.status)
        except RPCError as error:
            if error.status not in TRY_SIGNAL:
                raise translated(error, self.id) from error
        try:
            await self._handle.signal("decide", decision)
        except Exception as error:
            raise translated(error, self.id) from error
        return None

    async def submit(self, calls: list[CallRequest] | tuple[CallRequest, ...], *, key: str | None = None) -> str:
        """Queue a further batch; its id. With a `key` of yours, repeating it queues nothing more."""
        check_batch(tuple(calls))
        check_size(sum(len(call.model_dump_json()) for call in calls))
        update_id = f"submit-{key}" if key else None
        return (await self._update("submit", SubmitBatch(calls=tuple(calls)), Submitted, update_id)).batch

    async def withdraw(self, batch_id: str) -> BatchResult:
        """Take a queued batch back."""
        return await self._update("withdraw", BatchAddress(batch=batch_id), BatchResult)

    async def set_mode(self, mode: Mode | str, by: str | None = None) -> Mode | None:
        """Change how much proceeds without asking; what waits is judged again.

        Answers with the mode that counts, as far as the worker permits; None when nothing waits that would tell.
        """
        if mode not in list(Mode):
            raise BadInput(f"{mode!r} is no mode: say {', '.join(list(Mode)[:-1])} or {list(Mode)[-1]}")
        return (await self._update("set_mode", ModeChange(mode=Mode(mode), by=by or whoami()), ModeTaken)).counts

    async def editing(self, approval_id: str, *, by: str | None = None, seconds: float = 900) -> None:
        """Tell others that somebody has an approval open in an editor; with 0 seconds, that they are done."""
        await self._update("editing", EditingNotice(approval_id=approval_id, by=by or whoami(), seconds=seconds), None)

    async def grants(self) -> tuple[Grant, ...]:
        """The standing answers of this turn."""
        return await self._query("grants", tuple[Grant, ...])

    async def revoke(self, grant_id: str, by: str | None = None) -> Grant:
        """Take a standing answer back."""
        return await self._update("revoke", GrantAddress(grant=grant_id, by=by or whoami()), Grant)

    async def cancel_call(self, call_id: str, reason: str | None = None) -> None:
        """Stop one call; its siblings go on."""
        await self._update("cancel_call", CallAddress(call=call_id, reason=reason), None)

    async def cancel_batch(self, batch_id: str, reason: str | None = None) -> None:
        """Stop the batch at work; the turn goes on."""
        await self._update("cancel_batch", BatchAddress(batch=batch_id, reason=reason), None)

    async def finish(self) -> None:
        """End a turn that was kept open, once its queue is empty."""
        await self._update("finish", None, None)

    async def cancel(self) -> None:
        """Stop everything; the turn ends as `cancelled`, with every call answered."""
        description = await self._call(self._handle.describe())
        if description.status is not WorkflowExecutionStatus.RUNNING:
            raise RequestRefused("ended", f"turn {self.id!r} has ended")
        await self._call(self._handle.cancel())

    async def digest_of(self, address: ApprovalId) -> str:
        """The digest of what an approval shows: from the memo, or from the turn itself."""
        description = await self._call(self._handle.describe())
        if description.status is not WorkflowExecutionStatus.RUNNING:
            raise DecisionRefused("not_waiting", f"turn {self.id!r} has ended: nothing in it waits for a decision")
        memo = await summary_of(description)
        known = [item.digest for item in memo.approvals if item.approval_id == str(address)]
        if known:
            return known[0]
        call = await self._query("call", cast("type[Call | None]", Call | None), address.call)
        if call is None or call.bound is None:
            raise DecisionRefused("unknown_approval", f"nothing waits under {str(address)!r}: see `holdfast inbox`")
        return call.bound.digest

    async def scope_of(self, address: ApprovalId, outcome: Outcome) -> Scope | None:
        """The first scope that an approval offers for an outcome, the narrowest of all for a refusal."""
        shown = (await self.call(address.call)).confirmation
        offers = shown.offers if shown else ()
        fitting = (offer.scope for offer in offers if outcome in (offer.outcome, Outcome.CANCEL))
        return next(fitting, None)

    async def _update(self, name: str, body: Any, result_type: type[T] | None, update_id: str | None = None) -> T:
        args = [] if body is None else [body]
        try:
            async with asyncio.timeout(SECONDS):
                return cast(
                    T, await self._handle.execute_update(name, args=args, result_type=result_type, id=update_id)
                )
        except WorkflowUpdateFailedError as error:
            raise refusal(error, RequestRefused) from None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise NoWorker(
                f"no worker answered for turn {self.id!r}; one that comes may still do it: look before you repeat it"
            ) from error
        except Exception as error:
            raise translated(error, self.id) from error

    async def _query(self, name: str, result_type: type[T], *args: Any) -> T:
        try:
            return await ask(self._client, self.id, name, *args, result_type=result_type)
        except RPCError as error:
            if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:  # a task waits for a worker all the time
                raise no_worker(self.id) from error
            raise translated(error, self.id) from error
        except Exception as error:
            raise translated(error, self.id) from error

    async def _call(self, awaitable: Awaitable[T]) -> T:
        try:
            return await awaitable
        except Exception as error:
            raise translated(error, self.id) from error


async def summary_of(found: WorkflowExecution) -> InboxSummary:
    """What a turn's memo says waits, as far as it can be read."""
    try:
        return InboxSummary.model_validate(await found.memo_value(MEMO_KEY, {}))
    except Exception:
        return InboxSummary(total=1)  # something waits: the turn itself knows what
