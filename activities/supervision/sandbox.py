"""Commands closed in with bubblewrap: they read everything, write the workspace, and reach no network.

Asked for and not to be had is an error before anything runs, never a command that runs without. What a sandbox can do
here is found out by making one, not by looking at version numbers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.activities.process.command import Command
from holdfast.activities.supervision.child import REPORT_DESCRIPTOR
from holdfast.domain.calls.tool import ToolFailure

PROGRAM = "bwrap"
PROBE_SECONDS = 10.0
PRIVATE_FOLDERS = ("/tmp", "/var/tmp", "/run")
"""Empty inside, and gone afterwards. /run because of the sockets in it: a read-only one can still be spoken to."""
RESOLVER_FILE = "/etc/resolv.conf"
BASE_OPTIONS = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--die-with-parent", "--cap-drop", "ALL",
    "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc",
)  # fmt: skip
"""Of its own are its processes, all of which die with the first, and /proc, which is read-only as well: the settings of
the kernel are in it, and root may write them even without any capability. That nothing inside gains privileges
bubblewrap always sees to."""


@dataclass(frozen=True)
class SandboxLayout:
    """What is different inside from outside, where everything may be read and nothing written."""

    writable: str
    private: tuple[str, ...] = ()
    """Folders that are empty inside."""
    shown: tuple[str, ...] = ()
    """What is to be seen of them all the same."""
    network: bool = False


def build_bwrap_words(layout: SandboxLayout, directory: str, *, program: str = PROGRAM) -> tuple[str, ...]:
    """The words to put before a command's own."""
    mounts = {
        **{path: ("--tmpfs", path) for path in layout.private},
        **{path: ("--ro-bind", path, path) for path in layout.shown},
        layout.writable: ("--bind", layout.writable, layout.writable),
    }
    # Outer ones first: an inner one that came before would be covered.
    ordered = [word for path in sorted(mounts, key=_depth_key) for word in mounts[path]]
    network = () if layout.network else ("--unshare-net",)
    return (
        program,
        *BASE_OPTIONS,
        *network,
        *ordered,
        "--chdir",
        directory,
        "--json-status-fd",
        str(REPORT_DESCRIPTOR),
        "--",
    )


def _depth_key(path: str) -> tuple[int, str]:
    return len(Path(path).parts), path


@dataclass(frozen=True)
class Sandbox:
    """How commands are closed in."""

    workspace: Path
    network: bool = False
    hidden: tuple[Path, ...] = ()
    """Folders not to be seen inside: our own data, with tokens and everybody's outputs."""
    program: str = PROGRAM

    def build_words(self, command: Command) -> tuple[str, ...]:
        """The command, closed in."""
        program = shutil.which(self.program) or self.program
        return (*build_bwrap_words(self._build_layout(), str(command.directory), program=program), *command.words)

    async def check_available(self) -> None:
        """ToolFailure when it cannot be had."""
        if why := await self.explain_missing():
            raise ToolFailure("sandbox_unavailable", f"The command was not run: it is to run in a sandbox, but {why}")

    async def explain_missing(self) -> str | None:
        """Why it cannot be had; None when it can: a real one is made, once for each kind."""
        if str(self.workspace.resolve()) == "/":
            return "the workspace is the root folder, and a sandbox in which all may be written is none"
        kind = replace(self, hidden=tuple(path for path in self.hidden if path.is_dir()))
        if kind in _proven:
            return None
        if shutil.which(self.program) is None:
            return f"{self.program!r} is not installed (Debian: apt-get install bubblewrap)"
        why = await self._probe_sandbox()
        if why is None:
            _proven.add(kind)
        return why

    async def _probe_sandbox(self) -> str | None:
        command = Command(words=("true",), directory=self.workspace, seconds=PROBE_SECONDS)
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f'exec "$@" {REPORT_DESCRIPTOR}>/dev/null', "probe", *self.build_words(command)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                _, said = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return f"{self.program!r} did nothing for {PROBE_SECONDS:g} seconds"
        if process.returncode == 0:
            return None
        words = said.decode("utf-8", "replace").strip()[-500:]
        return f"{words or 'it says nothing'} (does the kernel permit user namespaces?)"

    def _build_layout(self) -> SandboxLayout:
        private = _resolve_folders((*PRIVATE_FOLDERS, *map(str, self.hidden)))
        resolver = os.path.realpath(RESOLVER_FILE)
        needed = self.network and any(resolver.startswith(f"{folder}/") for folder in private)
        return SandboxLayout(
            writable=str(self.workspace.resolve()),
            private=private,
            shown=(resolver,) if needed and os.path.exists(resolver) else (),
            network=self.network,
        )


_proven: set[Sandbox] = set()
"""Kinds of sandbox that were made here."""


def _resolve_folders(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.isdir(path)))
