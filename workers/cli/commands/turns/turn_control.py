"""`holdfast turn cancel`, `mode`, `submit`, `withdraw`, `finish`: changing a turn that runs."""

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
        str | None, typer.Option("--call", metavar="CALL", help="Only this call, as b1c2; the rest goes on.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="BATCH", help="Only the batch at work, as b1; the turn goes on.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="With --call or --batch: why; the model reads it.")
    ] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Stop a turn, its batch at work, or one call. Every call is still answered.

    A batch that is queued is taken back with `holdfast turn withdraw`.
    """
    if call is not None and batch is not None:
        raise BadInput("give --call or --batch, not both: a call is part of its batch")
    if reason is not None and call is None and batch is None:
        raise BadInput("--reason is for calls: give --call or --batch with it; a turn says that it was cancelled")
    check_words(call=call, batch=batch, reason=reason)

    async def cancel_part() -> None:
        found = (await open_holdfast(data, address)).get_turn(turn)
        if call is not None:
            await found.cancel_call(call, reason)
        elif batch is not None:
            await found.cancel_batch(batch, reason)
        else:
            await found.cancel()
        print_answer(json, f"Told {_describe_target(turn, call, batch)} to stop.", turn=turn, call=call, batch=batch)

    run_async(cancel_part())


def mode(
    turn: TurnId,
    mode: Annotated[Mode, typer.Argument(metavar="MODE", help="default, auto_edit, plan or yolo.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who changes it; else you at this host.")
    ] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Change how much proceeds without asking, as far as the turn's worker permits. What waits is judged again."""

    async def change_mode() -> None:
        holdfast = await open_holdfast(data, address)
        counts = await holdfast.get_turn(turn).set_mode(mode, by or holdfast.actor_name)
        said = f"Turn {turn} goes on in mode {mode.value}; what waits is judged again."
        if counts is None:
            said = f"Turn {turn} wishes for mode {mode.value}; it counts if the worker permits it."
        elif counts is not mode:
            said = f"The worker does not permit mode {mode.value}: turn {turn} goes on in mode {counts.value}."
        print_answer(json, said, turn=turn, mode=mode.value, counts=counts.value if counts else None)

    run_async(change_mode())


def submit(
    turn: TurnId,
    calls: Annotated[str, typer.Option("--calls", metavar="FILE|-", help="JSON array of calls; - is stdin.")],
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Queue a further batch in a turn that has no model."""
    requests = read_calls(calls)

    async def submit_batch() -> None:
        batch = await (await open_holdfast(data, address)).get_turn(turn).submit(requests)
        print_answer(json, f"Queued batch {batch} in turn {turn}.", turn=turn, batch=batch)

    run_async(submit_batch())


def withdraw(
    turn: TurnId,
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="The queued batch, as b2.")],
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Take a queued batch back; it never starts."""

    async def withdraw_batch() -> None:
        result = await (await open_holdfast(data, address)).get_turn(turn).withdraw(batch)
        print_answer(json, f"Withdrew batch {batch} of turn {turn}.", turn=turn, batch=result.model_dump(mode="json"))

    run_async(withdraw_batch())


def finish(turn: TurnId, json: Json = False, address: Address = None, data: Data = None) -> None:
    """End a turn that was kept open, once its queue is empty."""

    async def finish_turn() -> None:
        await (await open_holdfast(data, address)).get_turn(turn).finish()
        print_answer(json, f"Turn {turn} ends when its queue is empty.", turn=turn)

    run_async(finish_turn())


def check_words(**given: str | None) -> None:
    """BadInput for options that no turn takes: bytes that are no text, or too long a reason."""
    for name, value in given.items():
        if any("\ud800" <= character <= "\udfff" for character in value or ""):
            raise BadInput(f"--{name} is not UTF-8 text")
    if len(given.get("reason") or "") > REASON_LIMIT:
        raise BadInput(f"--reason has at most {REASON_LIMIT:,} characters")


def _describe_target(turn: str, call: str | None, batch: str | None) -> str:
    part = f"call {call} of " if call else f"batch {batch} of " if batch else ""
    return f"{part}turn {turn}"
