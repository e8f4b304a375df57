"""`holdfast mcp changes` and `mcp accept`: tools that their servers have changed since they were accepted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from holdfast.errors import BadInput
from holdfast.util.text import strip_controls
from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Data, Json, format_example
from holdfast.workers.cli.resolve_settings import resolve_settings
from holdfast.workers.exit_codes import FAILED, UNREACHABLE
from holdfast.workers.mcp.definition_changes import ChangedTool, ComparedTools, ToolComparison, choose_tools
from holdfast.workers.runtime import log_setup
from holdfast.workers.terminal import render
from holdfast.workers.terminal.output import is_interactive, print_json, print_note, print_text

MaybeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the server; default: all servers.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The server's name in the settings.")]
Tools = Annotated[
    list[str] | None, typer.Argument(metavar="[TOOL]…", help="Only these tools; default: all that changed.")
]


def register_commands(mcp: typer.Typer) -> None:
    """Add the commands."""
    mcp.command(epilog=format_example("holdfast mcp changes", "holdfast mcp changes tracker --json"))(changes)
    mcp.command(
        epilog=format_example("holdfast mcp accept tracker", "holdfast mcp accept tracker search_issues --yes")
    )(accept)


def changes(name: MaybeName = None, json: Json = False, data: Data = None) -> None:
    """Show which tools changed since they were accepted, or first seen, and what changed.

    A call of a changed tool needs approval whatever a rule says, and is denied where nobody can be asked. The exit code
    is 1 when a tool changed, 3 when a server could not be reached.
    """
    log_setup.silence_logging()
    found = run_async(ToolComparison(resolve_settings(data), name).compare_tools(quietly=json))
    if json:
        print_json({"changed": [one.as_json() for one in found.tools], "unseen": found.unseen})
    else:
        _print_changes(found.tools)
        if not found.tools:
            print_text("No tool has changed.")
        _print_unseen(found)
    if found.unseen or found.tools:
        raise typer.Exit(UNREACHABLE if found.unseen else FAILED)


def accept(
    name: Name,
    tools: Tools = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
    data: Data = None,
) -> None:
    """Accept changed tools of a server in their present form: shows what changed, and asks."""
    log_setup.silence_logging()
    comparison = ToolComparison(resolve_settings(data), name)
    found = run_async(comparison.compare_tools(quietly=json))
    if found.unseen and not json:
        _print_unseen(found)
    if found.unseen:
        raise typer.Exit(UNREACHABLE)
    wanted = choose_tools(found, tools or ())
    if wanted and not json:
        _print_changes(wanted)
    if wanted and not yes and (json or not is_interactive()):
        raise BadInput("there is no terminal to ask on: read `holdfast mcp changes`, then give --yes")
    if wanted and not yes and not typer.confirm(f"Accept {len(wanted)} changed tool{'' if len(wanted) == 1 else 's'}?"):
        print_note("Nothing was accepted.")
        raise typer.Exit(FAILED)
    comparison.accept_tools(wanted)
    if json:
        print_json({"accepted": [one.name for one in wanted]})
    else:
        print_text(f"Accepted: {', '.join(one.name for one in wanted)}." if wanted else "No tool has changed.")


def _print_changes(tools: Iterable[ChangedTool]) -> None:
    for one in tools:
        print_text(f"{one.name}: {strip_controls(one.change)}")
        print_text(strip_controls(one.diff.rstrip("\n")))
        print_text("")


def _print_unseen(found: ComparedTools) -> None:
    for server, why in found.unseen.items():
        print_note(f"{server} could not be reached: {render.format_line(why, 1_000)}")
