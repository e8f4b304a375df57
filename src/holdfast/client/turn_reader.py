"""One turn as a client reads it: its view, its events, its responses. Nothing here changes the turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TypeVar, cast

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError

from holdfast.client.error_mapping import translate_error
from holdfast.client.queries import fetch_output, filter_running_commands
from holdfast.client.watch import WatchItem, read_live_outputs
from holdfast.client.workflow_connection import WorkflowConnection
from holdfast.domain.approvals.approval import ApprovalId, DecisionAction, Scope, digest_call
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.events import Event, EventPage
from holdfast.domain.content import Response
from holdfast.domain.conversation.messages import Conversation
from holdfast.domain.turn.activity_io import LiveOutput, RunningCall
from holdfast.domain.turn.approval_view import ApprovalView, InboxSummary, drop_stale_editors
from holdfast.domain.turn.carryover import EarlierRun
from holdfast.domain.turn.turn_io import BatchResult, TurnResult
from holdfast.domain.turn.turn_view import TurnView, shorten_result
from holdfast.errors import BadInput, DecisionRefused, HoldfastError, NoWorker, TurnNotFound
from holdfast.names import MEMO_KEY, STATE_ATTRIBUTE, TurnQuery

T = TypeVar("T")

RETRY_SECONDS = 0.2
MAX_TRIES = 20


class TurnReader(WorkflowConnection):
    """The reading half of `Turn`."""

    async def result(self) -> TurnResult:
        """Wait until the turn ends and return its result.

        The earlier runs of a turn that continued as new are queried for their batches. When no worker answers,
        `batches` holds those of the last run, and `unread` names the runs that are missing. HoldfastError when the turn
        failed as a workflow.
        """
        last = await self._fetch_last_result()
        try:
            pages = [
                await self._send_query(TurnQuery.BATCHES, tuple[BatchResult, ...], run_id=run.run_id)
                for run in last.runs
            ]
        except HoldfastError:
            return last.model_copy(update={"unread": last.runs})
        return last.model_copy(update={"batches": (*(batch for page in pages for batch in page), *last.batches)})

    async def _fetch_last_result(self) -> TurnResult:
        """The result of the last run."""
        try:
            return cast(TurnResult, await self._handle.result())
        except Exception as error:
            raise translate_error(error, self.id) from error

    async def has_started(self) -> bool:
        """Return whether the turn has been started."""
        try:
            await self._translate_errors(self._handle.describe())
        except TurnNotFound:
            return False
        return True

    async def fetch_view(self, *, live: bool = True) -> TurnView:
        """Return the state of the turn, with long values cut.

        `live` adds the live output of running calls. An ended turn's view holds its result, and is without calls when
        no worker answers.
        """
        description = await self._translate_errors(self._handle.describe())
        if description.status is not WorkflowExecutionStatus.RUNNING:
            ended = await self._build_ended_view(description.status)
            return await self._with_commands(ended) if live else ended
        view = await self._send_query(TurnQuery.VIEW, TurnView)
        own = select_own_approvals(self.id, view.approvals)
        view = view.model_copy(update={"approvals": drop_stale_editors(datetime.now(UTC), own)})
        if live:
            view = await self._with_commands(view)
        if not live or view.batch is None:
            return view
        outputs = {item.call_id: item for item in await read_live_outputs(self._client, description)}
        calls = tuple(
            call.model_copy(
                update={
                    "live_output": found.tail,
                    "live_styled": found.styled,
                    "pid": found.pid,
                    "attempts": found.attempt,
                    "last_failure": found.failure,
                }
            )
            if (found := outputs.get(call.id)) and call.status == "executing"
            else call
            for call in view.batch.calls
        )
        return view.model_copy(update={"batch": view.batch.model_copy(update={"calls": calls})})

    async def _with_commands(self, view: TurnView) -> TurnView:
        """The view with those of its background commands that still run."""
        if not view.commands:
            return view
        return view.model_copy(update={"commands": await filter_running_commands(self._client, self.id, view.commands)})

    async def _build_ended_view(self, status: WorkflowExecutionStatus | None) -> TurnView:
        """The result of an ended turn is in its history; its last view needs a worker and is empty without one."""
        result = await self._fetch_last_result() if status is WorkflowExecutionStatus.COMPLETED else None
        try:
            view = await self._send_query(TurnQuery.VIEW, TurnView)
        except (NoWorker, HoldfastError):
            view = TurnView(id=self.id, state="ended")
        if result is None:
            result = TurnResult(status="failed", reason=await self._describe_failure(status))
        return view.model_copy(update={"state": "ended", "result": shorten_result(result)})

    async def _describe_failure(self, status: WorkflowExecutionStatus | None) -> str:
        try:
            await self._fetch_last_result()
        except HoldfastError as error:
            return str(error)
        return f"the workflow is {status.name if status else 'gone'}"

    async def fetch_events(self, after: int = 0) -> EventPage:
        """Return a page of events with a sequence number above `after`, oldest first."""
        page = await self._send_query(TurnQuery.EVENTS, EventPage, after)
        if page.earlier is None:
            return page
        earlier = await self._send_query(TurnQuery.EVENTS, EventPage, after, run_id=page.earlier)
        return earlier.model_copy(update={"more": True, "finished": False})

    async def fetch_call(self, call_id: str) -> Call:
        """Return the whole record of one call. BadInput when the turn has no such call.

        HoldfastError when the shown arguments are not those that the digest of a pending call is over.
        """
        kind = cast("type[Call | None]", Call | None)
        call = await self._query_runs(TurnQuery.CALL, kind, call_id)
        if call is None:
            raise BadInput(f"turn {self.id!r} has no call {call_id!r}")
        check_digest(call)
        return call

    async def fetch_output(self, call_id: str) -> LiveOutput | None:
        """Return the last 100,000 characters that a running call has printed; None when it does not run."""
        description = await self._translate_errors(self._handle.describe())
        running = {item.call_id: item for item in await read_live_outputs(self._client, description)}
        shown = running.get(call_id)
        if shown is None or shown.host is None or shown.total <= len(shown.tail):
            return shown
        return await fetch_output(self._client, shown.host, RunningCall(turn=self.id, call=call_id)) or shown

    async def fetch_batch(self, batch_id: str) -> BatchResult:
        """Return one batch and the responses that it has so far. BadInput when the turn has no such batch."""
        kind = cast("type[BatchResult | None]", BatchResult | None)
        batch = await self._query_runs(TurnQuery.BATCH, kind, batch_id)
        if batch is None:
            raise BadInput(f"turn {self.id!r} has no batch {batch_id!r}")
        return batch

    async def _query_runs(self, query: str, kind: type[T], name: str) -> T:
        """Query the run that has this call or batch, else the last run.

        Repeated while the turn continues as new.
        """
        while True:
            answer = None
            for run_id in await self._list_runs(name.partition("c")[0]):
                answer = await self._send_query(query, kind, name, run_id=run_id)
                if answer:
                    return answer
            asked, self._runs = self._runs, await self._send_query(TurnQuery.RUNS, tuple[EarlierRun, ...])
            if asked == self._runs:
                return cast(T, answer)

    async def _list_runs(self, batch_id: str) -> list[str | None]:
        """The run ids of a turn, the likeliest to have this batch first; None stands for the last run."""
        number = batch_id.removeprefix("b")
        if not (number.isascii() and number.isdigit() and len(number) < 12):
            return [None]
        if not self._runs or int(number) > self._runs[-1].batches:  # one that continued meanwhile has another
            self._runs = await self._send_query(TurnQuery.RUNS, tuple[EarlierRun, ...])
        first = next((place for place, run in enumerate(self._runs) if int(number) <= run.batches), None)
        ids = [run.run_id for run in self._runs]
        if first is None:
            return [None, *reversed(ids)]
        return [ids[first], *reversed(ids[:first]), *ids[first + 1 :], None]

    async def fetch_conversation(self) -> Conversation | None:
        """Return the conversation of the turn's model, after compaction; None for a turn without a model."""
        return await self._send_query(TurnQuery.CONVERSATION, cast("type[Conversation | None]", Conversation | None))

    def watch(self, after: int = 0) -> AsyncIterator[WatchItem]:
        """Yield events with a sequence number above `after`, and live output, as they happen, until the turn ends.

        Survives restarts of worker and server. Any number of watchers in a process cost one poll.
        """
        return self._feeds.watch(self.id, after)

    async def watch_responses(self) -> AsyncIterator[Response]:
        """Yield the responses to the turn's calls, in request order and each once, as they become final (S13).

        In a turn with a model this includes a reply that is still being written: `watch` reports when it is discarded.
        """
        known: dict[str, Response] = {}
        async with aclosing(self._feeds.watch(self.id)) as items:  # type: ignore[type-var]
            async for item in items:
                if isinstance(item, Event) and item.kind == "result" and item.call:
                    if item.call not in known:
                        known = {answer.call_id: answer for answer in await self._fetch_answers(item.call)}
                    yield known.pop(item.call)

    async def _fetch_answers(self, call_id: str) -> tuple[Response, ...]:
        """A page of responses that begins with this call's. Repeated while the turn continues as new."""
        for _ in range(MAX_TRIES):
            if found := await self._query_runs(TurnQuery.ANSWERS, tuple[Response, ...], call_id):
                return found
            await asyncio.sleep(RETRY_SECONDS)
        raise HoldfastError(f"no run of turn {self.id!r} has the answer to {call_id!r}")

    async def fetch_grants(self) -> tuple[Grant, ...]:
        """Return the grants that this turn holds."""
        return await self._send_query(TurnQuery.GRANTS, tuple[Grant, ...])

    async def fetch_digest(self, address: ApprovalId) -> str:
        """Return the digest of what a pending approval shows, from the memo or from the turn.

        Raises DecisionRefused when the turn has ended or the approval is not pending.
        """
        description = await self._translate_errors(self._handle.describe())
        if description.status is not WorkflowExecutionStatus.RUNNING:
            raise DecisionRefused("not_waiting", f"turn {self.id!r} has ended: it has no pending approval")
        memo = await read_memo(description)
        known = [item.digest for item in memo.approvals if item.approval_id == str(address)]
        if known:
            return known[0]
        call = await self._send_query(TurnQuery.CALL, cast("type[Call | None]", Call | None), address.call)
        if call is None or call.approval_digest is None:
            raise DecisionRefused("unknown_approval", f"no pending approval {str(address)!r}: see `holdfast inbox`")
        return call.approval_digest

    async def fetch_scope(self, address: ApprovalId, outcome: DecisionAction) -> Scope | None:
        """Return the first scope that a pending approval offers for this outcome, for `cancel` the first of all; or
        None.
        """
        shown = (await self.fetch_call(address.call)).confirmation
        offers = shown.offers if shown else ()
        fitting = (offer.scope for offer in offers if outcome in (offer.outcome, DecisionAction.CANCEL))
        return next(fitting, None)


async def fetch_memo(client: Client, turn_id: str) -> InboxSummary:
    """Fetch a turn's memo and read from it which approvals are pending; see `read_memo`.

    An error of the server counts like a memo that cannot be read.
    """
    try:
        return await read_memo(await client.get_workflow_handle(turn_id).describe())
    except RPCError:
        return InboxSummary(total=1)


async def read_memo(found: WorkflowExecution) -> InboxSummary:
    """Read from a turn's memo which approvals are pending.

    A memo that is missing or cannot be read counts as one pending approval of unknown content: query the turn then.
    """
    if found.typed_search_attributes.get(STATE_ATTRIBUTE) != "awaiting_approval":  # the memo may be outdated
        return InboxSummary()
    try:
        memo = InboxSummary.model_validate(await found.memo_value(MEMO_KEY))
    except Exception:
        return InboxSummary(total=1)
    own = select_own_approvals(found.id, memo.approvals)
    return memo.model_copy(update={"approvals": own, "total": memo.total - len(memo.approvals) + len(own)})


def check_digest(call: Call) -> None:
    """Check the digest of a pending call over its shown arguments. HoldfastError when it does not match.

    Anybody who can write to the namespace can answer queries in a turn's place.
    """
    bound = call.bound
    if call.status is not Status.AWAITING_APPROVAL or bound is None:
        return
    tool = bound.tool
    digest = digest_call(
        tool=tool.name,
        server=tool.server,
        definition=tool.definition,
        arguments=bound.arguments,
        context=bound.context,
    )
    if digest != bound.digest:
        raise HoldfastError(
            f"the arguments shown for call {call.id!r} do not match its digest: "
            "a program other than your workers answers queries for this turn"
        )


def select_own_approvals(turn_id: str, approvals: Iterable[ApprovalView]) -> tuple[ApprovalView, ...]:
    """Drop approvals whose id names another turn.

    A workflow could otherwise publish an approval that looks like another turn's.
    """
    start = f"{turn_id}/"
    return tuple(
        item
        for item in approvals
        if item.approval_id.startswith(start) and item.approval_id[len(start) :].count("/") == 1
    )
