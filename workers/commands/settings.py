"""`holdfast config …`: check the settings file, show what is in effect, trust a file that was found."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.workers.commands.codes import FAILED, OK, USAGE
from holdfast.workers.commands.options import (
    Data,
    Json,
    Workspace,
    chosen_config,
    emit,
    example,
    harmless,
    interactive,
    note,
    say,
    with_options,
)

if TYPE_CHECKING:
    from holdfast.configuration import Configuration
    from holdfast.documents import Document
    from holdfast.settings import Settings
    from holdfast.trust import Source

NONE = "No settings file: the environment and the defaults are used."
config = typer.Typer(
    help="The settings file: check, show, path, trust, distrust.",
    epilog=example("holdfast config show", "holdfast config check"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
File = Annotated[str | None, typer.Argument(metavar="FILE", help="The file; else the one that would be used.")]
FileHere = Annotated[str | None, typer.Argument(metavar="FILE", help="The file; else ./holdfast.toml.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(config, name="config")


@config.command(epilog=example("holdfast config check", "holdfast config check ~/project/holdfast.toml --json"))
def check(file: File = None, json: Json = False) -> None:
    """Check the settings file: every problem, with its line."""
    from holdfast.configuration import configuration_of
    from holdfast.documents import read

    source = _source(file)
    document = configuration_of(read(source.file)) if source else None
    if json:
        problems = [asdict(problem) for problem in document.problems] if document else []
        emit({"file": str(source.file) if source else None, "ok": not problems, "problems": problems})
        raise typer.Exit(USAGE if problems else OK)
    if not source or not document:
        say(NONE)
        return
    found = document.require()
    say(f"{harmless(source.file)}: ok")
    _outline(found)
    _warn_untrusted(source, document)


@config.command(epilog=example("holdfast config show", "holdfast config show --json | jq .settings.workspace"))
def show(json: Json = False, data: Data = None, workspace: Workspace = None) -> None:
    """Show the settings in effect, and where each comes from: option, environment, file or default."""
    from holdfast.configuration import configuration_of
    from holdfast.documents import read
    from holdfast.settings import Settings, combined
    from holdfast.workers.outline import in_effect

    source = _source(None)
    usual = Settings()
    if source:
        document = configuration_of(read(source.file))
        usual = usual if _warn_untrusted(source, document) else combined(document)
    settings = with_options(usual, data, workspace)
    rows = in_effect(settings, {"data": data, "workspace": workspace})
    if json:
        found = {name: {"value": value, "from": origin} for name, value, origin in rows}
        emit({"file": str(settings.file) if settings.file else None, "settings": found})
        return
    say(f"Settings file: {harmless(settings.file)}\n" if settings.file else f"{NONE}\n")
    for name, value, origin in rows:
        say(f"{name:<32} {_text(value)}  ({_where(settings, name, origin)})")


@config.command(epilog=example("holdfast config path"))
def path(json: Json = False) -> None:
    """Print the path of the settings file that is used; nothing when there is none."""
    from holdfast.documents import read
    from holdfast.trust import is_trusted

    source = _source(None)
    if json:
        counts = source is not None and (source.origin != "folder" or is_trusted(read(source.file)))
        named = {"file": str(source.file), "origin": source.origin} if source else {"file": None, "origin": None}
        emit({**named, "trusted": counts})
    elif source:
        say(harmless(source.file))
    else:
        note(NONE)


@config.command(epilog=example("holdfast config trust", "holdfast config trust ~/project/holdfast.toml --yes"))
def trust(
    file: FileHere = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask: for scripts.")] = False,
    json: Json = False,
) -> None:
    """Let a settings file count where it is found, as it is now.

    Shows what it runs and sets, and asks. A file in the current folder may be anybody's work, a model's too; it counts
    only with exactly the content that was trusted, and so do the policy files, scripts and modules that it names.
    """
    from holdfast import trust as records
    from holdfast.configuration import configuration_of
    from holdfast.documents import read
    from holdfast.errors import BadInput
    from holdfast.named_files import find_named_files

    document = configuration_of(read(_file(file)))
    found = document.require()
    if not json:
        say(harmless(document.content.file))
        _outline(found)
        for file, digest in find_named_files(found, document.content.file.parent).digests.items():
            say(f"  {'trusted with it' if digest else 'missing':<22} {harmless(file)}")
    if not yes and (json or not interactive()):
        raise BadInput("nobody is there to ask: look at the file, then say --yes")
    if not yes and not typer.confirm("Trust it?"):
        note("Not trusted.")
        raise typer.Exit(FAILED)
    records.trust(document.content)
    _answer(json, document.content.file, True, "Trusted, until it changes.")


@config.command(epilog=example("holdfast config distrust"))
def distrust(file: FileHere = None, json: Json = False) -> None:
    """Let a settings file no longer count where it is found."""
    from holdfast import trust as records

    known = _file(file)
    removed = records.distrust(known)
    _answer(json, known, False, f"{harmless(known)}: {'no longer' if removed else 'was not'} trusted.")


def _source(file: str | None) -> Source | None:
    """The file that is meant: named here, before the command, or found."""
    from holdfast.trust import find

    choice = chosen_config()
    if choice.none and not file:
        return None
    return find(_path(file) if file is not None else choice.file)


def _file(file: str | None) -> Path:
    from holdfast.trust import NAME, located

    return located(_path(file) if file is not None else chosen_config().file or Path(NAME))


def _path(file: str) -> Path:
    if not file.strip():
        raise typer.BadParameter("the settings file's name is empty")
    return Path(file)


def _warn_untrusted(source: Source, document: Document[Configuration]) -> bool:
    """A file that was found and is not trusted is said to be so, beside the answer."""
    from holdfast.trust import is_trusted, untrusted

    if source.origin != "folder" or document.content.problem or is_trusted(document.content):
        return False
    note(f"{harmless(source.file)} {untrusted(document.content)}")
    return True


def _outline(found: Configuration) -> None:
    from holdfast.workers.outline import outline

    for word, text in outline(found):
        say(f"  {word:<22} {text}")


def _where(settings: Settings, name: str, origin: str) -> str:
    return f"file, line {settings.file_lines[name]}" if name in settings.file_lines else origin


def _text(value: Any) -> str:
    import json

    return harmless(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _answer(json: bool, file: Path, trusted: bool, text: str) -> None:
    if json:
        emit({"file": str(file), "trusted": trusted})
    else:
        say(text)
