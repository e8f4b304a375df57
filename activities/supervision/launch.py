"""Starting a supervisor: fully detached, and told what to do through memory.

It has a session of its own, nothing open that we have open, and nothing of our environment. It stays our child all the
same, and no second fork hides it: so it is we who see it off when it has ended, and not a first process of a container
that may not know how. When we die it goes to whoever adopts orphans, and does not notice.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.activities.process.proc import MAIN_SCRIPT
from holdfast.activities.supervision.run_request import Request

START_SECONDS = 30.0
NEEDED_VARIABLES = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""What `systemd-run` needs to find its manager."""
_START_THREADS = ThreadPoolExecutor(8, "holdfast-starting")
_supervisors: list[subprocess.Popen[bytes]] = []
_lock = threading.Lock()


def explain_unsupported() -> str | None:
    """Why commands cannot be supervised on this system; None when they can."""
    if sys.platform != "linux" or not Path("/proc/self/stat").exists():
        return "it needs Linux, with /proc"
    return None if hasattr(os, "pidfd_open") else "this Python does not know process descriptors"


async def launch_supervisor(folder: Path, request: Request, *, prefix: Sequence[str] = ()) -> str:
    """Start the supervisor of a run. Why it was refused, or nothing: then the command runs, or has failed to."""
    return await asyncio.get_running_loop().run_in_executor(
        _START_THREADS, _start_supervisor, folder, request, tuple(prefix)
    )


def reap_ended() -> None:
    """Let those of our supervisors that have ended leave the table of processes."""
    with _lock:
        _supervisors[:] = [process for process in _supervisors if process.poll() is None]


def _start_supervisor(folder: Path, request: Request, prefix: tuple[str, ...]) -> str:
    reap_ended()
    needed = {name: os.environ[name] for name in NEEDED_VARIABLES if prefix and name in os.environ}
    receiving, sending = os.pipe()
    asked = _open_memory_file(request.pack())
    try:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-I", "-S", MAIN_SCRIPT, str(folder)],
            stdin=asked,
            stdout=sending,
            stderr=sending,
            cwd="/",
            env=needed,
            start_new_session=True,
        )
    except BaseException:
        os.close(receiving)
        raise
    finally:
        os.close(asked)
        os.close(sending)
    with _lock:
        _supervisors.append(process)
    # Closed when time is up: a supervisor that finds nobody to answer to begins nothing.
    with os.fdopen(receiving, "rb", buffering=0) as file:
        return _parse_refusal(_read_answer(file.fileno(), time.monotonic() + START_SECONDS))


def _open_memory_file(data: bytes) -> int:
    """A file that is nowhere on disk."""
    memory = os.memfd_create("request")
    with os.fdopen(os.dup(memory), "wb") as file:
        file.write(data)
    os.lseek(memory, 0, os.SEEK_SET)
    return memory


def _read_answer(descriptor: int, deadline: float) -> bytes | None:
    """All that is said; None when it is not all said in time."""
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    said = bytearray()
    while ready.poll(max(0.0, deadline - time.monotonic()) * 1_000):
        data = os.read(descriptor, 65_536)
        if not data:
            return bytes(said)
        said += data
    return None


def _parse_refusal(answer: bytes | None) -> str:
    if answer is None:
        return f"its supervisor did not answer within {START_SECONDS:g} seconds"
    try:
        return str(json.loads(answer).get("refused", ""))
    except ValueError:
        complaint = answer.decode("utf-8", "replace").strip()[-500:]
        return f"its supervisor did not start: {complaint or 'it said nothing'}"
