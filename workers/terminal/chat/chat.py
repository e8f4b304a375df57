"""A conversation on a terminal: a line is typed, a turn is followed, the next line is typed.

The session is a workflow of its own, so this may end at any moment and come back: it shows every turn of the session
that it has not shown, whoever asked for it, and then lets the person type.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import uuid4

from rich.console import Console
from rich.text import Text

from holdfast.client.client import Holdfast
from holdfast.client.session import Session
from holdfast.client.turn import Turn
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.modes import Mode
from holdfast.domain.session.session_io import SessionInput, Steering
from holdfast.domain.turn.ids import format_session_turn_id
from holdfast.errors import BadInput, HoldfastError, NoWorker, RequestRefused, ServerUnavailable, TurnNotFound
from holdfast.util.text import strip_controls
from holdfast.workers.exit_codes import INTERRUPTED, OK
from holdfast.workers.lookup.sessions import fetch_last_messages
from holdfast.workers.terminal import render, session_text
from holdfast.workers.terminal.chat.chat_screen import ChatScreen
from holdfast.workers.terminal.chat.slash_commands import run_chat_command
from holdfast.workers.terminal.follow_lines import run_unless_left
from holdfast.workers.terminal.input import InputDropped, Keyboard, LineEditor, open_keyboard

T = TypeVar("T")

POLL_SECONDS = 0.1
RETRY_SECONDS = 1.0
PROMPTS: dict[Steering, str] = {"interrupt": "interrupt› ", "append": "add› ", "queue": "queue› "}


@dataclass(frozen=True)
class Draft:
    """What was typed and not said: sent again as it is, it counts once."""

    text: str = ""
    id: str = field(default_factory=lambda: uuid4().hex)


class Chat:
    """One person's conversation in one session."""

    def __init__(self, holdfast: Holdfast, session: Session, console: Console, start: SessionInput | None) -> None:
        """`start` is what the first message creates the session with; None when it is there."""
        self.session = session
        self.has_begun = start is None
        self.mode = start.turn.mode if start else Mode.DEFAULT
        self._holdfast = holdfast
        self._console = console
        self._start = start
        self._shown = 0
        """How many turns of the session were shown."""
        self._typed_here: set[str] = set()
        """Turns whose message stands above."""
        self._draft = Draft()
        self._screen: ChatScreen | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._warned = False
        """Were they told that Ctrl-C leaves?"""
        self._closed = False
        self._code = INTERRUPTED
        """Of whoever leaves while a turn runs."""
        self._left = asyncio.Event()
        self._typing = LineEditor(self._handle_ctrl_c, self._left.set)

    async def run(self) -> int:
        """Talk until the person leaves or the session is closed; the exit code."""
        with self._typing:
            if not await run_unless_left(self._left, self._print_greeting()):
                return self._leave_chat(self._code)
            while True:
                if self.has_begun and not await run_unless_left(self._left, self._catch_up()):
                    return self._leave_chat(self._code)
                if self._closed:
                    self._print_text("The session is closed.")
                    return OK
                code = await self._read_message()
                if code is not None:
                    return self._leave_chat(code)

    async def _print_greeting(self) -> None:
        if self._start:
            model = self._start.turn.model
            self._print_text(
                f"Session {self.session.id}, model {model.name if model else ''}. /help tells what can be typed."
            )
        else:
            await self._show_history()
        self._print_text(f"Come back with: {self._resume_command}")

    async def _show_history(self) -> None:
        """Show the end of what was said; a turn that runs is shown from its beginning."""
        view = await self._retry_until_answered(self.session.fetch_view)
        self.mode = view.mode
        self._shown = view.turns - (1 if view.turn else 0)
        self._console.print(session_text.render_session(view))
        self._console.print(
            session_text.render_messages(*await self._retry_until_answered(lambda: fetch_last_messages(self.session)))
        )

    async def _catch_up(self) -> None:
        """Follow every turn that has begun and was not shown, until none runs and none waits."""
        while True:
            view = await self._retry_until_answered(self.session.fetch_view)
            if self._shown < view.turns:
                self._shown += 1
                await self._follow_turn(self.session.get_turn(format_session_turn_id(self.session.id, self._shown)))
            elif view.turn is None and not view.waiting:
                self._closed = view.status == "closed"
                return
            else:
                await asyncio.sleep(POLL_SECONDS)

    async def _follow_turn(self, turn: Turn) -> None:
        """Show a turn to its end. One that has begun may not be there to be watched yet."""
        if turn.id not in self._typed_here:
            await self._show_prompt(turn)
        answer: str | None = None
        while True:
            screen = self._screen = self._new_screen(turn)
            try:
                with open_keyboard(screen.asker.press_key) as keyboard:
                    await self._run_screen(screen, keyboard)
                answer = screen.answer
                break
            except TurnNotFound as error:
                if (await self._retry_until_answered(self.session.fetch_view)).turn != turn.id:
                    self._print_text(str(error))
                    return
                await asyncio.sleep(POLL_SECONDS)
            finally:
                self._screen = None
        await self._print_conclusion(turn, answer)

    def _new_screen(self, turn: Turn) -> ChatScreen:
        return ChatScreen(self._holdfast, turn, self._console, speak=self._type_message, leave=self._request_leave)

    async def _run_screen(self, screen: ChatScreen, keyboard: Keyboard) -> None:
        with suppress(NoWorker):  # it has ended, and nobody tells how it came to that
            await screen.run(keyboard)

    async def _show_prompt(self, turn: Turn) -> None:
        with suppress(HoldfastError):
            view = await turn.fetch_view(live=False)
            self._console.print(session_text.render_user_text(view.prompt or ""))

    async def _print_conclusion(self, turn: Turn, answer: str | None) -> None:
        """The answer, unless it stands above; how a turn ended that did not complete."""
        try:
            result = await self._retry_until_answered(turn.result)
        except HoldfastError as error:
            self._print_error(str(error))
            return
        if result.text and shorten_line(result.text) != answer:
            self._console.print(render.build_prose(result.text))
        if result.status != "completed":
            self._print_text(f"T{session_text.describe_ending(result)[1:]}", "yellow")

    async def _read_message(self) -> int | None:
        """Let the person type; an exit code when that was the last of it."""
        try:
            text = self._typing.read(session_text.USER_PREFIX, self._draft.text)
        except EOFError:
            self._console.print()
            return OK
        except InputDropped as dropped:
            return self._after_ctrl_c(dropped)
        self._warned = False
        if not text.strip():
            return None
        if text.startswith("/") and not text.startswith("//"):
            return await self._run_command(text)
        if not await run_unless_left(self._left, self._send_message(text.removeprefix("/"), "queue")):
            self._left.clear()  # it is offered again
        return None

    def _after_ctrl_c(self, dropped: InputDropped) -> int | None:
        self._draft = Draft()
        self._console.print()
        if dropped.empty and self._warned:
            return INTERRUPTED
        self._warned = dropped.empty
        if dropped.empty:
            self._print_text("Ctrl-C again leaves.")
        return None

    async def _run_command(self, text: str) -> int | None:
        try:
            answer = await run_chat_command(text.strip(), self)
        except BadInput as error:
            self._draft = Draft(text)
            self._print_error(str(error))
            return None
        except HoldfastError as error:
            self._print_error(str(error))
            return None
        self._draft = Draft()
        self._console.print(answer.shown)
        return OK if answer.leaves else None

    async def set_mode(self, mode: Mode) -> None:
        """How much proceeds without asking from now on."""
        if self._start:
            turn = self._start.turn.model_copy(update={"mode": mode})
            self._start = self._start.model_copy(update={"turn": turn})
        else:
            await self.session.configure(mode=mode)
        self.mode = mode

    async def _type_message(self, how: Steering) -> None:
        """Say something to the turn that runs, or behind it."""
        try:
            text = self._typing.read(PROMPTS[how], self._draft.text)
        except (EOFError, InputDropped):
            self._console.print()
            self._draft = Draft()
            return
        if text.strip():
            await self._send_message(text, how)

    async def _send_message(self, text: str, how: Steering) -> None:
        """Send it; what does not arrive is offered again in the next line."""
        if self._draft.text != text:
            self._draft = Draft(text)
        try:
            sent = await self.session.send(text, start=self._start, how=how, message_id=self._draft.id)
        except HoldfastError as error:
            self._print_error(f"Not sent: {error}")
            return
        self._draft = Draft()
        self.has_begun, self._start = True, None
        if self._screen is None and not sent.ahead:
            self._typed_here.add(sent.turn)

    def _request_leave(self) -> None:
        """Ctrl-D while a turn runs."""
        self._code = OK
        self._left.set()

    def _handle_ctrl_c(self) -> None:
        """Ctrl-C while nobody types: the first stops the turn that runs, the next leaves."""
        screen = self._screen
        if screen and not screen.asker.stopped:
            if screen.asker.free.is_set():  # an editor has its own idea of it
                self._stopping = asyncio.create_task(self._interrupt_turn(screen))
        elif screen or self._warned:
            self._left.set()
        else:
            self._warned = True
            self._print_text("Ctrl-C again leaves.")

    async def _interrupt_turn(self, screen: ChatScreen) -> None:
        screen.asker.stopped = True
        self._print_text("The turn is told to stop; Ctrl-C again leaves.")
        try:
            await self.session.interrupt()
        except RequestRefused:
            return  # it has ended
        except HoldfastError as error:
            screen.asker.stopped = False
            self._print_error(f"Not stopped: {error}")

    async def _retry_until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer, however long nobody is there to give it."""
        told = False
        while True:
            try:
                return await ask()
            except (NoWorker, ServerUnavailable) as error:
                if not told:
                    self._print_error(f"Waiting, since {error}. Ctrl-C leaves.")
                told = True
                await asyncio.sleep(RETRY_SECONDS)

    @property
    def _resume_command(self) -> str:
        return f"holdfast chat --resume --session {render.quote_shell(self.session.id)}"

    def _leave_chat(self, code: int) -> int:
        if self.has_begun:
            goes_on = "; what runs goes on" if self._left.is_set() else ""
            self._print_text(f"Left{goes_on}. Come back with: {self._resume_command}")
        return code

    def _print_text(self, words: str, style: str = "dim") -> None:
        item = Text(strip_controls(words), style)
        if self._screen:
            self._screen.print_above(item)
        else:
            self._console.print(item)

    def _print_error(self, words: str) -> None:
        self._print_text(words, "red")
