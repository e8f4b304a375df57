"""Commands confined with bubblewrap: they read everything, write only the workspace, and reach no network.

A sandbox that is configured and not available is an error before anything runs; no command runs without it. Whether it
is available is found by making one, not from version numbers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.activities.process.command import Command, probe_program
from holdfast.activities.supervision.child import REPORT_DESCRIPTOR
from holdfast.domain.calls.tool import ToolFailure

PROGRAM = "bwrap"
PROBE_SECONDS = 10.0
PRIVATE_FOLDERS = ("/tmp", "/var/tmp", "/run")
"""Folders that are empty inside, and removed afterwards. /run because of its sockets: one can connect to a read-only
socket.
"""
RESOLVER_FILE = "/etc/resolv.conf"
BASE_OPTIONS = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--die-with-parent", "--cap-drop", "ALL",
    "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc",
)  # fmt: skip
"""Namespaces of its own: all processes end with the first one. /proc is read-only, because it holds the settings of the
kernel, which root may write even without any capability. bubblewrap itself sets no_new_privs."""


@dataclass(frozen=True)
class SandboxLayout:
    """The mounts of a sandbox; everything else is as outside, and read-only."""

    writable: str
    private: tuple[str, ...] = ()
    """Folders that are empty inside, and writable."""
    shown: tuple[str, ...] = ()
    """Files in them that are visible all the same."""
    network: bool = False


def build_bwrap_words(layout: SandboxLayout, directory: str, *, program: str = PROGRAM) -> tuple[str, ...]:
    """The words in front of a command's own."""
    mounts = {
        **{path: ("--tmpfs", path) for path in layout.private},
        **{path: ("--ro-bind", path, path) for path in layout.shown},
        layout.writable: ("--bind", layout.writable, layout.writable),
    }
    # Outer mounts first: they would cover inner ones.
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
    """Confines commands."""

    workspace: Path
    network: bool = False
    hidden: tuple[Path, ...] = ()
    """Folders that are hidden inside: our own data, with tokens and outputs."""
    program: str = PROGRAM

    def build_words(self, command: Command) -> tuple[str, ...]:
        """The words of the confined command."""
        program = shutil.which(self.program) or self.program
        return (*build_bwrap_words(self._build_layout(), str(command.directory), program=program), *command.words)

    async def check_available(self) -> None:
        """ToolFailure when it is not available."""
        if why := await self.explain_missing():
            raise ToolFailure("sandbox_unavailable", f"The command was not run: it is to run in a sandbox, but {why}")

    async def explain_missing(self) -> str | None:
        """Explain why it is not available; None when it is. Makes a real sandbox, once for each kind."""
        if str(self.workspace.resolve()) == "/":
            return "the workspace is the root folder, so a sandbox would protect no file"
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
        script = f'exec "$@" {REPORT_DESCRIPTOR}>/dev/null'
        done = await probe_program("sh", "-c", script, "probe", *self.build_words(command), seconds=PROBE_SECONDS)
        if done is None:
            return f"{self.program!r} did nothing for {PROBE_SECONDS:g} seconds"
        if done.code == 0:
            return None
        return f"{done.errors[-500:] or 'it says nothing'} (does the kernel permit user namespaces?)"

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
"""Kinds of sandbox that are known to be available."""


def _resolve_folders(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.isdir(path)))
