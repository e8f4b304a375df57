"""One turn of a conversation on a terminal: what stays of it is printed above, and something may be said to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from rich.console import Console
from rich.text import Text

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.calls.events import Event, shorten_line
from holdfast.domain.conversation.messages import AssistantMessage
from holdfast.domain.session.session_io import Steering
from holdfast.errors import HoldfastError
from holdfast.util.text import strip_controls
from holdfast.workers.terminal import render
from holdfast.workers.terminal.input import Keyboard
from holdfast.workers.terminal.live.live_screen import Screen

STEERING: dict[str, tuple[Steering, str]] = {
    "i": ("interrupt", "interrupt"),
    "a": ("append", "add"),
    "q": ("queue", "queue"),
}
"""The keys that open a line while a turn runs: what becomes of the message, and the word for it."""
CTRL_D = "\x04"
BREAKING_STATUSES = frozenset({"interrupted", "cancelled", "stopped", "failed"})
"""After these a reply that is not complete will never be."""
CUT_MARK = "…"
"""In what was shortened, and perhaps elsewhere."""
Speak = Callable[[Steering], Awaitable[None]]


class ChatScreen(Screen):
    """One turn of a conversation."""

    hint = "  ".join(f"[{key}] {word}" for key, (_, word) in STEERING.items())
    hint += "  Ctrl-C stops the turn  Ctrl-D leaves"

    def __init__(
        self, holdfast: Holdfast, turn: Turn, console: Console, *, speak: Speak, leave: Callable[[], None]
    ) -> None:
        """`speak` lets the person type and says it; `leave` is called when they go."""
        self._leave = leave
        keys: dict[str, Callable[[Keyboard], Awaitable[None]]] = {
            key: partial(self._let_speak, speak, how) for key, (how, _) in STEERING.items()
        }
        keys[CTRL_D] = self._leave_turn
        self.answer: str | None = None
        """The last reply that was shown whole, as its event tells it."""
        self._printed_batches: set[str] = set()
        """Batches that were printed."""
        super().__init__(holdfast, turn, console, keys)

    async def _let_speak(self, speak: Speak, how: Steering, keyboard: Keyboard) -> None:
        with self.lend_terminal(keyboard):
            await speak(how)

    async def _leave_turn(self, keyboard: Keyboard) -> None:
        self._leave()

    @property
    def batch(self) -> str | None:
        """The batch on the board, unless it stands above."""
        return None if self._board.active in self._printed_batches else self._board.active

    async def print_event(self, event: Event) -> None:
        """Print what the model said, and the calls of a batch once they have ended."""
        if event.kind == "model" and event.after in ("asked", "answered"):
            await self._print_reply(event.note or "")
        elif event.kind == "batch" and event.after == "done" and event.batch:
            self._printed_batches.add(event.batch)
            self.print_above(render.render_rows(self._board.list_batch_rows(event.batch)))
        elif event.kind == "turn" and event.after in BREAKING_STATUSES and self._board.model_text.strip():
            self.print_above(Text(f"{strip_controls(self._board.model_text).strip()} …", "dim"))

    async def _print_reply(self, note: str) -> None:
        text = await self._fetch_reply(note)
        self.answer = None if text is None else note
        if (text or note).strip():
            self.print_above(render.build_prose(text or note))

    async def _fetch_reply(self, note: str) -> str | None:
        """All of a reply of which an event tells the beginning; None when nobody says."""
        if CUT_MARK not in note:
            return note
        try:
            conversation = await self._turn.fetch_conversation()
        except HoldfastError:
            return None
        messages = conversation.messages if conversation else ()
        said = [message.text for message in messages if isinstance(message, AssistantMessage)]
        return next((text for text in reversed(said) if shorten_line(text) == note), None)
