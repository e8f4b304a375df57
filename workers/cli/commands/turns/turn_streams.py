"""`holdfast turn add`, `interrupt`: calls and messages for a running turn."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.client.turn import Turn
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.turn.update_bodies import AddCallsResult
from holdfast.errors import BadInput, RequestRefused
from holdfast.workers.cli.commands.turns.turn_control import check_words
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, Json, TurnId, format_example
from holdfast.workers.terminal.input_files import read_calls, read_text
from holdfast.workers.terminal.output import print_answer
from holdfast.workers.terminal.render import format_call_count

STREAM_LIMIT = 200
MESSAGE_LIMIT = 1_000_000
ATTEMPT_LIMIT = 1_000_000


def register_commands(turns: typer.Typer) -> None:
    """Add the commands."""
    turns.command(
        epilog=format_example(
            "holdfast turn start --keep-open --schedule streaming --id hello",
            """echo '{"tool": "list_directory"}' | holdfast turn add hello reply-1 --calls -""",
            """echo '{"tool": "shell", "arguments": {"command": "date"}}' | """
            "holdfast turn add hello reply-1 --calls - --at 1 --complete",
            "holdfast turn add hello reply-2 --calls calls.json --attempt 2 --reason 'The connection broke'",
        )
    )(add)
    turns.command(
        epilog=format_example(
            """holdfast turn interrupt hello "Only the tests, please" """.rstrip(),
            "holdfast turn interrupt hello - < message.txt",
        )
    )(interrupt)


def add(
    turn: TurnId,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="Your name for the reply, for example reply-1.")],
    calls: Annotated[
        str | None, typer.Option("--calls", metavar="FILE|-", help="JSON: one call or an array; - is stdin.")
    ] = None,
    at: Annotated[int, typer.Option("--at", metavar="N", min=0, help="Number of calls of the reply before these.")] = 0,
    attempt: Annotated[
        int,
        typer.Option(
            "--attempt",
            metavar="N",
            min=1,
            max=ATTEMPT_LIMIT,
            help="Number of the attempt at the reply; a later attempt discards the earlier ones.",
        ),
    ] = 1,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="With a later attempt: why the attempt before failed."),
    ] = None,
    complete: Annotated[bool, typer.Option("--complete", help="These are the last calls of the reply.")] = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Add calls to a turn while your own model writes them. The turn must have been started with --keep-open.

    Calls that are sent twice with the same --at are added once, so you can repeat a command. Results are delivered when
    the reply is complete (--complete).
    """
    if calls is None and not complete:
        raise BadInput("nothing to add: give --calls FILE, or --complete at the end of the reply")
    if reason is not None and attempt == 1:
        raise BadInput("--reason needs a later attempt: give --attempt 2 or higher")
    if not stream.strip() or len(stream) > STREAM_LIMIT or not stream.isprintable():
        raise BadInput(f"STREAM must be a name of 1 to {STREAM_LIMIT} printable characters")
    check_words(reason=reason)
    requests = read_calls(calls) if calls is not None else ()

    async def add_calls() -> None:
        found = (await open_holdfast(data, address)).get_turn(turn)
        added = await _send_calls(found, stream, requests, at, attempt, complete, reason)
        print_answer(
            json,
            _format_added(turn, stream, added, complete),
            turn=turn,
            stream=stream,
            attempt=attempt,
            **added.model_dump(),
        )

    run_async(add_calls())


async def _send_calls(
    turn: Turn,
    stream: str,
    requests: tuple[CallRequest, ...],
    at: int,
    attempt: int,
    complete: bool,
    reason: str | None,
) -> AddCallsResult:
    """Add the calls. A refusal gets a hint which option to change."""
    hints = {
        "other_calls": f"--at is the number of calls before these; it was {at}",
        "calls_missing": "send the calls before them first, or correct --at",
        "old_attempt": f"give --attempt {attempt + 1} or higher",
        "has_model": "only turns that were started with --keep-open accept calls",
    }
    try:
        return await turn.add_calls(stream, requests, at=at, attempt=attempt, complete=complete, reason=reason)
    except RequestRefused as refused:
        if hint := hints.get(refused.code):
            raise RequestRefused(refused.code, f"{refused} ({hint})") from None
        raise


def _format_added(turn: str, stream: str, added: AddCallsResult, complete: bool) -> str:
    rest = "and is complete" if complete else f"so far; add the next ones with --at {added.calls}"
    return f"Batch {added.batch} of turn {turn}, {stream}, has {format_call_count(added.calls)} {rest}."


def interrupt(
    turn: TurnId,
    message: Annotated[str, typer.Argument(metavar="MESSAGE|-", help="Message of the user; - is stdin.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Name to record; default: login name and host.")
    ] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Send a message to a running turn: interruptible calls stop, the others finish, and the model reads the message.

    Calls that have not started are cancelled. `holdfast turn show` says whether the running calls are interruptible.
    """
    text = read_text(message).removesuffix("\n")
    if not text.strip():
        raise BadInput("the message is empty: to stop everything without one, use `holdfast turn cancel`")
    if len(text) > MESSAGE_LIMIT:
        raise BadInput(
            f"the message has {len(text):,} characters, over the limit of {MESSAGE_LIMIT:,}: name a file in it"
        )

    async def send_interruption() -> None:
        holdfast = await open_holdfast(data, address)
        who = by or holdfast.actor_name
        await holdfast.get_turn(turn).interrupt(text, by=who)
        answer = f"Interrupted turn {turn}: interruptible calls stop, and the turn goes on."
        print_answer(json, answer, turn=turn, message=text, by=who)

    run_async(send_interruption())
