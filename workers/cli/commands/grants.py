"""`holdfast grants`: the grants of running turns and the saved ones: listed, revoked, shared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from holdfast.activities.ledger.ledger import LedgerUnavailable
from holdfast.activities.policy.saved_grants import SavedGrants
from holdfast.client.client import Holdfast
from holdfast.config.settings import Settings
from holdfast.errors import BadInput, NoWorker, Refused, ServerUnavailable, TurnNotFound
from holdfast.util.text import strip_controls
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example
from holdfast.workers.cli.resolve_settings import resolve_client_settings
from holdfast.workers.exit_codes import FAILED, UNREACHABLE
from holdfast.workers.lookup import grants as granted
from holdfast.workers.lookup.grants import RunningGrants, fetch_running_grants, parse_address
from holdfast.workers.terminal import grant_text, render
from holdfast.workers.terminal.grant_store import SavedGrantList, open_grant_store
from holdfast.workers.terminal.output import print_json, print_note, print_text

grants = typer.Typer(
    help="Grants: list, revoke, share. `holdfast approve --always` and `deny --remember` give them.",
    epilog=format_example(
        "holdfast grants", "holdfast grants --turn deploy-7 --json", "holdfast grants revoke deploy-7/g1"
    ),
    rich_markup_mode=None,
)
OfTurn = Annotated[str | None, typer.Option("--turn", metavar="TURN", help="Only grants of this turn.")]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(grants, name="grants")


@grants.callback(invoke_without_command=True)
def list_by_default(
    context: typer.Context, turn: OfTurn = None, json: Json = False, address: Address = None, data: Data = None
) -> None:
    """Grants: list, revoke, share. `holdfast approve --always` and `deny --remember` give them."""
    if context.invoked_subcommand is None:
        list_grants(turn, json, address, data)


@grants.command("list", epilog=format_example("holdfast grants list --json"))
def list_grants(turn: OfTurn = None, json: Json = False, address: Address = None, data: Data = None) -> None:
    """List the grants of running turns, then the saved ones."""

    async def print_grants() -> int:
        settings = resolve_client_settings(data)
        saved = await _load_saved(settings) if turn is None else SavedGrantList()
        try:
            found = await _find_grants(await open_holdfast(data, address), turn)
        except ServerUnavailable as error:
            if saved == SavedGrantList():
                raise
            print_note(f"holdfast: {error}; saved grants need no server:")
            found = None
        _print_grants(found, saved, settings, json)
        return UNREACHABLE if found is None or found.unanswered else FAILED if saved.problems else 0

    _exit_with(run_async(print_grants()))


@grants.command(epilog=format_example("holdfast grants revoke deploy-7/g1", "holdfast grants revoke granted-1a2b3c4d"))
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of grants, as `holdfast grants` lists them.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Name to record; default: login name and host.")
    ] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Revoke grants. Calls that a grant has allowed and that have not started are judged again."""

    async def revoke_all() -> int:
        settings = resolve_client_settings(data)
        holdfast = await open_holdfast(data, address) if any(map(parse_address, ids)) else None
        results: list[dict[str, Any]] = []
        code = 0
        for name in dict.fromkeys(ids):
            try:
                covers = await _revoke_grant(holdfast, name, by, settings)
                results.append({"id": name, "revoked": True, "covers": covers})
            except (Refused, TurnNotFound, BadInput, NoWorker, LedgerUnavailable) as error:
                results.append({"id": name, "revoked": False, "error": str(error)})
                print_note(f"holdfast: {strip_controls(str(error))}")
                code = max(code, UNREACHABLE if isinstance(error, NoWorker | LedgerUnavailable) else FAILED)
        if json:
            print_json({"grants": results})
        elif lines := [strip_controls(f"{one['id']}: revoked ({one['covers']})") for one in results if one["revoked"]]:
            print_text("\n".join(lines))
        return code

    _exit_with(run_async(revoke_all()))


@grants.command(epilog=format_example("holdfast grants share"))
def share(json: Json = False, data: Data = None) -> None:
    """Move the saved grants of this host's data folder to the shared ledger, where every host uses them.

    Grants that are in the ledger already are encrypted again with the current key, if there are keys.
    """

    async def share_all() -> list[str]:
        async with open_grant_store(resolve_client_settings(data)) as keeper:
            return await keeper.share_grants()

    moved = run_async(share_all())
    if json:
        print_json({"shared": moved})
    else:
        print_text(
            "\n".join(f"{name}: shared with every host that uses the ledger" for name in moved) or "Nothing to move."
        )


async def _revoke_grant(holdfast: Holdfast | None, name: str, by: str | None, settings: Settings) -> str:
    """Revoke one grant; what it covered."""
    found = granted.parse_address(name)
    if found is None or holdfast is None:
        async with open_grant_store(settings) as keeper:
            return await keeper.remove(name)
    turn, grant = found
    return (await granted.revoke_grant(holdfast, turn, grant, by or holdfast.actor_name)).covers


async def _find_grants(holdfast: Holdfast, turn: str | None) -> RunningGrants:
    return (
        RunningGrants({turn: await holdfast.get_turn(turn).fetch_grants()})
        if turn
        else await fetch_running_grants(holdfast)
    )


async def _load_saved(settings: Settings) -> SavedGrantList:
    """The saved grants, and why not all of them are in effect."""
    try:
        async with open_grant_store(settings) as keeper:
            return await keeper.list_grants()
    except BadInput as error:
        own = SavedGrants(settings.grants_file)
        return SavedGrantList(own.rules, problems=tuple(filter(None, (own.problem, str(error)))))


def _print_grants(found: RunningGrants | None, saved: SavedGrantList, settings: Settings, json: bool) -> None:
    now = datetime.now(UTC)
    given = found.addressed_grants if found else []
    unanswered = found.unanswered if found else []
    problem = "\n".join(saved.problems) or None
    if json:
        body = {
            "grants": [grant_text.grant_as_json(name, grant, now) for name, grant in given],
            "unanswered": unanswered,
        }
        of = [(rule, shared) for shared, rules in ((False, saved.own), (True, saved.shared)) for rule in rules]
        saved_body = {
            "saved": [grant_text.saved_grant_as_json(rule, now, shared=shared) for rule, shared in of],
            "problem": problem,
        }
        print_json({**body, **saved_body, "file": str(settings.grants_file)})
    else:
        render.build_console().print(grant_text.render_grants(given, saved.own, now, saved.shared))
    if problem:
        print_note(f"holdfast: only saved refusals are in effect, until this is fixed: {strip_controls(problem)}")
    if unanswered:
        print_note(f"holdfast: no worker answered for turn {strip_controls(', '.join(unanswered[:10]))}")


def _exit_with(code: int) -> None:
    if code:
        raise typer.Exit(code)
