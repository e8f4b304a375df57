"""Asking a person at a terminal about one waiting call after another, and taking the keys that answer.

Where it is shown is another's concern: something is printed above, or the terminal is another program's for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Protocol

from rich.console import RenderableType
from rich.text import Text

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.approvals.approval import ApprovalId
from holdfast.domain.calls.events import Event
from holdfast.domain.turn import views
from holdfast.domain.turn.views import ApprovalView
from holdfast.errors import HoldfastError
from holdfast.util.text import strip_controls
from holdfast.workers.lookup.approvals import PendingApproval
from holdfast.workers.terminal import approval_text, render
from holdfast.workers.terminal.event_lines import describe_interim_change, describe_news
from holdfast.workers.terminal.grant_text import GrantWish, describe_coverage, number_offers
from holdfast.workers.terminal.input import Keyboard, find_pager, show_in_pager
from holdfast.workers.terminal.live.answer_input import (
    DONE_ANSWER,
    KEY_DECISIONS,
    KEY_LABELS,
    LATER,
    NO,
    STOP,
    UNKNOWN_OUTCOME_DECISIONS,
    UNKNOWN_OUTCOME_LABELS,
    Drafts,
    describe_answering,
    describe_delivery,
    describe_waiting,
    format_heading,
    read_answer,
)
from holdfast.workers.terminal.live.edit_call import change_in_editor
from holdfast.workers.terminal.turn_board import Board, Row

KEY_SECONDS = 0.15
RETRY_SECONDS = 1.0
SETTLE_SECONDS = 0.5
"""After an answer from now on: what it covers need not be asked about."""


class ApprovalScreen(Protocol):
    """Where it is asked."""

    def print_above(self, item: RenderableType) -> None:
        """Print something above."""

    def lend_terminal(self, keyboard: Keyboard) -> AbstractContextManager[None]:
        """The terminal is another program's, until the end of the block."""


ExtraKeys = Mapping[str, Callable[[Keyboard], Awaitable[None]]]


class Asker:
    """What one person is asked about one turn."""

    def __init__(
        self, holdfast: Holdfast, turn: Turn, board: Board, stage: ApprovalScreen, extra_keys: ExtraKeys | None = None
    ) -> None:
        """`besides`: keys that do something else, as far as they answer nothing."""
        self._extra_keys = extra_keys or {}
        self._holdfast = holdfast
        self._turn = turn
        self.boards = {turn.id: board}
        """That of the turn, and of those that its calls run."""
        self._stage = stage
        self._pending: PendingApproval | None = None
        self._offer: int | None = None
        """The standing answer that they are about to give."""
        self._skipped: set[str] = set()
        self._mine: set[str] = set()
        """What they have answered."""
        self._drafts: Drafts = {}
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._began = datetime.now(UTC)
        self.free = asyncio.Event()
        """Is nothing at work that must not be torn apart: no editor open, no message on its way?"""
        self.free.set()
        self.which = ""
        """The call that is asked about, in a line."""
        self.stopped = False
        """Have they stopped the turn?"""

    @property
    def asked_call_id(self) -> str | None:
        """The call that is asked about."""
        return self._pending.call.id if self._pending else None

    @property
    def waiting_summary(self) -> str:
        """What waits and is not asked about now: put off, or answered and waiting for others."""
        rows = self._waiting_rows
        waiting = [row.approval_id for row in rows]
        if not waiting or not set(waiting) <= self._skipped | self._mine:
            return ""
        if self._skipped.isdisjoint(waiting):
            return f"{len(waiting)} waiting for others: you have answered"
        return f"{len(waiting)} waiting for {describe_waiting(rows)}"

    @property
    def _waiting_rows(self) -> list[Row]:
        """The calls that wait for a person, those of delegated turns last."""
        return [row for board in list(self.boards.values()) for row in board.waiting_rows]

    @property
    def prompt(self) -> str:
        """The keys that answer."""
        if self._pending is None or self._pending.approval.kind == approval_text.QUESTION_KIND:
            return ""
        offers = self._pending.approval.offers
        if self._offer is not None:
            others = f"  [1-{min(len(offers), 9)}] another" if len(offers) > 1 else ""
            return f"from now on, as {self._offer + 1}?  [y] yes  [n] no{others}"
        keys = UNKNOWN_OUTCOME_LABELS if self._pending.approval.kind == approval_text.UNKNOWN_KIND else KEY_LABELS
        return "  ".join(f"[{key}] {word}" for key, word in keys.items() if key != "a" or offers)

    def press_key(self, key: str) -> None:
        """Somebody pressed a key."""
        self._keys.put_nowait(key)

    def forget_keys(self) -> None:
        """Drop what was typed before a question was shown: it was not meant for it."""
        while not self._keys.empty():
            self._keys.get_nowait()

    def notice_event(self, event: Event, turn_id: str) -> None:
        """Tell what others do in a turn; stop asking about what they have decided or changed."""
        if event.at > self._began and (words := describe_news(event, self._holdfast.actor_name)):
            self._print_words(words)
        if event.kind != "call":
            return
        asked = self._pending.approval if self._pending else None
        its = (
            asked is not None
            and event.call == self.asked_call_id
            and ApprovalId.parse(asked.approval_id).turn == turn_id
        )
        if asked and its and event.approval_id != asked.approval_id:
            own = asked.approval_id in self._mine or (event.approval_id and not self.free.is_set())
            if not own:
                self._print_words(describe_interim_change(event, self._holdfast.actor_name))
            self._stop_asking()

    async def run(self, keyboard: Keyboard) -> None:
        """Ask for as long as we are watched."""
        while True:
            if self._pending is None:
                await self._ask_next()
            if self._pending and self._pending.approval.kind == approval_text.QUESTION_KIND:
                await self._answer_question(self._pending.approval, keyboard)
                continue
            try:
                async with asyncio.timeout(KEY_SECONDS):
                    key = await self._keys.get()
            except TimeoutError:
                continue
            await self._take_key(key, keyboard)

    async def _take_key(self, key: str, keyboard: Keyboard) -> None:
        asked = self._pending
        if key in self._extra_keys and not self._is_answer_key(key):
            await self._run_extra_key(key, keyboard)
        elif asked is None:
            self._skipped = set() if key == "a" else self._skipped
        elif self._offer is not None:
            await self._choose_grant(asked.approval, self._offer, key)
        elif key == "v":
            await self._view_question(asked.approval, keyboard)
        elif asked.approval.kind == approval_text.UNKNOWN_KIND:
            await self._settle_unknown_outcome(asked.approval, key, keyboard)
        elif key == "e":
            await self._edit_call(asked, keyboard)
        elif key == "a":
            self._show_offers(asked.approval)
        elif key == "r":
            await self._refuse_call(asked.approval, keyboard)
        else:
            await self._answer_approval(asked.approval, key)

    def _is_answer_key(self, key: str) -> bool:
        """Does a key answer what is asked, or ask for it?"""
        return (
            key in {*KEY_LABELS, *UNKNOWN_OUTCOME_LABELS}
            if self._pending
            else key == "a" and bool(self.waiting_summary)
        )

    async def _run_extra_key(self, key: str, keyboard: Keyboard) -> None:
        self.free.clear()
        try:
            await self._extra_keys[key](keyboard)
        finally:
            self.free.set()

    async def _ask_next(self) -> None:
        open_rows = [row for row in self._waiting_rows if row.approval_id not in self._skipped | self._mine]
        if not open_rows or self.stopped:
            return
        row = open_rows[0]
        turn_id = ApprovalId.parse(row.approval_id or "").turn
        try:
            call = await self._holdfast.get_turn(turn_id).fetch_call(row.call)
        except HoldfastError:
            await asyncio.sleep(RETRY_SECONDS)
            return
        approval = views.build_whole_approval(turn_id, call)
        if row.status != "awaiting_approval" or row.approval_id != approval.approval_id:
            return
        place = f"call {row.place} of {row.of}" + ("" if turn_id == self._turn.id else ", of a delegated task")
        head = format_heading(approval, place)
        self._stage.print_above(
            approval_text.render_question(approval, heading=f"\n{head}", more="[v] shows all", fields="names")
        )
        self.forget_keys()
        self.which = f"{place}, {approval_text.describe_subject(approval)}:"
        self._pending = PendingApproval(approval, call)

    async def _view_question(self, approval: ApprovalView, keyboard: Keyboard) -> None:
        """All of the question in the viewer's pager; without one, all of it is printed."""
        text = approval_text.format_whole(approval)
        command = find_pager()
        with self._stage.lend_terminal(keyboard):
            shown = bool(command) and await show_in_pager(command, text)
        if not shown:
            self._stage.print_above(Text(text))

    async def _edit_call(self, pending: PendingApproval, keyboard: Keyboard) -> None:
        """Let them change the call in their editor; what they make of it is asked about again."""
        kept: list[str] = []
        self.free.clear()
        try:
            with self._stage.lend_terminal(keyboard):
                changed = await change_in_editor(self._holdfast, pending, "modify", kept.append)
            self._print_words(f"Changed.{describe_delivery(changed.answer)}" if changed else "Nothing was changed.")
            if changed:
                self._mine.add(pending.approval.approval_id)
                self._stop_asking()
        except HoldfastError as error:
            self._stage.print_above(Text(f"That did not count: {strip_controls(str(error))}", "red"))
        finally:
            for words in kept:
                self._print_words(words)
            self.free.set()

    def _show_offers(self, approval: ApprovalView) -> None:
        """Say what could be answered from now on, before any of it is."""
        if not approval.offers:
            self._print_words("This one can only be answered for once.")
            return
        self._stage.print_above(Text("\n".join(f"  {row}" for row in number_offers(approval.offers)), "yellow"))
        self.forget_keys()
        self._offer = 0

    async def _choose_grant(self, approval: ApprovalView, number: int, key: str) -> None:
        offers = approval.offers
        if key.isdecimal() and 0 < int(key) <= len(offers):
            self._offer = int(key) - 1
        elif key == "n":
            self._offer = None
            self._print_words("Not from now on: what about this one?")
        elif key == "y":
            offer = offers[number]
            words = f"Approved; {describe_coverage(offer, GrantWish(), datetime.now(UTC), turn=self._turn.id)}."
            await self._send_decision(approval, offer.outcome, words, scope=offer.scope)
            await asyncio.sleep(SETTLE_SECONDS)

    async def _answer_question(self, approval: ApprovalView, keyboard: Keyboard) -> None:
        """Let the person answer a question in a line of their own: single keys would be the start of an answer."""
        self._print_words(f"({describe_answering(approval)})")
        with self._stage.lend_terminal(keyboard):
            typing = asyncio.create_task(read_answer(approval, keyboard, self._drafts))
            while not typing.done() and self._pending and self._pending.approval is approval:
                await asyncio.wait({typing}, timeout=KEY_SECONDS)
            typing.cancel()
        if not self._pending or self._pending.approval is not approval:
            return
        answer = typing.result()
        if answer == LATER:
            await self._answer_approval(approval, "s")
        elif answer in (NO, STOP):
            await self._answer_approval(approval, "n" if answer == NO else "N")
        else:
            await self._send_decision(approval, "respond", "Answered.", content=answer)

    async def _refuse_call(self, approval: ApprovalView, keyboard: Keyboard) -> None:
        """Refuse, with words for the model."""
        self._print_words("(why not, for the model; an empty line goes back)")
        with self._stage.lend_terminal(keyboard):
            words = (await keyboard.read_line("why> ")).strip()
        if words:
            await self._send_decision(approval, "cancel", "Refused, and the model reads why.", note=words)

    async def _settle_unknown_outcome(self, approval: ApprovalView, key: str, keyboard: Keyboard) -> None:
        """What is to become of a call that nobody knows whether it ran."""
        if key == "d":
            self._print_words("(what it gave, for the model; an empty line says only that it was done)")
            with self._stage.lend_terminal(keyboard):
                words = (await keyboard.read_line("result> ")).strip()
            await self._send_decision(approval, "respond", "Taken as done.", content=words or DONE_ANSWER)
        elif key in UNKNOWN_OUTCOME_DECISIONS:
            outcome, self.stopped, words = UNKNOWN_OUTCOME_DECISIONS[key]
            await self._send_decision(approval, outcome, words, stop_turn=self.stopped)
        elif key == "s":
            await self._answer_approval(approval, key)

    async def _answer_approval(self, approval: ApprovalView, key: str) -> None:
        if key == "s":
            self._skipped.add(approval.approval_id)
            self._stop_asking()
            self._print_words(f"Skipped; later: {approval_text.format_answer_command(approval)}")
        if key in KEY_DECISIONS:
            outcome, self.stopped, words = KEY_DECISIONS[key]
            await self._send_decision(approval, outcome, words, stop_turn=self.stopped)

    async def _send_decision(self, approval: ApprovalView, outcome: str, words: str, **details: Any) -> None:
        name = approval.approval_id
        self._mine.add(name)
        self._stop_asking()
        try:
            counted = await self._holdfast.decide(name, outcome, digest=approval.digest, **details)
        except HoldfastError as error:
            self.stopped = False
            self._mine.discard(name)
            self._skipped.add(name)
            self._stage.print_above(Text(f"That did not count: {strip_controls(str(error))}", "red"))
            return
        others = " Somebody else's word is needed too." if counted and counted.status == "awaiting_approval" else ""
        self._print_words(f"{words}{others}{describe_delivery(counted)}")

    def _stop_asking(self) -> None:
        """Stop asking."""
        self._pending = self._offer = None

    def _print_words(self, words: str) -> None:
        self._stage.print_above(Text(render.format_line(words, 2_000), "dim"))
