"""The terminal as a person uses it: single keys, and the pager that shows what is long."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


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
