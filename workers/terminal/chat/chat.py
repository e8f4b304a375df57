"""A chat on a terminal: turns are shown above, and messages are typed below at any time.

The session is a workflow of its own, so the chat may end at any moment and be resumed: it shows every turn of the
session that it has not shown, whoever started it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from rich.console import Console, RenderableType
from rich.text import Text

from holdfast.client.client import Holdfast
from holdfast.client.session import Session
from holdfast.client.turn import Turn
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.modes import Mode
from holdfast.domain.session.session_io import SessionInput, Steering
from holdfast.domain.turn.ids import format_session_turn_id
from holdfast.errors import HoldfastError, NoWorker, RequestRefused, ServerUnavailable, TurnNotFound
from holdfast.util.text import strip_controls
from holdfast.workers.exit_codes import INTERRUPTED, OK
from holdfast.workers.lookup.sessions import fetch_last_messages
from holdfast.workers.terminal import render, session_text
from holdfast.workers.terminal.chat.chat_screen import ChatScreen
from holdfast.workers.terminal.chat.message_line import ChatCompleter, open_history
from holdfast.workers.terminal.chat.slash_commands import COMMAND_ARGUMENTS, COMMAND_HELP, run_chat_command
from holdfast.workers.terminal.live.prompt import MessageLine, Prompt

T = TypeVar("T")

POLL_SECONDS = 0.1
RETRY_SECONDS = 1.0
IDLE_HINT = "Tab completes /commands and @files  Ctrl-D leaves  /help"


@dataclass(frozen=True)
class Draft:
    """A message that was typed and not delivered: sending it again with the same id adds it once."""

    text: str = ""
    id: str = field(default_factory=lambda: uuid4().hex)


class Chat:
    """One person's chat in one session; the `View` of its prompt while no turn runs."""

    def __init__(
        self,
        holdfast: Holdfast,
        session: Session,
        console: Console,
        start: SessionInput | None,
        *,
        history: Path | None = None,
        folder: Path,
    ) -> None:
        """`start` creates the session with the first message; None for an existing session.

        `history`: the file of earlier messages. `folder`: its files are completed after an `@`.
        """
        self.session = session
        self.has_begun = start is None
        self.mode = start.turn.mode if start else Mode.DEFAULT
        self._holdfast = holdfast
        self._start = start
        self._shown = 0
        """The number of turns that were shown."""
        self._typed_here: set[str] = set()
        """Turns whose message was printed when it was sent."""
        self._draft = Draft()
        self._screen: ChatScreen | None = None
        self._busy: asyncio.Task[None] | None = None
        """The line that is being processed: until it is done, Enter does nothing."""
        self._stopping: asyncio.Task[None] | None = None
        self._has_warned = False
        """Whether "Ctrl-C again leaves" was printed last."""
        self._news = asyncio.Event()
        """Set when a message was sent, so that there may be a turn to follow."""
        self._is_closed = False
        self._goes_on = ""
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit code, once the person leaves."""
        line = MessageLine(
            submit=self._submit,
            stop=self._stop_turn,
            leave=self._leave,
            history=open_history(history),
            completer=ChatCompleter(COMMAND_HELP, COMMAND_ARGUMENTS, folder),
        )
        self._prompt = Prompt(console, self._press_ctrl_c, line)
        self._prompt.view = self

    async def run(self) -> int:
        """Talk until the person leaves or the session is closed; the exit code."""
        with self._catch_signals():
            async with self._prompt.open():
                following = asyncio.create_task(self._follow_session())
                ends: set[asyncio.Future[Any]] = {following, self._code}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in filter(None, (following, self._busy, self._stopping)):
                    task.cancel()
                with suppress(asyncio.CancelledError):
                    await following
        if not self._code.done():
            return OK
        if self.has_begun and not self._is_closed:
            self._print_text(f"Left{self._goes_on}. Come back with: {self._resume_command}")
        return self._code.result()

    def draw_board(self) -> RenderableType:
        """Nothing: no turn runs."""
        return Text()

    def draw_hint(self) -> RenderableType:
        """What can be typed."""
        return Text("sending …" if self._is_busy else IDLE_HINT, "dim")

    def accepts_key(self, key: str) -> bool:
        """No question is asked."""
        return False

    def press_key(self, key: str) -> None:
        """No question is asked."""

    async def set_mode(self, mode: Mode) -> None:
        """Change the mode of the next turns."""
        if self._start:
            turn = self._start.turn.model_copy(update={"mode": mode})
            self._start = self._start.model_copy(update={"turn": turn})
        else:
            await self.session.configure(mode=mode)
        self.mode = mode

    def ask_again(self) -> bool:
        """Ask about the approvals that were skipped; False when none were."""
        if self._screen is None or not self._screen.asker.waiting_summary:
            return False
        self._screen.asker.ask_again()
        return True

    async def send_message(self, text: str, how: Steering) -> None:
        """Send a message; HoldfastError when it did not arrive."""
        if self._draft.text != text:
            self._draft = Draft(text)
        was_idle = self._screen is None
        if was_idle or how == "append":
            self._prompt.print_above(session_text.render_user_text(text))
        try:
            sent = await self.session.send(text, start=self._start, how=how, message_id=self._draft.id)
        except HoldfastError as error:
            raise HoldfastError(f"Not sent: {error}") from error
        self._draft = Draft()
        self.has_begun, self._start = True, None
        if was_idle and not sent.ahead:
            self._typed_here.add(sent.turn)
        elif how == "queue":
            self._print_text(f"Queued: {render.format_line(text)}")
        self._news.set()

    async def _follow_session(self) -> None:
        await self._print_greeting()
        while True:
            self._news.clear()
            if self.has_begun and await self._catch_up():
                self._print_text("The session is closed.")
                return
            await self._news.wait()

    async def _print_greeting(self) -> None:
        if self._start:
            model = self._start.turn.model
            self._print_text(f"Session {self.session.id}, model {model.name if model else ''}.")
        else:
            await self._show_history()
        self._print_text(f"Come back with: {self._resume_command}")

    async def _show_history(self) -> None:
        """Print the last messages; a running turn is then shown from its beginning."""
        view = await self._retry_until_answered(self.session.fetch_view)
        self.mode = view.mode
        self._shown = view.turns - (1 if view.turn else 0)
        self._prompt.print_above(session_text.render_session(view))
        last = await self._retry_until_answered(lambda: fetch_last_messages(self.session))
        self._prompt.print_above(session_text.render_messages(*last))

    async def _catch_up(self) -> bool:
        """Follow every turn that was not shown, until none runs and no message is queued; whether it was closed."""
        while True:
            view = await self._retry_until_answered(self.session.fetch_view)
            if self._shown < view.turns:
                self._shown += 1
                await self._follow_turn(self.session.get_turn(format_session_turn_id(self.session.id, self._shown)))
            elif view.turn is None and not view.waiting:
                return view.status == "closed"
            else:
                await asyncio.sleep(POLL_SECONDS)

    async def _follow_turn(self, turn: Turn) -> None:
        """Show a turn to its end. Right after its start the server may not know it yet."""
        if turn.id not in self._typed_here:
            await self._show_prompt(turn)
        answer: str | None = None
        while True:
            screen = self._screen = ChatScreen(self._holdfast, turn, self._prompt)
            try:
                with suppress(NoWorker):  # it has ended, and no worker has its events
                    await screen.run()
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

    async def _show_prompt(self, turn: Turn) -> None:
        with suppress(HoldfastError):
            view = await turn.fetch_view(live=False)
            self._prompt.print_above(session_text.render_user_text(view.prompt or ""))

    async def _print_conclusion(self, turn: Turn, answer: str | None) -> None:
        """Print the answer, unless it was printed already, and how a turn ended that did not complete."""
        try:
            result = await self._retry_until_answered(turn.result)
        except HoldfastError as error:
            self._print_error(str(error))
            return
        if result.text and shorten_line(result.text) != answer:
            self._prompt.print_above(render.build_prose(result.text))
        if result.status != "completed":
            self._print_text(f"T{session_text.describe_ending(result)[1:]}", "yellow")

    @property
    def _is_busy(self) -> bool:
        return self._busy is not None and not self._busy.done()

    def _submit(self, text: str) -> bool:
        """Enter was pressed; False keeps the text in the line while the line before is processed."""
        if self._is_busy:
            return False
        self._has_warned = False
        if text.strip():
            self._busy = asyncio.create_task(self._carry_out(text))
        return True

    async def _carry_out(self, line: str) -> None:
        """Run a command or send a message. On an error the text is put back into the line, to be changed."""
        try:
            if line.startswith("/") and not line.startswith("//"):
                await self._run_command(line.strip())
            else:
                await self.send_message(line.removeprefix("/"), "append" if self._screen else "queue")
        except HoldfastError as error:
            self._print_error(str(error))
            self._prompt.offer_text(line)

    async def _run_command(self, line: str) -> None:
        answer = await run_chat_command(line, self)
        if answer.shown is not None:
            self._prompt.print_above(answer.shown)
        if answer.leaves:
            self._is_closed = answer.closes
            self._leave()

    def _stop_turn(self) -> None:
        """Esc: stop the turn that runs."""
        screen = self._screen
        if screen and not screen.asker.stopped and screen.asker.free.is_set():
            self._stopping = asyncio.create_task(self._interrupt_turn(screen))

    async def _interrupt_turn(self, screen: ChatScreen) -> None:
        screen.asker.stopped = True
        self._print_text("Stopping the turn; Ctrl-C again leaves.")
        try:
            await self.session.interrupt()
        except RequestRefused:
            return  # it has ended
        except HoldfastError as error:
            screen.asker.stopped = False
            self._print_error(f"Not stopped: {error}")

    def _press_ctrl_c(self) -> None:
        """The first one stops the turn that runs, or clears the line; the next one leaves."""
        screen = self._screen
        if screen and not screen.asker.stopped:
            self._stop_turn()
        elif self._prompt.text:
            self._prompt.clear_text()
        elif screen or self._has_warned:
            self._leave(INTERRUPTED)
        else:
            self._has_warned = True
            self._print_text("Ctrl-C again leaves.")

    def _leave(self, code: int = OK) -> None:
        if not self._code.done():
            self._goes_on = "; the turn goes on" if self._screen else ""
            self._code.set_result(code)

    @contextmanager
    def _catch_signals(self) -> Iterator[None]:
        """Handle SIGINT, which arrives while the terminal is lent to another program, and SIGTERM."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._press_ctrl_c)
        loop.add_signal_handler(signal.SIGTERM, self._leave, INTERRUPTED)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)

    async def _retry_until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer of `ask`, retried while no worker or server answers."""
        has_warned = False
        while True:
            try:
                return await ask()
            except (NoWorker, ServerUnavailable) as error:
                if not has_warned:
                    self._print_error(f"Waiting: {error}. Ctrl-C leaves.")
                has_warned = True
                await asyncio.sleep(RETRY_SECONDS)

    @property
    def _resume_command(self) -> str:
        return f"holdfast chat --resume --session {render.quote_shell(self.session.id)}"

    def _print_text(self, words: str, style: str = "dim") -> None:
        self._prompt.print_above(Text(strip_controls(words), style))

    def _print_error(self, words: str) -> None:
        self._print_text(words, "red")
