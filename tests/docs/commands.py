"""The reference of the command line as Markdown, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from holdfast.workers.cli.command_tree import import_all_commands


def render_commands() -> str:
    """A section for each command that is not hidden, in the order of `--help`."""
    root = import_all_commands()
    return "\n".join(_render(typer.Context(root, info_name="holdfast"), root))


def list_commands() -> list[str]:
    """The names of all commands that are not hidden: `holdfast`, `holdfast up`, `holdfast turn start`."""
    root = import_all_commands()
    return [found.command_path for found, _ in _walk(typer.Context(root, info_name="holdfast"), root)]


def _render(root: typer.Context, command: Any) -> Iterator[str]:
    for context, found in _walk(root, command):
        yield f"## `{context.command_path}`\n"
        yield f"{_escape(found.help or '')}\n"
        usage = " ".join(found.collect_usage_pieces(context))
        yield f"```text\n{context.command_path} {usage}\n```\n"
        yield from _render_parameters(context, found)


def _walk(context: typer.Context, command: Any) -> Iterator[tuple[typer.Context, Any]]:
    yield context, command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from _walk(typer.Context(inner, info_name=name, parent=context), inner)


def _render_parameters(context: typer.Context, command: Any) -> Iterator[str]:
    records = [
        record
        for parameter in command.get_params(context)
        if parameter.name != "help" and (record := parameter.get_help_record(context))
    ]
    if records:
        yield "| option | |\n| --- | --- |"
        yield from (f"| `{_cell(name)}` | {_escape(_cell(text))} |" for name, text in records)
        yield ""


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def _escape(text: str) -> str:
    """Text of a help page as Markdown: nothing in it is markup but words in backticks."""
    return re.sub(r"(?<!\\)([*_<\[])(?=(?:[^`]*`[^`]*`)*[^`]*$)", r"\\\1", text)
