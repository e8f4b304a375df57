"""`holdfast mcp changes` and `mcp accept`: tools that their servers have changed since they were last let through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.workers.commands.codes import FAILED, UNREACHABLE
from holdfast.workers.commands.options import Data, Json, emit, example, interactive, note, run, say, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.workers.mcp_changes import ChangedTool, Compared

MaybeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The server's name; else all of them.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The server's name in the settings.")]
Tools = Annotated[
    list[str] | None, typer.Argument(metavar="[TOOL]…", help="Of its tools only these; else all that changed.")
]


def register(mcp: typer.Typer) -> None:
    """Add the commands."""
    mcp.command(epilog=example("holdfast mcp changes", "holdfast mcp changes tracker --json"))(changes)
    mcp.command(epilog=example("holdfast mcp accept tracker", "holdfast mcp accept tracker search_issues --yes"))(
        accept
    )


def changes(name: MaybeName = None, json: Json = False, data: Data = None) -> None:
    """Show which tools are not as they were when they were last let through, or first seen, and what changed.

    A call of such a tool is asked about whatever a rule says, and denied where nobody can be asked. The exit code is 1
    when there is one, 3 when a server could not be looked at.
    """
    from holdfast.workers import logs
    from holdfast.workers.mcp_changes import Comparison

    logs.silence()
    found = run(Comparison(settings_of(data), name).look())
    if json:
        emit({"changed": [one.described() for one in found.tools], "unseen": found.unseen})
    else:
        _show(found.tools)
        if not found.tools:
            say("No tool has changed.")
        _unseen(found)
    if found.unseen or found.tools:
        raise typer.Exit(UNREACHABLE if found.unseen else FAILED)


def accept(
    name: Name,
    tools: Tools = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask: for scripts.")] = False,
    json: Json = False,
    data: Data = None,
) -> None:
    """Let changed tools of a server through as they are now: shows what changed, and asks."""
    from holdfast.errors import BadInput
    from holdfast.workers import logs
    from holdfast.workers.mcp_changes import Comparison, chosen

    logs.silence()
    comparison = Comparison(settings_of(data), name)
    found = run(comparison.look())
    if found.unseen and not json:
        _unseen(found)
    if found.unseen:
        raise typer.Exit(UNREACHABLE)
    wanted = chosen(found, tools or ())
    if wanted and not json:
        _show(wanted)
    if wanted and not yes and (json or not interactive()):
        raise BadInput("nobody is there to ask: look at `holdfast mcp changes`, then say --yes")
    if wanted and not yes and not typer.confirm(f"Let {len(wanted)} through as they are now?"):
        note("Nothing was accepted.")
        raise typer.Exit(FAILED)
    comparison.accept(wanted)
    if json:
        emit({"accepted": [one.name for one in wanted]})
    else:
        say(f"Accepted: {', '.join(one.name for one in wanted)}." if wanted else "No tool has changed.")


def _show(tools: Iterable[ChangedTool]) -> None:
    from holdfast.content import plain

    for one in tools:
        say(f"{one.name}: {plain(one.change)}")
        say(plain(one.diff.rstrip("\n")))
        say("")


def _unseen(found: Compared) -> None:
    from holdfast.workers import render

    for server, why in found.unseen.items():
        note(f"{server} could not be looked at: {render.line(why, 1_000)}")
