"""`holdfast turn …`: start, show and watch turns. `turn_control` and `turn_streams` change running ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.client.turn_reader import fetch_memo
from holdfast.domain.content import escape_name
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_view import TurnView
from holdfast.errors import BadInput, NoWorker
from holdfast.workers.cli.commands.turns import turn_control, turn_streams
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, ApprovalDeadline, Data, Json, TurnId, format_example
from holdfast.workers.cli.turn_options import (
    Confirm,
    Early,
    Fallbacks,
    InMode,
    MaxCalls,
    MaxSeconds,
    MaxSteps,
    MaxTokens,
    ModelName,
    ModelWish,
    OnError,
    Parallel,
    ScriptFile,
    Tools,
    When,
    build_limits,
    build_plan,
    build_tool_options,
    check_plan,
    read_model_options,
)
from holdfast.workers.exit_codes import FAILED, INTERRUPTED
from holdfast.workers.lookup.turns import fetch_turns
from holdfast.workers.terminal import approval_text, render, turn_text
from holdfast.workers.terminal.follow_turn import LinePrinter, follow_turn, print_item_as_json, watch_turn
from holdfast.workers.terminal.input_files import read_calls
from holdfast.workers.terminal.live.call_once import fetch_output
from holdfast.workers.terminal.live.live_screen import follow_live
from holdfast.workers.terminal.output import (
    is_interactive,
    print_answer,
    print_json,
    print_note,
    print_table,
    print_text,
)

turns = typer.Typer(
    help="Turns: start, watch, show, output, cancel, interrupt; change the mode; submit batches, add calls.",
    epilog=format_example(
        """echo '[{"tool": "shell", "arguments": {"command": "date"}}]' | holdfast turn start --calls - --id hello""",
        "holdfast turn watch hello",
        "holdfast turn show hello b1c1",
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)

NAME_LIMIT = 500
CallsFile = Annotated[
    str | None, typer.Option("--calls", metavar="FILE|-", help='JSON: [{"tool": …, "arguments": {…}}]; - is stdin.')
]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    turn_control.register_commands(turns)
    turn_streams.register_commands(turns)
    app.add_typer(turns, name="turn")


@turns.command(
    epilog=format_example(
        """echo '[{"tool": "shell", "arguments": {"command": "date"}}]' | holdfast turn start --calls - --id hello""",
        'holdfast turn start --script replies.json --prompt "Tidy up" --wait',
        'holdfast turn start --script replies.json --prompt "Tidy up" --schedule streaming --early --wait',
        'holdfast turn start --model anthropic:claude-sonnet-4-5 --prompt "Tidy up" --max-steps 20',
        "holdfast turn start --calls calls.json --parallel 4 --on-error abort",
        'holdfast turn start --prompt "Look around" --tool read_file --tool "github__*" --confirm always',
    )
)
def start(
    calls: CallsFile = None,
    script: ScriptFile = None,
    model: ModelName = None,
    fallback: Fallbacks = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Message of the user.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="Id of the turn; default: a new id.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Watch the turn to its end; on a terminal, decide in place.")
    ] = False,
    keep_open: Annotated[
        bool, typer.Option("--keep-open", help="Wait for further batches until `turn finish`.")
    ] = False,
    mode: InMode = Mode.DEFAULT,
    tool: Tools = None,
    confirm: Confirm = Confirming.POLICY,
    nobody: Annotated[
        bool, typer.Option("--non-interactive", help="Deny calls that need approval, instead of waiting.")
    ] = False,
    deadline: ApprovalDeadline = None,
    schedule: When = "all_ready",
    early: Early = False,
    parallel: Parallel = None,
    on_error: OnError = None,
    max_steps: MaxSteps = None,
    max_calls: MaxCalls = None,
    max_seconds: MaxSeconds = None,
    max_tokens: MaxTokens = None,
    requester: Annotated[
        str | None, typer.Option("--requester", metavar="NAME", help="Name to record; default: login name and host.")
    ] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Start a turn: from a batch of calls, or with a model.

    With --wait the exit code is 0 only if the turn completed, and 1 if it was cancelled, stopped or failed.
    """
    if len(requester or "") > NAME_LIMIT:
        raise typer.BadParameter(f"--requester: a name has at most {NAME_LIMIT} characters")
    chosen = read_model_options(model, fallback, script)
    check_plan(schedule, early, grows=chosen.is_given or prompt is not None or keep_open)
    read = _read_input(calls, prompt, keep_open, chosen, data)
    wishes = {"mode": mode or Mode.DEFAULT, "interactive": not nobody, "approval_seconds": deadline}
    wishes |= {"confirm": confirm, **build_tool_options(tool)}
    limits = {"limits": build_limits(max_steps, max_calls, max_seconds, max_tokens), "requester": requester}
    input = read.model_copy(update={**wishes, **limits, **build_plan(schedule, early, parallel, on_error)})

    async def start_turn() -> int:
        holdfast = await open_holdfast(data, address)
        turn = await holdfast.start(input, turn_id=id)
        if not wait:
            _print_started(turn.id, json)
            return 0
        return await _follow_to_end(holdfast, turn, json)

    _exit_with(run_async(start_turn()))


@turns.command(epilog=format_example("holdfast turn show hello", "holdfast turn show hello b1c1"))
def show(
    turn: TurnId,
    one: Annotated[str | None, typer.Argument(metavar="CALL", help="Show all of one call, for example b1c2.")] = None,
    call: Annotated[str | None, typer.Option("--call", metavar="CALL", help="Same as the argument CALL.")] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Show the state of a turn, or all of one of its calls."""
    if one is not None and call is not None and one != call:
        raise typer.BadParameter(f"give {one} or --call {call}, not both")
    call = call if one is None else one

    async def show_turn() -> None:
        holdfast = await open_holdfast(data, address)
        found = holdfast.get_turn(turn)
        if call is None:
            view = await _fetch_view(holdfast, turn, json)
            shown, body = turn_text.render_turn(view), view.model_dump(mode="json")
        else:
            whole = await found.fetch_call(call)
            shown, body = turn_text.render_call(turn, whole), whole.model_dump(mode="json")
        if json:
            print_json(body)
        else:
            render.build_console().print(shown)

    run_async(show_turn())


@turns.command(epilog=format_example("holdfast turn watch hello", "holdfast turn watch hello --json | jq .event"))
def watch(turn: TurnId, json: Json = False, address: Address = None, data: Data = None) -> None:
    """Watch a turn to its end; on a terminal, decide in place.

    Ctrl-C detaches and the turn goes on. With --json, one line per event and per piece of live output.
    """

    async def follow_to_end() -> int:
        holdfast = await open_holdfast(data, address)
        found = holdfast.get_turn(turn)
        if json:
            await watch_turn(found, print_item_as_json)
            return 0
        code = await _follow_to_end(holdfast, found, json)
        return 0 if code == FAILED else code

    _exit_with(run_async(follow_to_end()))


@turns.command(epilog=format_example("holdfast turn output hello b1c1"))
def output(
    turn: TurnId,
    call: Annotated[str, typer.Argument(metavar="CALL", help="Call, for example b1c2.")],
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Show the output of a call: the last 100,000 characters while it runs, what the model reads once it has ended.

    An output that was cut names the file that has all of it, on the worker's host.
    """

    async def print_output() -> None:
        found = await fetch_output((await open_holdfast(data, address)).get_turn(turn), call)
        if json:
            print_json({"turn": turn, "call": call, **found.model_dump(mode="json")})
        elif found.styled and sys.stdout.isatty():
            render.build_console().print(render.render_output(found), soft_wrap=True)
        else:
            print_text(found.tail.removesuffix("\n"))

    run_async(print_output())


@turns.command("list", epilog=format_example("holdfast turn list --limit 10"))
def list_turns(
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Most turns to list.")] = 50,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """List turns, newest first."""

    async def print_turns() -> None:
        found = await fetch_turns(await open_holdfast(data, address), limit)
        if json:
            print_json({"turns": found})
            return
        lines = [
            (
                render.render_name(item["id"]),
                render.render_state(item["state"]),
                render.format_local_time(item["started"]),
                render.format_local_time(item["ended"]),
            )
            for item in found
        ]
        if lines:
            print_table(("turn", "state", "started", "ended"), lines)
        else:
            print_text("No turns.")

    run_async(print_turns())


def _read_input(
    calls: str | None, prompt: str | None, keep_open: bool, chosen: ModelWish, data: Path | None
) -> TurnInput:
    if calls and chosen.is_given:
        raise BadInput("give --calls or a model, not both: a model chooses the calls itself")
    if chosen.is_given and prompt is None:
        raise BadInput(f"--{'script' if chosen.script else 'model'} needs --prompt with the message of the user")
    if prompt is not None:
        if keep_open:
            raise BadInput("--keep-open is only for turns without a model")
        model = None if calls else chosen.load_choice(data)
        if model is None:
            raise BadInput("--prompt needs --script or --model")
        return TurnInput(prompt=prompt, model=model)
    if not calls and not keep_open:
        raise BadInput("nothing to do: give --calls FILE, or --model or --script with --prompt TEXT, or --keep-open")
    return TurnInput(batches=(read_calls(calls),) if calls else (), keep_open=keep_open)


def _print_started(turn_id: str, json: bool) -> None:
    follow = f"Follow it: holdfast turn watch {render.quote_shell(turn_id)}    Decide: holdfast inbox"
    print_answer(json, f"Started turn {escape_name(turn_id)}.\n{follow}", turn=turn_id)


async def _fetch_view(holdfast: Holdfast, turn: str, json: bool) -> TurnView:
    """The view of a turn. When no worker answers, print what the server knows, then raise NoWorker."""
    try:
        return await holdfast.get_turn(turn).fetch_view()
    except NoWorker:
        memo = await fetch_memo(holdfast.client, turn)
        if memo.approvals and not json:
            print_note(f"No worker answers. Pending approvals of turn {turn}, by the server's memo: {memo.total}")
            render.build_console().print(approval_text.render_approvals(memo.approvals))
        elif memo.total and not json:
            print_note(f"No worker answers. Turn {turn} may have pending approvals that cannot be read here.")
        raise


async def _follow_to_end(holdfast: Holdfast, turn: Turn, json: bool) -> int:
    """Show the turn until it ends or the viewer leaves; the exit code, 0 only if it completed."""
    if json:
        result = await turn.result()
        print_json({"turn": turn.id, "result": result.model_dump(mode="json")})
        return 0 if result.status == "completed" else FAILED
    if is_interactive():
        stays = await follow_live(holdfast, turn)
    else:
        stays = await follow_turn(turn, LinePrinter(render.build_console()).print_item)
    if not stays:
        print_note(
            f"Detached; turn {turn.id} goes on. Come back with: holdfast turn watch {render.quote_shell(turn.id)}"
        )
        return INTERRUPTED
    view = await turn.fetch_view()
    render.build_console().print(turn_text.render_turn(view))
    return 0 if view.result and view.result.status == "completed" else FAILED


def _exit_with(code: int) -> None:
    if code:
        raise typer.Exit(code)
