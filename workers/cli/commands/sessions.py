"""`holdfast sessions`: conversations that outlive their turns: list, show, send, interrupt, close; their grants."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from holdfast.client.client import Holdfast
from holdfast.domain.session.session_io import SessionView
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.errors import BadInput, HoldfastError
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example
from holdfast.workers.lookup.approvals import fetch_waiting
from holdfast.workers.lookup.sessions import TAIL_MESSAGES, fetch_last_messages, fetch_sessions, get_session
from holdfast.workers.terminal import grant_text, render, session_text
from holdfast.workers.terminal.input_files import read_text
from holdfast.workers.terminal.output import print_answer, print_json, print_note, print_table, print_text

sessions = typer.Typer(
    help="Sessions, which `holdfast chat` starts: list, show, send, interrupt, close; their grants.",
    epilog=format_example(
        "holdfast sessions", "holdfast sessions show release", "holdfast sessions close release --now"
    ),
    rich_markup_mode=None,
)

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Most sessions to list.")]
How = Annotated[
    Literal["queue", "interrupt", "append"],
    typer.Option(
        "--how", help="While a turn runs: start another turn after it, interrupt it, or add the message to it."
    ),
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Name to record; default: login name and host.")]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(sessions, name="sessions")


@sessions.callback(invoke_without_command=True)
def list_by_default(
    context: typer.Context, limit: Limit = 50, json: Json = False, address: Address = None, data: Data = None
) -> None:
    """Sessions, which `holdfast chat` starts: list, show, send, interrupt, close; their grants."""
    if context.invoked_subcommand is None:
        list_sessions(limit, json, address, data)


@sessions.command("list", epilog=format_example("holdfast sessions list --limit 10", "holdfast sessions list --json"))
def list_sessions(limit: Limit = 50, json: Json = False, address: Address = None, data: Data = None) -> None:
    """List sessions, newest first."""

    async def print_sessions() -> None:
        found = await fetch_sessions(await open_holdfast(data, address), limit)
        if json:
            print_json({"sessions": found})
            return
        rows = [
            (
                one["id"],
                one["status"],
                _format_optional(one["turns"]),
                render.format_local_time(one["started"]),
                _format_optional(one["model"]),
            )
            for one in found
        ]
        if rows:
            print_table(("session", "status", "turns", "started", "model"), rows)
        else:
            print_text("No sessions: start one with `holdfast chat`.")

    run_async(print_sessions())


@sessions.command(
    epilog=format_example("holdfast sessions show release", "holdfast sessions show release --all --json")
)
def show(
    session: SessionId,
    every: Annotated[bool, typer.Option("--all", help="Show all messages uncut; default: the last few.")] = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Show the state of a session, its pending approvals and its messages."""

    async def print_session() -> None:
        holdfast = await open_holdfast(data, address)
        one = await get_session(holdfast, session)
        view = await one.fetch_view()
        messages, total = await fetch_last_messages(one, None if every else TAIL_MESSAGES)
        approvals = await _fetch_approvals(holdfast, view)
        if json:
            print_json(
                _view_as_json(view, approvals, messages=[message.model_dump(mode="json") for message in messages])
            )
        else:
            console = render.build_console()
            console.print(session_text.render_session(view, approvals))
            console.print(session_text.render_messages(messages, total, whole=every))

    run_async(print_session())


@sessions.command(
    epilog=format_example(
        'holdfast sessions send release "And the changelog?"', "holdfast sessions send release - < more.txt"
    )
)
def send(
    session: SessionId,
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="Message of the user; - is stdin.")],
    how: How = "queue",
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Send a message to a session: to its next turn, or to the one that runs (--how)."""
    message = read_text(text).removesuffix("\n")
    if not message.strip():
        raise BadInput("the message is empty: give the text of the user")

    async def send_message() -> None:
        one = await get_session(await open_holdfast(data, address), session)
        sent = await one.send(message, how=how, by=by)
        behind = f", after {sent.ahead} queued before it" if sent.ahead else ""
        text = f"Turn {sent.turn} gets the message{behind}."
        print_answer(json, text, session=session, turn=sent.turn, ahead=sent.ahead)

    run_async(send_message())


@sessions.command(epilog=format_example("holdfast sessions interrupt release"))
def interrupt(
    session: SessionId, by: By = None, json: Json = False, address: Address = None, data: Data = None
) -> None:
    """Stop the running turn. Every call in it is answered, and the session goes on."""

    async def interrupt_turn() -> None:
        await (await get_session(await open_holdfast(data, address), session)).interrupt(by=by)
        print_answer(json, f"Asked the turn of session {session} to stop.", session=session, interrupted=True)

    run_async(interrupt_turn())


@sessions.command(epilog=format_example("holdfast sessions close release", "holdfast sessions close release --now"))
def close(
    session: SessionId,
    now: Annotated[bool, typer.Option("--now", help="Stop the running turn, and drop queued messages.")] = False,
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Close a session: it takes no more messages, and ends when all queued messages are done."""

    async def close_session() -> None:
        await (await get_session(await open_holdfast(data, address), session)).close(now=now, by=by)
        when = "now" if now else "when all queued messages are done"
        print_answer(json, f"Session {session} ends {when}.", session=session, now=now)

    run_async(close_session())


@sessions.command(epilog=format_example("holdfast sessions grants release"))
def grants(session: SessionId, json: Json = False, address: Address = None, data: Data = None) -> None:
    """List the grants of a session."""

    async def print_grants() -> None:
        now = datetime.now(UTC)
        given = await (await get_session(await open_holdfast(data, address), session)).fetch_grants()
        if json:
            print_json(
                {"session": session, "grants": [grant_text.grant_as_json(grant.id, grant, now) for grant in given]}
            )
        else:
            render.build_console().print(grant_text.render_grants([(grant.id, grant) for grant in given], (), now))

    run_async(print_grants())


@sessions.command(epilog=format_example("holdfast sessions revoke release g1"))
def revoke(
    session: SessionId,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="As `holdfast sessions grants` lists it.")],
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Revoke a grant of a session."""

    async def revoke_grant() -> None:
        one = await (await get_session(await open_holdfast(data, address), session)).revoke(grant, by)
        body = {"session": session, "grant": grant, "covers": one.covers}
        print_answer(json, f"{grant} of session {session}: revoked ({one.covers})", **body)

    run_async(revoke_grant())


async def _fetch_approvals(holdfast: Holdfast, view: SessionView) -> tuple[ApprovalView, ...]:
    """The pending approvals of the running turn."""
    if not view.turn or not view.pending:
        return ()
    try:
        return tuple(await fetch_waiting(holdfast, view.turn))
    except HoldfastError as error:
        print_note(f"holdfast: {error}")
        return ()


def _view_as_json(view: SessionView, approvals: tuple[ApprovalView, ...], **more: Any) -> dict[str, Any]:
    return {**view.model_dump(mode="json"), "approvals": [one.model_dump(mode="json") for one in approvals], **more}


def _format_optional(value: Any) -> str:
    return "" if value is None else str(value)
