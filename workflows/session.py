"""SessionWorkflow: a conversation that outlives its turns, as a thin shell around `SessionState`.

Each message of the user has a turn, a child workflow. Between turns, when its history has become long, the session
continues as new with all that it knows; messages that arrive meanwhile wait for the next run (S42).

Why: docs/decisions/0025-sessions-and-delegated-turns.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError, FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.approvals.grants import Grant
    from holdfast.domain.base import describe_problems
    from holdfast.domain.conversation.messages import ConversationPage
    from holdfast.domain.session.session_io import (
        MOVE_SIGNAL,
        SESSION_WORKFLOW,
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
    from holdfast.errors import PayloadUnreadable, RequestRefused
    from holdfast.util.text import shorten_text
    from holdfast.workflows.activity_failures import describe_failure
    from holdfast.workflows.child_workflow import ChildTurn, start_child_turn
    from holdfast.workflows.continue_as_new import (
        continue_on_newer_version,
        find_version,
        has_newer_version,
        is_history_long,
    )
    from holdfast.workflows.handlers import query, signal, update
    from holdfast.workflows.unreadable_signals import explain_absent_input


# Without the sandbox (docs/decisions/0021-workflows-without-sandbox.md): it takes a third of a turn's processor time.
# Tests load and replay every workflow inside it.
@workflow.defn(name=SESSION_WORKFLOW, sandboxed=False)
class SessionWorkflow:
    """One conversation."""

    # Read by hand, as a turn's input is: one that cannot be read ends the session with a reason.
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self._state = SessionState(workflow.info().workflow_id)
        self._child: ChildTurn | None = None
        self._unwanted: str | None = None
        """The turn that is to stop."""
        self._leaving = False
        """Nothing more begins in this run."""
        self._bad_input: str | None = None
        self._moved_from: str | None = None
        """The version that the run before this one left."""
        self._absent = explain_absent_input(inputs)
        if self._absent:
            return
        try:
            input = SessionInput.model_validate(inputs[0] if len(inputs) == 1 else None)
            if workflow.info().continued_run_id is None:
                check_session(input)
            self._state.apply_input(input)
            self._moved_from = input.carried.moved_from if input.carried else None
        except RequestRefused as refusal:
            self._bad_input = f"The session cannot start: {refusal}"
        except ValidationError as error:
            self._bad_input = f"The session cannot start: {shorten_text(describe_problems(error, 'input'), 2_000)}"

    @workflow.run
    async def run(self, *inputs: Any) -> SessionResult:
        """Take turns until it is closed."""
        if self._absent:
            raise PayloadUnreadable(self._absent)  # the task fails, and is tried again
        if self._bad_input:
            raise ApplicationError(self._bad_input, type="bad_input", non_retryable=True)
        turns = asyncio.create_task(self._take_turns())
        while not turns.done():
            try:
                await workflow.wait_condition(turns.done)
            except asyncio.CancelledError:
                self._state.close(CloseSession(by="Somebody who cancelled it", now=True))
                self._stop_turn()
        going_on = turns.result()
        self._leaving = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        if going_on:
            continue_on_newer_version(
                self._state.build_carryover(moved_from=find_version() if self._is_outdated() else None)
            )
        return self._state.build_result()

    @property
    def observed_state(self) -> SessionState:
        """What is told of it to whoever watches all sessions."""
        return self._state

    async def _take_turns(self) -> bool:
        """True when the session is to go on in another run."""
        state = self._state
        while True:
            if is_history_long() or self._is_outdated():
                return True
            if state.waiting:
                await self._take_turn()
            elif state.closing:
                return False
            else:
                await workflow.wait_condition(lambda: bool(state.waiting or state.closing or self._is_outdated()))

    def _is_outdated(self) -> bool:
        """Is there a newer version of the code to go on with? Not for one that came back from there, or is to end.

        Once there was none, the version that it had left is the right one again, and what comes later is news.
        """
        if not has_newer_version():
            self._moved_from = None
            return False
        return not self._state.closing and find_version() != self._moved_from

    async def _take_turn(self) -> None:
        state, input = self._state, self._state.begin_turn(workflow.info().first_execution_run_id)
        assert state.turn, "it has just begun"
        try:
            self._child = await start_child_turn(input, state.turn, input.prompt or "")
            if self._unwanted == state.turn:
                self._child.cancel()
            state.end_turn(await self._child.result())
        except ChildWorkflowError as error:
            state.fail_turn(describe_failure(error))
        except FailureError as error:  # a workflow of that name runs already
            state.fail_turn(f"The turn could not begin: {error}")
        finally:
            self._child = None

    def _stop_turn(self) -> None:
        """Stop the turn that runs; one that is about to begin is stopped when it has."""
        self._unwanted = self._state.turn
        if self._child:
            self._child.cancel()

    @update("send", SendMessage)
    async def send(self, body: SendMessage) -> SendResult:
        """Take what the user says: a turn of its own, or a word to the turn that runs."""
        idle = self._state.turn is None
        sent, word = self._state.add_message(body)
        if word:
            await self._signal_turn("interrupt" if body.how == "interrupt" else "append", word)
        elif idle and not sent.ahead:
            await workflow.wait_condition(lambda: not self._is_about_to_begin(body, sent.turn))
        return sent

    @send.validator
    def validate_send(self, body: SendMessage) -> None:
        """Refuse what a closed session, or one with too much before it, would not take."""
        self._state.check_message(body)

    def _is_about_to_begin(self, message: SendMessage, turn: str) -> bool:
        """Is the turn of a message not yet there to be watched?"""
        waits = message in self._state.waiting or (self._state.turn == turn and self._child is None)
        return waits and not self._leaving

    async def _signal_turn(self, signal: str, word: Interruption) -> None:
        """Say something to the turn that runs. When it does not hear that any more, the session knows by its end."""
        turn = self._state.turn
        await workflow.wait_condition(lambda: self._child is not None or self._state.turn != turn)
        if self._child and self._state.turn == turn:
            await self._child.signal_and_wait(signal, word)

    @update("withdraw", WithdrawMessage)
    def withdraw(self, body: WithdrawMessage) -> None:
        """Take a message back that has not had its turn."""
        self._state.withdraw_message(body.id)

    @withdraw.validator
    def validate_withdraw(self, body: WithdrawMessage) -> None:
        """Only what waits can be taken back."""
        self._state.check_withdraw(body.id)

    @update("interrupt", InterruptTurn)
    def interrupt(self, body: InterruptTurn) -> None:
        """Stop the turn that runs; everything in it is answered, and the session goes on."""
        self._stop_turn()

    @interrupt.validator
    def validate_interrupt(self, body: InterruptTurn) -> None:
        """Only a turn that runs can be stopped."""
        if self._state.turn is None:
            raise RequestRefused("idle", "no turn runs in this session")

    @update("close", CloseSession)
    def close(self, body: CloseSession) -> None:
        """Take nothing more, and end when what was said is done; or now."""
        self._state.close(body)
        if body.now:
            self._stop_turn()

    @update("configure", SessionChange)
    def configure(self, body: SessionChange) -> None:
        """Change how the next turns go."""
        self._state.configure(body)

    @update("revoke", GrantAddress)
    def revoke(self, body: GrantAddress) -> Grant:
        """Take a standing answer back, between turns."""
        return self._state.revoke_grant(body.grant)

    @revoke.validator
    def validate_revoke(self, body: GrantAddress) -> None:
        """Only what there is, and only while no turn has it."""
        self._state.check_revoke(body.grant)

    # A signal: it works with no worker up, and whoever sends it to all sessions of a version waits for none of them.
    @signal(MOVE_SIGNAL)
    def move(self) -> None:
        """Wake it. Whether there is newer code it sees by itself."""

    @query("view")
    def view(self) -> SessionView:
        """How it stands, as far as it knows itself."""
        return self._state.build_view()

    @query("messages")
    def messages(self, after: int = 0, epoch: int | None = None) -> ConversationPage:
        """The messages that whoever asks does not have yet."""
        return self._state.build_page(after, epoch)

    @query("grants")
    def grants(self) -> tuple[Grant, ...]:
        """The standing answers, as they were when the turn that runs began."""
        return self._state.memory.grants
