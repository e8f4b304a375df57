"""Where a supervisor must be placed to outlive its worker.

systemd ends a unit with everything in its control group, double fork or not. There a supervisor is started in a scope
of its own, if systemd lets us; otherwise the unit needs `KillMode=process`, and we say so where it has something else
or does not tell us. In a container nothing outlives its first process: a command is lost with it, and its outcome is
unknown.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PROBE_SECONDS = 5.0
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
Manager = Literal["system", "user"]


@dataclass(frozen=True)
class Placement:
    """How supervisors are started here, and what threatens them."""

    manager: Manager | None = None
    """Which systemd gives each a scope of its own."""
    worry: str = ""
    """What would end them with their worker, in words for whoever runs it: they can do something about it."""
    note: str = ""
    """The same where nobody can."""

    def build_prefix(self, name: str) -> tuple[str, ...]:
        """The words to put before a supervisor's own. The scope is not named after the run: two may try at once."""
        if self.manager is None:
            return ()
        return (*_build_scope_words(self.manager), f"--description=Holdfast run {name}", "--")


def parse_unit(cgroups: str) -> str | None:
    """The systemd service that a process belongs to, from its /proc/PID/cgroup."""
    for line in cgroups.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" or controllers == "name=systemd":
            units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
            if units and units[-1].endswith(".service"):
                return units[-1]
    return None


def parse_manager(cgroups: str) -> Manager:
    """Which systemd it is: that of the machine, or of a user."""
    return "user" if "/user@" in cgroups else "system"


async def find_placement(cgroups: str | None = None) -> Placement:
    """How to start supervisors from this process."""
    cgroups = _read_own_cgroups() if cgroups is None else cgroups
    if unit := parse_unit(cgroups):
        manager = parse_manager(cgroups)
        if await _can_make_scope(manager):
            return Placement(manager)
        if await _fetch_kill_mode(manager, unit) == "process":
            return Placement()
        worry = f"systemd ends commands with {unit}, unless that has KillMode=process: systemd-run gives us no scope"
        return Placement(worry=worry)
    if is_in_container():
        return Placement(note="this is a container: when it ends, its commands end with it")
    return Placement()


def is_in_container() -> bool:
    """Does everything here end with one process that is not the machine's own?"""
    named = "container" in os.environ or "KUBERNETES_SERVICE_HOST" in os.environ
    return os.getpid() == 1 or named or any(Path(mark).exists() for mark in CONTAINER_MARKS)


def _read_own_cgroups() -> str:
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:
        return ""


def _build_scope_words(manager: Manager) -> tuple[str, ...]:
    return ("systemd-run", f"--{manager}", "--scope", "--quiet", "--collect")


async def _can_make_scope(manager: Manager) -> bool:
    """Found out by making one."""
    return await _run_quietly(*_build_scope_words(manager), "--", "true") is not None


async def _fetch_kill_mode(manager: Manager, unit: str) -> str:
    """What systemd ends with the unit, as it tells anybody who asks; nothing where it cannot be asked."""
    return await _run_quietly("systemctl", f"--{manager}", "show", "--property=KillMode", "--value", unit) or ""


async def _run_quietly(*command: str) -> str | None:
    """What a command that succeeds says; None when it does not, in time, or is not there."""
    if shutil.which(command[0]) is None:
        return None
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            said, _ = await process.communicate()
        return said.decode("utf-8", "replace").strip() if process.returncode == 0 else None
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
