"""`holdfast up`: the embedded server, a worker and the HTTP endpoint."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from holdfast.config.settings import Settings
from holdfast.payloads.keyring import load_keyring
from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Data, Json, Workspace, format_example
from holdfast.workers.cli.resolve_settings import check_workspace, resolve_settings
from holdfast.workers.embedded.up import RunningServices, format_greeting, run_up
from holdfast.workers.runtime import log_setup
from holdfast.workers.terminal.output import print_json, print_note, print_text

Verbose = Annotated[bool, typer.Option("--verbose", help="Log everything, with tracebacks.")]


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=format_example("holdfast up --workspace ~/project", "holdfast up --no-worker"))(up)


def up(
    data: Data = None,
    workspace: Workspace = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the server; default: 7233, or a free one.", min=0, max=65535)
    ] = None,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Start a worker; without it, a worker of yours runs the turns.")
    ] = True,
    gateway: Annotated[
        bool, typer.Option("--gateway/--no-gateway", help="Start the HTTP endpoint (docs/reference/http.md).")
    ] = True,
    gateway_port: Annotated[
        int | None,
        typer.Option(
            help="Port of the HTTP endpoint; default: the settings, else 8234, or a free one.", min=0, max=65535
        ),
    ] = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Start the embedded server, a worker and the HTTP endpoint.

    Ctrl-C stops all of them; the next `up` on the same data folder continues where this one stopped. With --json, one
    document with the addresses and processes is printed once everything is ready.
    """
    settings = resolve_settings(data, workspace)
    log_setup.configure_logging(settings.telemetry, verbose=verbose)
    check_workspace(settings)
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
