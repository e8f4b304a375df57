"""The tree of commands. Nothing here imports Temporal: starting must be quick."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.workers.cli.commands import (
    approvals,
    audit,
    chat,
    doctor,
    encryption,
    gateway,
    grants,
    keys,
    mcp,
    modify,
    policy,
    run,
    services,
    sessions,
    storage,
    tokens,
    tools,
)
from holdfast.workers.cli.commands import config as settings
from holdfast.workers.cli.commands.turns import turns
from holdfast.workers.cli.options import Config, ConfigDigest, NoConfig, choose_config, format_example
from holdfast.workers.exit_codes import USAGE
from holdfast.workers.terminal.output import print_note

COMPLETION = ("--install-completion", "--show-completion")

app = typer.Typer(
    name="holdfast",
    help="Durable tool calls for AI assistants: held for approval, run when all are ready, answered once.",
    epilog=format_example("holdfast up", "holdfast --config ~/project/holdfast.toml up", "holdfast demo"),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        tools.version()
        raise typer.Exit


@app.callback()
def apply_global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_show_version, is_eager=True)
    ] = False,
    config: Config = None,
    no_config: NoConfig = False,
    config_digest: ConfigDigest = None,
) -> None:
    """Durable tool calls for AI assistants: held for approval, run when all are ready, answered once."""
    choose_config(config, no_config, config_digest)


services.register_commands(app)
chat.register_commands(app)
run.register_commands(app)
sessions.register_commands(app)
gateway.register_commands(app)
turns.register_commands(app)
approvals.register_commands(app)
modify.register_commands(app)
grants.register_commands(app)
tools.register_commands(app)
settings.register_commands(app)
policy.register_commands(app)
keys.register_commands(app)
tokens.register_commands(app)
mcp.register_commands(app)
audit.register_commands(app)
encryption.register_commands(app)
storage.register_commands(app)
doctor.register_commands(app)


def run_command(arguments: list[str]) -> None:
    """Run one command; leaves with SystemExit."""
    if len(arguments) > 1 and arguments[0] in COMPLETION:  # typer would ignore the rest
        print_note(
            f"holdfast: {arguments[0]} takes no argument: it is for the shell that runs it, so run it in that one"
        )
        raise SystemExit(USAGE)
    app(arguments, prog_name="holdfast")
