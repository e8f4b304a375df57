"""One turn of a conversation on a terminal: what stays of it is printed above, and something may be said to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from rich.console import Console
from rich.text import Text

from holdfast.client import Holdfast, Turn
from holdfast.content import plain
from holdfast.conversations import AssistantMessage
from holdfast.errors import HoldfastError
from holdfast.events import Event, line
from holdfast.sessions import Steering
from holdfast.workers import render
from holdfast.workers.keyboard import Keyboard
from holdfast.workers.live import Screen

STEERING: dict[str, tuple[Steering, str]] = {
    "i": ("interrupt", "interrupt"),
    "a": ("append", "add"),
    "q": ("queue", "queue"),
}
"""The keys that open a line while a turn runs: what becomes of the message, and the word for it."""
CTRL_D = "\x04"
BREAKS_OFF = frozenset({"interrupted", "cancelled", "stopped", "failed"})
"""After these a reply that is not complete will never be."""
CUT = "…"
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
            key: partial(self._speak, speak, how) for key, (how, _) in STEERING.items()
        }
        keys[CTRL_D] = self._go
        self.answer: str | None = None
        """The last reply that was shown whole, as its event tells it."""
        self._told: set[str] = set()
        """Batches that were printed."""
        super().__init__(holdfast, turn, console, keys)

    async def _speak(self, speak: Speak, how: Steering, keyboard: Keyboard) -> None:
        with self.aside(keyboard):
            await speak(how)

    async def _go(self, keyboard: Keyboard) -> None:
        self._leave()

    @property
    def batch(self) -> str | None:
        """The batch on the board, unless it stands above."""
        return None if self._board.active in self._told else self._board.active

    async def tell(self, event: Event) -> None:
        """Print what the model said, and the calls of a batch once they have ended."""
        if event.kind == "model" and event.after in ("asked", "answered"):
            await self._tell_reply(event.note or "")
        elif event.kind == "batch" and event.after == "done" and event.batch:
            self._told.add(event.batch)
            self.say(render.rows(self._board.of_batch(event.batch)))
        elif event.kind == "turn" and event.after in BREAKS_OFF and self._board.heard.strip():
            self.say(Text(f"{plain(self._board.heard).strip()} …", "dim"))

    async def _tell_reply(self, note: str) -> None:
        text = await self._whole(note)
        self.answer = None if text is None else note
        if (text or note).strip():
            self.say(render.prose(text or note))

    async def _whole(self, note: str) -> str | None:
        """All of a reply of which an event tells the beginning; None when nobody says."""
        if CUT not in note:
            return note
        try:
            conversation = await self._turn.conversation()
        except HoldfastError:
            return None
        messages = conversation.messages if conversation else ()
        said = [message.text for message in messages if isinstance(message, AssistantMessage)]
        return next((text for text in reversed(said) if line(text) == note), None)
