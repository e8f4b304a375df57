"""Child processes that never outlive us: each in a session of its own, killed when we die, and stopped in order.

They have sessions of their own, so that Ctrl-C in the terminal reaches only us and we decide the order. Processes that
a killed child leaves behind become our children (we are a subreaper), and we end them. Supervisors of commands are not
ended: they wait for the next worker, and exit by themselves when none comes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from holdfast.activities.process.proc import is_supervisor

PR_SET_CHILD_SUBREAPER = 36
ORPHAN_SECONDS = 2.0
SUPERVISOR_SECONDS = 10.0
"""How long a supervisor may need to end a command that ignores SIGTERM."""
REAP_SECONDS = 1.0
_TETHER = Path(__file__).with_name("tether.py")


async def start_child(
    command: list[str],
    *,
    death: signal.Signals,
    env: Mapping[str, str] | None = None,
    stdin: int = asyncio.subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    umask: int = -1,
) -> asyncio.subprocess.Process:
    """Start a child that gets the signal `death` when we die. Call it in the main thread: the kernel sends the signal
    when the thread that started the child ends.
    """
    tether = [sys.executable, "-S", str(_TETHER), str(os.getpid()), str(int(death))]
    return await asyncio.create_subprocess_exec(
        *tether,
        *command,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        umask=umask,
    )


async def stop_child(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Send SIGTERM, and SIGKILL after `seconds`; returns when the process has ended."""
    _send_signal(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        _send_signal(process, signal.SIGKILL)
        await process.wait()


def _send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a running process. `Process.send_signal` would poll it, and asyncio would lose its exit code."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def adopt_orphans() -> None:
    """Become the parent of processes that our children leave behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def end_orphans(known: Collection[int], *, with_supervisors: bool = False) -> int:
    """End every child process that is not one of the `known`; how many there were.

    Supervisors of commands only `with_supervisors`, and then with their commands. SIGTERM first, SIGKILL after some
    seconds. When one ends, its children become ours, and are ended too.
    """
    signalled: set[int] = set()
    deadline = time.monotonic() + (SUPERVISOR_SECONDS if with_supervisors else ORPHAN_SECONDS)

    def must_end(pid: int) -> bool:
        return pid not in known and not _reap_child(pid) and (with_supervisors or not is_supervisor(pid))

    while orphans := list(filter(must_end, _list_children())):
        late = time.monotonic() > deadline
        for pid in orphans:
            if late or pid not in signalled:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        signalled |= set(orphans)
        await asyncio.sleep(0.02)
    return len(signalled)


def count_supervisors() -> int:
    """How many supervisors of commands are our children: commands that go on without a worker."""
    return sum(map(is_supervisor, _list_children()))


async def reap_supervisors() -> None:
    """Until cancelled, reap the supervisors among our children that have ended."""
    ours: set[int] = set()
    while True:
        ours = {pid for pid in _list_children() if is_supervisor(pid) or (pid in ours and not _reap_child(pid))}
        await asyncio.sleep(REAP_SECONDS)


def _list_children() -> Iterator[int]:
    """Our direct children, zombies included."""
    own = str(os.getpid()).encode()
    with suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with suppress(OSError, IndexError):
                    fields = Path(f"/proc/{entry.name}/stat").read_bytes().rpartition(b")")[2].split()
                    if fields[1] == own:
                        yield int(entry.name)


def _reap_child(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


def describe_exit(code: int | None) -> str:
    """A return code in words."""
    if code is None:
        return "still runs"
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"
    return f"exited with code {code}"
