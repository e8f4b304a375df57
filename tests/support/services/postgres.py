"""A real PostgreSQL server for tests, from Debian's package: in a folder of its own, on a unix socket, gone afterwards.

PostgreSQL refuses to run as root, so under root it runs as an unprivileged user, who owns the folder.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from tests.support.programs import require_program

USER = "holdfast"
PASSWORD = "s3cret/with:marks@"
PATIENCE = 60.0
"""Seconds that starting or stopping may take."""
SOCKET = ".s.PGSQL.5432"


class PostgresServer:
    """One server, which can be stopped, killed, started again and made to hang."""

    def __init__(self, folder: Path, bin_folder: Path, *options: str) -> None:
        self._folder = folder
        self._bin = bin_folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, *, user: str = USER, password: str = PASSWORD, database: str = "postgres") -> str:
        """Its address, with a password."""
        return f"postgresql://{user}:{quote(password, safe='')}@/{database}?host={quote(str(self._folder))}"

    def create(self) -> None:
        """Make its data folder."""
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        shutil.chown(secret, self._folder.owner())
        options = [f"--pgdata={self._folder / 'data'}", f"--username={USER}", f"--pwfile={secret}", "--no-sync"]
        command = [str(self._bin / "initdb"), *options, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        done = subprocess.run(
            [*self._as_owner(), *command], cwd=self._folder, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = ["listen_addresses=", f"unix_socket_directories={self._folder}", *self._options]
        words = [word for setting in settings for word in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as_owner(), str(self._bin / "postgres"), "-D", str(self._folder / "data"), *words],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE
        asking = [str(self._bin / "pg_isready"), "-q", "-h", str(self._folder)]
        while subprocess.run(asking, timeout=PATIENCE).returncode != 0:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends connections and shuts down; SIGQUIT leaves at once, as a crash would."""
        if self._process:
            self.resume()
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    @property
    def is_down(self) -> bool:
        """Was it stopped, and not started again?"""
        return self._process is None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop and start."""
        self.stop(how)
        self.start()

    def hang(self) -> None:
        """Stop every process of it in its tracks: connections stay open, and nobody answers."""
        self._tell(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._tell(signal.SIGCONT)

    def _tell(self, what: signal.Signals) -> None:
        """Its postmaster first, which then starts no others."""
        assert self._process
        for pid in [self._process.pid, *_children(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, what)

    def _as_owner(self) -> list[str]:
        """Under root: as the folder's owner, and gone when we are."""
        if os.geteuid() != 0:
            return []
        owner = self._folder.stat()
        ids = [f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups"]
        return ["setpriv", *ids, "--pdeathsig=QUIT", "--"]


@contextmanager
def postgres_server(*options: str) -> Iterator[PostgresServer]:
    """A server that runs; afterwards neither a process nor a file is left. Options are `name=value`."""
    bin_folder = Path(require_program("postgres")).resolve().parent
    folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    server = PostgresServer(folder, bin_folder, *options)
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, *_unprivileged())
        server.create()
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder)


class Proxy:
    """Between worker and server: can lose an answer of the server, and can leave every connection of now silent."""

    def __init__(self, address: str, folder: Path) -> None:
        self._server_folder = unquote(address.partition("?host=")[2])
        self._folder = folder
        self._silent: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self.address = address.replace(self._server_folder, str(folder))
        self.lose: bytes | None = None
        """The answer to lose next, with its connection."""

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_unix_server(self._connected, self._folder / SOCKET)
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._server.close()
        await self._server.wait_closed()

    def silence(self) -> None:
        """What is connected now stays so, and is not answered any more."""
        self._silent |= self._open

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        answers, questions = await asyncio.open_unix_connection(f"{self._server_folder}/{SOCKET}")
        asking = asyncio.create_task(self._ask(reader, questions))
        with suppress(ConnectionError):
            while data := await answers.read(65_536):
                if self.lose and self.lose in data:
                    self.lose = None
                    break
                if writer not in self._silent:
                    writer.write(data)
        writer.close()
        questions.close()
        await asking

    async def _ask(self, reader: asyncio.StreamReader, questions: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                questions.write(data)
        questions.close()


def _unprivileged() -> tuple[int, int]:
    """The package's own user, else nobody."""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return found.pw_uid, found.pw_gid
    raise AssertionError("there is no unprivileged user to run PostgreSQL as")


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()
                found += [int(entry.name)] if int(state[1]) == pid else []
    return found
