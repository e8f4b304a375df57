"""`holdfast keys …`: make the keys that sign decisions, and tell their public halves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.workers.commands.codes import FAILED
from holdfast.workers.commands.options import Json, emit, example, harmless, note, say

if TYPE_CHECKING:
    from holdfast.keys import StoredKey

keys = typer.Typer(
    help="Keys that sign your decisions: create, list, show.",
    epilog=example("holdfast keys create ada", "holdfast keys list"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is, as decisions are to name them.")]
NameOrPath = Annotated[str, typer.Argument(metavar="NAME|PATH", help="The key's name, or a path with a slash in it.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(keys, name="keys")


@keys.command(epilog=example("holdfast keys create ada", "holdfast keys create ada@example.com --json"))
def create(name: Name, json: Json = False) -> None:
    """Make a key of your own, and print the lines that let its decisions count.

    The lines are for the settings file of the workers. The key stays here, in a file that only you may read; with
    HOLDFAST_KEY=NAME the command line signs what you decide with it.
    """
    from holdfast import keys as files

    made = files.create(name)
    if not json:
        note(f"The key is in {harmless(made.file)}, for you alone. Sign with it: export HOLDFAST_KEY={_quoted(name)}")
        note("These lines let it count; they are for the settings file of the workers:\n")
    _answer(made, json)


@keys.command("list", epilog=example("holdfast keys list", "holdfast keys list --json | jq -r '.keys[].name'"))
def tell_all(json: Json = False) -> None:
    """List the keys in your folder. The exit code is 1 when one of them cannot be used."""
    from holdfast import keys as files
    from holdfast.workers import render

    found = files.stored()
    if json:
        emit({"folder": str(files.folder()), "keys": [_described(key) for key in found]})
    elif found:
        rows = [(harmless(key.name), key.id, key.public) for key in found if key.public]
        if rows:
            render.console().print(render.table(("name", "id", "public key"), rows))
    else:
        say(f"No keys in {harmless(files.folder())}: make one with `holdfast keys create NAME`.")
    problems = [key.problem for key in found if key.problem]
    for problem in problems:
        note(f"holdfast: {harmless(problem)}")
    if problems:
        raise typer.Exit(FAILED)


@keys.command(epilog=example("holdfast keys show ada", "holdfast keys show ./team/gateway.pem --json"))
def show(name: NameOrPath, json: Json = False) -> None:
    """Show the public half of a key, as lines for the settings file."""
    from holdfast import keys as files

    _answer(files.find(name), json)


def _answer(key: StoredKey, json: bool) -> None:
    if json:
        emit(_described(key))
        return
    say(f"[[approvers]]\nname = {_toml(key.name)}\nkey = {_toml(key.public or '')}  # {key.id}")


def _described(key: StoredKey) -> dict[str, Any]:
    told = {"name": key.name, "id": key.id, "key": key.public, "file": str(key.file)}
    return {**told, "problem": key.problem} if key.problem else told


def _toml(text: str) -> str:
    """Text as TOML writes it, which is as JSON does."""
    import json

    return harmless(json.dumps(text, ensure_ascii=False))


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
