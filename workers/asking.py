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

from holdfast.approvals import ApprovalId
from holdfast.client import Holdfast, Turn
from holdfast.content import plain
from holdfast.errors import HoldfastError
from holdfast.events import Event
from holdfast.views import ApprovalView
from holdfast.workers import questions, render
from holdfast.workers.answer_keys import (
    ANSWERS,
    DONE,
    KEYS,
    UNKNOWN_ANSWERS,
    UNKNOWN_KEYS,
    by_signal,
    heading,
    waited_for,
)
from holdfast.workers.answering import LATER, NO, STOP, Drafts, how_to_answer, typed_answer
from holdfast.workers.answers import Wish, numbered, will_cover
from holdfast.workers.asked import Asked
from holdfast.workers.board import Board, Row
from holdfast.workers.changes import change_in_editor
from holdfast.workers.keyboard import Keyboard, page, pager
from holdfast.workers.news import meanwhile, news

KEY_SECONDS = 0.15
RETRY_SECONDS = 1.0
SETTLE_SECONDS = 0.5
"""After an answer from now on: what it covers need not be asked about."""


class Stage(Protocol):
    """Where it is asked."""

    def say(self, item: RenderableType) -> None:
        """Print something above."""

    def aside(self, keyboard: Keyboard) -> AbstractContextManager[None]:
        """The terminal is another program's, until the end of the block."""


Besides = Mapping[str, Callable[[Keyboard], Awaitable[None]]]


class Asker:
    """What one person is asked about one turn."""

    def __init__(
        self, holdfast: Holdfast, turn: Turn, board: Board, stage: Stage, besides: Besides | None = None
    ) -> None:
        """`besides`: keys that do something else, as far as they answer nothing."""
        self._besides = besides or {}
        self._holdfast = holdfast
        self._turn = turn
        self.boards = {turn.id: board}
        """That of the turn, and of those that its calls run."""
        self._stage = stage
        self._asked: Asked | None = None
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
    def call(self) -> str | None:
        """The call that is asked about."""
        return self._asked.call.id if self._asked else None

    @property
    def rest(self) -> str:
        """What waits and is not asked about now: put off, or answered and waiting for others."""
        rows = self._waiting
        waiting = [row.approval_id for row in rows]
        if not waiting or not set(waiting) <= self._skipped | self._mine:
            return ""
        if self._skipped.isdisjoint(waiting):
            return f"{len(waiting)} waiting for others: you have answered"
        return f"{len(waiting)} waiting for {waited_for(rows)}"

    @property
    def _waiting(self) -> list[Row]:
        """The calls that wait for a person, those of delegated turns last."""
        return [row for board in list(self.boards.values()) for row in board.waiting]

    @property
    def prompt(self) -> str:
        """The keys that answer."""
        if self._asked is None or self._asked.approval.kind == questions.QUESTION:
            return ""
        offers = self._asked.approval.offers
        if self._offer is not None:
            others = f"  [1-{min(len(offers), 9)}] another" if len(offers) > 1 else ""
            return f"from now on, as {self._offer + 1}?  [y] yes  [n] no{others}"
        keys = UNKNOWN_KEYS if self._asked.approval.kind == questions.UNKNOWN else KEYS
        return "  ".join(f"[{key}] {word}" for key, word in keys.items() if key != "a" or offers)

    def press(self, key: str) -> None:
        """Somebody pressed a key."""
        self._keys.put_nowait(key)

    def forget_keys(self) -> None:
        """Drop what was typed before a question was shown: it was not meant for it."""
        while not self._keys.empty():
            self._keys.get_nowait()

    def notice(self, event: Event, turn_id: str) -> None:
        """Tell what others do in a turn; stop asking about what they have decided or changed."""
        if event.at > self._began and (words := news(event, self._holdfast.me)):
            self._say(words)
        if event.kind != "call":
            return
        asked = self._asked.approval if self._asked else None
        its = asked is not None and event.call == self.call and ApprovalId.parse(asked.approval_id).turn == turn_id
        if asked and its and event.approval_id != asked.approval_id:
            own = asked.approval_id in self._mine or (event.approval_id and not self.free.is_set())
            if not own:
                self._say(meanwhile(event, self._holdfast.me))
            self._drop()

    async def run(self, keyboard: Keyboard) -> None:
        """Ask for as long as we are watched."""
        while True:
            if self._asked is None:
                await self._next_question()
            if self._asked and self._asked.approval.kind == questions.QUESTION:
                await self._respond(self._asked.approval, keyboard)
                continue
            try:
                async with asyncio.timeout(KEY_SECONDS):
                    key = await self._keys.get()
            except TimeoutError:
                continue
            await self._take(key, keyboard)

    async def _take(self, key: str, keyboard: Keyboard) -> None:
        asked = self._asked
        if key in self._besides and not self._answers(key):
            await self._do_besides(key, keyboard)
        elif asked is None:
            self._skipped = set() if key == "a" else self._skipped
        elif self._offer is not None:
            await self._always(asked.approval, self._offer, key)
        elif key == "v":
            await self._view(asked.approval, keyboard)
        elif asked.approval.kind == questions.UNKNOWN:
            await self._settle(asked.approval, key, keyboard)
        elif key == "e":
            await self._edit(asked, keyboard)
        elif key == "a":
            self._show_offers(asked.approval)
        elif key == "r":
            await self._refuse(asked.approval, keyboard)
        else:
            await self._answer(asked.approval, key)

    def _answers(self, key: str) -> bool:
        """Does a key answer what is asked, or ask for it?"""
        return key in {*KEYS, *UNKNOWN_KEYS} if self._asked else key == "a" and bool(self.rest)

    async def _do_besides(self, key: str, keyboard: Keyboard) -> None:
        self.free.clear()
        try:
            await self._besides[key](keyboard)
        finally:
            self.free.set()

    async def _next_question(self) -> None:
        open_rows = [row for row in self._waiting if row.approval_id not in self._skipped | self._mine]
        if not open_rows or self.stopped:
            return
        row = open_rows[0]
        turn_id = ApprovalId.parse(row.approval_id or "").turn
        try:
            call = await self._holdfast.turn(turn_id).call(row.call)
        except HoldfastError:
            await asyncio.sleep(RETRY_SECONDS)
            return
        approval = questions.whole_approval(turn_id, call)
        if row.status != "awaiting_approval" or row.approval_id != approval.approval_id:
            return
        place = f"call {row.place} of {row.of}" + ("" if turn_id == self._turn.id else ", of a delegated task")
        head = heading(approval, place)
        self._stage.say(questions.question(approval, heading=f"\n{head}", more="[v] shows all", fields="names"))
        self.forget_keys()
        self.which = f"{place}, {questions.subject(approval)}:"
        self._asked = Asked(approval, call)

    async def _view(self, approval: ApprovalView, keyboard: Keyboard) -> None:
        """All of the question in the viewer's pager; without one, all of it is printed."""
        text = questions.whole(approval)
        command = pager()
        with self._stage.aside(keyboard):
            shown = bool(command) and await page(command, text)
        if not shown:
            self._stage.say(Text(text))

    async def _edit(self, asked: Asked, keyboard: Keyboard) -> None:
        """Let them change the call in their editor; what they make of it is asked about again."""
        kept: list[str] = []
        self.free.clear()
        try:
            with self._stage.aside(keyboard):
                changed = await change_in_editor(self._holdfast, asked, "modify", kept.append)
            self._say(f"Changed.{by_signal(changed.answer)}" if changed else "Nothing was changed.")
            if changed:
                self._mine.add(asked.approval.approval_id)
                self._drop()
        except HoldfastError as error:
            self._stage.say(Text(f"That did not count: {plain(str(error))}", "red"))
        finally:
            for words in kept:
                self._say(words)
            self.free.set()

    def _show_offers(self, approval: ApprovalView) -> None:
        """Say what could be answered from now on, before any of it is."""
        if not approval.offers:
            self._say("This one can only be answered for once.")
            return
        self._stage.say(Text("\n".join(f"  {row}" for row in numbered(approval.offers)), "yellow"))
        self.forget_keys()
        self._offer = 0

    async def _always(self, approval: ApprovalView, number: int, key: str) -> None:
        offers = approval.offers
        if key.isdecimal() and 0 < int(key) <= len(offers):
            self._offer = int(key) - 1
        elif key == "n":
            self._offer = None
            self._say("Not from now on: what about this one?")
        elif key == "y":
            offer = offers[number]
            words = f"Approved; {will_cover(offer, Wish(), datetime.now(UTC), turn=self._turn.id)}."
            await self._decide(approval, offer.outcome, words, scope=offer.scope)
            await asyncio.sleep(SETTLE_SECONDS)

    async def _respond(self, approval: ApprovalView, keyboard: Keyboard) -> None:
        """Let the person answer a question in a line of their own: single keys would be the start of an answer."""
        self._say(f"({how_to_answer(approval)})")
        with self._stage.aside(keyboard):
            typing = asyncio.create_task(typed_answer(approval, keyboard, self._drafts))
            while not typing.done() and self._asked and self._asked.approval is approval:
                await asyncio.wait({typing}, timeout=KEY_SECONDS)
            typing.cancel()
        if not self._asked or self._asked.approval is not approval:
            return
        answer = typing.result()
        if answer == LATER:
            await self._answer(approval, "s")
        elif answer in (NO, STOP):
            await self._answer(approval, "n" if answer == NO else "N")
        else:
            await self._decide(approval, "respond", "Answered.", content=answer)

    async def _refuse(self, approval: ApprovalView, keyboard: Keyboard) -> None:
        """Refuse, with words for the model."""
        self._say("(why not, for the model; an empty line goes back)")
        with self._stage.aside(keyboard):
            words = (await keyboard.line("why> ")).strip()
        if words:
            await self._decide(approval, "cancel", "Refused, and the model reads why.", note=words)

    async def _settle(self, approval: ApprovalView, key: str, keyboard: Keyboard) -> None:
        """What is to become of a call that nobody knows whether it ran."""
        if key == "d":
            self._say("(what it gave, for the model; an empty line says only that it was done)")
            with self._stage.aside(keyboard):
                words = (await keyboard.line("result> ")).strip()
            await self._decide(approval, "respond", "Taken as done.", content=words or DONE)
        elif key in UNKNOWN_ANSWERS:
            outcome, self.stopped, words = UNKNOWN_ANSWERS[key]
            await self._decide(approval, outcome, words, stop_turn=self.stopped)
        elif key == "s":
            await self._answer(approval, key)

    async def _answer(self, approval: ApprovalView, key: str) -> None:
        if key == "s":
            self._skipped.add(approval.approval_id)
            self._drop()
            self._say(f"Skipped; later: {questions.how_to_say(approval)}")
        if key in ANSWERS:
            outcome, self.stopped, words = ANSWERS[key]
            await self._decide(approval, outcome, words, stop_turn=self.stopped)

    async def _decide(self, approval: ApprovalView, outcome: str, words: str, **details: Any) -> None:
        name = approval.approval_id
        self._mine.add(name)
        self._drop()
        try:
            counted = await self._holdfast.decide(name, outcome, digest=approval.digest, **details)
        except HoldfastError as error:
            self.stopped = False
            self._mine.discard(name)
            self._skipped.add(name)
            self._stage.say(Text(f"That did not count: {plain(str(error))}", "red"))
            return
        others = " Somebody else's word is needed too." if counted and counted.status == "awaiting_approval" else ""
        self._say(f"{words}{others}{by_signal(counted)}")

    def _drop(self) -> None:
        """Stop asking."""
        self._asked = self._offer = None

    def _say(self, words: str) -> None:
        self._stage.say(Text(render.line(words, 2_000), "dim"))
