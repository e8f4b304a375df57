"""A line that a person types, edited as they are used to: arrows, what was typed before, a paste of several lines.

While it is typed everything else stands still, on purpose: nothing is printed into it. So Ctrl-C is taken as a signal
of Python's own here, which ends the typing; at any other time it is passed on to the loop.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from holdfast.content import drop_surrogates

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
