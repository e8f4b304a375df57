"""`holdfast encryption …`: create a key, check the keys, and count the payloads that each has encrypted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import typer

from holdfast.payloads import keyring
from holdfast.payloads.keyring import KeyFound, check_keys
from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example
from holdfast.workers.cli.resolve_settings import resolve_settings
from holdfast.workers.exit_codes import FAILED
from holdfast.workers.runtime import log_setup
from holdfast.workers.runtime.connect import connect_client
from holdfast.workers.storage.referenced import NamespaceUsage, read_namespaces
from holdfast.workers.terminal.output import escape_line, print_json, print_note, print_table, print_text

encryption = typer.Typer(
    help="Keys that encrypt payloads: new-key, check, usage.",
    epilog=format_example("holdfast encryption new-key", "holdfast encryption check"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(encryption, name="encryption")


@encryption.command(
    "new-key",
    epilog=format_example(
        "holdfast encryption new-key",
        "(umask 077; holdfast encryption new-key > ~/.config/holdfast/encryption-2026-11)",
    ),
)
def new_key(json: Json = False) -> None:
    """Print a new key: 32 random bytes as base64. It is not stored.

    Store it in a variable, a private file or a secret store, and name that in [encryption] of the settings. Whoever has
    the key can read what it encrypts; without it nobody can.
    """
    made = keyring.generate_key()
    if json:
        print_json({"key": made})
    else:
        print_text(made)


@encryption.command(epilog=format_example("holdfast encryption check", "holdfast encryption check --json | jq .writes"))
def check(json: Json = False, data: Data = None) -> None:
    """Check which keys can be loaded here, and which one encrypts. No key is shown.

    The exit code is 1 when one of them cannot be loaded: then no worker and no client starts.
    """
    settings = resolve_settings(data)
    found = check_keys(settings)
    writes = found[0].id if found else None
    if json:
        keys = [_key_as_json(one) for one in found]
        print_json({"encrypts": bool(found), "writes": writes, "plain": settings.encryption.plain, "keys": keys})
    else:
        _print_keys(found, settings.encryption.plain)
    if any(one.problem for one in found):
        raise typer.Exit(FAILED)


def _print_keys(found: list[KeyFound], plain: str) -> None:
    if not found:
        print_text("Payloads are not encrypted: the settings have no [[encryption.keys]].")
        return
    uses = ["encrypts and decrypts", *["decrypts"] * (len(found) - 1)]
    rows = [
        (one.id, "missing" if one.problem else use, escape_line(one.origin))
        for one, use in zip(found, uses, strict=True)
    ]
    print_table(("key", "use", "from"), rows)
    print_text(f"Unencrypted payloads are {'accepted' if plain == 'accept' else 'refused'}.")
    for one in found:
        if one.problem:
            print_note(f"holdfast: {escape_line(one.problem)}")


def _key_as_json(one: KeyFound) -> dict[str, Any]:
    body = {"id": one.id, "from": one.origin, "ok": one.problem is None}
    return {**body, "problem": one.problem} if one.problem else body


@encryption.command(epilog=format_example("holdfast encryption usage", "holdfast encryption usage --json | jq .keys"))
def usage(address: Address = None, data: Data = None, json: Json = False) -> None:
    """Count the payloads on the server that each key has encrypted, and those that are not encrypted.

    A key may be removed when it has encrypted none of them. `plain = "refuse"` may be set when no running workflow has
    unencrypted payloads. Reads every history, so it may take a while. The exit code is 1 when a payload cannot be read:
    then a key is missing already.
    """
    reached = run_async(_read_namespace(address, data, quiet=json))
    if json:
        print_json(
            {
                "runs": reached.runs,
                "keys": _counts_as_json(reached.keys),
                "open_keys": _counts_as_json(reached.open_keys),
                "problems": reached.troubles,
            }
        )
    else:
        _print_usage(reached)
    if reached.troubles:
        raise typer.Exit(FAILED)


async def _read_namespace(address: str | None, data: Any, *, quiet: bool) -> NamespaceUsage:
    log_setup.silence_logging()
    settings = resolve_settings(data)
    lenient = settings.encryption.model_copy(update={"plain": "accept"})
    client = await connect_client(replace(settings, encryption=lenient), address=address)
    return await read_namespaces([client], progress=lambda runs: print_progress(runs, quiet=quiet))


def print_progress(runs: int, *, quiet: bool) -> None:
    """Print the progress every 200 runs."""
    if runs % 200 == 0 and not quiet:
        print_note(f"{runs:,} runs read …")


def _print_usage(reached: NamespaceUsage) -> None:
    print_text(f"Read {reached.runs:,} workflow runs.")
    rows = [
        (
            "(not encrypted)" if name is None else escape_line(name),
            f"{reached.keys[name]:,}",
            f"{reached.open_keys[name]:,}",
        )
        for name in sorted(reached.keys, key=str)
    ]
    print_table(("key", "payloads", "in open runs"), rows, right=(1, 2))
    for trouble in reached.troubles[:20]:
        print_note(f"holdfast: {escape_line(trouble)}")
    if len(reached.troubles) > 20:
        print_note(f"holdfast: and {len(reached.troubles) - 20:,} more (--json lists all)")


def _counts_as_json(counted: Any) -> dict[str, int]:
    return {"" if name is None else name: count for name, count in sorted(counted.items(), key=str)}
