"""The bottom of the terminal while something runs: a board, a line to type in and a hint, on prompt_toolkit.

Everything else is printed above it and scrolls away, so a turn goes on and prints while a person types. A `View`
defines the content of the board and the meaning of keys; this module knows nothing of turns.

Why: docs/decisions/0037-prompt-toolkit.md.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition, Filter, has_completions, is_searching
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenuControl
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.widgets import SearchToolbar
from rich.console import Console, RenderableType
from rich.text import Text

from holdfast.util.text import drop_surrogates, strip_controls

ANSWER_KEYS = "yaenNsvrd123456789"
"""The keys that may answer a question by themselves, without Enter."""
ESCAPE_SECONDS = 0.05
"""How long a lone Esc may be the beginning of an arrow key. Longer than any terminal takes to send the rest."""
MENU_LINES = 6
CONTINUATION = "\\"
"""At the end of a line: Enter begins another line instead of sending the message."""
MESSAGE_LABEL, MORE_LABEL = "› ", "… "


class View(Protocol):
    """What a `Prompt` shows, and the handler of its keys."""

    def draw_board(self) -> RenderableType:
        """The content above the line."""

    def draw_hint(self) -> RenderableType:
        """The content below the line."""

    def accepts_key(self, key: str) -> bool:
        """Whether the key answers anything now."""

    def press_key(self, key: str) -> None:
        """Take a key that answers."""


@dataclass(frozen=True)
class MessageLine:
    """The input line of a chat, which is always there."""

    submit: Callable[[str], bool]
    """Takes a message; False keeps it in the line."""
    stop: Callable[[], None]
    """Esc was pressed."""
    leave: Callable[[], None]
    """Ctrl-D was pressed in an empty line, or the terminal is gone."""
    history: History
    completer: Completer


class Prompt:
    """The last lines of one terminal."""

    def __init__(self, console: Console, interrupt: Callable[[], None], message: MessageLine | None = None) -> None:
        """`interrupt` handles Ctrl-C. Without `message` there is a line only while `read_line` waits."""
        self.view: View | None = None
        self.console = console
        self._interrupt = interrupt
        self._message = message
        self._label = ""
        self._answer: asyncio.Future[str] | None = None
        """The line that `read_line` waits for."""
        self._drawn = ("", "")
        """The rendered board and hint."""
        self._is_lent = False
        self._unprinted: list[RenderableType] = []
        self._line_emptied = asyncio.Event()
        self._answer_buffer = Buffer(multiline=True)
        self._message_buffer = Buffer(
            multiline=True,
            history=message.history if message else None,
            completer=message.completer if message else None,
            complete_while_typing=True,
            on_text_changed=self._note_text,
        )
        self._note_text(self._message_buffer)
        self._app = self._build_app()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Take the terminal, until the end of the block."""
        started = asyncio.Event()
        running = asyncio.create_task(
            self._app.run_async(pre_run=started.set, handle_sigint=False, set_exception_handler=False)
        )
        running.add_done_callback(self._notice_end)
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield
        finally:
            waiting.cancel()
            if self._app.is_running and not self._app.is_done:
                self._app.exit()
            with suppress(EOFError):
                await running

    @property
    def is_answering(self) -> bool:
        """Whether `read_line` waits for a line."""
        return self._answer is not None

    @property
    def text(self) -> str:
        """The text of the message line."""
        return self._message_buffer.text

    def offer_text(self, text: str) -> None:
        """Put a message that was not sent back into the line, before text that was typed meanwhile."""
        rest = self._message_buffer.text
        self._message_buffer.text = f"{text}\n{rest}" if rest else text
        self._message_buffer.cursor_position = len(self._message_buffer.text)

    def clear_text(self) -> None:
        """Empty the message line."""
        self._message_buffer.reset()
        self._note_text(self._message_buffer)  # prompt_toolkit reports no change of the text for a reset

    def refresh(self) -> None:
        """Redraw the board and the hint."""
        self._app.invalidate()

    def print_above(self, item: RenderableType) -> None:
        """Print something above, at once or when the terminal is no longer lent."""
        if self._is_lent:
            self._unprinted.append(item)
            return
        if self._app.is_running:
            self._app.renderer.erase()
        self.console.print(item)
        self.refresh()

    async def read_line(self, label: str) -> str:
        """Read an answer in a line of its own, up to Enter; EOFError for Ctrl-D.

        It waits until a message that is being typed is sent or cleared, since that is not the answer.
        """
        await self._line_emptied.wait()
        self._answer = asyncio.get_running_loop().create_future()
        self._label = label
        self._answer_buffer.reset()
        self._focus_line()
        try:
            text = drop_surrogates(await self._answer)
        finally:
            self._answer = None
            self._focus_line()
        self.print_above(Text(strip_controls(f"{label}{text}"), "dim"))
        return text

    @asynccontextmanager
    async def lend_terminal(self) -> AsyncIterator[None]:
        """Lend the terminal to another program, until the end of the block."""
        self._is_lent = True
        try:
            async with in_terminal():
                yield
        finally:
            self._is_lent = False
            unprinted, self._unprinted = self._unprinted, []
            for item in unprinted:
                self.print_above(item)

    def _note_text(self, buffer: Buffer) -> None:
        if buffer.text:
            self._line_emptied.clear()
        else:
            self._line_emptied.set()

    def _notice_end(self, running: asyncio.Task[None]) -> None:
        """Leave when the terminal was closed."""
        if not running.cancelled() and isinstance(running.exception(), EOFError):
            (self._message.leave if self._message else self._interrupt)()

    def _accepts_key(self, key: str) -> bool:
        """Whether a key is an answer: not while text is typed, of which it could be a part."""
        free = self._answer is None and not self._message_buffer.text
        return free and self.view is not None and self.view.accepts_key(key)

    def _press_key(self, event: KeyPressEvent) -> None:
        if self.view:
            self.view.press_key(event.data)

    def _focus_line(self) -> None:
        layout = self._app.layout
        layout.focus(self._answer_window if self._answer else self._message_window if self._message else self._board)
        self.refresh()

    def _build_app(self) -> Application[None]:
        self._board = Window(FormattedTextControl(lambda: ANSI(self._drawn[0])), dont_extend_height=True)
        search = SearchToolbar()
        self._answer_window = _build_line(self._answer_buffer, lambda: self._label)
        self._message_window = _build_line(self._message_buffer, lambda: MESSAGE_LABEL, search)
        menu = Window(CompletionsMenuControl(), height=Dimension(max=MENU_LINES), dont_extend_height=True)
        hint = Window(FormattedTextControl(lambda: ANSI(self._drawn[1])), dont_extend_height=True)
        has_answer, has_message = Condition(lambda: self._answer is not None), Condition(lambda: bool(self._message))
        layout = HSplit(
            [
                ConditionalContainer(self._board, Condition(lambda: bool(self._drawn[0]))),
                ConditionalContainer(self._answer_window, has_answer),
                ConditionalContainer(self._message_window, has_message & ~has_answer),
                ConditionalContainer(menu, has_message & has_completions),
                search,
                ConditionalContainer(hint, Condition(lambda: bool(self._drawn[1]))),
            ]
        )
        app: Application[None] = Application(
            Layout(layout, self._message_window if self._message else self._board),
            key_bindings=self._build_keys(),
            erase_when_done=True,
            before_render=self._draw,
            output=_open_output(),
        )
        app.ttimeoutlen = app.timeoutlen = ESCAPE_SECONDS
        return app

    def _build_keys(self) -> KeyBindings:
        keys = KeyBindings()
        in_answer = Condition(lambda: self._answer is not None)
        for key in ANSWER_KEYS:
            keys.add(key, filter=Condition(partial(self._accepts_key, key)))(self._press_key)
        keys.add("c-c", filter=~is_searching)(lambda event: self._interrupt())
        keys.add("c-z")(lambda event: event.app.suspend_to_background())
        for key in ("enter", "c-j"):
            keys.add(key, filter=in_answer)(lambda event: self._end_answer(self._answer_buffer.text))
        keys.add("escape", filter=in_answer)(lambda event: self._end_answer(None))
        keys.add("c-d", filter=in_answer & Condition(lambda: not self._answer_buffer.text))(
            lambda event: self._end_answer(None)
        )
        if self._message:
            self._add_message_keys(keys, self._message, ~in_answer & ~is_searching)
        return keys

    def _add_message_keys(self, keys: KeyBindings, message: MessageLine, in_message: Filter) -> None:
        buffer = self._message_buffer

        def press_escape(event: KeyPressEvent) -> None:
            if buffer.complete_state:
                buffer.cancel_completion()
            else:
                message.stop()

        keys.add("enter", filter=in_message)(lambda event: self._submit_message(message))
        for newline in (("escape", "enter"), ("c-j",)):
            keys.add(*newline, filter=in_message)(lambda event: buffer.insert_text("\n"))
        keys.add("escape", filter=in_message)(press_escape)
        keys.add("c-d", filter=in_message & Condition(lambda: not buffer.text))(lambda event: message.leave())

    def _end_answer(self, text: str | None) -> None:
        if self._answer is None or self._answer.done():
            return
        if text is None:
            self._answer.set_exception(EOFError())
        else:
            self._answer.set_result(text)

    def _submit_message(self, message: MessageLine) -> None:
        buffer = self._message_buffer
        if buffer.document.text_before_cursor.endswith(CONTINUATION):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif message.submit(drop_surrogates(buffer.text)):
            if buffer.text.strip():
                buffer.append_to_history()
            self.clear_text()

    def _draw(self, app: Application[None]) -> None:
        view = self.view
        self._drawn = (self._render(view.draw_board()), self._render(view.draw_hint())) if view else ("", "")

    def _render(self, item: RenderableType) -> str:
        """Render with rich. The view has removed control characters: the only escape codes are rich's colours."""
        with self.console.capture() as drawn:
            self.console.print(item)
        return drawn.get().removesuffix("\n")


async def read_key(console: Console, words: Text, keys: str) -> str:
    """Show the words until one of these keys is pressed. Ctrl-C raises SIGINT, as it does elsewhere."""
    pressed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    prompt = Prompt(console, lambda: signal.raise_signal(signal.SIGINT))
    prompt.view = _KeyQuestion(words, keys, pressed)
    async with prompt.open():
        return await pressed


@dataclass(frozen=True)
class _KeyQuestion:
    words: Text
    keys: str
    pressed: asyncio.Future[str]

    def draw_board(self) -> RenderableType:
        return self.words

    def draw_hint(self) -> RenderableType:
        return Text()

    def accepts_key(self, key: str) -> bool:
        return key in self.keys and not self.pressed.done()

    def press_key(self, key: str) -> None:
        self.pressed.set_result(key)


def _build_line(buffer: Buffer, label: Callable[[], str], search: SearchToolbar | None = None) -> Window:
    def build_prefix(line: int, wrapped: int) -> str:
        return label() if line == wrapped == 0 else MORE_LABEL if wrapped == 0 else " " * len(MORE_LABEL)

    return Window(
        BufferControl(buffer, search_buffer_control=search.control if search else None),
        get_line_prefix=build_prefix,
        wrap_lines=True,
        dont_extend_height=True,
    )


def _open_output() -> Vt100_Output:
    """Standard output, without cursor position requests: the terminal's late answers would be read as keys."""

    def measure() -> Size:
        columns, rows = shutil.get_terminal_size()
        return Size(rows=rows, columns=columns)

    term = os.environ.get("TERM")
    return Vt100_Output(
        sys.stdout, measure, term=term, default_color_depth=ColorDepth.from_env(), enable_cpr=False, enable_bell=False
    )
