"""What recording one effect costs, on this machine and this disk.

    make bench            # microseconds, medians

Beside a plain write and fsync of a small file in the same run: a ratio that travels. PostgreSQL is measured where it is
installed, with its own fsync on and over a unix socket.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path

from holdfast.activities.ledger.ledger import EffectKey, Ledger, Spending
from holdfast.activities.ledger.sqlite import SqliteLedger
from tests.support.programs import find_program
from tests.support.services.postgres import postgres_server

ROUNDS = 300
SMALL = '{"kind": "finished", "result": {"parts": [{"kind": "text", "text": "' + "x" * 2_000 + '"}]}}'
LARGE = '"' + "x" * 1_000_000 + '"'


async def _median(work: Callable[[int], Awaitable[object]], rounds: int = ROUNDS) -> float:
    taken = []
    for number in range(rounds):
        start = time.perf_counter()
        await work(number)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1_000_000


def _key(number: int, turn: str = "turn") -> EffectKey:
    return EffectKey(turn=turn, call=f"b1c{number}", digest="d" * 64)


def _spending(number: int) -> Spending:
    return Spending(decision=f"{number:064}", execution=f"{number:036}/b1c1/1")


async def _measured(ledger: Ledger, name: str) -> dict[str, float]:
    """Each step by itself, and the two that every call makes together."""

    async def both(number: int) -> None:
        await ledger.record_intent(_key(number, "both"), host="bench", tool="shell")
        await ledger.record_result(_key(number, "both"), SMALL)

    await ledger.check()
    lines = {
        "intend": await _median(lambda number: ledger.record_intent(_key(number), host="bench", tool="shell")),
        "find, of an intent": await _median(lambda number: ledger.find(_key(number))),
        "finish, 2 KB": await _median(lambda number: ledger.record_result(_key(number), SMALL)),
        "find, of a result": await _median(lambda number: ledger.find(_key(number))),
        "intend and finish": await _median(both),
        "spend, one decision": await _median(lambda number: ledger.record_spendings([_spending(number)])),
        "spend, the same again": await _median(lambda number: ledger.record_spendings([_spending(number)])),
    }
    for number in range(20):
        await ledger.record_intent(_key(number, "large"), host="bench", tool="shell")
    lines["finish, 1 MB"] = await _median(lambda number: ledger.record_result(_key(number, "large"), LARGE), 20)
    await ledger.close()
    return {f"{name}: {step}": taken for step, taken in lines.items()}


async def _plain(folder: Path) -> float:
    """Appending 200 bytes to a file, and waiting until they are on disk."""
    descriptor = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def append(number: int) -> None:
        os.write(descriptor, b"x" * 200)
        os.fsync(descriptor)

    try:
        return await _median(append)
    finally:
        os.close(descriptor)


async def _run(folder: Path) -> None:
    plain = await _plain(folder)
    lines = {"write and fsync, to compare": plain}
    lines |= await _measured(SqliteLedger(folder / "ledger.db"), "file")
    if find_program("postgres") and find_spec("asyncpg"):
        from holdfast.activities.ledger.postgres import PostgresLedger

        with postgres_server() as server:
            lines |= await _measured(PostgresLedger(server.address()), "PostgreSQL")
    print(f"{'one effect recorded':<36}{'median':>12}{'of an fsync':>14}")
    for name, taken in lines.items():
        print(f"{name:<36}{taken:>9,.0f} µs{taken / plain:>14.2f}")


def main() -> None:
    """Print one line for each step."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(Path(folder)))


if __name__ == "__main__":
    main()
