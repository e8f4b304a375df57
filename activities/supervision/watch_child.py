"""The supervisor while its command runs: it keeps the output, waits for the end, and ends the process tree."""

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
"""The longest interval for reading the lease."""
STEP_SECONDS = 0.02
KILL_SECONDS = 10.0
"""The time for SIGKILL to work; what is left then is reported as not ended."""
READ_SECONDS = 5.0
"""The time for reading output after the end, while a process out of reach goes on writing."""


class SignalPipe:
    """Makes signals readable from a descriptor (the wakeup fd of `signal`)."""

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
        """Consume the signals so far."""
        with suppress(BlockingIOError):
            while os.read(self.descriptor, 4_096):
                pass


class Lease:
    """A file that workers touch while they attend. Its time is compared with earlier times only, never with a clock."""

    def __init__(self, path: str, seconds: float) -> None:
        self._path = path
        self._seconds = seconds
        self._touched = 0
        self._since = time.monotonic()

    def has_run_out(self, now: float) -> bool:
        """Was it last touched too long ago?"""
        touched = self._read_touch_time()
        if touched != self._touched:
            self._touched, self._since = touched, now
        return now - self._since > self._seconds

    def _read_touch_time(self) -> int:
        with suppress(OSError):
            return os.stat(self._path).st_mtime_ns
        return self._touched


class OutputBuffer:
    """The output on disk, up to a limit. What is beyond is read, counted and dropped."""

    def __init__(self, path: str, limit: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._limit = limit
        self.total_bytes = 0
        self.stored_bytes = 0
        self.error = ""

    def append(self, data: bytes) -> None:
        """Append data, unless some was dropped before: the file has no gap."""
        whole = self.stored_bytes == self.total_bytes
        self.total_bytes += len(data)
        if not whole:
            return
        data = data[: self._limit - self.stored_bytes]
        try:
            while data:
                written = os.write(self._file, data)
                self.stored_bytes += written
                data = data[written:]
        except OSError as error:
            self.error = f"the output could not be kept whole: {error.strerror}"


def find_end_reason(*, ended: bool, stop_requested: bool, late: bool, alone: bool) -> str | None:
    """Find why the command has ended or must end; None when it goes on. Its own end takes precedence."""
    if ended:
        return "exited"
    if stop_requested:
        return "stopped"
    if late:
        return "timed_out"
    return "abandoned" if alone else None


class CommandWatch:
    """One command, from its start to the end of the last process below it."""

    def __init__(self, child: CommandChild, output: OutputBuffer, bell: SignalPipe, *, sandboxed: bool) -> None:
        self._child = child
        self._output = output
        self._bell = bell
        self._sandboxed = sandboxed
        self._poll = select.poll()
        self._poll.register(child.output, select.POLLIN)
        self._poll.register(bell.descriptor, select.POLLIN)
        self.code: int | None = None
        """The exit code, negative for a signal; None while it runs."""
        self.is_childless = False
        """No process is left. Orphans become our children, so none is missed."""

    def wait_until_over(self, lease: Lease, seconds: float, lease_seconds: float) -> str:
        """Wait for the first reason to end, and return it."""
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
        """Send SIGTERM to the process tree, and SIGKILL to what is left after `grace` seconds; the number left.

        Processes that appear during the grace get no SIGTERM: they may be how a command cleans up.
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
        """Send SIGTERM to the process tree. SIGCONT wakes stopped processes, which could not handle it.

        bubblewrap itself gets none: its end would kill everything inside before it could clean up.
        """
        for pid, parent in list_descendants(os.getpid()).items():
            if not (self._sandboxed and self._child.pid in (pid, parent)):
                _send_signal(pid, signal.SIGTERM)
                _send_signal(pid, signal.SIGCONT)

    def _handle_events(self, seconds: float) -> None:
        """Wait for output or a signal, at most this long, and handle it."""
        for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1_000):
            if descriptor == self._child.output:
                self._take_output()
            else:
                self._bell.drain()
        self._reap_children()

    def _take_output(self) -> bool:
        """Read output once; whether there may be more."""
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
        """Read the rest of the output, after the writers have ended."""
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
