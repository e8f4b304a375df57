"""`holdfast tokens …`: the tokens of the HTTP endpoint."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.errors import BadInput
from holdfast.util.durations import parse_duration
from holdfast.workers.cli.options import Data, Json, format_example
from holdfast.workers.cli.resolve_settings import resolve_settings
from holdfast.workers.gateway import tokens as files
from holdfast.workers.gateway.tokens import Token, TokenFile
from holdfast.workers.terminal import render
from holdfast.workers.terminal.output import escape_line, print_json, print_note, print_table, print_text

tokens = typer.Typer(
    help="Tokens of the HTTP endpoint: create, list, revoke.",
    epilog=format_example("holdfast tokens create ada --expires 30d", "holdfast tokens list"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Owner of the token; decisions are recorded under this name.")
]
Role = Annotated[
    str,
    typer.Option("--role", metavar="ROLE", help="approver: may read and decide; viewer: may only read."),
]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="TIME", help="How long it is valid: 12h, 30d, 8w; default: until it is revoked."),
]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(tokens, name="tokens")


@tokens.command(epilog=format_example("holdfast tokens create ada --expires 30d", "TOKEN=$(holdfast tokens create ci)"))
def create(name: Name, role: Role = "approver", expires: Expires = None, json: Json = False, data: Data = None) -> None:
    """Create a token and print it once: only its hash is stored.

    Decisions that are sent with it over HTTP are recorded under NAME. Which calls that name may decide on is set by the
    rules and the approvers in the settings of the workers.
    """
    known = [one.value for one in files.Role]
    if role not in known:
        raise BadInput(f"--role {role!r} is not a role: give {' or '.join(known)}")
    try:
        lasts = timedelta(seconds=parse_duration(expires)) if expires is not None else None
    except ValueError as error:
        raise BadInput(f"--expires {error}") from None
    made, token = _open_token_file(data).create(name, files.Role(role), lasts)
    if json:
        print_json({"token": made, **_token_as_json(token)})
        return
    print_text(made)
    until = f"until {_format_moment(token.expires)}" if token.expires else "until it is revoked"
    print_note(f"It is not shown again. It is valid {until}, for {escape_line(token.name)}.")


@tokens.command(
    "list", epilog=format_example("holdfast tokens list", "holdfast tokens list --json | jq -r '.tokens[].name'")
)
def list_tokens(json: Json = False, data: Data = None) -> None:
    """List the tokens, without their secrets."""
    file = _open_token_file(data)
    found = file.read_all()
    if json:
        print_json({"file": str(file.file), "tokens": [_token_as_json(token) for token in found]})
    elif found:
        rows = [(escape_line(one.name), one.role, _format_moment(one.created), _format_expiry(one)) for one in found]
        print_table(("name", "role", "created", "expires"), rows)
    else:
        print_text("No tokens, so nobody can use the HTTP endpoint: create one with `holdfast tokens create NAME`.")


@tokens.command(epilog=format_example("holdfast tokens revoke ada"))
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")],
    json: Json = False,
    data: Data = None,
) -> None:
    """Revoke a token. It stops working at once, also at a running endpoint."""
    token = _open_token_file(data).revoke(name)
    if json:
        print_json({"revoked": _token_as_json(token)})
    else:
        print_text(f"The token of {escape_line(token.name)} is revoked.")


def _open_token_file(data: Path | None) -> TokenFile:
    return TokenFile(resolve_settings(data).tokens_file)


def _token_as_json(token: Token) -> dict[str, Any]:
    body = token.model_dump(mode="json", exclude={"sha256"})
    return {**body, "expired": token.is_expired(datetime.now(UTC))}


def _format_expiry(token: Token) -> str:
    if token.expires is None:
        return "never"
    return f"{_format_moment(token.expires)}{' (expired)' if token.is_expired(datetime.now(UTC)) else ''}"


def _format_moment(moment: Any) -> str:
    return render.format_local_time(moment.isoformat())
