"""One session as a client uses it: messages, the running turn, grants, the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from pydantic import ValidationError
from temporalio.client import (
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.error_mapping import build_no_worker, translate_error, translate_refusal
from holdfast.client.queries import QUERY_SECONDS
from holdfast.client.workflow_connection import WorkflowConnection, get_login_name
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.base import describe_problems
from holdfast.domain.conversation.messages import ConversationMessage, ConversationPage, ModelChoice
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.session.session_io import (
    CloseSession,
    InterruptTurn,
    SendMessage,
    SendResult,
    SessionChange,
    SessionInput,
    SessionResult,
    SessionView,
    Steering,
    WithdrawMessage,
    check_session,
)
from holdfast.domain.turn.ids import parse_session_number
from holdfast.domain.turn.turn_io import TurnLimits
from holdfast.domain.turn.turn_view import TurnView
from holdfast.domain.turn.update_bodies import GrantAddress
from holdfast.errors import BadInput, HoldfastError, NoWorker, RequestRefused
from holdfast.names import SESSION_WORKFLOW, SessionQuery, SessionUpdate

if TYPE_CHECKING:
    from temporalio.client import Client

    from holdfast.client.turn import Turn
    from holdfast.client.watch import TurnFeeds


RETRY_SECONDS = 0.05
POLL_SECONDS = 0.2


class Session(WorkflowConnection):
    """A handle to one session, made by `Holdfast.get_session`.

    Methods that send an update raise NoWorker when no worker answers within ten seconds, and RequestRefused when the
    session does not accept it.
    """

    kind: ClassVar[str] = "session"
    _result_type: ClassVar[type] = SessionResult

    def __init__(self, client: Client, session_id: str, feeds: TurnFeeds, task_queue: str, actor_name: str) -> None:
        super().__init__(client, session_id, feeds)
        self._task_queue = task_queue
        self._actor_name = actor_name

    async def send(
        self,
        message: str,
        *,
        start: SessionInput | None = None,
        how: Steering = "queue",
        by: str | None = None,
        message_id: str | None = None,
        interactive: bool | None = None,
        limits: TurnLimits | None = None,
        confirm: Confirming = Confirming.POLICY,
    ) -> SendResult:
        """Send a user's message, and return the id of the turn that reads it.

        `start`: creates the session with this input if it does not exist yet. `how`: what happens while a turn runs;
        the message waits for a turn of its own (`queue`), interrupts the turn (`interrupt`), or is read by its model
        after the running batch (`append`). `message_id`: a second call with the same id sends nothing and returns the
        same turn. `interactive`, `limits` and `confirm` apply to the turn that the message begins; `confirm` can only
        tighten. Raises BadInput for an invalid message, RequestRefused with the code `closed` for a closed session.
        """
        sender = {"by": by or self._actor_name, "id": message_id or uuid4().hex}
        try:
            body = SendMessage.model_validate(
                {"message": message, "how": how, **sender}
                | {"interactive": interactive, "limits": limits, "confirm": confirm}
            )
        except ValidationError as error:
            raise BadInput(f"invalid message: {describe_problems(error, 'message')}") from error
        if start is None:
            return await self._send_update(SessionUpdate.SEND, body, SendResult, f"say-{body.id}")
        return await self._send_or_start(body, start)

    async def _send_or_start(self, body: SendMessage, start: SessionInput) -> SendResult:
        """Send and start in one request, so that no message is lost between the two.

        The server aborts the request when the session continues as new at that moment, and takes ten at a time. Then it
        is repeated; the message id makes it count once.
        """
        check_session(start)
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                while (sent := await self._send_and_start(body, start)) is None:  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(RETRY_SECONDS)
                return sent
        except WorkflowUpdateFailedError as error:
            raise translate_refusal(error, RequestRefused) from None
        except WorkflowAlreadyStartedError as error:
            raise RequestRefused("closed", f"session {self.id!r} was closed: start another") from error
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise build_no_worker(self.id, self.kind) from error
        except Exception as error:
            raise translate_error(error, self.id, self.kind) from error

    async def _send_and_start(self, body: SendMessage, start: SessionInput) -> SendResult | None:
        """Returns None when the request is to be repeated."""
        operation: WithStartWorkflowOperation[object, SessionResult] = WithStartWorkflowOperation(
            SESSION_WORKFLOW,
            start,
            id=self.id,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )
        try:
            sent: SendResult = await self._client.execute_update_with_start_workflow(
                SessionUpdate.SEND,
                body,
                start_workflow_operation=operation,
                id=f"say-{body.id}",
                result_type=SendResult,
            )
        except RPCError as error:
            aborted = error.status is RPCStatusCode.UNAVAILABLE and "aborted" in error.message
            if not aborted and error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                raise
            with suppress(RPCError):  # else the operation reports an exception that was never retrieved
                await operation.workflow_handle()
            return None
        return sent

    async def withdraw(self, message_id: str, *, by: str | None = None) -> None:
        """Withdraw a queued message. RequestRefused when a turn has read it."""
        await self._send_update(SessionUpdate.WITHDRAW, WithdrawMessage(id=message_id, by=by or self._actor_name), None)

    async def interrupt(self, *, by: str | None = None) -> None:
        """Stop the running turn. Its calls are answered, and the session goes on. RequestRefused when no turn runs."""
        await self._send_update(SessionUpdate.INTERRUPT, InterruptTurn(by=by or self._actor_name), None)

    async def close(self, *, now: bool = False, by: str | None = None) -> None:
        """Accept no more messages, and end after the queued ones. `now` stops the running turn and drops the queue."""
        await self._send_update(SessionUpdate.CLOSE, CloseSession(by=by or self._actor_name, now=now), None)

    async def configure(
        self, *, model: ModelChoice | None = None, mode: Mode | None = None, by: str | None = None
    ) -> None:
        """Change model or mode for the next turns. A new mode applies to the running turn too."""
        change = SessionChange(model=model, mode=mode, by=by or self._actor_name)
        if mode and (turn := await self.find_running_turn()):
            with suppress(RequestRefused):  # the turn has just ended
                await turn.set_mode(mode, change.by)
                change = change.model_copy(update={"mode": None})
        if change.model or change.mode:
            await self._send_update(SessionUpdate.CONFIGURE, change, None)

    async def result(self) -> SessionResult:
        """Wait until the session ends and return its result."""
        found: SessionResult = await self._translate_errors(self._handle.result())
        return found

    async def find_running_turn(self) -> Turn | None:
        """Return the running turn, or None."""
        turn_id = (await self._send_query(SessionQuery.VIEW, SessionView)).turn
        return self.get_turn(turn_id) if turn_id else None

    async def wait_for_turn(self, turn_id: str) -> Turn:
        """Wait until a turn of this session has started, and return it.

        HoldfastError when it will not start because the session was closed or the message was withdrawn.
        """
        turn = self.get_turn(turn_id)
        while not await turn.has_started():
            view = await self.fetch_view()
            passed = view.turns >= parse_session_number(turn_id) and view.turn != turn_id
            if view.status == "closed" or (passed and not await turn.has_started()):
                why = "its message was withdrawn or the session closed; see `holdfast sessions show`"
                raise HoldfastError(f"turn {turn_id!r} will not start: {why}")
            await asyncio.sleep(POLL_SECONDS)
        return turn

    def get_turn(self, turn_id: str) -> Turn:
        """Return a handle to a turn of this session. Does not contact the server."""
        from holdfast.client.turn import Turn

        return Turn(self._client, turn_id, self._feeds)

    async def fetch_view(self) -> SessionView:
        """Return the state of the session and what its running turn does."""
        description = await self._translate_errors(self._handle.describe())
        view = await self._send_query(SessionQuery.VIEW, SessionView)
        if description.status is not WorkflowExecutionStatus.RUNNING:
            return view.model_copy(update={"status": "closed", "doing": "closed", "turn": None})
        if view.turn is None:
            return view.model_copy(update={"doing": view.status})
        try:
            return add_turn_view(view, await self.get_turn(view.turn).fetch_view(live=False))
        except HoldfastError:  # the turn has just started or just ended
            return view.model_copy(update={"status": "thinking", "doing": "thinking"})

    async def fetch_messages(self) -> AsyncIterator[ConversationMessage]:
        """Yield the messages of the conversation, after compaction; without those of the running turn."""
        after, epoch = 0, None
        while True:
            page = await self._send_query(SessionQuery.MESSAGES, ConversationPage, after, epoch)
            for message in page.messages[max(0, after - page.start) :]:
                yield message
            after, epoch = page.start + len(page.messages), page.epoch
            if not page.more:
                return

    async def fetch_grants(self) -> tuple[Grant, ...]:
        """Return the grants of the running turn, else those of the session."""
        if turn := await self.find_running_turn():
            try:
                return await turn.fetch_grants()
            except (NoWorker, HoldfastError):
                pass
        return await self._send_query(SessionQuery.GRANTS, tuple[Grant, ...])

    async def revoke(self, grant_id: str, by: str | None = None) -> Grant:
        """Revoke a grant, in the running turn or in the session, and return it. RequestRefused when there is none."""
        if turn := await self.find_running_turn():
            return await turn.revoke(grant_id, by)
        return await self._send_update(
            SessionUpdate.REVOKE, GrantAddress(grant=grant_id, by=by or get_login_name()), Grant
        )


def add_turn_view(view: SessionView, turn: TurnView) -> SessionView:
    """A session's view with the state of its running turn."""
    pending = tuple(item.approval_id for item in turn.approvals)
    if turn.state == "ended":
        return view.model_copy(update={"doing": "idle"})
    if turn.state == "awaiting_approval":
        more = {"status": "awaiting_approval", "doing": f"waiting for confirmation of {len(pending)}"}
    elif turn.state == "running" and turn.batch:
        ended = sum(call.status in ("success", "error", "cancelled") for call in turn.batch.calls)
        more = {"status": "running", "doing": f"running tools {ended} of {len(turn.batch.calls)}"}
    elif turn.state == "stopping":
        more = {"status": "stopping", "doing": "stopping"}
    else:
        more = {"status": "thinking", "doing": "thinking"}
    shown = {"grants": turn.grants, "mode": turn.mode, "usage": view.usage + turn.usage, "pending": pending}
    return view.model_copy(update={**more, **shown})
