"""`holdfast sessions`: conversations that outlive their turns: list, show, say something, stop, close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.workers.commands.options import Address, Data, Json, answer, emit, example, note, open_holdfast, run

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.sessions import SessionView
    from holdfast.views import ApprovalView

sessions = typer.Typer(
    help="Sessions, which `holdfast chat` begins: list, show, send, interrupt, close; their standing answers.",
    epilog=example("holdfast sessions", "holdfast sessions show release", "holdfast sessions close release --now"),
    rich_markup_mode=None,
)

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")]
How = Annotated[
    Literal["queue", "interrupt", "append"],
    typer.Option("--how", help="While a turn runs: for a turn of its own, or instead of what runs, or after it."),
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who says so; else you at this host.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(sessions, name="sessions")


@sessions.callback(invoke_without_command=True)
def default(
    context: typer.Context, limit: Limit = 50, json: Json = False, address: Address = None, data: Data = None
) -> None:
    """Sessions, which `holdfast chat` begins: list, show, send, interrupt, close; their standing answers."""
    if context.invoked_subcommand is None:
        list_sessions(limit, json, address, data)


@sessions.command("list", epilog=example("holdfast sessions list --limit 10", "holdfast sessions list --json"))
def list_sessions(limit: Limit = 50, json: Json = False, address: Address = None, data: Data = None) -> None:
    """List sessions, newest first."""

    async def work() -> None:
        from holdfast.workers import render
        from holdfast.workers.sessions import listed

        found = await listed(await open_holdfast(data, address), limit)
        if json:
            emit({"sessions": found})
            return
        names = ("session", "status", "turns", "started", "model")
        rows = [
            (one["id"], one["status"], _blank(one["turns"]), render.local(one["started"]), _blank(one["model"]))
            for one in found
        ]
        render.console().print(render.table(names, rows) if rows else "No sessions yet: begin one with holdfast chat.")

    run(work())


@sessions.command(epilog=example("holdfast sessions show release", "holdfast sessions show release --all --json"))
def show(
    session: SessionId,
    every: Annotated[bool, typer.Option("--all", help="All messages, whole; else the last few.")] = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Show how a session stands, what waits in it, and what was said."""

    async def work() -> None:
        from holdfast.workers import render, spoken
        from holdfast.workers.sessions import TAIL, found, last_messages

        holdfast = await open_holdfast(data, address)
        one = await found(holdfast, session)
        view = await one.view()
        said, total = await last_messages(one, None if every else TAIL)
        approvals = await _approvals(holdfast, view)
        if json:
            emit(_body(view, approvals, messages=[message.model_dump(mode="json") for message in said]))
        else:
            console = render.console()
            console.print(spoken.session(view, approvals))
            console.print(spoken.messages(said, total, whole=every))

    run(work())


@sessions.command(
    epilog=example('holdfast sessions send release "And the changelog?"', "holdfast sessions send release - < more.txt")
)
def send(
    session: SessionId,
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="What the user says; - is stdin.")],
    how: How = "queue",
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Say something in a session; its next turn takes it up, or the one that runs."""
    from holdfast.errors import BadInput
    from holdfast.workers.reading import read_text

    said = read_text(text).removesuffix("\n")
    if not said.strip():
        raise BadInput("the message is empty: what does the user say?")

    async def work() -> None:
        from holdfast.workers.sessions import found

        one = await found(await open_holdfast(data, address), session)
        sent = await one.send(said, how=how, by=by)
        behind = f", after {sent.ahead} before it" if sent.ahead else ""
        answer(json, f"Turn {sent.turn} takes it up{behind}.", session=session, turn=sent.turn, ahead=sent.ahead)

    run(work())


@sessions.command(epilog=example("holdfast sessions interrupt release"))
def interrupt(
    session: SessionId, by: By = None, json: Json = False, address: Address = None, data: Data = None
) -> None:
    """Stop the turn that runs. Everything in it is answered, and the session goes on."""

    async def work() -> None:
        from holdfast.workers.sessions import found

        await (await found(await open_holdfast(data, address), session)).interrupt(by=by)
        answer(json, f"Told the turn of session {session} to stop.", session=session, interrupted=True)

    run(work())


@sessions.command(epilog=example("holdfast sessions close release", "holdfast sessions close release --now"))
def close(
    session: SessionId,
    now: Annotated[bool, typer.Option("--now", help="Stop the turn that runs, and drop what waits.")] = False,
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """End a session: it takes nothing more, and ends when what was said is done."""

    async def work() -> None:
        from holdfast.workers.sessions import found

        await (await found(await open_holdfast(data, address), session)).close(now=now, by=by)
        when = "now" if now else "when what was said is done"
        answer(json, f"Session {session} ends {when}.", session=session, now=now)

    run(work())


@sessions.command(epilog=example("holdfast sessions grants release"))
def grants(session: SessionId, json: Json = False, address: Address = None, data: Data = None) -> None:
    """List the answers that stand in a session."""

    async def work() -> None:
        from datetime import UTC, datetime

        from holdfast.workers import answers, render
        from holdfast.workers.sessions import found

        now = datetime.now(UTC)
        given = await (await found(await open_holdfast(data, address), session)).grants()
        if json:
            emit({"session": session, "grants": [answers.grant_body(grant.id, grant, now) for grant in given]})
        else:
            render.console().print(answers.listed([(grant.id, grant) for grant in given], (), now))

    run(work())


@sessions.command(epilog=example("holdfast sessions revoke release g1"))
def revoke(
    session: SessionId,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="As `holdfast sessions grants` lists it.")],
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Take an answer back that stands in a session."""

    async def work() -> None:
        from holdfast.workers.sessions import found

        one = await (await found(await open_holdfast(data, address), session)).revoke(grant, by)
        body = {"session": session, "grant": grant, "covers": one.covers}
        answer(json, f"{grant} of session {session}: revoked ({one.covers})", **body)

    run(work())


async def _approvals(holdfast: Holdfast, view: SessionView) -> tuple[ApprovalView, ...]:
    """What waits for somebody in the turn that runs."""
    from holdfast.errors import HoldfastError
    from holdfast.workers.waiting import waiting_in

    if not view.turn or not view.pending:
        return ()
    try:
        return tuple(await waiting_in(holdfast, view.turn))
    except HoldfastError as error:
        note(f"holdfast: {error}")
        return ()


def _body(view: SessionView, approvals: tuple[ApprovalView, ...], **more: Any) -> dict[str, Any]:
    return {**view.model_dump(mode="json"), "approvals": [one.model_dump(mode="json") for one in approvals], **more}


def _blank(value: Any) -> str:
    return "" if value is None else str(value)
