"""`holdfast config …`: check the settings file, show what is in effect, trust a file that was found."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.activities.hooks.load_hooks import find_misspelt_tools
from holdfast.config import trust as records
from holdfast.config.named_files import find_named_files
from holdfast.config.schema import Configuration, parse_configuration
from holdfast.config.settings import Settings, combine_settings
from holdfast.config.toml_document import Document, FileProblem, read_content
from holdfast.config.trust import (
    FILE_NAME,
    SettingsSource,
    explain_untrusted,
    find_settings_file,
    is_trusted,
    resolve_file,
)
from holdfast.errors import BadInput
from holdfast.workers.cli.options import Data, Json, Workspace, chosen_config, format_example
from holdfast.workers.cli.resolve_settings import apply_options
from holdfast.workers.exit_codes import FAILED, OK, USAGE
from holdfast.workers.terminal.output import (
    escape_line,
    is_interactive,
    print_json,
    print_note,
    print_table,
    print_text,
)
from holdfast.workers.terminal.settings_text import list_effective, outline_settings

NO_FILE = "No settings file: the environment and the defaults are used."
config = typer.Typer(
    help="The settings file: check, show, path, trust, distrust.",
    epilog=format_example("holdfast config show", "holdfast config check"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
File = Annotated[str | None, typer.Argument(metavar="FILE", help="Settings file; default: the one that is used.")]
FileHere = Annotated[str | None, typer.Argument(metavar="FILE", help="Settings file; default: ./holdfast.toml.")]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(config, name="config")


@config.command(epilog=format_example("holdfast config check", "holdfast config check ~/project/holdfast.toml --json"))
def check(file: File = None, json: Json = False) -> None:
    """Check the settings file: list every problem with its line."""
    source = _find_source(file)
    document = parse_configuration(read_content(source.file)) if source else None
    warnings = _find_warnings(document) if document else []
    if json:
        problems = [asdict(problem) for problem in document.problems] if document else []
        found_so = {"ok": not problems, "problems": problems, "warnings": list(map(asdict, warnings))}
        print_json({"file": str(source.file) if source else None, **found_so})
        raise typer.Exit(USAGE if problems else OK)
    if not source or not document:
        print_text(NO_FILE)
        return
    found = document.get_value()
    print_text(f"{escape_line(source.file)}: ok")
    for warning in warnings:
        print_note(f"{escape_line(source.file)}, line {warning.line}: {escape_line(warning.message)}")
    _print_outline(found)
    _warn_untrusted(source, document)


@config.command(epilog=format_example("holdfast config show", "holdfast config show --json | jq .settings.workspace"))
def show(json: Json = False, data: Data = None, workspace: Workspace = None) -> None:
    """Show the settings in effect, and where each comes from: option, environment, file or default."""
    source = _find_source(None)
    usual = Settings()
    if source:
        document = parse_configuration(read_content(source.file))
        usual = usual if _warn_untrusted(source, document) else combine_settings(document)
    settings = apply_options(usual, data, workspace)
    rows = list_effective(settings, {"data": data, "workspace": workspace})
    if json:
        found = {name: {"value": value, "from": origin} for name, value, origin in rows}
        print_json({"file": str(settings.file) if settings.file else None, "settings": found})
        return
    print_text(f"Settings file: {escape_line(settings.file)}\n" if settings.file else f"{NO_FILE}\n")
    lines = [(name, _describe_origin(settings, name, origin), _render_value(value)) for name, value, origin in rows]
    print_table(("setting", "from", "value"), lines)


@config.command(epilog=format_example("holdfast config path"))
def path(json: Json = False) -> None:
    """Print the path of the settings file that is used; nothing if there is none."""
    source = _find_source(None)
    if json:
        counts = source is not None and (source.origin != "folder" or is_trusted(read_content(source.file)))
        named = {"file": str(source.file), "origin": source.origin} if source else {"file": None, "origin": None}
        print_json({**named, "trusted": counts})
    elif source:
        print_text(escape_line(source.file))
    else:
        print_note(NO_FILE)


@config.command(epilog=format_example("holdfast config trust", "holdfast config trust ~/project/holdfast.toml --yes"))
def trust(
    file: FileHere = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Trust a settings file in the current folder, with its present content.

    Shows what the file runs and sets, and asks. Anybody, a model too, may have written a file in the current folder: it
    is used only with exactly the content that was trusted, and so are the policy files, scripts and modules it names.
    """
    document = parse_configuration(read_content(_locate_file(file)))
    found = document.get_value()
    if not json:
        print_text(escape_line(document.content.file))
        files = find_named_files(found, document.content.file.parent).digests.items()
        named = [("trusted with it" if digest else "missing", escape_line(file)) for file, digest in files]
        _print_outline(found, named)
    if not yes and (json or not is_interactive()):
        raise BadInput("there is no terminal to ask on: read the file, then give --yes")
    if not yes and not typer.confirm("Trust it?"):
        print_note("Not trusted.")
        raise typer.Exit(FAILED)
    records.trust_file(document.content)
    _print_trust(json, document.content.file, True, "Trusted, until it changes.")


@config.command(epilog=format_example("holdfast config distrust"))
def distrust(file: FileHere = None, json: Json = False) -> None:
    """Trust a settings file in the current folder no longer."""
    known = _locate_file(file)
    removed = records.distrust_file(known)
    _print_trust(json, known, False, f"{escape_line(known)}: {'no longer' if removed else 'was not'} trusted.")


def _find_source(file: str | None) -> SettingsSource | None:
    """The settings file: the argument, else the one of --config, else the one that is found."""
    choice = chosen_config()
    if choice.none and not file:
        return None
    return find_settings_file(_parse_path(file) if file is not None else choice.file)


def _locate_file(file: str | None) -> Path:
    return resolve_file(_parse_path(file) if file is not None else chosen_config().file or Path(FILE_NAME))


def _parse_path(file: str) -> Path:
    if not file.strip():
        raise typer.BadParameter("the settings file's name is empty")
    return Path(file)


def _find_warnings(document: Document[Configuration]) -> list[FileProblem]:
    """Find valid settings that are probably mistakes: hooks for tools whose names are almost those of others."""
    return [
        FileProblem(document.find_line("hooks", place, "tools"), f"hooks.{place + 1}.tools", why)
        for place, hook in enumerate(document.value.hooks if document.value else ())
        for why in find_misspelt_tools(hook.tools)
    ]


def _warn_untrusted(source: SettingsSource, document: Document[Configuration]) -> bool:
    """Print a note if the file was found and is not trusted; whether that is so."""
    if source.origin != "folder" or document.content.problem or is_trusted(document.content):
        return False
    print_note(f"{escape_line(source.file)} {explain_untrusted(document.content)}")
    return True


def _print_outline(found: Configuration, more: Iterable[tuple[str, str]] = ()) -> None:
    print_table((), [(Text(f"  {word}"), Text(text)) for word, text in (*outline_settings(found), *more)])


def _describe_origin(settings: Settings, name: str, origin: str) -> str:
    return f"file, line {settings.file_lines[name]}" if name in settings.file_lines else origin


def _render_value(value: Any) -> Text:
    """A value in one line, uncut."""
    return Text(escape_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))


def _print_trust(json: bool, file: Path, trusted: bool, text: str) -> None:
    if json:
        print_json({"file": str(file), "trusted": trusted})
    else:
        print_text(text)
