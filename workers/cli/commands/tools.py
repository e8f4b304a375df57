"""`holdfast tools`: the tools of a worker with these settings.

A shell completes the names of built-in tools, and of those that configured servers had at their last connection on this
host. Tools of modules, packages and discovery commands are not completed: listing them would run code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.activities.mcp.server.definition_pins import PinnedDefinitions
from holdfast.activities.mcp.server.definitions import is_wanted
from holdfast.activities.policy.subject import BUILT_IN
from holdfast.activities.registry.registry import RegisteredTool, Registry
from holdfast.config.mcp_servers_file import load_configured
from holdfast.config.settings import Settings
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.errors import HoldfastError
from holdfast.util.mcp_names import build_tool_name
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import strip_controls
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example
from holdfast.workers.cli.resolve_settings import resolve_settings
from holdfast.workers.terminal import render
from holdfast.workers.terminal.input_files import read_arguments
from holdfast.workers.terminal.live.call_once import call_and_wait
from holdfast.workers.terminal.output import print_json, print_note, print_table, print_text
from holdfast.workers.terminal.render import format_line

tools = typer.Typer(
    help="The tools that a worker started here has.",
    epilog=format_example("holdfast tools", "holdfast tools show shell"),
    rich_markup_mode=None,
)


def _complete_names(incomplete: str) -> list[str]:
    """Complete the names of tools for a shell, without running anything; nothing on any error."""
    with suppress(Exception):
        return [name for name in list_known_tools(resolve_settings()) if name.startswith(incomplete)]
    return []


ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.", autocompletion=_complete_names)]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(tools, name="tools")


@tools.callback(invoke_without_command=True)
def list_by_default(context: typer.Context, json: Json = False) -> None:
    """The tools that a worker started here has."""
    if context.invoked_subcommand is None:
        list_tools(json)


@tools.command("list", epilog=format_example("holdfast tools list --json"))
def list_tools(json: Json = False) -> None:
    """List the tools with their source and effect; then what could not be loaded, and why."""
    registry = _load_registry(json)
    if json:
        print_json(
            {
                "digest": registry.digest,
                "tools": [_entry_as_json(entry) for entry in registry.entries],
                "problems": [{"source": item.source, "reason": item.reason} for item in registry.problems],
            }
        )
        return
    lines = [
        (
            entry.declaration.name,
            entry.declaration.effect.value,
            entry.source,
            render.format_line(entry.declaration.description),
        )
        for entry in registry.entries
    ]
    print_table(("tool", "effect", "source", "description"), lines)
    for item in registry.problems:
        print_note(f"Not available, from {item.source}: {item.reason}")


@tools.command("show", epilog=format_example("holdfast tools show shell", "holdfast tools show shell --json"))
def show_tool(name: ToolName, json: Json = False) -> None:
    """Show one tool: its description, its effect and its parameters."""
    entry = _get_entry(_load_registry(json), name)
    if json:
        print_json(_entry_as_json(entry))
        return
    declaration = entry.declaration
    called = f"{strip_controls(declaration.display_name)}, " if declaration.display_name else ""
    print_text(f"{declaration.name}  ({called}effect: {declaration.effect.value}, from {entry.source})")
    print_text(f"{strip_controls(declaration.description)}\n")
    parameters = _describe_parameters(declaration.parameters)
    print_table((), [(Text(f"  {strip_controls(name)}"), text) for name, text in parameters])
    for line in _describe_traits(entry):
        print_text(f"  {line}")


@tools.command(
    "call",
    epilog=format_example(
        """holdfast tools call read_file --args '{"path": "README.md"}'""",
        """echo '{"command": "date"}' | holdfast tools call shell --args -""",
    ),
)
def call_tool(
    name: ToolName,
    args: Annotated[str, typer.Option("--args", metavar="JSON|-", help="Arguments of the call; - is stdin.")] = "{}",
    id: Annotated[str | None, typer.Option("--id", help="Id of the turn; default: a new id.")] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Call one tool: a turn with a single call, durable, and approved like any other.

    Waits for the result and prints what a model would read. On a terminal it asks you when the call needs approval;
    elsewhere it waits for `holdfast approve`. The exit code is 0 only if the call succeeds.
    """
    arguments = read_arguments(args)

    async def start_and_wait() -> int:
        holdfast = await open_holdfast(data, address)
        request = CallRequest(tool=name, arguments=arguments)
        turn = await holdfast.start(TurnInput(batches=((request,),)), turn_id=id)
        return await call_and_wait(holdfast, turn, json)

    if code := run_async(start_and_wait()):
        raise typer.Exit(code)


def _load_registry(json: bool) -> Registry:
    # Half a second, which completion and `tools call` do without.
    from holdfast.plugin.plugin import HoldfastPlugin
    from holdfast.workers.mcp.progress import connect_with_progress

    plugin = HoldfastPlugin(resolve_settings())
    registry = plugin.registry
    if plugin.servers.names:
        run_async(connect_with_progress(plugin.servers, quietly=json))
    return registry


def _get_entry(registry: Registry, name: str) -> RegisteredTool:
    entry = registry.get(name)
    if entry is None:
        hint = did_you_mean(name, [entry.declaration.name for entry in registry.entries]) or "See `holdfast tools`."
        raise HoldfastError(f"no tool is called {name!r}. {hint}")
    return entry


def _entry_as_json(entry: RegisteredTool) -> dict[str, Any]:
    return {**entry.declaration.model_dump(mode="json"), "source": entry.source, "digest": entry.declaration.digest}


def _describe_parameters(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """The name of each parameter, and its description, type, and whether it is required."""
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    known = properties.items() if isinstance(properties, dict) else ()
    return [
        (name, _describe_parameter(spec if isinstance(spec, dict) else {}, required=name in needed))
        for name, spec in known
    ]


def _describe_parameter(spec: dict[str, Any], *, required: bool) -> str:
    default = f"default {json.dumps(spec['default'])}" if spec.get("default") is not None else ""
    facts = ", ".join(filter(None, (_format_type(spec), "required" if required else default or "optional")))
    return f"{spec.get('description', '')} ({facts})"


def _format_type(spec: dict[str, Any]) -> str:
    if options := spec.get("enum"):
        return "one of " + ", ".join(map(str, options))
    if isinstance(spec.get("anyOf"), list):
        return " or ".join(kind for item in spec["anyOf"] if (kind := _format_type(item)) and kind != "null")
    return str(spec.get("type", ""))


def _describe_traits(entry: RegisteredTool) -> list[str]:
    traits, about = entry.declaration.traits, entry.tool.build_notes()
    known = [f"Effect {about.effect}: {format_line(about.because)}."] if about else []
    known += [f"The server's hints: {format_line(', '.join(about.hints), 500)}."] if about and about.hints else []
    lines = [f"Runs on task queue {traits.task_queue}."] if traits.task_queue else []
    lines += (
        ["If it fails, the other calls of its batch are cancelled, unless the turn isolates failures."]
        if traits.aborts_siblings
        else []
    )
    return [*known, *lines]


def list_known_tools(settings: Settings) -> list[str]:
    """The sorted names of the built-in tools, and of those that servers had at their last connection."""
    return sorted({*BUILT_IN, *_list_server_tools(settings)} - set(settings.tools.disable))


def _list_server_tools(settings: Settings) -> Iterator[str]:
    for name, server in load_configured(settings.mcp)[0].items():
        definitions = PinnedDefinitions(settings.mcp_tools_folder, name).definitions
        yield from (build_tool_name(name, one.name) for one in definitions if is_wanted(one, server))
