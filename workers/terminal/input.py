"""Keys and lines that a person types at a terminal.

While it is typed everything else stands still, on purpose: nothing is printed into it. So Ctrl-C is taken as a signal
of Python's own here, which ends the typing; at any other time it is passed on to the loop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

from holdfast.util.text import drop_surrogates


class Keyboard:
    """Single keys from the terminal; Ctrl-C stays a signal."""

    def __init__(self, press: Callable[[str], None]) -> None:
        self._press = press
        self._descriptor = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._descriptor)
        self._loop = asyncio.get_running_loop()

    def take_terminal(self) -> None:
        """Begin to listen; what was typed before is dropped."""
        tty.setcbreak(self._descriptor)
        self._loop.add_reader(self._descriptor, self._read_keys)

    def release_terminal(self) -> None:
        """Leave the terminal as it was."""
        self._loop.remove_reader(self._descriptor)
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    @contextmanager
    def lend_terminal(self) -> Iterator[None]:
        """The terminal is another program's, until the end of the block."""
        self.release_terminal()
        try:
            yield
        finally:
            self.take_terminal()

    async def read_line(self, prompt: str) -> str:
        """One line, edited as the terminal does it, while the keyboard is released.

        It ends with its line break, or without one where the input ended (Ctrl-D).
        """
        sys.stdout.write(prompt)
        sys.stdout.flush()
        typed: asyncio.Future[bytes] = self._loop.create_future()

        def take_data() -> None:
            if not typed.done():
                typed.set_result(os.read(self._descriptor, 100_000))

        self._loop.add_reader(self._descriptor, take_data)
        try:
            text = (await typed).decode("utf-8", "replace")
            if not text.endswith("\n"):  # what comes next begins on a line of its own
                sys.stdout.write("\n")
            return text
        finally:
            self._loop.remove_reader(self._descriptor)

    def _read_keys(self) -> None:
        data = os.read(self._descriptor, 1024).decode("utf-8", "ignore")
        if not data:
            self._loop.remove_reader(self._descriptor)
        elif not data.startswith("\x1b"):  # arrows and function keys are no answers
            self._press(data[0])


@contextmanager
def open_keyboard(press: Callable[[str], None]) -> Iterator[Keyboard]:
    """Single keys from the terminal, until the end of the block."""
    keyboard = Keyboard(press)
    keyboard.take_terminal()
    try:
        yield keyboard
    finally:
        keyboard.release_terminal()


def find_pager() -> str:
    """The command that shows long text: PAGER, else `less`; empty without either."""
    return os.environ.get("PAGER", "less -R" if shutil.which("less") else "").strip()


async def show_in_pager(command: str, text: str) -> bool:
    """Show text in a pager; False when it could not be started."""
    process = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.PIPE)
    try:
        await process.communicate(text.encode("utf-8", "replace"))
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    return process.returncode not in (126, 127)


try:
    import readline
except ImportError:  # a Python without it: lines are edited as the terminal does it
    readline = None  # type: ignore[assignment]

CONTINUATION = "\\"
"""The end of a line that goes on."""
MORE_PROMPT = "… "


class InputDropped(Exception):
    """Ctrl-C while something was typed. `empty`: nothing had been."""

    def __init__(self, *, empty: bool) -> None:
        super().__init__()
        self.empty = empty


class LineEditor:
    """The terminal's line, and Ctrl-C, until the end of a block."""

    def __init__(self, on_interrupt: Callable[[], None], on_end: Callable[[], None]) -> None:
        """`pressed`: Ctrl-C while nobody types. `ended`: the process is asked to end."""
        self._calls = {signal.SIGINT: on_interrupt, signal.SIGTERM: on_end}
        self._typing = False
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> LineEditor:
        if readline:
            readline.parse_and_bind("set enable-bracketed-paste on")
        self._before = {number: signal.signal(number, self._handle_signal) for number in self._calls}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def read(self, prompt: str, offered: str = "") -> str:
        """What was typed, `offered` to be changed at first; Dropped for Ctrl-C, EOFError for Ctrl-D."""
        self._typing = True
        lines: list[str] = []
        try:
            lines.append(_read_input(prompt, offered))
            while lines[-1].endswith(CONTINUATION):
                lines[-1] = lines[-1].removesuffix(CONTINUATION)
                lines.append(_read_input(MORE_PROMPT, ""))
        except KeyboardInterrupt:
            raise InputDropped(empty=not lines and not _read_unfinished()) from None
        finally:
            self._typing = False
        return drop_surrogates("\n".join(lines))

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._typing:
            self._loop.call_soon_threadsafe(self._calls[signal.Signals(number)])
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise EOFError


def _read_input(prompt: str, offered: str) -> str:
    if readline:
        readline.set_startup_hook(lambda: readline.insert_text(offered) if offered else None)
    try:
        return input(prompt)
    except UnicodeDecodeError:
        return ""


def _read_unfinished() -> str:
    """What stood in the line when Ctrl-C came."""
    return readline.get_line_buffer() if readline else ""
