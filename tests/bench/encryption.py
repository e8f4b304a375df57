"""What encryption costs: the same turns with and without it, played in turns in the same run.

    python -m tests.bench.encryption            # medians and ratios, and the codec by itself

Ratios travel between machines, times do not; no test asserts either.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import Payload

from holdfast import Effect, Holdfast, Run, TurnInput
from holdfast.config.sections import EncryptionSettings, KeySettings
from holdfast.payloads.encryption import EncryptingCodec
from holdfast.payloads.keyring import Key, Keyring, generate_key
from holdfast.testing import FakeTool, build_request, script_model
from tests.support.engine import Engine, new_engine
from tests.support.server import start_server

ROUNDS = 15
VARIABLE = "HOLDFAST_BENCH_KEY"


async def _nothing(arguments: dict[str, Any], run: Run) -> str:
    return "done"


async def _long(arguments: dict[str, Any], run: Run) -> str:
    return "r" * 40_000


TOOLS = (
    FakeTool("nothing", _nothing, safe=True, effect=Effect.READ),
    FakeTool("long", _long, safe=True, effect=Effect.READ),
)
CASES = {
    "turn: model, 3 calls, model": TurnInput(
        prompt="go", model=script_model([build_request("nothing") for _ in range(3)], "done")
    ),
    "turn: 10 calls": TurnInput(batches=(tuple(build_request("nothing") for _ in range(10)),)),
    "turn: 20 calls of 40,000 characters": TurnInput(batches=(tuple(build_request("long") for _ in range(20)),)),
}


async def _play(engine: Engine, input: TurnInput) -> float:
    began = time.monotonic()
    await (await engine.start(input)).result()
    return time.monotonic() - began


async def _codec() -> None:
    codec = EncryptingCodec(Keyring((Key("a", os.urandom(32)),)))
    for size in (100, 40_000, 1_000_000, 10_000_000):
        sample, rounds = [Payload(data=os.urandom(size))], max(3, 2_000_000 // size)
        began = time.monotonic()
        for _ in range(rounds):
            await codec.decode(await codec.encode(sample))
        print(f"{size:>12,} bytes, there and back{(time.monotonic() - began) / rounds * 1000:12.3f}ms")


async def main() -> None:
    """Play every case with and without, in turns."""
    os.environ[VARIABLE] = generate_key()
    keys = EncryptionSettings(keys=(KeySettings(id="a", env=VARIABLE),))
    times: dict[tuple[str, bool], list[float]] = {(name, on): [] for name in CASES for on in (False, True)}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(await start_server(folder / "temporal.db"))
        address = server.client.service_client.config.target_host
        engines = {on: await stack.enter_async_context(new_engine(address, folder / str(on))) for on in (False, True)}
        engines[True].settings = replace(engines[True].settings, encryption=keys)
        engines[True].client = await engines[True].connect()
        engines[True].holdfast = Holdfast(engines[True].client, task_queue=engines[True].queue)
        for engine in engines.values():
            await stack.enter_async_context(engine.worker(*TOOLS))
        for _ in range(ROUNDS):
            for name, input in CASES.items():
                for on, engine in engines.items():
                    times[name, on].append(await _play(engine, input))
    print(f"{'':40}{'plain':>10}{'encrypted':>12}{'ratio':>8}")
    for name in CASES:
        plain, encrypted = (statistics.median(times[name, on]) for on in (False, True))
        print(f"{name:40}{plain * 1000:8.0f}ms{encrypted * 1000:10.0f}ms{encrypted / plain:8.2f}")
    await _codec()


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
