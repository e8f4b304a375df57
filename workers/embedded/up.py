"""`holdfast up`: the embedded server, a worker and the HTTP endpoint as child processes that end with it (S46).

Each is restarted when it dies. A stop ends the gateway first, then the worker, so that running calls are still
answered, then the server. Everything durable is in the data folder, and the next `up` continues from there. Without a
gateway, if it cannot be started, everything but HTTP works.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.client.owner_key import ensure_owner_key
from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError
from holdfast.workers.embedded.services import RestartingChild, Say, Service, run_unless_stopping, supervise_children
from holdfast.workers.embedded.temporal_server import STOP_SECONDS as SERVER_STOP_SECONDS
from holdfast.workers.embedded.temporal_server import EmbeddedServer
from holdfast.workers.gateway import READY_LINE as GATEWAY_READY
from holdfast.workers.gateway import STOP_SECONDS as GATEWAY_STOP_SECONDS
from holdfast.workers.runtime.child_processes import adopt_orphans, count_supervisors, end_orphans, reap_supervisors
from holdfast.workers.runtime.connect import ServerAddress, find_environment_address
from holdfast.workers.runtime.worker import READY_LINE, stop_on_signals, stop_seconds

READY_SECONDS = 60.0
GATEWAY_READY_SECONDS = 30.0


class WorkerProcess(Service):
    """A worker as a child process."""

    def __init__(self, settings: Settings, *, options: tuple[str, ...] = (), log: Path | None = None) -> None:
        discovering = max((source.timeout_seconds for source in settings.discovery), default=0)
        super().__init__(
            "worker",
            settings,
            ready=READY_LINE,
            ready_seconds=READY_SECONDS + discovering,
            stop_seconds=stop_seconds(settings) + 2,
            log=log,
        )
        self._options = options

    def build_arguments(self) -> list[str]:
        """Build the command and its options."""
        return [*super().build_arguments(), *self._options]


class GatewayProcess(Service):
    """The HTTP endpoint as a child process. It keeps its port over restarts."""

    def __init__(self, settings: Settings, *, port: int | None = None, options: tuple[str, ...] = ()) -> None:
        super().__init__(
            "gateway",
            settings,
            ready=GATEWAY_READY,
            ready_seconds=GATEWAY_READY_SECONDS,
            stop_seconds=GATEWAY_STOP_SECONDS + 2,
        )
        self._port = port
        self._options = options
        self.url = ""

    def build_arguments(self) -> list[str]:
        """Build the command and its options."""
        port = [] if self._port is None else ["--port", str(self._port)]
        return [*super().build_arguments(), *port, *self._options]

    async def start(self) -> str:
        """Start it and return the line that says where it listens."""
        line = await super().start()
        self.url = line.split()[2].rstrip(",")
        self._port = int(self.url.rpartition(":")[2])
        return line


@dataclass(frozen=True)
class RunningServices:
    """The processes that run."""

    server: ServerAddress
    worker: int | None = None
    gateway: int | None = None
    url: str | None = None
    """The address of the gateway."""


async def run_up(
    settings: Settings,
    *,
    port: int | None = None,
    with_worker: bool = True,
    with_gateway: bool = True,
    gateway_port: int | None = None,
    verbose: bool = False,
    say: Say = print,
    welcome: Callable[[Settings, RunningServices], None],
) -> None:
    """Run until SIGTERM or SIGINT. `welcome` is called once everything runs."""
    stopping = stop_on_signals(stop_seconds(settings) + 2 * SERVER_STOP_SECONDS + GATEWAY_STOP_SECONDS)
    adopt_orphans()
    options = ("--verbose",) if verbose else ()
    server = EmbeddedServer(settings, port=port)
    worker = WorkerProcess(settings, options=options) if with_worker else None
    gateway = GatewayProcess(settings, port=gateway_port, options=options) if with_gateway else None
    seeing_off = asyncio.create_task(reap_supervisors())
    try:
        where = await run_unless_stopping(stopping, server.start())
        ensure_owner_key(settings)
        ready = await run_unless_stopping(stopping, _start_both(worker, gateway, say)) if where else None
        if where and ready:
            served = gateway if gateway and gateway.url else None
            pid = worker.pid if worker else None
            welcome(
                settings, RunningServices(where, pid, served.pid, served.url) if served else RunningServices(where, pid)
            )
            await supervise_children(_build_children(server, worker, served), stopping, say)
            before = " and ".join(name for name, runs in (("the gateway", served), ("the worker", worker)) if runs)
            say(f"Stopping {f'{before}, then ' if before else ''}the server …")
    finally:
        if gateway:
            await gateway.stop()
        if worker:
            await worker.stop()
        seeing_off.cancel()
        await end_orphans(known={server.pid})
        await server.stop()
    if going_on := count_supervisors():
        lease = f"{settings.tools.shell.lease_seconds:g} seconds"
        say(f"{going_on} command{'s go' if going_on > 1 else ' goes'} on without a worker, for {lease} at most.")
    say("Stopped. The next `holdfast up` continues from here.")


async def _start_both(worker: WorkerProcess | None, gateway: GatewayProcess | None, say: Say) -> bool:
    """Start both at once. A worker that does not start is an error; a gateway that does not is reported."""
    beside = asyncio.create_task(gateway.start()) if gateway else None
    try:
        if worker:
            await worker.start()
    except BaseException:
        if beside:
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
        raise
    try:
        if beside:
            await beside
    except HoldfastError as error:
        say(f"The HTTP endpoint did not start: {error}. Everything else runs without it.")
    return True


def _build_children(
    server: EmbeddedServer, worker: WorkerProcess | None, gateway: GatewayProcess | None
) -> list[RestartingChild]:
    """The children to keep alive, the most important first."""

    async def start_server() -> str:
        return f"The server answers again at {(await server.restart()).address}."

    async def end_leftovers() -> None:
        await end_orphans(known={server.pid, gateway.pid if gateway else 0})

    advice = "Correct them, then start `holdfast up` again."
    children = [RestartingChild("server", lambda: server.process, start_server, restart_text="starting it again")]
    if worker:
        give_up = f"No worker starts with these settings, so turns wait. {advice}"
        children.append(
            RestartingChild(
                "worker", lambda: worker.process, worker.start, give_up_text=give_up, clean_up=end_leftovers
            )
        )
    if gateway:
        give_up = f"No gateway starts with these settings, so nobody can decide over HTTP. {advice}"
        children.append(RestartingChild("gateway", lambda: gateway.process, gateway.start, give_up_text=give_up))
    return children


def format_greeting(settings: Settings, running: RunningServices) -> str:
    """Format where everything is, and what to try next."""
    where = running.server
    elsewhere = find_environment_address()
    first = [f"  export HOLDFAST_DATA={shlex.quote(str(settings.data))}"] if settings.data != Settings().data else []
    http = f"{running.url}  (process {running.gateway}; needs a token: holdfast tokens create NAME)"
    lines = [
        "Holdfast is up. Ctrl-C stops it; the next `holdfast up` continues where it stopped.",
        "",
        f"  server     {where.address}  (process {where.pid})",
        f"  worker     {_format_worker_line(settings, running)}",
        *([f"  HTTP       {http}"] if running.url else []),
        *([f"  metrics    http://{settings.telemetry.metrics}/metrics"] if settings.telemetry.metrics else []),
        f"  workspace  {settings.workspace}",
        f"  data       {settings.data}",
        *([f"  settings   {settings.file}"] if settings.file else []),
        "",
        "Try, in another terminal:",
        "",
        *first,
        """  echo '[{"tool": "shell", "arguments": {"command": "date"}}]' | holdfast turn start --calls - --id hello""",
        "  holdfast inbox",
        "  holdfast approve hello/b1c1/1",
        "  holdfast turn show hello",
    ]
    if elsewhere:
        lines += [
            "",
            f"Temporal's configuration names {elsewhere}: commands in that environment use that server, not this one.",
        ]
    return "\n".join(lines)


def _format_worker_line(settings: Settings, running: RunningServices) -> str:
    queue = f"task queue {settings.task_queue!r}"
    if running.worker is None:
        return f"none: turns wait for a worker of yours on {queue}"
    return f"process {running.worker}, {queue}"
