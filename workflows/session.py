"""SessionWorkflow: a conversation that outlives its turns, as a thin shell around `SessionState`.

Each message of the user has a turn, a child workflow. Between turns, when its history has become long, the session
continues as new with all that it knows; messages that arrive meanwhile wait for the next run (S42).

Why: docs/decisions/0025-sessions-and-delegated-turns.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.approvals.grants import Grant
    from holdfast.domain.conversation.messages import ConversationPage
    from holdfast.domain.session.session_io import (
        CloseSession,
        InterruptTurn,
        SendMessage,
        SendResult,
        SessionChange,
        SessionInput,
        SessionResult,
        SessionView,
        WithdrawMessage,
        check_session,
    )
    from holdfast.domain.session.session_state import SessionState
    from holdfast.domain.turn.update_bodies import GrantAddress, Interruption
    from holdfast.errors import RequestRefused
    from holdfast.names import SESSION_WORKFLOW, SessionQuery, SessionSignal, SessionUpdate, TurnSignal
    from holdfast.workflows.activity_failures import describe_failure
    from holdfast.workflows.child_turns import ChildTurn, start_child_turn
    from holdfast.workflows.handlers import query, signal, update
    from holdfast.workflows.workflow_run import (
        continue_on_newer_version,
        find_version,
        has_newer_version,
        is_history_long,
        read_input,
    )


# Without the sandbox (docs/decisions/0021-workflows-without-sandbox.md): it takes a third of a turn's processor time.
# Tests load and replay every workflow inside it.
@workflow.defn(name=SESSION_WORKFLOW, sandboxed=False)
class SessionWorkflow:
    """A session: a conversation of several turns."""

    # Messages may be delivered before `run` has begun, so the input is read here.
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        input, self._input_error = read_input(inputs, _parse_input, "session")
        self._state = SessionState(workflow.info().workflow_id, input)
        self._child: ChildTurn | None = None
        self._unwanted: str | None = None
        """The id of the turn that must stop."""
        self._leaving = False
        """No further turn begins in this run."""
        self._moved_from = input.carried.moved_from if input and input.carried else None
        """The worker version that the run before this one left."""

    @workflow.run
    async def run(self, *inputs: Any) -> SessionResult:
        """Run turns until the session is closed."""
        if self._input_error:
            raise self._input_error
        goes_on = await self._run_turns_unless_cancelled()
        self._leaving = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        if goes_on:
            moved_from = find_version() if self._is_outdated() else None
            continue_on_newer_version(self._state.build_carryover(moved_from))
        return self._state.build_result()

    @property
    def observed_state(self) -> SessionState:
        """The state as telemetry reads it."""
        return self._state

    async def _run_turns_unless_cancelled(self) -> bool:
        """Run turns. A cancellation closes the session and stops its turn. Returns True to continue as new."""
        turns = asyncio.create_task(self._run_turns())
        while not turns.done():
            try:
                await workflow.wait_condition(turns.done)
            except asyncio.CancelledError:
                self._state.close(CloseSession(by="Somebody who cancelled it", now=True))
                self._stop_turn()
        return turns.result()

    async def _run_turns(self) -> bool:
        """Run a turn for every queued message. Returns True to continue as new."""
        state = self._state
        while True:
            if is_history_long() or self._is_outdated():
                return True
            if state.waiting:
                await self._run_turn()
            elif state.closing:
                return False
            else:
                await workflow.wait_condition(lambda: bool(state.waiting or state.closing or self._is_outdated()))

    def _is_outdated(self) -> bool:
        """Must the session move to a newer worker version? Not when it is closing, or was moved back from that version.

        After a time without a newer version, it may move to that version again.
        """
        if not has_newer_version():
            self._moved_from = None
            return False
        return not self._state.closing and find_version() != self._moved_from

    async def _run_turn(self) -> None:
        state, input = self._state, self._state.begin_turn(workflow.info().first_execution_run_id)
        assert state.turn, "it has just begun"
        try:
            self._child = await start_child_turn(input, state.turn, input.prompt or "")
            if self._unwanted == state.turn:
                self._child.cancel()
            state.end_turn(await self._child.result())
        except ChildWorkflowError as error:
            state.fail_turn(describe_failure(error))
        except FailureError as error:  # a workflow with this id runs already
            state.fail_turn(f"The turn could not begin: {error}")
        finally:
            self._child = None

    def _stop_turn(self) -> None:
        """Stop the running turn; one that is about to start is stopped when it has started."""
        self._unwanted = self._state.turn
        if self._child:
            self._child.cancel()

    @update(SessionUpdate.SEND, SendMessage)
    async def send(self, body: SendMessage) -> SendResult:
        """Queue a message of the user for a turn of its own, or send it to the running turn."""
        idle = self._state.turn is None
        sent, interruption = self._state.add_message(body)
        if interruption:
            await self._signal_turn(
                TurnSignal.INTERRUPT if body.how == "interrupt" else TurnSignal.APPEND, interruption
            )
        elif idle and not sent.ahead:
            await workflow.wait_condition(lambda: not self._is_about_to_begin(body, sent.turn))
        return sent

    @send.validator
    def validate_send(self, body: SendMessage) -> None:
        """Refuse a message to a closed session or a full one."""
        self._state.check_message(body)

    def _is_about_to_begin(self, message: SendMessage, turn: str) -> bool:
        """Has the turn of a message not started yet? Then it cannot be watched."""
        waits = message in self._state.waiting or (self._state.turn == turn and self._child is None)
        return waits and not self._leaving

    async def _signal_turn(self, signal: str, message: Interruption) -> None:
        """Send a message to the running turn. The result of the turn says whether it has read the message."""
        turn = self._state.turn
        await workflow.wait_condition(lambda: self._child is not None or self._state.turn != turn)
        if self._child and self._state.turn == turn:
            await self._child.signal_and_wait(signal, message)

    @update(SessionUpdate.WITHDRAW, WithdrawMessage)
    def withdraw(self, body: WithdrawMessage) -> None:
        """Withdraw a message whose turn has not started."""
        self._state.withdraw_message(body.id)

    @withdraw.validator
    def validate_withdraw(self, body: WithdrawMessage) -> None:
        """Refuse a message that is not queued."""
        self._state.check_withdraw(body.id)

    @update(SessionUpdate.INTERRUPT, InterruptTurn)
    def interrupt(self, body: InterruptTurn) -> None:
        """Stop the running turn; its calls are answered, and the session goes on."""
        self._stop_turn()

    @interrupt.validator
    def validate_interrupt(self, body: InterruptTurn) -> None:
        """Refuse when no turn runs."""
        if self._state.turn is None:
            raise RequestRefused("idle", "no turn runs in this session")

    @update(SessionUpdate.CLOSE, CloseSession)
    def close(self, body: CloseSession) -> None:
        """Close the session: it ends after its queued messages, or now."""
        self._state.close(body)
        if body.now:
            self._stop_turn()

    @update(SessionUpdate.CONFIGURE, SessionChange)
    def configure(self, body: SessionChange) -> None:
        """Change the model or the mode of the next turns."""
        self._state.configure(body)

    @update(SessionUpdate.REVOKE, GrantAddress)
    def revoke(self, body: GrantAddress) -> Grant:
        """Revoke a grant, between turns."""
        return self._state.revoke_grant(body.grant)

    @revoke.validator
    def validate_revoke(self, body: GrantAddress) -> None:
        """Refuse an unknown grant, and any while a turn runs, which then holds the grants."""
        self._state.check_revoke(body.grant)

    # A signal: it works without a worker, and the sender need not wait for every session of a version.
    @signal(SessionSignal.MOVE)
    def move(self) -> None:
        """Wake the session, which then checks for a newer worker version."""

    @query(SessionQuery.VIEW)
    def view(self) -> SessionView:
        """The state of the session, without that of its running turn."""
        return self._state.build_view()

    @query(SessionQuery.MESSAGES)
    def messages(self, after: int = 0, epoch: int | None = None) -> ConversationPage:
        """The messages that the caller does not have yet."""
        return self._state.build_page(after, epoch)

    @query(SessionQuery.GRANTS)
    def grants(self) -> tuple[Grant, ...]:
        """The grants, as they were when the running turn began."""
        return self._state.memory.grants


def _parse_input(given: Any) -> SessionInput:
    input = SessionInput.model_validate(given)
    if workflow.info().continued_run_id is None:
        check_session(input)
    return input
