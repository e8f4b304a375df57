"""`holdfast demo`: a turn that survives killed workers."""

from __future__ import annotations

import typer

from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Json, format_example
from holdfast.workers.demo.demo import run_demo
from holdfast.workers.exit_codes import FAILED, OK
from holdfast.workers.runtime import log_setup
from holdfast.workers.terminal.output import print_json


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=format_example("holdfast demo"))(demo)


def demo(json: Json = False) -> None:
    """Show in a minute what Holdfast is for.

    Runs a turn of an assistant with real calls, in a temporary folder: approvals, workers killed with SIGKILL, and
    every call answered once. On a terminal it asks you for the approvals, elsewhere it gives them itself. It leaves
    nothing behind. With --json it prints the story on standard error, and on standard output which promises were kept.
    """
    log_setup.silence_logging()
    demo = run_async(run_demo(to_stderr=json))
    if json:
        promises = [{"text": promise.text, "kept": promise.is_kept} for promise in demo.promises]
        print_json({"kept": demo.is_kept, "promises": promises})
    raise typer.Exit(OK if demo.is_kept else FAILED)
