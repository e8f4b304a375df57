"""The command as a child process of its supervisor: prepared, then released, and killed when the supervisor dies.

With fork and exec of our own, which is safe without threads. Between both, the child waits until its process id is on
disk, so that no command runs without a record.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from holdfast.activities.supervision.run_protocol import FOLDER_DESCRIPTOR, Request, read_folder

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
REPORT_DESCRIPTOR = 3
"""The descriptor at which a sandbox reports whether it started the command."""
_IGNORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that a supervisor ignores or handles; a command gets the default."""
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of every orphan below this process, so that none escapes. OSError when the kernel refuses."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel does not let us adopt processes")


def refuse_dumps() -> None:
    """Let no other process of the same user read our memory, the command included. An exec lifts this.

    As in `util.process_secrets`, which would make the supervisor import more.
    """
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


class CommandChild:
    """A child process that becomes the command when it is released."""

    def __init__(self, request: Request) -> None:
        self.output, sending = os.pipe()
        self.report, reporting = os.pipe()
        self._place, placing = os.pipe()
        self._failure, failing = os.pipe()
        waiting, self._go = os.pipe()
        input = _open_input(request.input)
        streams = {0: input, 1: sending, 2: sending}
        if request.sandboxed:
            streams[REPORT_DESCRIPTOR] = reporting
        if request.follow:
            streams[FOLDER_DESCRIPTOR] = placing
        ours = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._go)
            _become_command(request, ours, waiting, streams, failing)
        for descriptor in (sending, reporting, placing, failing, waiting, input):
            os.close(descriptor)
        os.set_blocking(self.output, False)
        os.set_blocking(self.report, False)
        os.set_blocking(self._place, False)

    def release(self) -> str:
        """Start the command; the reason when that failed, else an empty text."""
        with suppress(BrokenPipeError):  # it has been killed
            os.write(self._go, b"!")
        os.close(self._go)
        failure = bytearray()
        while data := os.read(self._failure, 4_096):
            failure += data
        os.close(self._failure)
        return failure.decode("utf-8", "replace")

    def withdraw(self) -> None:
        """Kill the child instead of starting the command."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def read_report(self) -> bytes:
        """The report of a sandbox about its command."""
        with suppress(BlockingIOError):
            return os.read(self.report, 65_536)
        return b""

    def read_end_folder(self) -> str:
        """The final folder that the shell of the command reported; empty without a report."""
        return read_folder(self._place)


def _become_command(request: Request, parent: int, waiting: int, streams: Mapping[int, int], failing: int) -> None:
    """Become the command, with these descriptors under these numbers. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in _IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent or not os.read(waiting, 1):
            os._exit(1)
        os.chdir(request.directory)
        # First to higher numbers: one of them may have a number that is about to be assigned.
        failing = _move_descriptor(failing)
        for place, stream in [(place, _move_descriptor(stream)) for place, stream in streams.items()]:
            os.dup2(stream, place)
        os.execvpe(request.words[0], request.words, request.environment)
    except BaseException as error:
        os.write(failing, f"{error}".encode("utf-8", "replace")[:2_000])
    finally:
        os._exit(127)


def _move_descriptor(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)


def _open_input(data: bytes) -> int:
    """The input of the command: a file in memory, so that a command that does not read it blocks nobody."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY)
    memory = os.memfd_create("input")
    while data:
        data = data[os.write(memory, data) :]
    os.lseek(memory, 0, os.SEEK_SET)
    return memory
