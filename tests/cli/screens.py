"""A command on a terminal of its own: what is typed, and what a person would see, drawn by pyte."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import termios
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pexpect  # type: ignore[import-untyped]
import pyte
from pexpect.fdpexpect import fdspawn  # type: ignore[import-untyped]

from tests.cli import warm
from tests.cli.support import SECONDS, Home

KEYS = r"\[v\] view all"
_FRAME = re.compile(r"(?<=\x1b\[\?25h)|(?<=\x1b\[J)")
"""Where the cursor is shown, a frame has been drawn; where all below it is erased, another one begins."""


class Terminal:
    """A terminal with a command on it, and every line that was ever on it, in the order in which they came."""

    def __init__(self, child: Any, columns: int, rows: int) -> None:
        self.child = child
        self.raw = ""
        """The bytes that the command wrote, as text."""
        self.before = ""
        """What came between the last two matches."""
        self.match: re.Match[str]
        self._screen = pyte.HistoryScreen(columns, rows, history=20_000)
        self._stream = pyte.Stream(self._screen)
        self._above: list[str] = []
        """The lines that have scrolled away."""
        self._lines: Counter[str] = Counter()
        self._seen = ""
        """What came since the last match: of lines that change, every version."""

    def expect(self, pattern: str) -> None:
        """Wait until a line comes that matches, or several in this order; what came before is passed over.

        Blank lines and blanks at the end of a line do not count.
        """
        self._wait(pattern.rstrip(" "))
        self.before, self._seen = self._seen[: self.match.start()], self._seen[self.match.end() :]

    def expect_exact(self, text: str) -> None:
        """The same for words."""
        self.expect(re.escape(text))

    def until(self, pattern: str) -> None:
        """Wait until it stands on the screen."""
        deadline = time.monotonic() + SECONDS
        while not self.shows(pattern):
            assert self._read(deadline), f"the command ended without {pattern!r}; what came:\n{self._seen}"

    def shows(self, pattern: str) -> bool:
        """Does it stand on the screen now?"""
        return re.search(pattern, "\n".join(self.display), re.MULTILINE) is not None

    @property
    def display(self) -> list[str]:
        """The lines on the screen."""
        return [line.rstrip() for line in self._screen.display]

    def send(self, keys: str) -> None:
        """Type."""
        self.child.send(keys)

    def sendline(self, text: str = "") -> None:
        """Type a line, and Enter."""
        self.child.send(f"{text}\r")

    def sendintr(self) -> None:
        """Ctrl-C."""
        self.child.send("\x03")

    def sendcontrol(self, key: str) -> None:
        """A key with Ctrl."""
        self.child.sendcontrol(key)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.child.kill(signal.SIGKILL)
        self.ended()

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            pass
        self.before = self._seen
        self.child.wait()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus)

    def _wait(self, pattern: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self._seen, re.DOTALL)):
            if not self._read(deadline):
                raise AssertionError(f"the command ended without {pattern!r}; what came:\n{self._seen}")
        self.match = found

    def _read(self, deadline: float) -> bool:
        """Draw what comes next; False at the end."""
        try:
            if time.monotonic() > deadline:
                raise pexpect.TIMEOUT("the screen changes, and what is waited for does not come")
            text = self.child.read_nonblocking(65_536, timeout=max(0.01, deadline - time.monotonic()))
        except pexpect.EOF:
            return False
        except pexpect.TIMEOUT:
            came = self._seen.splitlines()
            shown = "\n".join((*came[:10], "…", *came[-10:], "on the screen:", *self.display))
            raise AssertionError(f"it did not come; since the last match:\n{shown}") from None
        self.raw += text
        for frame in _FRAME.split(text):
            self._stream.feed(frame)
            self._note_lines()
        return True

    def _note_lines(self) -> None:
        while len(self._above) < len(self._screen.history.top):
            row = self._screen.history.top[len(self._above)]
            self._above.append("".join(row[column].data for column in range(self._screen.columns)).rstrip())
        now = [*self._above, *self.display]
        fresh = Counter(now) - self._lines
        self._lines = Counter(now)
        came = []
        for line in reversed(now):  # of lines that are alike the lowest is the newest
            if line and fresh[line] > 0:
                fresh[line] -= 1
                came.append(f"{line}\n")
        self._seen += "".join(reversed(came))


class ForkedChild(fdspawn):  # type: ignore[misc]
    """A command that is forked on a terminal, with the methods of `pexpect.spawn` that are used here."""

    def __init__(self, home: Home, arguments: Sequence[str], env: Mapping[str, str], rows: int, columns: int) -> None:
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        super().__init__(ours, encoding="utf-8", timeout=SECONDS)
        self._process = warm.start_on_terminal(arguments, env=env, cwd=home.folder, terminal=theirs)
        self.exitstatus: int | None = None
        self.signalstatus: int | None = None

    def send(self, keys: str) -> None:
        """Type, as fast as `pexpect.spawn` does: nobody types the moment that something is drawn."""
        time.sleep(self.delaybeforesend)
        super().send(keys)

    def sendcontrol(self, key: str) -> None:
        """A key with Ctrl."""
        self.send(chr(ord(key.upper()) & 0x1F))

    def kill(self, number: int) -> None:
        """Send it a signal."""
        assert self._process.pid, "it was started"
        os.kill(self._process.pid, number)

    def wait(self) -> None:
        """Wait for the end, and note how it ended."""
        self._process.join(SECONDS)
        code = self._process.exitcode
        assert code is not None, "it goes on without its terminal"
        self.exitstatus, self.signalstatus = (code, None) if code >= 0 else (None, -code)

    def close(self, force: bool = False) -> None:
        """Take its terminal away, and end it."""
        super().close()
        self._process.join(1)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()


@contextmanager
def terminal(home: Home, *arguments: str, columns: int = 120, rows: int = 40, **env: str) -> Iterator[Terminal]:
    """The command on a terminal of its own."""
    child = ForkedChild(home, arguments, {**home.env, **env}, rows, columns)
    try:
        yield Terminal(child, columns, rows)
    finally:
        child.close(force=True)


def ended(child: Terminal) -> int:
    """Wait for the end; the exit code."""
    return child.ended()
