"""`holdfast turn add`, `interrupt`: what comes to a turn while it runs. A model's calls one by one; a user's words."""

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
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A name of yours for the reply, as reply-1.")],
    calls: Annotated[
        str | None, typer.Option("--calls", metavar="FILE|-", help="JSON: one call or an array; - is stdin.")
    ] = None,
    at: Annotated[
        int, typer.Option("--at", metavar="N", min=0, help="How many calls of the reply come before these.")
    ] = 0,
    attempt: Annotated[
        int,
        typer.Option(
            "--attempt",
            metavar="N",
            min=1,
            max=ATTEMPT_LIMIT,
            help="Which attempt at the reply; a later one discards what came before.",
        ),
    ] = 1,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Of a later attempt: why the one before broke off.")
    ] = None,
    complete: Annotated[bool, typer.Option("--complete", help="These are the last; the reply is written.")] = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Add calls to a turn as your own model writes them. The turn was started with --keep-open.

    What is sent twice, with the same --at, counts once: repeat it when in doubt. Answers are delivered when the reply
    is complete; until you say so, more calls are waited for.
    """
    if calls is None and not complete:
        raise BadInput("nothing to add: give --calls FILE, or --complete when the reply is written")
    if reason is not None and attempt == 1:
        raise BadInput("--reason says why the attempt before broke off: give --attempt 2, or later, with it")
    if not stream.strip() or len(stream) > STREAM_LIMIT or not stream.isprintable():
        raise BadInput(f"STREAM is a name of 1 to {STREAM_LIMIT} characters that can be printed")
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
    """Add them. What is refused says which option would have said what was meant."""
    hints = {
        "other_calls": f"--at says how many come before these; it was {at}",
        "calls_missing": "send those before them first, or say another --at",
        "old_attempt": f"with --attempt {attempt + 1}, or later",
        "has_model": "only turns started with --keep-open take calls from outside",
    }
    try:
        return await turn.add_calls(stream, requests, at=at, attempt=attempt, complete=complete, reason=reason)
    except RequestRefused as refused:
        if hint := hints.get(refused.code):
            raise RequestRefused(refused.code, f"{refused} ({hint})") from None
        raise


def _format_added(turn: str, stream: str, added: AddCallsResult, complete: bool) -> str:
    rest = "and is complete" if complete else f"so far; the next one comes with --at {added.calls}"
    return f"Batch {added.batch} of turn {turn}, {stream}, has {format_call_count(added.calls)} {rest}."


def interrupt(
    turn: TurnId,
    message: Annotated[str, typer.Argument(metavar="MESSAGE|-", help="What the user says; - is stdin.")],
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who says it; else you at this host.")] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Say something to a turn that runs: what may be interrupted stops, the rest finishes, and it goes on with that.

    What has not begun never begins, and says why. `holdfast turn show` tells whether what runs is interruptible.
    """
    said = read_text(message).removesuffix("\n")
    if not said.strip():
        raise BadInput("the message is empty: to stop everything without one, use `holdfast turn cancel`")
    if len(said) > MESSAGE_LIMIT:
        raise BadInput(f"the message has {len(said):,} characters; a turn takes {MESSAGE_LIMIT:,}: name a file in it")

    async def send_interruption() -> None:
        holdfast = await open_holdfast(data, address)
        who = by or holdfast.actor_name
        await holdfast.get_turn(turn).interrupt(said, by=who)
        text = f"Told turn {turn}: what may be interrupted stops, and the turn goes on."
        print_answer(json, text, turn=turn, message=said, by=who)

    run_async(send_interruption())
