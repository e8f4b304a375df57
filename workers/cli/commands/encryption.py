"""`holdfast encryption …`: make a key, say which keys there are, and which of them the histories still need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from holdfast.workers.cli.options import Address, Data, Json, format_example, resolve_settings, run_async
from holdfast.workers.exit_codes import FAILED
from holdfast.workers.terminal.output import escape_line, print_json, print_note, print_table, print_text

if TYPE_CHECKING:
    from holdfast.payloads.keyring import KeyFound
    from holdfast.workers.storage.referenced import NamespaceUsage

encryption = typer.Typer(
    help="Keys that payloads are encrypted with: new-key, check, usage.",
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
    """Print a new key: 32 random bytes, as base64. It is kept nowhere.

    It is for a variable, a private file or a secret store, which [encryption] of the settings then names. Whoever
    has it can read what it encrypts; who loses it cannot.
    """
    from holdfast.payloads import keyring

    made = keyring.generate_key()
    if json:
        print_json({"key": made})
    else:
        print_text(made)


@encryption.command(epilog=format_example("holdfast encryption check", "holdfast encryption check --json | jq .writes"))
def check(json: Json = False, data: Data = None) -> None:
    """Say which keys can be had here, and which one is written with. No key is shown.

    The exit code is 1 when one of them cannot be had: then no worker starts, and no client.
    """
    from holdfast.payloads.keyring import check_keys

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
        print_text("Nothing is encrypted: the settings have no [[encryption.keys]].")
        return
    uses = ["written and read with", *["read with"] * (len(found) - 1)]
    rows = [
        (one.id, "cannot be had" if one.problem else use, escape_line(one.origin))
        for one, use in zip(found, uses, strict=True)
    ]
    print_table(("key", "use", "from"), rows)
    print_text(f"What is not encrypted is {'accepted' if plain == 'accept' else 'refused'}.")
    for one in found:
        if one.problem:
            print_note(f"holdfast: {escape_line(one.problem)}")


def _key_as_json(one: KeyFound) -> dict[str, Any]:
    told = {"id": one.id, "from": one.origin, "ok": one.problem is None}
    return {**told, "problem": one.problem} if one.problem else told


@encryption.command(epilog=format_example("holdfast encryption usage", "holdfast encryption usage --json | jq .keys"))
def usage(address: Address = None, data: Data = None, json: Json = False) -> None:
    """Count what each key has encrypted in all that the server has, and what is not encrypted.

    A key can go when nothing is left that it encrypted; and only when nothing that still runs holds anything in the
    clear can that be refused (`plain = "refuse"`). Reads every history: it may take a while. The exit code is 1 when
    something cannot be read, for then a key is missing already.
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
    from dataclasses import replace

    from holdfast.workers.runtime import log_setup
    from holdfast.workers.runtime.connect import connect_client
    from holdfast.workers.storage.referenced import read_namespaces

    log_setup.silence_logging()
    settings = resolve_settings(data)
    lenient = settings.encryption.model_copy(update={"plain": "accept"})
    client = await connect_client(replace(settings, encryption=lenient), address=address)
    return await read_namespaces([client], progress=lambda runs: print_progress(runs, quiet=quiet))


def print_progress(runs: int, *, quiet: bool) -> None:
    """Now and then, that it goes on."""
    if runs % 200 == 0 and not quiet:
        print_note(f"{runs:,} runs read …")


def _print_usage(reached: NamespaceUsage) -> None:
    print_text(f"{reached.runs:,} runs of workflows.")
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
        print_note(f"holdfast: and {len(reached.troubles) - 20:,} more; --json tells all")


def _counts_as_json(counted: Any) -> dict[str, int]:
    return {"" if name is None else name: count for name, count in sorted(counted.items(), key=str)}
