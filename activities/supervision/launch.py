"""Starts a supervisor so that it outlives the worker.

It gets a session of its own, no open file of ours and nothing of our environment; the request goes through memory. It
stays our child process, without a second fork, so that we reap it: the first process of a container may not. When the
worker dies, the supervisor is adopted by the system and does not notice.

systemd ends everything in the control group of a unit, whatever its session. There a supervisor is started in a scope
of its own if systemd permits that; otherwise the unit needs `KillMode=process`, and a warning says so. In a container
nothing outlives the first process: a command ends with it, and its outcome is unknown.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.activities.process.command import probe_program
from holdfast.activities.process.proc import MAIN_SCRIPT
from holdfast.activities.supervision.run_protocol import Request

START_SECONDS = 30.0
PROBE_SECONDS = 5.0
NEEDED_VARIABLES = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""The variables by which `systemd-run` finds its manager."""
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
Manager = Literal["system", "user"]
_START_THREADS = ThreadPoolExecutor(8, "holdfast-starting")
_supervisors: list[subprocess.Popen[bytes]] = []
_lock = threading.Lock()


@dataclass(frozen=True)
class Placement:
    """The way to start supervisors here, and the reasons why they may end early."""

    manager: Manager | None = None
    """The systemd that gives each of them a scope of its own; None: they need none."""
    worry: str = ""
    """The reason why they would end together with their worker, where an operator can change that."""
    note: str = ""
    """The same where nobody can change it."""

    def build_prefix(self, name: str) -> tuple[str, ...]:
        """The words in front of a supervisor's own. The scope is not named after the run: two workers may try."""
        if self.manager is None:
            return ()
        return (*_build_scope_words(self.manager), f"--description=Holdfast run {name}", "--")


def explain_unsupported() -> str | None:
    """Explain why commands cannot be supervised on this system; None when they can."""
    if sys.platform != "linux" or not Path("/proc/self/stat").exists():
        return "it needs Linux, with /proc"
    return None if hasattr(os, "pidfd_open") else "this Python does not know process descriptors"


async def launch_supervisor(folder: Path, request: Request, *, prefix: Sequence[str] = ()) -> str:
    """Start the supervisor of a run; the reason when it was refused, else an empty text.

    Without a reason the run exists: its command runs, has ended, or could not be started. OSError when not even the
    supervisor can be started.
    """
    return await asyncio.get_running_loop().run_in_executor(
        _START_THREADS, _start_supervisor, folder, request, tuple(prefix)
    )


def reap_ended() -> None:
    """Reap those supervisors of this process that have ended."""
    with _lock:
        _supervisors[:] = [process for process in _supervisors if process.poll() is None]


async def find_placement(cgroups: str | None = None) -> Placement:
    """Find out by trying how to start supervisors from this process. `cgroups` replaces /proc/self/cgroup."""
    cgroups = _read_own_cgroups() if cgroups is None else cgroups
    if unit := parse_unit(cgroups):
        manager = parse_manager(cgroups)
        if await _probe(*_build_scope_words(manager), "--", "true") is not None:
            return Placement(manager)
        kill_mode = await _probe("systemctl", f"--{manager}", "show", "--property=KillMode", "--value", unit)
        if kill_mode == "process":
            return Placement()
        worry = f"systemd ends commands with {unit}, unless that has KillMode=process: systemd-run gives us no scope"
        return Placement(worry=worry)
    if is_in_container():
        return Placement(note="this is a container: when it ends, its commands end with it")
    return Placement()


def parse_unit(cgroups: str) -> str | None:
    """The systemd service in the text of a /proc/PID/cgroup; None outside of a service."""
    for line in cgroups.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" or controllers == "name=systemd":
            units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
            if units and units[-1].endswith(".service"):
                return units[-1]
    return None


def parse_manager(cgroups: str) -> Manager:
    """The systemd that a process belongs to: that of the machine or of a user."""
    return "user" if "/user@" in cgroups else "system"


def is_in_container() -> bool:
    """Does everything here end with one process that is not the init of a machine?"""
    named = "container" in os.environ or "KUBERNETES_SERVICE_HOST" in os.environ
    return os.getpid() == 1 or named or any(Path(mark).exists() for mark in CONTAINER_MARKS)


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
    # The pipe is closed at the deadline: a supervisor that cannot answer any more begins nothing.
    with os.fdopen(receiving, "rb", buffering=0) as file:
        return _parse_refusal(_read_answer(file.fileno(), time.monotonic() + START_SECONDS))


def _open_memory_file(data: bytes) -> int:
    """A descriptor of a file in memory with this content."""
    memory = os.memfd_create("request")
    with os.fdopen(os.dup(memory), "wb") as file:
        file.write(data)
    os.lseek(memory, 0, os.SEEK_SET)
    return memory


def _read_answer(descriptor: int, deadline: float) -> bytes | None:
    """The whole answer; None when it is not complete in time."""
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    answer = bytearray()
    while ready.poll(max(0.0, deadline - time.monotonic()) * 1_000):
        data = os.read(descriptor, 65_536)
        if not data:
            return bytes(answer)
        answer += data
    return None


def _parse_refusal(answer: bytes | None) -> str:
    if answer is None:
        return f"its supervisor did not answer within {START_SECONDS:g} seconds"
    try:
        return str(json.loads(answer).get("refused", ""))
    except ValueError:
        complaint = answer.decode("utf-8", "replace").strip()[-500:]
        return f"its supervisor did not start: {complaint or 'it printed no error'}"


def _read_own_cgroups() -> str:
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:
        return ""


def _build_scope_words(manager: Manager) -> tuple[str, ...]:
    return ("systemd-run", f"--{manager}", "--scope", "--quiet", "--collect")


async def _probe(*words: str) -> str | None:
    """The output of a program; None when it is not installed, fails or takes too long."""
    if shutil.which(words[0]) is None:
        return None
    done = await probe_program(*words, seconds=PROBE_SECONDS)
    return done.output if done and done.code == 0 else None
