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

from holdfast.activities.commands import Command
from holdfast.activities.supervision.spawning import REPORT
from holdfast.tools import ToolFailure

PROGRAM = "bwrap"
PROBE_SECONDS = 10.0
PRIVATE = ("/tmp", "/var/tmp", "/run")
"""Empty inside, and gone afterwards. /run because of the sockets in it: a read-only one can still be spoken to."""
RESOLVER = "/etc/resolv.conf"
ALWAYS = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--die-with-parent", "--cap-drop", "ALL",
    "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc",
)  # fmt: skip
"""Of its own are its processes, all of which die with the first, and /proc, which is read-only as well: the settings of
the kernel are in it, and root may write them even without any capability. That nothing inside gains privileges
bubblewrap always sees to."""


@dataclass(frozen=True)
class Inside:
    """What is different inside from outside, where everything may be read and nothing written."""

    writable: str
    private: tuple[str, ...] = ()
    """Folders that are empty inside."""
    shown: tuple[str, ...] = ()
    """What is to be seen of them all the same."""
    network: bool = False


def bwrap_words(inside: Inside, directory: str, *, program: str = PROGRAM) -> tuple[str, ...]:
    """The words to put before a command's own."""
    mounts = {
        **{path: ("--tmpfs", path) for path in inside.private},
        **{path: ("--ro-bind", path, path) for path in inside.shown},
        inside.writable: ("--bind", inside.writable, inside.writable),
    }
    # Outer ones first: an inner one that came before would be covered.
    ordered = [word for path in sorted(mounts, key=_depth) for word in mounts[path]]
    network = () if inside.network else ("--unshare-net",)
    return (program, *ALWAYS, *network, *ordered, "--chdir", directory, "--json-status-fd", str(REPORT), "--")


def _depth(path: str) -> tuple[int, str]:
    return len(Path(path).parts), path


@dataclass(frozen=True)
class Sandbox:
    """How commands are closed in."""

    workspace: Path
    network: bool = False
    hidden: tuple[Path, ...] = ()
    """Folders not to be seen inside: our own data, with tokens and everybody's outputs."""
    program: str = PROGRAM

    def words(self, command: Command) -> tuple[str, ...]:
        """The command, closed in."""
        program = shutil.which(self.program) or self.program
        return (*bwrap_words(self._inside(), str(command.directory), program=program), *command.words)

    async def require(self) -> None:
        """ToolFailure when it cannot be had."""
        if why := await self.missing():
            raise ToolFailure("sandbox_unavailable", f"The command was not run: it is to run in a sandbox, but {why}")

    async def missing(self) -> str | None:
        """Why it cannot be had; None when it can: a real one is made, once for each kind."""
        if str(self.workspace.resolve()) == "/":
            return "the workspace is the root folder, and a sandbox in which all may be written is none"
        kind = replace(self, hidden=tuple(path for path in self.hidden if path.is_dir()))
        if kind in _proven:
            return None
        if shutil.which(self.program) is None:
            return f"{self.program!r} is not installed (Debian: apt-get install bubblewrap)"
        why = await self._probe()
        if why is None:
            _proven.add(kind)
        return why

    async def _probe(self) -> str | None:
        command = Command(words=("true",), directory=self.workspace, seconds=PROBE_SECONDS)
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f'exec "$@" {REPORT}>/dev/null', "probe", *self.words(command)),
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

    def _inside(self) -> Inside:
        private = _folders((*PRIVATE, *map(str, self.hidden)))
        resolver = os.path.realpath(RESOLVER)
        needed = self.network and any(resolver.startswith(f"{folder}/") for folder in private)
        return Inside(
            writable=str(self.workspace.resolve()),
            private=private,
            shown=(resolver,) if needed and os.path.exists(resolver) else (),
            network=self.network,
        )


_proven: set[Sandbox] = set()
"""Kinds of sandbox that were made here."""


def _folders(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.isdir(path)))
