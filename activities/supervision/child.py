"""The command as a child of its supervisor: made ready, then released, and dead when its supervisor dies.

By fork and exec of our own. The supervisor has no threads, so that is safe; and between the two the child waits until
its number is written down, so that no command runs of which nobody knows.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from holdfast.activities.supervision.run_request import Request
from holdfast.activities.supervision.working_directory import FOLDER_DESCRIPTOR, read_folder

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
REPORT_DESCRIPTOR = 3
"""The descriptor at which a sandbox says whether it started the command."""
_IGNORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""What a supervisor ignores or handles, and a command should not ignore."""
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of whatever our children leave behind: nothing below us gets away."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel does not let us adopt processes")


def refuse_dumps() -> None:
    """Other processes of the same user, our command among them, may not read our memory. That is open again to exec."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


class CommandChild:
    """A process that becomes the command when it is released."""

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
        """Let it begin; why it could not, or nothing."""
        with suppress(BrokenPipeError):  # it has been killed
            os.write(self._go, b"!")
        os.close(self._go)
        failure = bytearray()
        while data := os.read(self._failure, 4_096):
            failure += data
        os.close(self._failure)
        return failure.decode("utf-8", "replace")

    def withdraw(self) -> None:
        """End it before it began."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def read_report(self) -> bytes:
        """What a sandbox said about its command."""
        with suppress(BlockingIOError):
            return os.read(self.report, 65_536)
        return b""

    def read_end_folder(self) -> str:
        """The folder that its shell ended in, if it said so."""
        return read_folder(self._place)


def _become_command(request: Request, parent: int, waiting: int, streams: Mapping[int, int], failing: int) -> None:
    """Be the command, with these descriptors under these numbers. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in _IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent or not os.read(waiting, 1):
            os._exit(1)
        os.chdir(request.directory)
        # Out of the way first: one of them may have a number that is about to be given away.
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
    """Where the command reads: from memory, so that one that does not read cannot make us wait."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY)
    memory = os.memfd_create("input")
    while data:
        data = data[os.write(memory, data) :]
    os.lseek(memory, 0, os.SEEK_SET)
    return memory
