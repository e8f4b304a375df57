"""`holdfast turn cancel`, `mode`, `submit`, `withdraw`, `finish`: changing a running turn."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.domain.modes import Mode
from holdfast.errors import BadInput
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, Json, TurnId, format_example
from holdfast.workers.terminal.input_files import read_calls
from holdfast.workers.terminal.output import print_answer

REASON_LIMIT = 2_000


def register_commands(turns: typer.Typer) -> None:
    """Add the commands."""
    turns.command(
        epilog=format_example(
            "holdfast turn cancel hello",
            "holdfast turn cancel hello --batch b2",
            "holdfast turn cancel hello --call b1c1 --reason 'Takes too long'",
        )
    )(cancel)
    turns.command(epilog=format_example("holdfast turn mode hello auto_edit"))(mode)
    turns.command(epilog=format_example("holdfast turn submit hello --calls more.json"))(submit)
    turns.command(epilog=format_example("holdfast turn withdraw hello b2"))(withdraw)
    turns.command(epilog=format_example("holdfast turn finish hello"))(finish)


def cancel(
    turn: TurnId,
    call: Annotated[
        str | None, typer.Option("--call", metavar="CALL", help="Cancel only this call, for example b1c2.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="BATCH", help="Cancel only the active batch, for example b1.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Reason, with --call or --batch; the model reads it.")
    ] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Stop a turn, its active batch, or one call. Every call is still answered.

    `holdfast turn withdraw` removes a queued batch.
    """
    if call is not None and batch is not None:
        raise BadInput("give --call or --batch, not both")
    if reason is not None and call is None and batch is None:
        raise BadInput("--reason needs --call or --batch")
    check_words(call=call, batch=batch, reason=reason)

    async def cancel_part() -> None:
        found = (await open_holdfast(data, address)).get_turn(turn)
        if call is not None:
            await found.cancel_call(call, reason)
        elif batch is not None:
            await found.cancel_batch(batch, reason)
        else:
            await found.cancel()
        print_answer(json, f"Asked {_describe_target(turn, call, batch)} to stop.", turn=turn, call=call, batch=batch)

    run_async(cancel_part())


def mode(
    turn: TurnId,
    mode: Annotated[Mode, typer.Argument(metavar="MODE", help="default, auto_edit, plan or yolo.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Name to record; default: login name and host.")
    ] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Change what runs without asking; the turn's worker limits it. Pending approvals are judged again."""

    async def change_mode() -> None:
        holdfast = await open_holdfast(data, address)
        counts = await holdfast.get_turn(turn).set_mode(mode, by or holdfast.actor_name)
        text = f"Turn {turn} is in mode {mode.value}; pending approvals are judged again."
        if counts is None:
            text = f"Turn {turn} was asked for mode {mode.value}, which its worker may refuse."
        elif counts is not mode:
            text = f"The worker does not permit mode {mode.value}: turn {turn} is in mode {counts.value}."
        print_answer(json, text, turn=turn, mode=mode.value, counts=counts.value if counts else None)

    run_async(change_mode())


def submit(
    turn: TurnId,
    calls: Annotated[str, typer.Option("--calls", metavar="FILE|-", help="JSON array of calls; - is stdin.")],
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Queue another batch in a turn that has no model."""
    requests = read_calls(calls)

    async def submit_batch() -> None:
        batch = await (await open_holdfast(data, address)).get_turn(turn).submit(requests)
        print_answer(json, f"Queued batch {batch} in turn {turn}.", turn=turn, batch=batch)

    run_async(submit_batch())


def withdraw(
    turn: TurnId,
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="Queued batch, for example b2.")],
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Remove a queued batch; it never starts."""

    async def withdraw_batch() -> None:
        result = await (await open_holdfast(data, address)).get_turn(turn).withdraw(batch)
        print_answer(json, f"Withdrew batch {batch} of turn {turn}.", turn=turn, batch=result.model_dump(mode="json"))

    run_async(withdraw_batch())


def finish(turn: TurnId, json: Json = False, address: Address = None, data: Data = None) -> None:
    """End a turn that was started with --keep-open, once its queue is empty."""

    async def finish_turn() -> None:
        await (await open_holdfast(data, address)).get_turn(turn).finish()
        print_answer(json, f"Turn {turn} ends when its queue is empty.", turn=turn)

    run_async(finish_turn())


def check_words(**given: str | None) -> None:
    """BadInput for an option that is not UTF-8 text, or a reason that is too long."""
    for name, value in given.items():
        if any("\ud800" <= character <= "\udfff" for character in value or ""):
            raise BadInput(f"--{name} is not UTF-8 text")
    if len(given.get("reason") or "") > REASON_LIMIT:
        raise BadInput(f"--reason has at most {REASON_LIMIT:,} characters")


def _describe_target(turn: str, call: str | None, batch: str | None) -> str:
    part = f"call {call} of " if call else f"batch {batch} of " if batch else ""
    return f"{part}turn {turn}"
