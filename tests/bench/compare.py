"""Our turns beside a hand-written workflow, the official integrations and DBOS: interleaved, on one server, in one run.

    python -m tests.bench.compare                            # the table, as docs/performance.md has it
    python -m tests.bench.compare --json FILE --chart FILE   # the same for programs, and as a picture
    python -m tests.bench.compare --rounds 1 --only holdfast,floor

Each worker, the client and the server are processes of their own; the peers live in environments of their own, which
are made at the first run. Every round plays every subject once at each size, so a slow moment of the machine hits all
of them. What counts is the ratio to the floor within a round: the median over the rounds, and its quartiles.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.support.server import temporal_command
from tests.support.services.postgres import postgres_server

FOLDER = Path(__file__).parent / "peers"
ROOT = FOLDER.parents[2]
HOME = Path(os.environ.get("HOLDFAST_BENCH_HOME", Path.home() / ".cache" / "holdfast-bench"))
SIZES = (1, 3, 10, 50)
AT_ONCE = 50
"""Turns at once where throughput is measured."""


@dataclass(frozen=True)
class Subject:
    """What is compared: its name, its module, and the packages of its environment (none: ours)."""

    name: str
    module: str
    packages: tuple[str, ...] = ()
    sizes: tuple[int, ...] = SIZES

    @property
    def usual_size(self) -> int:
        """Calls of a turn where throughput is measured."""
        return 3 if 3 in self.sizes else self.sizes[0]


SUBJECTS = (
    Subject("floor", "floor"),
    Subject("local", "floor"),
    Subject("openai_agents", "openai_agents", ("temporalio==1.35.0", "temporalio-openai-agents==1.1.0")),
    Subject("pydantic_ai", "pydantic_agent", ("temporalio==1.35.0", "pydantic-ai-slim[temporal]==2.66.0")),
    Subject("langgraph", "langgraph_graph", ("temporalio==1.35.0", "temporalio-langgraph==0.1.0")),
    Subject("dbos", "dbos_workflow", ("dbos==3.4.0",)),
    Subject("holdfast", "holdfast_turn"),
    Subject("ask", "floor", sizes=(1,)),
    Subject("holdfast_ask", "holdfast_turn", sizes=(1,)),
    Subject("effect", "floor", sizes=(1,)),
    Subject("holdfast_effect", "holdfast_turn", sizes=(1,)),
)
FLOORS = {"holdfast_ask": "ask", "ask": "ask", "holdfast_effect": "effect", "effect": "effect"}
"""What a subject is held against, where that is not the floor."""


@dataclass
class Measured:
    """What one subject did at one size, round by round."""

    seconds: list[float] = field(default_factory=list)
    events: int = 0
    bytes: int = 0
    transitions: int = 0


@dataclass
class Process:
    """A subject or the client: lines in, lines out."""

    process: asyncio.subprocess.Process
    log: IO[bytes]

    async def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Its answer to one order."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await self.read_line())
        return answer

    async def read_line(self) -> bytes:
        """The next line that it says."""
        assert self.process.stdout
        line = await asyncio.wait_for(self.process.stdout.readline(), 600)
        if not line:
            code = await self.process.wait()
            self.log.seek(0)
            raise RuntimeError(f"a process of the benchmark ended with {code}: {self.log.read().decode()[-2_000:]}")
        return line

    @property
    def cpu_seconds(self) -> float:
        """Processor time, user and system."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def megabytes(self) -> float:
        """Resident memory now."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1_000_000


def make_environment(subject: Subject) -> Path:
    """The interpreter of a subject, whose environment is made where it is not there yet."""
    if not subject.packages:
        return Path(sys.executable)
    folder = HOME / subject.module
    wanted, note = "\n".join(subject.packages), folder / "packages"
    if not note.exists() or note.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *subject.packages], check=True)
        note.write_text(wanted)
    return folder / "bin" / "python"


@asynccontextmanager
async def start_process(*command: str, says: bytes = b"ready") -> AsyncIterator[Process]:
    """A process that has said that it is ready, and ends when its standard input does."""
    with tempfile.TemporaryFile() as log:
        async with _run_process(command, log, says) as process:
            yield process


@asynccontextmanager
async def _run_process(command: tuple[str, ...], log: IO[bytes], says: bytes) -> AsyncIterator[Process]:
    started = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
    )
    process = Process(started, log)
    try:
        while says not in await process.read_line():
            pass
        yield process
    finally:
        if started.stdin:
            started.stdin.close()
        try:
            await asyncio.wait_for(started.wait(), 20)
        except TimeoutError:
            started.kill()
            await started.wait()


@asynccontextmanager
async def start_server(folder: Path) -> AsyncIterator[tuple[str, Process]]:
    """The embedded server as `holdfast up` starts it."""
    from holdfast.names import DEADLINE_ATTRIBUTE, STATE_ATTRIBUTE, TOOLS_ATTRIBUTE
    from holdfast.workers.embedded.temporal_server import FAST_OPTIONS
    from tests.support.services.observed import free_port

    port = free_port()
    command = [temporal_command(), "server", "start-dev", "--headless", "--port", str(port), "--ip", "127.0.0.1"]
    command += ["--db-filename", str(folder / "temporal.db"), *(word for option in FAST_OPTIONS for word in option)]
    for attribute in (STATE_ATTRIBUTE, TOOLS_ATTRIBUTE, DEADLINE_ATTRIBUTE):
        command += ["--search-attribute", f"{attribute.name}={_name_kind(attribute.indexed_value_type.name)}"]
    async with start_process(*command, says=b"Server") as server:
        yield f"127.0.0.1:{port}", server


def _name_kind(constant: str) -> str:
    return "".join(word.capitalize() for word in constant.split("_"))


class Comparison:
    """The processes, and what was measured with them."""

    def __init__(self, subjects: tuple[Subject, ...], rounds: int) -> None:
        self.subjects = subjects
        self.rounds = rounds
        self.measured: dict[str, dict[int, Measured]] = {}
        self.throughput: dict[str, dict[str, float]] = {}
        self._workers: dict[str, Process] = {}

    async def run(self) -> None:
        """Start everything, warm it up, and measure."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            address, server = await stack.enter_async_context(start_server(folder))
            driver = await stack.enter_async_context(
                start_process(sys.executable, "-m", "tests.bench.peers.driver", address)
            )
            for subject in self.subjects:
                if subject.module not in self._workers:
                    self._workers[subject.module] = await stack.enter_async_context(
                        self._start_worker(subject, address, folder, stack)
                    )
            for subject in self.subjects:
                await self._play(subject, driver, subject.usual_size, turns=5)
            for round in range(self.rounds):
                print(f"round {round + 1} of {self.rounds}", file=sys.stderr, flush=True)
                for size in SIZES:
                    for subject in self.subjects:
                        if size in subject.sizes:
                            self._note(subject, size, await self._play(subject, driver, size, turns=5))
            for subject in self.subjects:
                await self._measure_load(subject, driver, server)

    def _start_worker(self, subject: Subject, address: str, folder: Path, stack: AsyncExitStack) -> Any:
        if subject.module == "holdfast_turn":
            home = folder / "holdfast"
            home.mkdir()
            return start_process(
                sys.executable, "-m", "tests.bench.peers.holdfast_turn", address, subject.module, str(home)
            )
        python = str(make_environment(subject))
        if subject.module == "dbos_workflow":
            address = stack.enter_context(postgres_server()).address()
        return start_process(python, str(FOLDER / "launch.py"), subject.module, address, subject.module)

    async def _play(self, subject: Subject, driver: Process, size: int, turns: int, at_once: int = 1) -> dict[str, Any]:
        order: dict[str, Any] = {"count": size, "turns": turns, "at_once": at_once}
        if subject.name == "dbos":
            return await self._workers[subject.module].ask(order)
        return await driver.ask({"subject": subject.name, "queue": subject.module, **order})

    def _note(self, subject: Subject, size: int, answer: dict[str, Any]) -> None:
        measured = self.measured.setdefault(subject.name, {}).setdefault(size, Measured())
        measured.seconds.append(statistics.median(answer["seconds"]))
        measured.events = answer.get("events", 0)
        measured.bytes = answer.get("bytes", 0)
        measured.transitions = answer.get("transitions", 0)

    async def _measure_load(self, subject: Subject, driver: Process, server: Process) -> None:
        """Turns per second with `AT_ONCE` of them at a time, and what they cost the worker and the server."""
        worker, turns = self._workers[subject.module], 4 * AT_ONCE
        best: dict[str, float] = {}
        for _ in range(max(1, self.rounds // 3)):
            before, server_before = worker.cpu_seconds, server.cpu_seconds
            answer = await self._play(subject, driver, subject.usual_size, turns, AT_ONCE)
            found = {
                "turns_per_second": turns / answer["all"],
                "worker_ms": (worker.cpu_seconds - before) * 1000 / turns,
                "server_ms": (server.cpu_seconds - server_before) * 1000 / turns,
                "megabytes": worker.megabytes,
            }
            best = found if not best or found["turns_per_second"] > best["turns_per_second"] else best
        self.throughput[subject.name] = best

    def report(self) -> dict[str, Any]:
        """Everything that was measured, with the ratios to the floor."""
        found: dict[str, Any] = {}
        for subject in self.subjects:
            floor = self.measured.get(FLOORS.get(subject.name, "floor"), {})
            sizes = {
                size: _describe(measured, floor.get(size)) for size, measured in self.measured[subject.name].items()
            }
            found[subject.name] = {"sizes": sizes, **self.throughput[subject.name]}
        return found


def _describe(measured: Measured, floor: Measured | None) -> dict[str, Any]:
    ratios = [mine / its for mine, its in zip(measured.seconds, floor.seconds, strict=True)] if floor else []
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [*ratios * 3]
    return {
        "ms": statistics.median(measured.seconds) * 1000,
        "ratio": statistics.median(ratios) if ratios else None,
        "quartiles": [quartiles[0], quartiles[2]] if quartiles else None,
        "events": measured.events,
        "bytes": measured.bytes,
        "transitions": measured.transitions,
    }


def print_table(report: dict[str, Any]) -> None:
    """The table: milliseconds and ratio to the floor at each size, then throughput and cost at N=3."""
    header = "".join(f"{f'N={size}':>20}" for size in SIZES)
    print(
        f"{'ms, ratio, spread':18}{header}{'turns/s':>9}{'worker':>8}{'server':>8}"
        f"{'events':>9}{'trans.':>8}{'bytes':>8}{'MB':>6}"
    )
    for name, found in report.items():
        cells = "".join(_format_cell(found["sizes"].get(size)) for size in SIZES)
        at_three = found["sizes"].get(3) or found["sizes"][1]
        most = found["sizes"].get(50) or at_three
        print(
            f"{name:18}{cells}{found['turns_per_second']:9.1f}{found['worker_ms']:8.1f}{found['server_ms']:8.1f}"
            f"{at_three['events']:5}/{most['events']:<3}{at_three['transitions']:8}{at_three['bytes']:8}"
            f"{found['megabytes']:6.0f}"
        )


def _format_cell(found: dict[str, Any] | None) -> str:
    if not found:
        return f"{'':20}"
    spread = f"{found['quartiles'][0]:.2f}–{found['quartiles'][1]:.2f}" if found["quartiles"] else ""
    ratio = f"{found['ratio']:.2f}" if found["ratio"] else ""
    return f"{found['ms']:5.0f} {ratio:>4} {spread:9}"


COLOURS = {"floor": "#888", "holdfast": "#0a7"}


def draw_chart(report: dict[str, Any]) -> str:
    """The ratios to the floor as bars, one group for each size, as an SVG."""
    names = [name for name, found in report.items() if 3 in found["sizes"]]
    width, height, bar, gap = 60 + len(SIZES) * (len(names) * 18 + 30), 260, 16, 2
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 20 * len(names)}">']
    parts.append("<style>text{font:11px sans-serif;fill:#777}</style>")
    scale = (height - 50) / max(found["sizes"][size]["ratio"] for found in map(report.get, names) for size in SIZES)  # type: ignore[index]
    base = height - 30 - scale
    parts.append(f'<line x1="40" x2="{width}" y1="{base:.0f}" y2="{base:.0f}" stroke="#888" stroke-dasharray="4"/>')
    for group, size in enumerate(SIZES):
        left = 50 + group * (len(names) * 18 + 30)
        parts.append(f'<text x="{left}" y="{height - 12}">{size} calls</text>')
        for place, name in enumerate(names):
            tall = report[name]["sizes"][size]["ratio"] * scale
            colour = COLOURS.get(name, f"hsl({place * 67 % 360} 35% 60%)")
            parts.append(
                f'<rect x="{left + place * (bar + gap)}" y="{height - 30 - tall:.0f}" width="{bar}" '
                f'height="{tall:.0f}" fill="{colour}"><title>{name}: {tall / scale:.2f}</title></rect>'
            )
    for place, name in enumerate(names):
        colour, y = COLOURS.get(name, f"hsl({place * 67 % 360} 35% 60%)"), height + 8 + 20 * place
        parts.append(f'<rect x="50" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="68" y="{y + 10}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="subjects, with commas between them")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument("--chart", type=Path, help="write a chart (SVG) to this file")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    comparison = Comparison(tuple(one for one in SUBJECTS if not only or one.name in only), options.rounds)
    asyncio.run(comparison.run())
    report = comparison.report()
    print_table(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    if options.chart:
        options.chart.write_text(draw_chart(report))


if __name__ == "__main__":
    main()
