"""Asking a person at a terminal about one pending approval after another, by single keys.

An `ApprovalScreen` shows the questions.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Protocol

from rich.text import Text

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.approvals.approval import ApprovalId
from holdfast.domain.calls.events import Event
from holdfast.domain.turn import approval_view
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.errors import HoldfastError
from holdfast.util.text import strip_controls
from holdfast.workers.lookup.approvals import PendingApproval
from holdfast.workers.terminal import approval_text, render
from holdfast.workers.terminal.editor import find_pager, show_in_pager
from holdfast.workers.terminal.event_lines import describe_interim_change, describe_news
from holdfast.workers.terminal.grant_text import GrantWish, describe_coverage, number_offers
from holdfast.workers.terminal.live.answer_input import (
    DONE_ANSWER,
    KEY_DECISIONS,
    LATER,
    NO,
    STOP,
    UNKNOWN_OUTCOME_DECISIONS,
    Drafts,
    LineReader,
    describe_answering,
    describe_delivery,
    describe_waiting,
    format_heading,
    format_keys,
    list_keys,
    read_answer,
)
from holdfast.workers.terminal.live.edit_call import change_in_editor
from holdfast.workers.terminal.turn_board import Board, Row

KEY_SECONDS = 0.15
RETRY_SECONDS = 1.0
ARM_SECONDS = 0.3
"""Nobody reads a question faster: until then its keys are not shown, and a pressed key is ignored."""
SETTLE_SECONDS = 0.5
"""The pause after a grant was given, in which the calls that it covers are allowed."""
ASK_AGAIN_KEY = "a"


class ApprovalScreen(LineReader, Protocol):
    """Where the questions are shown."""

    def lend_terminal(self) -> AbstractAsyncContextManager[None]:
        """Lend the terminal to another program, until the end of the block."""


class Asker:
    """Asks one person about the calls of one turn, and of the turns that it delegates."""

    def __init__(
        self, holdfast: Holdfast, turn: Turn, board: Board, screen: ApprovalScreen, *, in_chat: bool = False
    ) -> None:
        """In a chat no letter asks again about skipped approvals: it could be the first of a message."""
        self._holdfast = holdfast
        self._turn = turn
        self.boards = {turn.id: board}
        """The board of the turn, and those of the turns that its calls run."""
        self._screen = screen
        self._in_chat = in_chat
        self._pending: PendingApproval | None = None
        self._asked_at = 0.0
        self._offer: int | None = None
        """The offer that the person is about to choose."""
        self._skipped: set[str] = set()
        self._mine: set[str] = set()
        """The approvals that the person has decided on."""
        self._drafts: Drafts = {}
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._began = datetime.now(UTC)
        self.free = asyncio.Event()
        """Cleared while an editor is open: the screen must not end then."""
        self.free.set()
        self.which = ""
        """A line about the call that is asked about."""
        self.stopped = False
        """Whether the turn was asked to stop."""

    @property
    def asked_call_id(self) -> str | None:
        """The call that is asked about."""
        return self._pending.call.id if self._pending else None

    @property
    def waiting_summary(self) -> str:
        """The pending approvals that are not asked about: skipped, or decided here and waiting for other approvers."""
        rows = self._waiting_rows
        waiting = [row.approval_id for row in rows]
        if not waiting or not set(waiting) <= self._skipped | self._mine:
            return ""
        if self._skipped.isdisjoint(waiting):
            return f"{len(waiting)} waiting for other approvers"
        again = "type /ask" if self._in_chat else f"press [{ASK_AGAIN_KEY}]"
        return f"{len(waiting)} waiting for {describe_waiting(rows, again)}"

    @property
    def _waiting_rows(self) -> list[Row]:
        """The calls with a pending approval, those of delegated turns last."""
        return [row for board in list(self.boards.values()) for row in board.waiting_rows]

    @property
    def _is_armed(self) -> bool:
        return asyncio.get_running_loop().time() - self._asked_at >= ARM_SECONDS

    def format_keys(self, width: int) -> str:
        """The keys that answer now; empty if there are none."""
        return format_keys(self._pending.approval, self._offer, width) if self._pending and self._is_armed else ""

    def accepts_key(self, key: str) -> bool:
        """Whether the key answers the question, or asks again about skipped ones."""
        if self._pending is None:
            return key == ASK_AGAIN_KEY and not self._in_chat and bool(self.waiting_summary)
        return self._is_armed and key in list_keys(self._pending.approval, self._offer)

    def press_key(self, key: str) -> None:
        """Take a key that `accepts_key` has accepted."""
        self._keys.put_nowait(key)

    def ask_again(self) -> None:
        """Ask about the skipped approvals again."""
        self._skipped = set()

    def notice_event(self, event: Event, turn_id: str) -> None:
        """Print what others do in a turn; stop asking about a call that they have decided or changed."""
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

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            if self._pending is None:
                await self._ask_next()
            if self._pending and self._pending.approval.kind == approval_text.QUESTION_KIND:
                await self._answer_question(self._pending.approval)
                continue
            try:
                async with asyncio.timeout(KEY_SECONDS):
                    key = await self._keys.get()
            except TimeoutError:
                continue
            await self._take_key(key)

    async def _take_key(self, key: str) -> None:
        asked = self._pending
        if asked is None:
            if key == ASK_AGAIN_KEY:
                self.ask_again()
        elif self._offer is not None:
            await self._choose_grant(asked.approval, self._offer, key)
        elif key == "v":
            await self._view_question(asked.approval)
        elif asked.approval.kind == approval_text.UNKNOWN_KIND:
            await self._settle_unknown_outcome(asked.approval, key)
        elif key == "e":
            await self._edit_call(asked)
        elif key == "a":
            self._show_offers(asked.approval)
        elif key == "r":
            await self._refuse_call(asked.approval)
        else:
            await self._answer_approval(asked.approval, key)

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
        approval = approval_view.build_whole_approval(turn_id, call)
        if row.status != "awaiting_approval" or row.approval_id != approval.approval_id:
            return
        place = f"call {row.place} of {row.of}" + ("" if turn_id == self._turn.id else ", of a delegated task")
        head = format_heading(approval, place)
        self._screen.print_above(
            approval_text.render_question(approval, heading=f"\n{head}", more="[v] shows all", fields="names")
        )
        self._forget_keys()
        self._asked_at = asyncio.get_running_loop().time()
        self.which = f"{place}, {approval_text.describe_subject(approval)}:"
        self._pending = PendingApproval(approval, call)

    async def _view_question(self, approval: ApprovalView) -> None:
        """Show all of the question in the viewer's pager; without one, print it."""
        text = approval_text.format_whole(approval)
        command = find_pager()
        async with self._screen.lend_terminal():
            shown = bool(command) and await show_in_pager(command, text)
        if not shown:
            self._screen.print_above(Text(text))

    async def _edit_call(self, pending: PendingApproval) -> None:
        """Let the person change the call in their editor; the changed call is asked about again."""
        notes: list[str] = []
        self.free.clear()
        try:
            async with self._screen.lend_terminal():
                changed = await change_in_editor(self._holdfast, pending, "modify", notes.append)
            self._print_words(f"Changed.{describe_delivery(changed.answer)}" if changed else "Nothing was changed.")
            if changed:
                self._mine.add(pending.approval.approval_id)
                self._stop_asking()
        except HoldfastError as error:
            self._screen.print_above(Text(f"Not sent: {strip_controls(str(error))}", "red"))
        finally:
            for words in notes:
                self._print_words(words)
            self.free.set()

    def _show_offers(self, approval: ApprovalView) -> None:
        """List the grants that are offered, before one is given."""
        if not approval.offers:
            self._print_words("This approval offers no grants.")
            return
        self._screen.print_above(Text("\n".join(f"  {row}" for row in number_offers(approval.offers)), "yellow"))
        self._forget_keys()
        self._offer = 0

    async def _choose_grant(self, approval: ApprovalView, number: int, key: str) -> None:
        offers = approval.offers
        if key.isdecimal() and 0 < int(key) <= len(offers):
            self._offer = int(key) - 1
        elif key == "n":
            self._offer = None
            self._print_words("No grant: decide about this call.")
        elif key == "y":
            offer = offers[number]
            words = f"Approved; {describe_coverage(offer, GrantWish(), datetime.now(UTC), turn=self._turn.id)}."
            await self._send_decision(approval, offer.outcome, words, scope=offer.scope)
            await asyncio.sleep(SETTLE_SECONDS)

    async def _answer_question(self, approval: ApprovalView) -> None:
        """Let the person answer in a line: single keys could be the beginning of an answer."""
        self._print_words(f"({describe_answering(approval)})")
        typing = asyncio.create_task(read_answer(approval, self._screen, self._drafts))
        try:
            while not typing.done() and self._is_asked(approval):
                await asyncio.wait({typing}, timeout=KEY_SECONDS)
        finally:
            typing.cancel()
        if not self._is_asked(approval):
            return
        answer = typing.result()
        if answer == LATER:
            await self._answer_approval(approval, "s")
        elif answer in (NO, STOP):
            await self._answer_approval(approval, "n" if answer == NO else "N")
        else:
            await self._send_decision(approval, "respond", "Answered.", content=answer)

    def _is_asked(self, approval: ApprovalView) -> bool:
        return self._pending is not None and self._pending.approval is approval

    async def _refuse_call(self, approval: ApprovalView) -> None:
        """Refuse the call with a reason for the model."""
        self._print_words("(why not, for the model; an empty line goes back)")
        reason = await self._read_words("why> ")
        if reason:
            await self._send_decision(approval, "cancel", "Refused, and the model reads why.", note=reason)

    async def _read_words(self, label: str) -> str | None:
        """A typed line; None for Ctrl-D or Esc."""
        try:
            return (await self._screen.read_line(label)).strip()
        except EOFError:
            return None

    async def _settle_unknown_outcome(self, approval: ApprovalView, key: str) -> None:
        """Decide on a call of which it is unknown whether it ran."""
        if key == "d":
            self._print_words("(its result, for the model; an empty line says only that it was done)")
            words = await self._read_words("result> ")
            if words is not None:
                await self._send_decision(approval, "respond", "Recorded as done.", content=words or DONE_ANSWER)
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
            self._screen.print_above(Text(f"Refused: {strip_controls(str(error))}", "red"))
            return
        others = " It needs another approver too." if counted and counted.status == "awaiting_approval" else ""
        self._print_words(f"{words}{others}{describe_delivery(counted)}")

    def _stop_asking(self) -> None:
        self._pending = self._offer = None

    def _forget_keys(self) -> None:
        """Drop the keys that were pressed before a question was shown."""
        while not self._keys.empty():
            self._keys.get_nowait()

    def _print_words(self, words: str) -> None:
        self._screen.print_above(Text(render.format_line(words, 2_000), "dim"))
