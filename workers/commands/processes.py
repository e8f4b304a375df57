"""`holdfast up`, `worker`, `demo`: the commands that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.workers.commands.options import (
    Address,
    Data,
    Workspace,
    example,
    run,
    say,
    settings_of,
)

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.tools import Tool

Verbose = Annotated[bool, typer.Option("--verbose", help="Log everything, with tracebacks.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=example("holdfast up --workspace ~/project"))(up)
    app.command(epilog=example("TEMPORAL_ADDRESS=temporal.example:7233 holdfast worker"))(worker)
    app.command(epilog=example("holdfast demo"))(demo)


def up(
    data: Data = None,
    workspace: Workspace = None,
    port: Annotated[int | None, typer.Option(help="Server port; else 7233, or a free one.", min=0, max=65535)] = None,
    ui_port: Annotated[int | None, typer.Option(help="Web UI port; else 8233, or a free one.", min=0, max=65535)] = None,
    verbose: Verbose = False,
) -> None:
    """Start the embedded server and a worker.

    Ctrl-C stops both; the next `up` on the same data folder goes on where this one stopped.
    """
    from holdfast.workers import logs
    from holdfast.workers.up import run_up

    logs.configure(verbose=verbose)
    settings = settings_of(data, workspace)
    _check_workspace(settings)
    run(run_up(settings, port=port, ui_port=ui_port, verbose=verbose, say=say))


def worker(
    address: Address = None,
    data: Data = None,
    workspace: Workspace = None,
    verbose: Verbose = False,
    embedded: Annotated[bool, typer.Option("--embedded", hidden=True)] = False,
    tools: Annotated[list[str] | None, typer.Option("--tools", metavar="MODULE:FUNCTION", hidden=True)] = None,
) -> None:
    """Run a worker: it validates and executes the calls of turns.

    Prints a line beginning with "worker ready" once it polls. SIGTERM or Ctrl-C ends it: running calls get five
    seconds, then they are stopped and answered.
    """
    from holdfast.plugin import HoldfastPlugin
    from holdfast.workers import logs
    from holdfast.workers.connecting import connect
    from holdfast.workers.worker import run_worker

    logs.configure(verbose=verbose)
    settings = settings_of(data, workspace)
    _check_workspace(settings)
    more = [tool for name in tools or () for tool in _load(name)]

    async def work() -> None:
        client = await connect(settings, HoldfastPlugin(settings, tools=more), address=address, embedded=embedded)
        await run_worker(client, settings, say=say)

    run(work())


def demo() -> None:
    """Show what Holdfast is for, in a minute.

    A turn of an assistant with real calls, in a temporary folder: approvals, workers killed with SIGKILL, and every
    call answered once. Asks you for the approvals on a terminal, and gives them itself elsewhere. Leaves nothing.
    """
    from holdfast.workers import logs
    from holdfast.workers.demo import run_demo

    logs.silence()
    raise typer.Exit(run(run_demo()))


def _check_workspace(settings: Settings) -> None:
    from holdfast.errors import BadInput

    if not settings.workspace.is_dir():
        raise BadInput(f"the workspace {str(settings.workspace)!r} is not a folder")


def _load(name: str) -> list[Tool]:
    """Tools made by a function, named `module:function`."""
    from importlib import import_module

    from holdfast.errors import BadInput

    module, _, function = name.partition(":")
    try:
        return list(getattr(import_module(module), function)())
    except (ImportError, AttributeError, TypeError) as error:
        raise BadInput(f"no tools come from {name!r}: {error}") from error


