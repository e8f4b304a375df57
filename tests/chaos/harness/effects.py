"""The effects themselves, as they are outside: made by workers, looked up by whoever wants to know the truth.

Three counters: lines of a file, rows of a database, requests to a service. None of them keeps anybody from counting
twice, so that a doubled effect shows.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from holdfast.domain.base import Data
from tests.chaos.harness.attempts import Attempts
from tests.chaos.harness.plan import MARK, Kind, PlannedCall
from tests.chaos.harness.services.counter import HOST, Counter

BUSY_SECONDS = 20.0
ACT = """#!/usr/bin/env bash
# act LABEL SECONDS: a command with an effect. Its worker dies in the middle of it, where that is planned.
set -eu
outside=$(dirname "$0") label=$1 seconds=$2
mark=$outside/attempts/$label.command.$$
: > "$mark"
trap 'rm -f "$mark"' EXIT
printf '%s %s begun\\n' "$label" "$HOLDFAST_CALL" >> "$outside/lines"
for number in 0 1; do
  if mv "$outside/planned/$label.in_effect.$number" "$outside/planned/$label.now" 2>/dev/null; then
    sleep 0.3
  fi
done
sleep "$seconds"
printf '%s %s done\\n' "$label" "$HOLDFAST_CALL" >> "$outside/lines"
echo "done $label"
"""


class Truth(Data):
    """What became of a call outside."""

    keys: tuple[str, ...] = ()
    """One for each whole effect: the key it was made under, where that is known."""
    shares: int = 0
    """Effects that were begun and not finished."""
    goes_on: bool = False
    """Something lives that may still add to it: this is not settled."""

    @property
    def count(self) -> int:
        """How many whole effects there are."""
        return len(self.keys)


class Effects:
    """The counters that are files, in a folder outside."""

    def __init__(self, folder: Path) -> None:
        self._lines = folder / "lines"
        self._rows = folder / "rows.db"
        self.act = folder / "act"
        self.attempts = Attempts(folder)

    def prepare(self) -> None:
        """Make them, empty."""
        self.attempts.folder.mkdir(parents=True)
        self._lines.touch()
        self.act.write_text(ACT)
        self.act.chmod(0o755)
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE rows (label TEXT NOT NULL, key TEXT NOT NULL)")

    def line(self, label: str, key: str, what: str) -> None:
        """Append one."""
        descriptor = os.open(self._lines, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{label} {key} {what}\n".encode())
        finally:
            os.close(descriptor)

    def row(self, label: str, key: str, midway: Callable[[], None]) -> None:
        """Insert one; `midway` is before the commit."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows VALUES (?, ?)", (label, key))
            midway()
            connection.execute("COMMIT")

    def rows(self, label: str) -> tuple[str, ...]:
        """The keys of the rows of a label."""
        with closing(self._connect()) as connection:
            return tuple(key for [key] in connection.execute("SELECT key FROM rows WHERE label = ?", (label,)))

    def lines(self, label: str) -> tuple[tuple[str, ...], int]:
        """The keys of the effects of a label that were finished, and how many others were begun."""
        found = [line.split() for line in self._lines.read_text().splitlines() if line.startswith(f"{label} ")]
        done = tuple(key for _, key, what in found if what == "done")
        return done, sum(what == "begun" for _, _, what in found) - len(done)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._rows, timeout=BUSY_SECONDS, isolation_level=None)


class Looking:
    """Whoever wants to know what became of a call, by looking everywhere."""

    def __init__(self, effects: Effects, counter: Counter, workspace: Path) -> None:
        self._effects = effects
        self._counter = counter
        self._workspace = workspace

    def truth(self, call: PlannedCall) -> Truth:
        """What became of it so far. Looked at twice if something ended meanwhile."""
        goes_on = self._effects.attempts.go_on(call.label)
        keys, shares = self._counted(call)
        return Truth(keys=keys, shares=shares, goes_on=goes_on)

    def _counted(self, call: PlannedCall) -> tuple[tuple[str, ...], int]:
        match call.kind:
            case Kind.SHELL | Kind.APPEND | Kind.LOCAL | Kind.REMOTE | Kind.REMOTE_KEYED:
                return self._effects.lines(call.label)
            case Kind.POST | Kind.KEYED:
                return self._counter.keys(call.label), 0
            case Kind.ROW | Kind.VERIFIED:
                return self._effects.rows(call.label), 0
            case Kind.WRITE:
                return (("",) if self._content(call) == call.label else ()), 0
            case Kind.EDIT:
                return ("",) * (self._content(call) or "").count("+"), 0
            case Kind.LOOK:
                return (), 0

    def _content(self, call: PlannedCall) -> str | None:
        try:
            return (self._workspace / call.path).read_text()
        except FileNotFoundError:
            return None


def prepare_file(call: PlannedCall, workspace: Path) -> None:
    """The file that is edited."""
    if call.kind is Kind.EDIT:
        (workspace / call.path).write_text(f"{MARK}\n")


async def post(port: int, path: str, label: str, key: str, midway: Callable[[], None]) -> None:
    """Tell the service that counts; `midway` is when it has been told and has not answered."""
    body = json.dumps({"label": label, "key": key}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(head.encode() + body)
        await writer.drain()
        midway()
        status = await reader.readline()
    finally:
        writer.close()
    if b" 204 " not in status:
        raise RuntimeError(f"the counter answered {status!r}")
