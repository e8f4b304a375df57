"""`holdfast keys …`: create the keys that sign decisions, and show their public halves."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any

import typer

from holdfast.client import signing_keys as files
from holdfast.client.signing_keys import StoredKey
from holdfast.workers.cli.options import Json, format_example
from holdfast.workers.exit_codes import FAILED
from holdfast.workers.terminal.output import escape_line, print_json, print_note, print_table, print_text

keys = typer.Typer(
    help="Keys that sign your decisions: create, list, show.",
    epilog=format_example("holdfast keys create ada", "holdfast keys list"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Owner of the key; decisions are recorded under this name.")]
NameOrPath = Annotated[str, typer.Argument(metavar="NAME|PATH", help="The key's name, or a path with a slash in it.")]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(keys, name="keys")


@keys.command(epilog=format_example("holdfast keys create ada", "holdfast keys create ada@example.com --json"))
def create(name: Name, json: Json = False) -> None:
    """Create a key, and print the lines of the settings file that make its decisions valid.

    The lines belong into the settings file of the workers. The key stays here, in a file that only you can read; with
    HOLDFAST_KEY=NAME the command line signs your decisions with it.
    """
    made = files.create_key(name)
    if not json:
        print_note(
            f"The key is in {escape_line(made.file)}; only you can read it. Use it: export HOLDFAST_KEY={_quote(name)}"
        )
        print_note("Add these lines to the settings file of the workers:\n")
    _print_key(made, json)


@keys.command("list", epilog=format_example("holdfast keys list", "holdfast keys list --json | jq -r '.keys[].name'"))
def list_keys(json: Json = False) -> None:
    """List the keys in your folder. The exit code is 1 when one of them cannot be used."""
    found = files.list_keys()
    if json:
        print_json({"folder": str(files.find_keys_folder()), "keys": [_key_as_json(key) for key in found]})
    elif found:
        rows = [(escape_line(key.name), key.id, key.public) for key in found if key.public]
        if rows:
            print_table(("name", "id", "public key"), rows)
    else:
        print_text(f"No keys in {escape_line(files.find_keys_folder())}: create one with `holdfast keys create NAME`.")
    problems = [key.problem for key in found if key.problem]
    for problem in problems:
        print_note(f"holdfast: {escape_line(problem)}")
    if problems:
        raise typer.Exit(FAILED)


@keys.command(epilog=format_example("holdfast keys show ada", "holdfast keys show ./team/gateway.pem --json"))
def show(name: NameOrPath, json: Json = False) -> None:
    """Show the public half of a key, as lines for the settings file."""
    _print_key(files.find_key(name), json)


def _print_key(key: StoredKey, json: bool) -> None:
    if json:
        print_json(_key_as_json(key))
        return
    print_text(f"[[approvers]]\nname = {_format_toml(key.name)}\nkey = {_format_toml(key.public or '')}  # {key.id}")


def _key_as_json(key: StoredKey) -> dict[str, Any]:
    body = {"name": key.name, "id": key.id, "key": key.public, "file": str(key.file)}
    return {**body, "problem": key.problem} if key.problem else body


def _format_toml(text: str) -> str:
    """The text as a TOML string, which JSON writes in the same way."""
    return escape_line(json.dumps(text, ensure_ascii=False))


def _quote(text: str) -> str:
    return shlex.quote(text)
