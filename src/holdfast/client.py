"""What an application imports: start turns, decide, watch, list what waits.

    holdfast = Holdfast(await connect())
    turn = await holdfast.start(TurnInput(batches=[[CallRequest(tool="shell", arguments={"command": "ls"})]]))
    async for item in turn.watch():
        ...

Watching long-polls the history and asks the turn by query; nothing a viewer does is in the history (S40).
"""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from typing import Any, TypeVar, cast
from uuid import uuid4

from pydantic import ValidationError
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.approvals import ApprovalId, Decision, Outcome, canonical_digest
from holdfast.calls import Call, CallRequest
from holdfast.content import shorten
from holdfast.errors import (
    BadInput,
    DecisionRefused,
    HoldfastError,
    NoWorker,
    RequestRefused,
    ServerUnavailable,
    TurnNotFound,
)
from holdfast.events import EventPage
from holdfast.hosts import ask_output
from holdfast.model import problems
from holdfast.queries import SECONDS, ask
from holdfast.turns import (
    TASK_QUEUE,
    WORKFLOW,
    Acknowledged,
    BatchAddress,
    BatchResult,
    CallAddress,
    LiveOutput,
    RunningCall,
    SubmitBatch,
    Submitted,
    TurnInput,
    TurnResult,
    check_batch,
    check_input,
    check_size,
)
from holdfast.views import ApprovalView, InboxSummary, TurnView, brief_result
from holdfast.watching import Feeds, WatchItem, live_outputs
from holdfast.workflows.attributes import MEMO_KEY, STATE

T = TypeVar("T")

REST_SECONDS = 2.0
"""How long an inbox waits for a turn that has more to show than its memo holds."""
UPDATE_SECONDS = 5.0
"""How long an update may take before a decision goes by signal instead."""


class Holdfast:
    """Holdfast over a connected Temporal client (one with `HoldfastPlugin`)."""

    def __init__(self, client: Client, *, task_queue: str = TASK_QUEUE) -> None:
        self.client = client
        self.task_queue = task_queue
        self._feeds = Feeds(client)

    def turn(self, turn_id: str) -> Turn:
        """A turn by its id; nothing is asked of the server yet."""
        return Turn(self.client, turn_id, self._feeds)

    async def start(self, input: TurnInput, *, turn_id: str | None = None) -> Turn:
        """Start a turn. An id that is in use, or was, is refused."""
        check_input(input)
        check_size(len(input.model_dump_json()))
        turn_id = turn_id or f"turn-{uuid4().hex[:12]}"
        if not turn_id.strip() or len(turn_id) > 500:
            raise BadInput("a turn's id has between 1 and 500 characters")
        try:
            await self.client.start_workflow(
                WORKFLOW,
                input,
                id=turn_id,
                task_queue=self.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=_summary(input),
            )
        except Exception as error:
            raise _translated(error, turn_id) from error
        return self.turn(turn_id)

    async def approve(self, approval_id: str, **details: Any) -> Acknowledged | None:
        """Let one call run as it was shown. See `decide`."""
        return await self.decide(approval_id, Outcome.PROCEED_ONCE, **details)

    async def deny(self, approval_id: str, **details: Any) -> Acknowledged | None:
        """Refuse one call. See `decide`."""
        return await self.decide(approval_id, Outcome.CANCEL, **details)

    async def decide(
        self,
        approval_id: str,
        outcome: Outcome | str,
        *,
        digest: str | None = None,
        by: str | None = None,
        note: str | None = None,
        content: str | None = None,
        stop_turn: bool = False,
        decision_id: str | None = None,
        seconds: float = UPDATE_SECONDS,
    ) -> Acknowledged | None:
        """Decide on one approval, addressed by its id alone.

        `digest` is that of what was shown; left out, it is looked up. Sent as an update; when updates are exhausted or
        no worker answers within `seconds`, as a signal, and then the answer is None: it will count when a worker is
        back. Raises DecisionRefused when it does not count.
        """
        address = ApprovalId.parse(approval_id)
        turn = self.turn(address.turn)
        try:
            decision = Decision.model_validate(
                {
                    "approval_id": str(address),
                    "digest": digest or await turn.digest_of(address),
                    "outcome": outcome,
                    "id": decision_id or uuid4().hex,
                    "by": by or whoami(),
                    "at": datetime.now(UTC),
                    "note": note,
                    "content": content,
                    "stop_turn": stop_turn,
                }
            )
        except ValidationError as error:
            raise BadInput(f"this is not a decision: {problems(error, 'decision')}") from error
        return await turn.decide(decision, seconds=seconds)

    async def inbox(self) -> list[ApprovalView]:
        """Everything that waits for a person, in all turns, newest first. Needs no worker for most turns."""
        query = f"{STATE.name} = 'awaiting_approval' AND ExecutionStatus = 'Running'"
        items: list[ApprovalView] = []
        try:
            async for found in self.client.list_workflows(query):
                memo = await _summary_of(found)
                items += memo.approvals
                if memo.total > len(memo.approvals):
                    items += await self._rest(found.id, {item.approval_id for item in memo.approvals})
        except RPCError as error:
            raise _translated(error, "inbox") from error
        return sorted(items, key=lambda item: item.since or datetime.min.replace(tzinfo=UTC), reverse=True)

    async def _rest(self, turn_id: str, known: set[str]) -> list[ApprovalView]:
        """What the memo had no room for."""
        try:
            view = await ask(self.client, turn_id, "view", result_type=TurnView, seconds=REST_SECONDS)
        except (RPCError, WorkflowQueryFailedError):
            return []
        return [item for item in view.approvals if item.approval_id not in known]


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
            raise _translated(error, self.id) from error

    async def view(self, *, live: bool = True) -> TurnView:
        """How it stands: bounded, with live output while something runs, with the result once it has ended."""
        description = await self._call(self._handle.describe())
        if description.status is not WorkflowExecutionStatus.RUNNING:
            return await self._ended_view(description.status)
        view = await self._query("view", TurnView)
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
            refusal = _refusal(error, DecisionRefused)
            if refusal.code != "already_counted":
                raise refusal from None
            return None
        except RPCError as error:
            if error.status not in _TRY_SIGNAL:
                raise _translated(error, self.id) from error
        try:
            await self._handle.signal("decide", decision)
        except Exception as error:
            raise _translated(error, self.id) from error
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
        memo = await _summary_of(description)
        known = [item.digest for item in memo.approvals if item.approval_id == str(address)]
        if known:
            return known[0]
        call = await self._query("call", cast("type[Call | None]", Call | None), address.call)
        if call is None or call.bound is None:
            raise DecisionRefused("unknown_approval", f"nothing waits under {str(address)!r}: see `holdfast inbox`")
        return call.bound.digest

    async def _update(self, name: str, body: Any, result_type: type[T] | None, update_id: str | None = None) -> T:
        args = [] if body is None else [body]
        try:
            async with asyncio.timeout(SECONDS):
                return cast(
                    T, await self._handle.execute_update(name, args=args, result_type=result_type, id=update_id)
                )
        except WorkflowUpdateFailedError as error:
            raise _refusal(error, RequestRefused) from None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise NoWorker(
                f"no worker answered for turn {self.id!r}; one that comes may still do it: look before you repeat it"
            ) from error
        except Exception as error:
            raise _translated(error, self.id) from error

    async def _query(self, name: str, result_type: type[T], *args: Any) -> T:
        try:
            return await ask(self._client, self.id, name, *args, result_type=result_type)
        except RPCError as error:
            if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:  # a task waits for a worker all the time
                raise _no_worker(self.id) from error
            raise _translated(error, self.id) from error
        except Exception as error:
            raise _translated(error, self.id) from error

    async def _call(self, awaitable: Awaitable[T]) -> T:
        try:
            return await awaitable
        except Exception as error:
            raise _translated(error, self.id) from error


async def _summary_of(found: WorkflowExecution) -> InboxSummary:
    """What a turn's memo says waits, as far as it can be read."""
    try:
        return InboxSummary.model_validate(await found.memo_value(MEMO_KEY, {}))
    except Exception:
        return InboxSummary(total=1)  # something waits: the turn itself knows what


def whoami() -> str:
    """Who decides, when nobody says: the user and the host."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return socket.gethostname()


_TRY_SIGNAL = {
    RPCStatusCode.FAILED_PRECONDITION,  # the limit of updates per run
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.UNAVAILABLE,
}


def _summary(input: TurnInput) -> str:
    if input.prompt is not None:
        return shorten(input.prompt, 120)
    return f"{sum(map(len, input.batches))} calls in {len(input.batches)} batches"


def _refusal(error: WorkflowUpdateFailedError, kind: type[DecisionRefused] | type[RequestRefused]) -> Any:
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return kind(cause.type or "refused", cause.message)
    return kind("refused", str(cause or error))


def _translated(error: Exception, turn_id: str) -> HoldfastError:
    """Temporal's exceptions in our words."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, WorkflowFailureError):
        cause = error.cause
        words = cause.message if isinstance(cause, ApplicationError) else str(cause or error)
        return HoldfastError(f"turn {turn_id!r} did not end by itself: {words}")
    if isinstance(error, WorkflowQueryFailedError | WorkflowQueryRejectedError):
        return NoWorker(f"no worker could answer for turn {turn_id!r}: {error}")
    if isinstance(error, TimeoutError | WorkflowUpdateRPCTimeoutOrCancelledError):
        return _no_worker(turn_id)
    if isinstance(error, RPCError):
        return _translated_rpc(error, turn_id)
    name = type(error).__name__
    if name == "WorkflowAlreadyStartedError":
        return RequestRefused("id_in_use", f"a turn called {turn_id!r} exists already: choose another id")
    return HoldfastError(f"{name}: {error}")


def _no_worker(turn_id: str) -> NoWorker:
    return NoWorker(f"no worker answered for turn {turn_id!r}: start one with `holdfast worker` or `holdfast up`")


def _translated_rpc(error: RPCError, turn_id: str) -> HoldfastError:
    if error.status is RPCStatusCode.NOT_FOUND:
        if "already completed" in error.message:
            return RequestRefused("ended", f"turn {turn_id!r} has ended")
        return TurnNotFound(f"no turn is called {turn_id!r}")
    if error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
        return _no_worker(turn_id)
    if error.status is RPCStatusCode.UNAVAILABLE:
        return ServerUnavailable(f"the Temporal server does not answer: {error.message}")
    return HoldfastError(f"the Temporal server refused ({error.status.name}): {error.message}")
