"""`holdfast worker`: the process that runs workflows and calls."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Annotated

import typer
from pydantic import ValidationError

from holdfast.client.owner_key import UNSIGNED_WARNING, find_approvers
from holdfast.config.schema import WorkerSettings
from holdfast.config.sections import DeploymentSettings
from holdfast.config.settings import Settings
from holdfast.errors import BadInput
from holdfast.plugin.plugin import HoldfastPlugin
from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Address, Data, Json, Workspace, format_example, parse_seconds
from holdfast.workers.cli.resolve_settings import check_workspace, resolve_settings
from holdfast.workers.runtime import log_setup
from holdfast.workers.runtime.connect import connect_client
from holdfast.workers.runtime.health import Health, serve_health
from holdfast.workers.runtime.worker import leave_with_parent, run_worker
from holdfast.workers.terminal.output import print_json, print_note, print_text
from holdfast.workers.versions.check_versions import announce_version

Verbose = Annotated[bool, typer.Option("--verbose", help="Log everything, with tracebacks.")]
Grace = Annotated[
    int | None,
    typer.Option(
        "--grace",
        metavar="10m",
        help="How long running calls may take to finish after SIGTERM; default: 5s.",
        parser=parse_seconds,
    ),
]
HealthAt = Annotated[
    str | None, typer.Option("--health", metavar="HOST:PORT", help="Answer probes at this address: /live and /ready.")
]


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    elsewhere = "TEMPORAL_ADDRESS=temporal.example:7233 holdfast worker"
    app.command(epilog=format_example(elsewhere, "holdfast worker --grace 10m --health 127.0.0.1:8235"))(worker)


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
        list[str] | None, typer.Option("--tools", metavar="MODULE:NAME", help="Add the tools of a module.")
    ] = None,
    current_if_none: Annotated[
        bool,
        typer.Option("--current-if-none", help="Make its version current if none is (docs/how-to/upgrading.md)."),
    ] = False,
) -> None:
    """Run a worker: it validates and executes the calls of turns.

    Prints a line that begins with "worker ready" once it polls. SIGTERM or Ctrl-C ends it: running calls get five
    seconds, or the time of --grace, then they are stopped and answered.
    """
    settings = resolve_settings(data, workspace)
    log_setup.configure_logging(settings.telemetry, verbose=verbose, serves=True)
    check_workspace(settings)
    parent = os.getppid() if embedded else None
    named = settings.tools.model_copy(update={"modules": (*settings.tools.modules, *(tools or ()))})
    settings = replace(settings, tools=named, worker=_worker_settings(settings, grace, health))
    if embedded:  # the next `up` may be a new version: turns pinned to this one would have no worker
        settings = replace(settings, deployment=DeploymentSettings())
    if current_if_none and settings.deployment.build is None:
        raise BadInput("--current-if-none needs a worker with a version: set HOLDFAST_BUILD, or deployment.build")
    plugin = HoldfastPlugin(settings)
    _ = plugin.policy, plugin.keyring  # invalid ones raise before anything runs
    signed = any(approver.key for approver in find_approvers(settings))

    def print_or_log_text(text: str, known: str = "") -> None:
        log_setup.print_or_log(settings.telemetry, text, print_note, known)

    for problem in plugin.registry.problems:
        lacking = f"Not available, from {problem.source}"
        print_or_log_text(f"{lacking}: {problem.reason}", f"{lacking}: `holdfast tools` prints why")

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
                    body = {"ready": True, "pid": os.getpid(), "task_queue": settings.task_queue, "build": build}
                    print_json({**body, "health": url} if url else body)
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
    """The settings of the file, overridden by the options; BadInput for an invalid option."""
    given = {"grace_seconds": None if grace is None else float(grace), "health": health}
    options = {name: value for name, value in given.items() if value is not None}
    try:
        return WorkerSettings.model_validate({**settings.worker.model_dump(exclude_unset=True), **options})
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0]).removesuffix("_seconds")
        rule = "at most a day" if name == "grace" else "HOST:PORT, for example 127.0.0.1:8235"
        raise BadInput(f"--{name} must be {rule}") from None
