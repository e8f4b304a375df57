"""`holdfast grants`: the answers that stand, in running turns and kept for good; and taking them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.workers.commands.codes import FAILED, UNREACHABLE
from holdfast.workers.commands.options import (
    Address,
    Data,
    Json,
    client_settings,
    emit,
    example,
    note,
    open_holdfast,
    run,
    say,
)

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.settings import Settings
    from holdfast.workers.granted import Found
    from holdfast.workers.keeping_grants import Listed

grants = typer.Typer(
    help="Answers that stand: `holdfast approve --always` leaves them, `deny --remember` too.",
    epilog=example("holdfast grants", "holdfast grants --turn deploy-7 --json", "holdfast grants revoke deploy-7/g1"),
    rich_markup_mode=None,
)
OfTurn = Annotated[str | None, typer.Option("--turn", metavar="TURN", help="Only those of this turn.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(grants, name="grants")


@grants.callback(invoke_without_command=True)
def default(
    context: typer.Context, turn: OfTurn = None, json: Json = False, address: Address = None, data: Data = None
) -> None:
    """Answers that stand: `holdfast approve --always` leaves them, `deny --remember` too."""
    if context.invoked_subcommand is None:
        list_grants(turn, json, address, data)


@grants.command("list", epilog=example("holdfast grants list --json"))
def list_grants(turn: OfTurn = None, json: Json = False, address: Address = None, data: Data = None) -> None:
    """List them: those of running turns, then those that are kept for good."""

    async def work() -> int:
        from holdfast.errors import ServerUnavailable
        from holdfast.workers.keeping_grants import Listed

        settings = client_settings(data)
        saved = await _saved(settings) if turn is None else Listed()
        try:
            found = await _found(await open_holdfast(data, address), turn)
        except ServerUnavailable as error:
            if saved == Listed():
                raise
            note(f"holdfast: {error}; what is kept for good needs none:")
            found = None
        _show(found, saved, settings, json)
        return UNREACHABLE if found is None or found.unanswered else FAILED if saved.problems else 0

    _leave(run(work()))


@grants.command(epilog=example("holdfast grants revoke deploy-7/g1", "holdfast grants revoke granted-1a2b3c4d"))
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As `holdfast grants` lists them.")],
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who revokes; else you at this host.")] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Take answers back. What was let through by one and has not begun is judged again."""

    async def work() -> int:
        from holdfast.activities.ledger.protocol import LedgerUnavailable
        from holdfast.content import plain
        from holdfast.errors import BadInput, NoWorker, Refused, TurnNotFound
        from holdfast.workers.granted import address_of

        settings = client_settings(data)
        holdfast = await open_holdfast(data, address) if any(map(address_of, ids)) else None
        told: list[dict[str, Any]] = []
        code = 0
        for name in dict.fromkeys(ids):
            try:
                covers = await _revoked(holdfast, name, by, settings)
                told.append({"id": name, "revoked": True, "covers": covers})
            except (Refused, TurnNotFound, BadInput, NoWorker, LedgerUnavailable) as error:
                told.append({"id": name, "revoked": False, "error": str(error)})
                note(f"holdfast: {plain(str(error))}")
                code = max(code, UNREACHABLE if isinstance(error, NoWorker | LedgerUnavailable) else FAILED)
        if json:
            emit({"grants": told})
        elif lines := [plain(f"{item['id']}: revoked ({item['covers']})") for item in told if item["revoked"]]:
            say("\n".join(lines))
        return code

    _leave(run(work()))


@grants.command(epilog=example("holdfast grants share"))
def share(json: Json = False, data: Data = None) -> None:
    """Move the answers that this host's data folder keeps into the shared ledger, where they count on every host.

    Those that are there already are encrypted anew with the key that is written with, if there are keys.
    """

    async def work() -> list[str]:
        from holdfast.workers.keeping_grants import kept

        async with kept(client_settings(data)) as keeper:
            return await keeper.share()

    moved = run(work())
    if json:
        emit({"shared": moved})
    else:
        say("\n".join(f"{name}: counts on every host that shares the ledger" for name in moved) or "Nothing to move.")


async def _revoked(holdfast: Holdfast | None, name: str, by: str | None, settings: Settings) -> str:
    """Take one answer back; what it covered."""
    from holdfast.workers import granted
    from holdfast.workers.keeping_grants import kept

    found = granted.address_of(name)
    if found is None or holdfast is None:
        async with kept(settings) as keeper:
            return await keeper.remove(name)
    turn, grant = found
    return (await granted.revoke(holdfast, turn, grant, by or holdfast.me)).covers


async def _found(holdfast: Holdfast, turn: str | None) -> Found:
    from holdfast.workers.granted import Found, of_running_turns

    return Found({turn: await holdfast.turn(turn).grants()}) if turn else await of_running_turns(holdfast)


async def _saved(settings: Settings) -> Listed:
    """The kept answers, and why not all of them count."""
    from holdfast.activities.policy.saved import SavedGrants
    from holdfast.errors import BadInput
    from holdfast.workers.keeping_grants import Listed, kept

    try:
        async with kept(settings) as keeper:
            return await keeper.listed()
    except BadInput as error:
        own = SavedGrants(settings.granted)
        return Listed(own.rules, problems=tuple(filter(None, (own.problem, str(error)))))


def _show(found: Found | None, saved: Listed, settings: Settings, json: bool) -> None:
    from datetime import UTC, datetime

    from holdfast.content import plain
    from holdfast.workers import answers, render

    now = datetime.now(UTC)
    given = found.named if found else []
    unanswered = found.unanswered if found else []
    problem = "\n".join(saved.problems) or None
    if json:
        body = {"grants": [answers.grant_body(name, grant, now) for name, grant in given], "unanswered": unanswered}
        of = [(rule, shared) for shared, rules in ((False, saved.own), (True, saved.shared)) for rule in rules]
        kept = {"saved": [answers.saved_body(rule, now, shared=shared) for rule, shared in of], "problem": problem}
        emit({**body, **kept, "file": str(settings.granted)})
    else:
        render.console().print(answers.listed(given, saved.own, now, saved.shared))
    if problem:
        note(f"holdfast: of the kept answers only refusals count, until this is mended: {plain(problem)}")
    if unanswered:
        note(f"holdfast: no worker answered for {plain(', '.join(unanswered[:10]))}")


def _leave(code: int) -> None:
    if code:
        raise typer.Exit(code)
