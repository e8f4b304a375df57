"""SessionWorkflow: a conversation that outlives its turns, as a thin shell around `SessionState`.

Each message of the user has a turn, a child workflow. Between turns, when its history has become long, the session
continues as new with all that it knows; messages that arrive meanwhile wait for the next run (S42).
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError, FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast.content import shorten
    from holdfast.conversations import ConversationPage
    from holdfast.errors import PayloadUnreadable, RequestRefused
    from holdfast.grants import Grant
    from holdfast.model import problems
    from holdfast.requests import GrantAddress, Interruption
    from holdfast.session_state import SessionState
    from holdfast.sessions import (
        MOVE,
        SESSION,
        Close,
        Interrupt,
        Say,
        Sent,
        SessionInput,
        SessionResult,
        SessionView,
        Wish,
        Withdraw,
        check_session,
    )
    from holdfast.workflows.children import Child, begin_turn
    from holdfast.workflows.failures import reason_of
    from holdfast.workflows.handlers import query, signal, update
    from holdfast.workflows.histories import long_history
    from holdfast.workflows.unread import absent
    from holdfast.workflows.versions import go_on, newer_version, version


# Without the sandbox: it takes a third of a turn's processor time. Tests load and replay every workflow inside it.
@workflow.defn(name=SESSION, sandboxed=False)
class SessionWorkflow:
    """One conversation."""

    # Read by hand, as a turn's input is: one that cannot be read ends the session with a reason.
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self._state = SessionState(workflow.info().workflow_id)
        self._child: Child | None = None
        self._unwanted: str | None = None
        """The turn that is to stop."""
        self._leaving = False
        """Nothing more begins in this run."""
        self._bad_input: str | None = None
        self._moved_from: str | None = None
        """The version that the run before this one left."""
        self._absent = absent(inputs)
        if self._absent:
            return
        try:
            input = SessionInput.model_validate(inputs[0] if len(inputs) == 1 else None)
            if workflow.info().continued_run_id is None:
                check_session(input)
            self._state.begin(input)
            self._moved_from = input.carried.moved_from if input.carried else None
        except RequestRefused as refusal:
            self._bad_input = f"The session cannot start: {refusal}"
        except ValidationError as error:
            self._bad_input = f"The session cannot start: {shorten(problems(error, 'input'), 2_000)}"

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
                self._state.close(Close(by="Somebody who cancelled it", now=True))
                self._stop_turn()
        going_on = turns.result()
        self._leaving = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        if going_on:
            go_on(self._state.carry(moved_from=version() if self._outdated() else None))
        return self._state.result()

    @property
    def observed(self) -> SessionState:
        """What is told of it to whoever watches all sessions."""
        return self._state

    async def _take_turns(self) -> bool:
        """True when the session is to go on in another run."""
        state = self._state
        while True:
            if long_history() or self._outdated():
                return True
            if state.waiting:
                await self._take_turn()
            elif state.closing:
                return False
            else:
                await workflow.wait_condition(lambda: bool(state.waiting or state.closing or self._outdated()))

    def _outdated(self) -> bool:
        """Is there a newer version of the code to go on with? Not for one that came back from there, or is to end.

        Once there was none, the version that it had left is the right one again, and what comes later is news.
        """
        if not newer_version():
            self._moved_from = None
            return False
        return not self._state.closing and version() != self._moved_from

    async def _take_turn(self) -> None:
        state, input = self._state, self._state.begin_turn(workflow.info().first_execution_run_id)
        assert state.turn, "it has just begun"
        try:
            self._child = await begin_turn(input, state.turn, input.prompt or "")
            if self._unwanted == state.turn:
                self._child.cancel()
            state.end_turn(await self._child.result())
        except ChildWorkflowError as error:
            state.fail_turn(reason_of(error))
        except FailureError as error:  # a workflow of that name runs already
            state.fail_turn(f"The turn could not begin: {error}")
        finally:
            self._child = None

    def _stop_turn(self) -> None:
        """Stop the turn that runs; one that is about to begin is stopped when it has."""
        self._unwanted = self._state.turn
        if self._child:
            self._child.cancel()

    @update("send", Say)
    async def send(self, body: Say) -> Sent:
        """Take what the user says: a turn of its own, or a word to the turn that runs."""
        idle = self._state.turn is None
        sent, word = self._state.say(body)
        if word:
            await self._tell("interrupt" if body.how == "interrupt" else "append", word)
        elif idle and not sent.ahead:
            await workflow.wait_condition(lambda: not self._about_to_begin(body, sent.turn))
        return sent

    @send.validator
    def validate_send(self, body: Say) -> None:
        """Refuse what a closed session, or one with too much before it, would not take."""
        self._state.check_say(body)

    def _about_to_begin(self, said: Say, turn: str) -> bool:
        """Is the turn of a message not yet there to be watched?"""
        waits = said in self._state.waiting or (self._state.turn == turn and self._child is None)
        return waits and not self._leaving

    async def _tell(self, signal: str, word: Interruption) -> None:
        """Say something to the turn that runs. When it does not hear that any more, the session knows by its end."""
        turn = self._state.turn
        await workflow.wait_condition(lambda: self._child is not None or self._state.turn != turn)
        if self._child and self._state.turn == turn:
            await self._child.tell(signal, word)

    @update("withdraw", Withdraw)
    def withdraw(self, body: Withdraw) -> None:
        """Take a message back that has not had its turn."""
        self._state.withdraw(body.id)

    @withdraw.validator
    def validate_withdraw(self, body: Withdraw) -> None:
        """Only what waits can be taken back."""
        self._state.check_withdraw(body.id)

    @update("interrupt", Interrupt)
    def interrupt(self, body: Interrupt) -> None:
        """Stop the turn that runs; everything in it is answered, and the session goes on."""
        self._stop_turn()

    @interrupt.validator
    def validate_interrupt(self, body: Interrupt) -> None:
        """Only a turn that runs can be stopped."""
        if self._state.turn is None:
            raise RequestRefused("idle", "no turn runs in this session")

    @update("close", Close)
    def close(self, body: Close) -> None:
        """Take nothing more, and end when what was said is done; or now."""
        self._state.close(body)
        if body.now:
            self._stop_turn()

    @update("configure", Wish)
    def configure(self, body: Wish) -> None:
        """Change how the next turns go."""
        self._state.configure(body)

    @update("revoke", GrantAddress)
    def revoke(self, body: GrantAddress) -> Grant:
        """Take a standing answer back, between turns."""
        return self._state.revoke(body.grant)

    @revoke.validator
    def validate_revoke(self, body: GrantAddress) -> None:
        """Only what there is, and only while no turn has it."""
        self._state.check_revoke(body.grant)

    # A signal: it works with no worker up, and whoever sends it to all sessions of a version waits for none of them.
    @signal(MOVE)
    def move(self) -> None:
        """Wake it. Whether there is newer code it sees by itself."""

    @query("view")
    def view(self) -> SessionView:
        """How it stands, as far as it knows itself."""
        return self._state.view()

    @query("messages")
    def messages(self, after: int = 0, epoch: int | None = None) -> ConversationPage:
        """The messages that whoever asks does not have yet."""
        return self._state.page(after, epoch)

    @query("grants")
    def grants(self) -> tuple[Grant, ...]:
        """The standing answers, as they were when the turn that runs began."""
        return self._state.memory.grants
