"""`holdfast up`, `worker`, `demo`: the commands that stay."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.workers.cli.options import (
    Address,
    Data,
    Json,
    Workspace,
    format_example,
    parse_seconds,
    resolve_settings,
    run_async,
)
from holdfast.workers.exit_codes import FAILED, OK
from holdfast.workers.terminal.output import print_json, print_note, print_text

if TYPE_CHECKING:
    from holdfast.config.schema import WorkerSettings
    from holdfast.config.settings import Settings
    from holdfast.workers.embedded.up import RunningServices

Verbose = Annotated[bool, typer.Option("--verbose", help="Log everything, with tracebacks.")]
Grace = Annotated[
    int | None,
    typer.Option(
        "--grace",
        metavar="10m",
        help="At its end, what running calls get to finish; else 5 seconds.",
        parser=parse_seconds,
    ),
]
HealthAt = Annotated[
    str | None, typer.Option("--health", metavar="HOST:PORT", help="Answer probes there: /live and /ready.")
]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=format_example("holdfast up --workspace ~/project", "holdfast up --no-worker"))(up)
    elsewhere = "TEMPORAL_ADDRESS=temporal.example:7233 holdfast worker"
    app.command(epilog=format_example(elsewhere, "holdfast worker --grace 10m --health 127.0.0.1:8235"))(worker)
    app.command(epilog=format_example("holdfast demo"))(demo)


def up(
    data: Data = None,
    workspace: Workspace = None,
    port: Annotated[int | None, typer.Option(help="Server port; else 7233, or a free one.", min=0, max=65535)] = None,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="A worker; without it, one of your own takes the turns.")
    ] = True,
    gateway: Annotated[
        bool, typer.Option("--gateway/--no-gateway", help="The HTTP endpoint (docs/reference/http.md).")
    ] = True,
    gateway_port: Annotated[
        int | None, typer.Option(help="Its port; else the settings, else 8234, or a free one.", min=0, max=65535)
    ] = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Start the embedded server, a worker and the HTTP endpoint.

    Ctrl-C stops all of them; the next `up` on the same data folder goes on where this one stopped. With --json, one
    document that says where everything is, once it is there.
    """
    from holdfast.payloads.keyring import load_keyring
    from holdfast.workers.embedded.up import format_greeting, run_up
    from holdfast.workers.runtime import log_setup

    settings = resolve_settings(data, workspace)
    log_setup.configure_logging(settings.telemetry, verbose=verbose)
    _check_workspace(settings)
    load_keyring(settings)  # before anything starts

    def print_welcome(settings: Settings, running: RunningServices) -> None:
        if json:
            file = str(settings.file) if settings.file else None
            http = {"url": running.url, "pid": running.gateway} if running.url else None
            places = {"data": str(settings.data), "workspace": str(settings.workspace), "config": file}
            children = {**asdict(running.server), "worker": running.worker, "gateway": http}
            print_json({**children, "task_queue": settings.task_queue, **places})
        else:
            print_text(format_greeting(settings, running))

    if gateway_port is not None and not gateway:
        raise typer.BadParameter("give --gateway-port or --no-gateway, not both")
    run_async(
        run_up(
            settings,
            port=port,
            with_worker=worker,
            with_gateway=gateway,
            gateway_port=gateway_port,
            verbose=verbose,
            say=print_note if json else print_text,
            welcome=print_welcome,
        )
    )


def worker(
    address: Address = None,
    data: Data = None,
    workspace: Workspace = None,
    grace: Grace = None,
    health: HealthAt = None,
    verbose: Verbose = False,
    json: Json = False,
    embedded: Annotated[bool, typer.Option("--embedded", hidden=True)] = False,
    tools: Annotated[
        list[str] | None, typer.Option("--tools", metavar="MODULE:NAME", help="More tools, from a module.")
    ] = None,
    current_if_none: Annotated[
        bool,
        typer.Option("--current-if-none", help="Make its version current, where none is (docs/how-to/upgrading.md)."),
    ] = False,
) -> None:
    """Run a worker: it validates and executes the calls of turns.

    Prints a line beginning with "worker ready" once it polls. SIGTERM or Ctrl-C ends it: running calls get five
    seconds, or what --grace says, then they are stopped and answered.
    """
    from holdfast.client.owner_key import UNSIGNED_WARNING, find_approvers
    from holdfast.config.sections import DeploymentSettings
    from holdfast.errors import BadInput
    from holdfast.plugin.plugin import HoldfastPlugin
    from holdfast.workers.runtime import log_setup
    from holdfast.workers.runtime.connect import connect_client
    from holdfast.workers.runtime.health import Health, serve_health
    from holdfast.workers.runtime.worker import leave_with_parent, run_worker
    from holdfast.workers.versions.check_versions import announce_version

    settings = resolve_settings(data, workspace)
    log_setup.configure_logging(settings.telemetry, verbose=verbose, serves=True)
    _check_workspace(settings)
    parent = os.getppid() if embedded else None
    named = settings.tools.model_copy(update={"modules": (*settings.tools.modules, *(tools or ()))})
    settings = replace(settings, tools=named, worker=_worker_settings(settings, grace, health))
    if embedded:  # the next `up` has other code, and nobody would be left for what stayed with this one
        settings = replace(settings, deployment=DeploymentSettings())
    if current_if_none and settings.deployment.build is None:
        raise BadInput("--current-if-none is for a worker with a version: set HOLDFAST_BUILD, or deployment.build")
    plugin = HoldfastPlugin(settings)
    _ = plugin.policy, plugin.keyring  # what is not right stops us before anything runs
    signed = any(approver.key for approver in find_approvers(settings))

    def print_or_log_text(text: str, known: str = "") -> None:
        log_setup.print_or_log(settings.telemetry, text, print_note, known)

    for problem in plugin.registry.problems:
        lacking = f"Not available, from {problem.source}"
        print_or_log_text(f"{lacking}: {problem.reason}", f"{lacking}: `holdfast tools` tells why")

    async def run_until_stopped() -> None:
        async with AsyncExitStack() as probes:
            asked = Health()
            at = settings.worker.health
            url = await probes.enter_async_context(serve_health(asked, at)) if at else None
            client = await connect_client(settings, plugin, address=address, embedded=embedded)
            beside = {asyncio.create_task(leave_with_parent(parent))} if parent else set()

            def print_ready(line: str) -> None:
                if not signed:
                    print_or_log_text(UNSIGNED_WARNING)
                if json:
                    build = settings.deployment.build
                    told = {"ready": True, "pid": os.getpid(), "task_queue": settings.task_queue, "build": build}
                    print_json({**told, "health": url} if url else told)
                else:
                    print_text(f"{line}, health {url}" if url else line)
                beside.add(
                    asyncio.create_task(announce_version(client, settings, print_or_log_text, claims=current_if_none))
                )

            await run_worker(client, settings, say=print_ready, health=asked, drain=plugin.drain)
        for task in beside:
            task.cancel()

    run_async(run_until_stopped())


def _worker_settings(settings: Settings, grace: int | None, health: str | None) -> WorkerSettings:
    """Those of the file, with what the options say; BadInput when they say it wrongly."""
    from pydantic import ValidationError

    from holdfast.config.schema import WorkerSettings
    from holdfast.errors import BadInput

    given = {"grace_seconds": None if grace is None else float(grace), "health": health}
    said = {name: value for name, value in given.items() if value is not None}
    try:
        return WorkerSettings.model_validate({**settings.worker.model_dump(exclude_unset=True), **said})
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0]).removesuffix("_seconds")
        rule = "at most a day" if name == "grace" else "host:port, as in 127.0.0.1:8235"
        raise BadInput(f"--{name} must be {rule}") from None


def demo(json: Json = False) -> None:
    """Show what Holdfast is for, in a minute.

    A turn of an assistant with real calls, in a temporary folder: approvals, workers killed with SIGKILL, and every
    call answered once. Asks you for the approvals on a terminal, and gives them itself elsewhere. Leaves nothing. With
    --json it tells its story on standard error and answers with what was promised and kept.
    """
    from holdfast.workers.demo.demo import run_demo
    from holdfast.workers.runtime import log_setup

    log_setup.silence_logging()
    demo = run_async(run_demo(to_stderr=json))
    if json:
        print_json({"kept": demo.is_kept, "promises": [asdict(promise) for promise in demo.promises]})
    raise typer.Exit(OK if demo.is_kept else FAILED)


def _check_workspace(settings: Settings) -> None:
    from holdfast.activities.policy.find_protected import check_places
    from holdfast.errors import BadInput

    if not settings.workspace.is_dir():
        line = settings.file_lines.get("workspace")
        where = f"{settings.file}, line {line}: " if line else ""
        raise BadInput(f"{where}the workspace {str(settings.workspace)!r} is not a folder")
    check_places(settings)
