"""A worker that is observed as one would be: a process of its own, with a settings file, scraped and read."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.testing import wait_until
from holdfast.workers.runtime.worker import READY_LINE
from tests.support.engine import Engine

ROOT = Path(__file__).resolve().parents[3]
TOOLS = '[tools]\nmodules = ["tests.support.services.observed_tools:tools"]\n'


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Observed:
    """The worker, where it answers Prometheus, and where its log is."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self._process = process
        self.port = port
        self.log = log

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def logged(self) -> str:
        """All that it wrote to standard error."""
        return self.log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """The same as JSON, line by line."""
        return [json.loads(line) for line in self.logged().splitlines()]

    def scraped(self) -> str:
        """What Prometheus would get."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            found: str = answer.read().decode()
            return found

    async def counted(self, name: str, **labels: str) -> float:
        """The sum of a metric over everything that has these labels."""
        return sum(
            value for about, value in samples(await asyncio.to_thread(self.scraped), name) if _has(about, labels)
        )

    async def until_counted(self, name: str, value: float, **labels: str) -> None:
        """Wait until it is so much."""

        async def reached() -> bool:
            return await self.counted(name, **labels) >= value

        await wait_until(reached, 40)

    async def kill(self) -> None:
        """SIGKILL."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def end(self) -> int:
        """SIGTERM, and how it ended."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(40):
            return await self._process.wait()


def samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Of a metric: its labels and values."""
    found = re.findall(rf"^{name}(?:\{{(.*?)\}})? ([-+.\deE]+|NaN|\+Inf)$", text, re.MULTILINE)
    return [(dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)), float(value)) for labels, value in found]


def _has(about: dict[str, str], labels: dict[str, str]) -> bool:
    return all(about.get(name) == value for name, value in labels.items())


@asynccontextmanager
async def observed_worker(
    engine: Engine, telemetry: str = "", more: str = "", *options: str, **environment: str
) -> AsyncIterator[Observed]:
    """`holdfast worker` with a table [telemetry], its metrics at a free port."""
    port = free_port()
    folder = engine.workspace.parent
    number = len(list(folder.glob("worker-*.toml"))) + 1
    file, log = folder / f"worker-{number}.toml", folder / f"worker-{number}.log"
    file.write_text(f'{TOOLS}[telemetry]\nmetrics = "127.0.0.1:{port}"\n{telemetry}\n{more}')
    command = ["--config", str(file), "worker", "--address", engine.address, "--data", str(engine.settings.data)]
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast.workers.cli", *command, "--workspace", str(engine.workspace), *options),
            cwd=ROOT,
            env={**os.environ, "HOLDFAST_TASK_QUEUE": engine.queue, **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    worker = Observed(process, port, log)
    try:
        assert process.stdout
        async with asyncio.timeout(40):
            line = await process.stdout.readline()
        assert line.decode().startswith(READY_LINE), (line, log.read_text())
        yield worker
    finally:
        await worker.kill()
