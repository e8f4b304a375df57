"""`holdfast mcp …`: MCP servers: listed, tested, logged in, and their changed tools accepted."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from holdfast.activities.mcp.auth.login_store import list_logins
from holdfast.activities.mcp.server.lifecycle import ServerState
from holdfast.config.mcp_servers_file import load_configured
from holdfast.config.settings import Settings
from holdfast.domain.content import format_tool_name
from holdfast.util.mcp_names import build_prefix
from holdfast.workers.cli.commands import mcp_changes
from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Data, Json, format_example, parse_seconds
from holdfast.workers.cli.resolve_settings import resolve_settings
from holdfast.workers.exit_codes import FAILED, UNREACHABLE
from holdfast.workers.mcp.browser_login import has_browser
from holdfast.workers.mcp.servers import LoginStatus, SeenServer, SeenTool, log_in, log_out, look_at_servers
from holdfast.workers.runtime import log_setup
from holdfast.workers.terminal import render
from holdfast.workers.terminal.output import is_interactive, print_json, print_note, print_table, print_text

mcp = typer.Typer(
    help="MCP servers: list, test, log in and out, review changed tools.",
    epilog=format_example("holdfast mcp list", "holdfast mcp test tracker", "holdfast mcp login tracker"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _complete_servers(incomplete: str) -> list[str]:
    """Complete the names of servers for a shell; nothing on any error."""
    with suppress(Exception):
        return [name for name in load_configured(resolve_settings().mcp)[0] if name.startswith(incomplete)]
    return []


def _complete_logins(incomplete: str) -> list[str]:
    with suppress(Exception):
        return [name for name in list_logins(resolve_settings().mcp_logins_folder) if name.startswith(incomplete)]
    return []


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The server's name in the settings.", autocompletion=_complete_servers)
]
LoggedIn = Annotated[str, typer.Argument(metavar="NAME", help="The server's name.", autocompletion=_complete_logins)]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the address, and open no browser.")]
Timeout = Annotated[
    int | None,
    typer.Option("--timeout", metavar="5m", help="Time limit of the login; default: 5m.", parser=parse_seconds),
]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    mcp_changes.register_commands(mcp)
    app.add_typer(mcp, name="mcp")


@mcp.command(
    "list", epilog=format_example("holdfast mcp list", "holdfast mcp list --json | jq '.servers[] | .name, .state'")
)
def list_servers(json: Json = False, data: Data = None) -> None:
    """Connect to every server and list its state, protocol and tools, with their effects.

    Then list the problems of servers that cannot be used. Servers that run as a command are started for this, and
    stopped again. The exit code is 0 even if a server has a problem; `holdfast mcp test NAME` has a code for each case.
    """
    settings = _silence_logs(resolve_settings(data))
    found = run_async(look_at_servers(settings, quietly=json))
    refused = [{"source": one.source, "reason": one.reason} for one in found.refused]
    if json:
        print_json({"servers": [seen.as_json() for seen in found.servers], "problems": refused})
        return
    if not found.servers and not refused:
        print_text(
            "No MCP servers: configure them in the settings, as [mcp.servers.NAME] "
            f"(docs/how-to/mcp.md).{_find_hint(settings)}"
        )
    if found.servers:
        header = ("server", "status", "protocol", "tools", "effects", "where")
        print_table(header, [_build_row(seen) for seen in found.servers])
    for seen in found.servers:
        for reason in _list_problems(seen):
            print_note(f"{seen.status.name}: {reason}")
    for refusal in found.refused:
        print_note(f"Not used, {refusal.source}: {render.format_line(refusal.reason, 1_000)}")


@mcp.command("test", epilog=format_example("holdfast mcp test tracker", "holdfast mcp test tracker --json"))
def try_server(name: Name, json: Json = False, data: Data = None) -> None:
    """Connect to one server as a worker here would, list its tools, and say what to do about each problem.

    Tools are listed by the server's names, which the settings use too; with their effect, and whether a person is asked
    before a call where no rule decides. The exit code is 0 when the server can be used, 1 when it cannot (a login or a
    variable is missing, it answers invalidly), 2 when no server has this name, 3 when it cannot be started or reached.
    """
    [seen] = run_async(look_at_servers(_silence_logs(resolve_settings(data)), name, quietly=json)).servers
    code = _to_exit_code(seen)
    if json:
        print_json({"ok": code == 0, **seen.as_json()})
    else:
        _print_server(seen)
    if code:
        raise typer.Exit(code)


@mcp.command(epilog=format_example("holdfast mcp login tracker", "holdfast mcp login tracker --no-browser"))
def login(
    name: Name, no_browser: NoBrowser = False, timeout: Timeout = None, json: Json = False, data: Data = None
) -> None:
    """Log in to a server that uses OAuth, in a browser. Workers use the login, and renew its tokens.

    The address to open is printed, and opened if there is a browser. The browser is redirected to a port of this
    machine; if it runs on another machine, paste its final address here. The login is stored in the shared ledger, for
    all its hosts; without one in the data folder of this host, readable only by you. A server with client credentials
    in the settings needs no login: this requests a token, as a test.
    """
    settings = _silence_logs(resolve_settings(data))
    opens = not no_browser and has_browser()
    run_async(
        log_in(settings, name, print_note, opens=opens, pastes=is_interactive() and not opens, seconds=timeout or 300)
    )
    [seen] = run_async(look_at_servers(settings, name, quietly=json)).servers
    code = _to_exit_code(seen)
    if json:
        print_json({"logged_in": True, "shared": settings.ledger is not None, **seen.as_json()})
    else:
        hosts = "every host that shares the ledger" if settings.ledger else "this host only"
        print_text(f"Logged in to {name}, for {hosts}.")
        _print_server(seen)
    if code:
        raise typer.Exit(code)


@mcp.command(epilog=format_example("holdfast mcp logout tracker"))
def logout(name: LoggedIn, json: Json = False, data: Data = None) -> None:
    """Remove a login. Workers stop using it at once; its tokens are revoked if the authorization server allows it."""
    revocation = run_async(log_out(_silence_logs(resolve_settings(data)), name))
    if json:
        print_json({"server": name, "logged_out": revocation is not None, "revocation": revocation})
    else:
        print_text(f"Logged out of {name}; {revocation}." if revocation else f"There is no login at {name}.")


def _silence_logs(settings: Settings) -> Settings:
    """Turn logging off: the output of the command names every problem."""
    log_setup.silence_logging()
    return settings


def _find_hint(settings: Settings) -> str:
    """A hint about a `.mcp.json` here that the settings do not name."""
    file = next((one for one in (Path(".mcp.json"), settings.workspace / ".mcp.json") if one.is_file()), None)
    return (
        f'\nThere is {file}, which is not read unless the settings name it: mcp.files = [".mcp.json"]' if file else ""
    )


def _to_exit_code(seen: SeenServer) -> int:
    if seen.status.state is ServerState.CONNECTED:
        return FAILED if seen.status.problem else 0
    return UNREACHABLE if seen.status.state in (ServerState.WAITING, ServerState.CONNECTING) else FAILED


def _build_row(seen: SeenServer) -> tuple[str, ...]:
    status = seen.status
    return (
        status.name, status.state, status.protocol or "", str(len(seen.tools)), seen.effect_summary,
        render.format_line(status.place, 100),
    )  # fmt: skip


def _list_problems(seen: SeenServer) -> list[str]:
    found = [seen.status.problem or "it does not answer"] if _to_exit_code(seen) else []
    found += [f"left out: {reason}" for reason in seen.status.left_out]
    found += seen.status.remarks
    if seen.login and seen.login.problem and not _to_exit_code(seen):
        found.append(seen.login.problem)
    return [render.format_line(reason, 1_000) for reason in found]


def _print_server(seen: SeenServer) -> None:
    """Print the state of one server on standard output, and its problems on standard error."""
    status = seen.status
    where = f" at {render.format_line(status.place, 100)}" if status.place else ""
    if _to_exit_code(seen):
        print_note(f"{status.name}{where} cannot be used.")
    else:
        called = f": {render.format_line(status.server)}" if status.server else ""
        connected = f"{status.name}{where} is connected{called}, protocol {status.protocol}."
        render.build_console().print(render.build_prose(connected))
        print_text(f"{_describe_tools(seen)}.")
        _print_tools(seen)
    if seen.login and not seen.login.problem:
        print_text(f"Login: {_describe_login(seen.login)}.")
    for reason in _list_problems(seen):
        print_note(reason)


def _describe_tools(seen: SeenServer) -> str:
    if not seen.tools:
        return "It has no tools"
    return f"{len(seen.tools)} tool{'' if len(seen.tools) == 1 else 's'} ({seen.effect_summary})"


def _print_tools(seen: SeenServer) -> None:
    """Print one line for each tool; with our name for it where that is not the server's name with our prefix."""
    prefix = build_prefix(seen.status.name)
    others = [tool.name if tool.name != prefix + tool.own_name else "" for tool in seen.tools]
    columns = 4 if any(others) else 3
    lines = [
        (format_tool_name(tool.own_name), tool.effect, _describe_asking(tool), other)[:columns]
        for tool, other in zip(seen.tools, others, strict=True)
    ]
    if lines:
        print_table(("tool", "effect", "asks", "called here")[:columns], lines)


def _describe_asking(tool: SeenTool) -> str:
    return "yes, it was changed" if tool.changed else "yes" if tool.asks else "no"


def _describe_login(login: LoginStatus) -> str:
    ends = (
        f"a token until {render.format_local_time(login.expires, zone=True)}"
        if login.expires
        else "a token that does not expire"
    )
    scope = f", for {render.format_line(login.scope)}" if login.scope else ""
    return f"{ends}{', renewed automatically' if login.renewable else ''}{scope}"
