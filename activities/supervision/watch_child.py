"""What a supervisor does while its command runs: keep what it says, see how it ends, and end all of it in time."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress

from holdfast.activities.process.proc import list_descendants
from holdfast.activities.supervision.child import CommandChild

CHUNK_SIZE = 65_536
LOOK_SECONDS = 1.0
"""How often the lease is looked at, at least."""
STEP_SECONDS = 0.02
KILL_SECONDS = 10.0
"""How long we go on killing. What is still there then cannot be killed, and is told of."""
READ_SECONDS = 5.0
"""How long output is still read when everything has ended and somebody out of our reach goes on writing."""


class SignalPipe:
    """Signals, as something that can be waited for."""

    def __init__(self) -> None:
        self.is_stop_requested = False
        self.descriptor, sending = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(sending, False)
        signal.set_wakeup_fd(sending, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._request_stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _request_stop(self, *_: object) -> None:
        self.is_stop_requested = True

    def drain(self) -> None:
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

    def has_run_out(self, now: float) -> bool:
        """Has nobody touched it for too long?"""
        touched = self._read_touch_time()
        if touched != self._touched:
            self._touched, self._since = touched, now
        return now - self._since > self._seconds

    def _read_touch_time(self) -> int:
        with suppress(OSError):
            return os.stat(self._path).st_mtime_ns
        return self._touched


class OutputBuffer:
    """The output on disk, as much as there is room for. What is beyond is read, counted and dropped."""

    def __init__(self, path: str, limit: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._limit = limit
        self.total_bytes = 0
        self.kept_bytes = 0
        self.error = ""

    def append(self, data: bytes) -> None:
        """Add to it. Nothing is kept behind a gap."""
        whole = self.kept_bytes == self.total_bytes
        self.total_bytes += len(data)
        if not whole:
            return
        data = data[: self._limit - self.kept_bytes]
        try:
            while data:
                written = os.write(self._file, data)
                self.kept_bytes += written
                data = data[written:]
        except OSError as error:
            self.error = f"the output could not be kept whole: {error.strerror}"


def find_end_reason(*, ended: bool, stop_requested: bool, late: bool, alone: bool) -> str | None:
    """Why it is over now, if it is: a command that has ended by itself has ended by itself."""
    if ended:
        return "exited"
    if stop_requested:
        return "stopped"
    if late:
        return "timed_out"
    return "abandoned" if alone else None


class CommandWatch:
    """One command from its beginning to the end of the last process that it started."""

    def __init__(self, child: CommandChild, output: OutputBuffer, bell: SignalPipe, *, sandboxed: bool) -> None:
        self._child = child
        self._output = output
        self._bell = bell
        self._sandboxed = sandboxed
        self._poll = select.poll()
        self._poll.register(child.output, select.POLLIN)
        self._poll.register(bell.descriptor, select.POLLIN)
        self.code: int | None = None
        """How it exited, negative for a signal."""
        self.is_childless = False
        """Nothing is left: what our children leave behind comes to us."""

    def wait_until_over(self, lease: Lease, seconds: float, lease_seconds: float) -> str:
        """Wait for whatever ends it first; which it was."""
        deadline = time.monotonic() + seconds
        look = min(LOOK_SECONDS, lease_seconds / 4)
        while True:
            now = time.monotonic()
            why = find_end_reason(
                ended=self.code is not None,
                stop_requested=self._bell.is_stop_requested,
                late=now >= deadline,
                alone=lease.has_run_out(now),
            )
            if why:
                return why
            self._handle_events(min(look, deadline - now))

    def end_all(self, grace: float) -> int:
        """SIGTERM to all of it, SIGKILL to what is left after the grace, until nothing is; how many could not be ended.

        What appears during the grace is how a command cleans up, and is not told to stop as well.
        """
        self._reap_children()
        if not self.is_childless:
            self._ask_to_end()
        deadline = time.monotonic() + grace
        while not self.is_childless and time.monotonic() < deadline:
            self._handle_events(STEP_SECONDS)
        deadline = time.monotonic() + KILL_SECONDS
        while not self.is_childless and time.monotonic() < deadline:
            for pid in list_descendants(os.getpid()):
                _send_signal(pid, signal.SIGKILL)
            self._handle_events(STEP_SECONDS)
        self._drain_output()
        return 0 if self.is_childless else len(list_descendants(os.getpid()))

    def _ask_to_end(self) -> None:
        """Ask all of them to end. A process that was stopped is woken, or it could not hear.

        Not those of a sandbox, which would take everything in it down before it was asked.
        """
        for pid, parent in list_descendants(os.getpid()).items():
            if not (self._sandboxed and self._child.pid in (pid, parent)):
                _send_signal(pid, signal.SIGTERM)
                _send_signal(pid, signal.SIGCONT)

    def _handle_events(self, seconds: float) -> None:
        """Wait for something to happen, at most so long, and see to it."""
        for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1_000):
            if descriptor == self._child.output:
                self._take_output()
            else:
                self._bell.drain()
        self._reap_children()

    def _take_output(self) -> bool:
        """Read once; whether there may be more."""
        try:
            data = os.read(self._child.output, CHUNK_SIZE)
        except BlockingIOError:
            return False
        if not data:
            with suppress(KeyError):
                self._poll.unregister(self._child.output)
            return False
        self._output.append(data)
        return True

    def _drain_output(self) -> None:
        """Whoever wrote has ended, so everything is there to be read."""
        deadline = time.monotonic() + READ_SECONDS
        while self._take_output() and time.monotonic() < deadline:
            pass

    def _reap_children(self) -> None:
        while not self.is_childless:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.is_childless = True
                return
            if not pid:
                return
            if pid == self._child.pid:
                self.code = os.waitstatus_to_exitcode(status)


def _send_signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
