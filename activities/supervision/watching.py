"""What a supervisor does while its command runs: keep what it says, see how it ends, and end all of it in time."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress

from holdfast.activities.supervision.spawning import Child
from holdfast.activities.supervision.trees import descendants

CHUNK = 65_536
LOOK_SECONDS = 1.0
"""How often the lease is looked at, at least."""
TURN_SECONDS = 0.02
KILL_SECONDS = 10.0
"""How long we go on killing. What is still there then cannot be killed, and is told of."""
READ_SECONDS = 5.0
"""How long output is still read when everything has ended and somebody out of our reach goes on writing."""


class Bell:
    """Signals, as something that can be waited for."""

    def __init__(self) -> None:
        self.told_to_stop = False
        self.descriptor, sending = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(sending, False)
        signal.set_wakeup_fd(sending, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, *_: object) -> None:
        self.told_to_stop = True

    def hear(self) -> None:
        """Be ready for the next."""
        with suppress(BlockingIOError):
            while os.read(self.descriptor, 4_096):
                pass


class Lease:
    """Whether somebody attends: a file that is touched. Its time is compared with itself, never with a clock."""

    def __init__(self, path: str, seconds: float) -> None:
        self._path = path
        self._seconds = seconds
        self._touched = 0
        self._since = time.monotonic()

    def ran_out(self, now: float) -> bool:
        """Has nobody touched it for too long?"""
        touched = self._look()
        if touched != self._touched:
            self._touched, self._since = touched, now
        return now - self._since > self._seconds

    def _look(self) -> int:
        with suppress(OSError):
            return os.stat(self._path).st_mtime_ns
        return self._touched


class Kept:
    """The output on disk, as much as there is room for. What is beyond is read, counted and dropped."""

    def __init__(self, path: str, most: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._most = most
        self.bytes = 0
        self.kept = 0
        self.error = ""

    def take(self, data: bytes) -> None:
        """Add to it. Nothing is kept behind a gap."""
        whole = self.kept == self.bytes
        self.bytes += len(data)
        if not whole:
            return
        data = data[: self._most - self.kept]
        try:
            while data:
                written = os.write(self._file, data)
                self.kept += written
                data = data[written:]
        except OSError as error:
            self.error = f"the output could not be kept whole: {error.strerror}"


def reason(*, ended: bool, told: bool, late: bool, alone: bool) -> str | None:
    """Why it is over now, if it is: a command that has ended by itself has ended by itself."""
    if ended:
        return "exited"
    if told:
        return "stopped"
    if late:
        return "timed_out"
    return "abandoned" if alone else None


class Watch:
    """One command from its beginning to the end of the last process that it started."""

    def __init__(self, child: Child, kept: Kept, bell: Bell, *, sandboxed: bool) -> None:
        self._child = child
        self._kept = kept
        self._bell = bell
        self._sandboxed = sandboxed
        self._poll = select.poll()
        self._poll.register(child.output, select.POLLIN)
        self._poll.register(bell.descriptor, select.POLLIN)
        self.code: int | None = None
        """How it exited, negative for a signal."""
        self.childless = False
        """Nothing is left: what our children leave behind comes to us."""

    def until_over(self, lease: Lease, seconds: float, lease_seconds: float) -> str:
        """Wait for whatever ends it first; which it was."""
        deadline = time.monotonic() + seconds
        look = min(LOOK_SECONDS, lease_seconds / 4)
        while True:
            now = time.monotonic()
            why = reason(
                ended=self.code is not None,
                told=self._bell.told_to_stop,
                late=now >= deadline,
                alone=lease.ran_out(now),
            )
            if why:
                return why
            self._turn(min(look, deadline - now))

    def end_all(self, grace: float) -> int:
        """SIGTERM to all of it, SIGKILL to what is left after the grace, until nothing is; how many could not be ended.

        What appears during the grace is how a command cleans up, and is not told to stop as well.
        """
        self._reap()
        if not self.childless:
            self._ask()
        deadline = time.monotonic() + grace
        while not self.childless and time.monotonic() < deadline:
            self._turn(TURN_SECONDS)
        deadline = time.monotonic() + KILL_SECONDS
        while not self.childless and time.monotonic() < deadline:
            for pid in descendants(os.getpid()):
                _send(pid, signal.SIGKILL)
            self._turn(TURN_SECONDS)
        self._drain()
        return 0 if self.childless else len(descendants(os.getpid()))

    def _ask(self) -> None:
        """Ask all of them to end. A process that was stopped is woken, or it could not hear.

        Not those of a sandbox, which would take everything in it down before it was asked.
        """
        for pid, parent in descendants(os.getpid()).items():
            if not (self._sandboxed and self._child.pid in (pid, parent)):
                _send(pid, signal.SIGTERM)
                _send(pid, signal.SIGCONT)

    def _turn(self, seconds: float) -> None:
        """Wait for something to happen, at most so long, and see to it."""
        for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1_000):
            if descriptor == self._child.output:
                self._take()
            else:
                self._bell.hear()
        self._reap()

    def _take(self) -> bool:
        """Read once; whether there may be more."""
        try:
            data = os.read(self._child.output, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            with suppress(KeyError):
                self._poll.unregister(self._child.output)
            return False
        self._kept.take(data)
        return True

    def _drain(self) -> None:
        """Whoever wrote has ended, so everything is there to be read."""
        deadline = time.monotonic() + READ_SECONDS
        while self._take() and time.monotonic() < deadline:
            pass

    def _reap(self) -> None:
        while not self.childless:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if not pid:
                return
            if pid == self._child.pid:
                self.code = os.waitstatus_to_exitcode(status)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
