"""The tree of commands: a line on each, and the module that is imported when it runs or shows its help.

Nothing here imports Temporal: starting must be quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from holdfast.workers.cli.options import Config, ConfigDigest, NoConfig, choose_config, format_example
from holdfast.workers.exit_codes import USAGE

COMPLETION = ("--install-completion", "--show-completion")
COMMANDS = {
    "up": ("up", "Start the embedded server, a worker and the HTTP endpoint."),
    "worker": ("worker", "Run a worker: it validates and executes the calls of turns."),
    "demo": ("demo", "Show in a minute what Holdfast is for."),
    "chat": ("chat", "Talk with a model on the terminal."),
    "run": ("run", "Ask a model one question and print its answer."),
    "sessions": ("sessions", "Sessions: list, show, send, interrupt, close; their grants."),
    "gateway": ("gateway", "Serve the inbox over HTTP, to those who have a token."),
    "turn": ("turns.turns", "Turns: start, watch, show, cancel; add batches and calls."),
    "inbox": ("approvals", "List the pending approvals of all turns."),
    "approve": ("approvals", "Let calls run, once or from now on."),
    "deny": ("approvals", "Refuse calls."),
    "sign": ("approvals", "Print a signed decision as JSON, and send nothing."),
    "respond": ("approvals", "Answer a question, or answer in the tool's place."),
    "modify": ("modify", "Change a call before it runs."),
    "grants": ("grants", "Grants: list, revoke, share."),
    "tools": ("tools", "The tools that a worker started here has: list, show, call."),
    "version": ("version", "Show the versions of Holdfast and its dependencies."),
    "config": ("config", "The settings file: check, show, path, trust, distrust."),
    "policy": ("policy", "Rules that allow, ask or deny: check, explain, test, diff."),
    "keys": ("keys", "Keys that sign your decisions: create, list, show."),
    "tokens": ("tokens", "Tokens of the HTTP endpoint: create, list, revoke."),
    "mcp": ("mcp", "MCP servers: list, test, log in and out, review changed tools."),
    "audit": ("audit", "What an agent did: show, export, verify, replay."),
    "encryption": ("encryption", "Keys that encrypt payloads: new-key, check, usage."),
    "storage": ("storage", "Payloads and outputs outside the histories: check, sweep."),
    "doctor": ("doctor", "Check everything that workers here depend on."),
}
"""By name: the module in `commands` that has the command, and what `holdfast --help` says of it."""


class _CommandTree(TyperGroup):
    """Knows of each command its line until it is needed: help and completion list commands without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, summary) in COMMANDS.items():
            self.add_command(TyperCommand(name, short_help=summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, from its module."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, import_command(name) if name else command, rest


app = typer.Typer(
    name="holdfast",
    cls=_CommandTree,
    help="Durable tool calls for AI assistants: held for approval, run when all are ready, answered once.",
    epilog=format_example("holdfast up", "holdfast --config ~/project/holdfast.toml up", "holdfast demo"),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import_module(f"{__package__}.commands.version").show_version()
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


def import_command(name: str) -> Any:
    """Import a command of `holdfast` with all below it."""
    module = import_module(f"{__package__}.commands.{COMMANDS[name][0]}")
    group = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    module.register_commands(group)
    return get_group(group).commands[name]


def import_all_commands() -> Any:
    """The command `holdfast` with all commands imported, for references and tests."""
    root: Any = get_command(app)
    for name in COMMANDS:
        root.add_command(import_command(name))
    return root


def run_command(arguments: list[str]) -> None:
    """Run one command; leaves with SystemExit."""
    if len(arguments) > 1 and arguments[0] in COMPLETION:  # typer would ignore the rest
        sys.stderr.write(
            f"holdfast: {arguments[0]} takes no argument: it is for the shell that runs it, so run it in that one\n"
        )
        raise SystemExit(USAGE)
    app(arguments, prog_name="holdfast")
