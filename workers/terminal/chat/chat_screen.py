"""One turn of a chat on the terminal: replies of the model and ended calls are printed above the board."""

from __future__ import annotations

from rich.text import Text

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.calls.events import Event, shorten_line
from holdfast.domain.conversation.messages import AssistantMessage
from holdfast.errors import HoldfastError
from holdfast.util.text import strip_controls
from holdfast.workers.terminal import render
from holdfast.workers.terminal.live.live_screen import Screen
from holdfast.workers.terminal.live.prompt import Prompt

BREAKING_STATUSES = frozenset({"interrupted", "cancelled", "stopped", "failed"})
"""After these statuses an incomplete reply will never be completed."""
CUT_MARK = "…"
"""Contained in shortened text, and possibly in other text."""


class ChatScreen(Screen):
    """One turn of a chat."""

    hint = "Enter adds a message  Esc stops the turn  Ctrl-D leaves  /help"

    def __init__(self, holdfast: Holdfast, turn: Turn, prompt: Prompt) -> None:
        super().__init__(holdfast, turn, prompt, in_chat=True)
        self.answer: str | None = None
        """The last reply that was printed whole, as its event has it."""
        self._printed_batches: set[str] = set()

    @property
    def batch(self) -> str | None:
        """The batch on the board, unless it was printed."""
        return None if self._board.active in self._printed_batches else self._board.active

    async def print_event(self, event: Event) -> None:
        """Print a reply of the model, and the calls of a batch once they have ended."""
        if event.kind == "model" and event.after in ("asked", "answered"):
            await self._print_reply(event.note or "")
        elif event.kind == "batch" and event.after == "done" and event.batch:
            self._printed_batches.add(event.batch)
            self._prompt.print_above(render.render_rows(self._board.list_batch_rows(event.batch)))
        elif event.kind == "turn" and event.after in BREAKING_STATUSES and self._board.model_text.strip():
            self._prompt.print_above(Text(f"{strip_controls(self._board.model_text).strip()} …", "dim"))

    async def _print_reply(self, note: str) -> None:
        text = await self._fetch_reply(note)
        self.answer = None if text is None else note
        if (text or note).strip():
            self._prompt.print_above(render.build_prose(text or note))

    async def _fetch_reply(self, note: str) -> str | None:
        """The whole reply, of which an event may have only the beginning; None when no worker answers."""
        if CUT_MARK not in note:
            return note
        try:
            conversation = await self._turn.fetch_conversation()
        except HoldfastError:
            return None
        messages = conversation.messages if conversation else ()
        replies = [message.text for message in messages if isinstance(message, AssistantMessage)]
        return next((text for text in reversed(replies) if shorten_line(text) == note), None)
