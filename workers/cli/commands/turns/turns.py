"""`holdfast turn …`: start a turn, look at it, follow it. What changes one that runs is in `steering`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.domain.modes import Confirming, Mode
from holdfast.workers.cli.commands.turns import turn_control, turn_streams
from holdfast.workers.cli.options import (
    Address,
    ApprovalDeadline,
    Data,
    Json,
    TurnId,
    format_example,
    open_holdfast,
    run_async,
)
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
from holdfast.workers.terminal.output import (
    is_interactive,
    print_answer,
    print_json,
    print_note,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from holdfast.client.client import Holdfast
    from holdfast.client.turn import Turn
    from holdfast.domain.turn.turn_io import TurnInput
    from holdfast.domain.turn.views import TurnView

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
    prompt: Annotated[str | None, typer.Option("--prompt", help="What the user asks the model.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The turn's id; else one is made.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow it to its end, deciding in place on a terminal.")
    ] = False,
    keep_open: Annotated[bool, typer.Option("--keep-open", help="Stay for further batches until finished.")] = False,
    mode: InMode = Mode.DEFAULT,
    tool: Tools = None,
    confirm: Confirm = Confirming.POLICY,
    nobody: Annotated[bool, typer.Option("--non-interactive", help="Never wait: what would ask is denied.")] = False,
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
        str | None, typer.Option("--requester", metavar="NAME", help="Who asks for it; else you at this host.")
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
    one: Annotated[str | None, typer.Argument(metavar="CALL", help="The whole of one call, as b1c2.")] = None,
    call: Annotated[str | None, typer.Option("--call", metavar="CALL", help="The same.")] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Show how a turn stands, or the whole of one of its calls."""
    if one is not None and call is not None and one != call:
        raise typer.BadParameter(f"one call is shown at a time: give {one} or --call {call}, not both")
    call = call if one is None else one

    async def show_turn() -> None:
        from holdfast.workers.terminal import render, turn_text

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
    """Follow a turn to its end; on a terminal, decide in place.

    Ctrl-C detaches and the turn goes on. With --json, one line per event and per piece of live output.
    """

    async def watch_turn() -> int:
        from holdfast.workers.terminal.follow_lines import follow_json

        holdfast = await open_holdfast(data, address)
        found = holdfast.get_turn(turn)
        if json:
            await follow_json(found)
            return 0
        code = await _follow_to_end(holdfast, found, json)
        return 0 if code == FAILED else code

    _exit_with(run_async(watch_turn()))


@turns.command(epilog=format_example("holdfast turn output hello b1c1"))
def output(
    turn: TurnId,
    call: Annotated[str, typer.Argument(metavar="CALL", help="The call, as b1c2.")],
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Show what a call has put out: the last 100,000 characters while it runs, what the model reads once it has ended.

    A long output that was cut says in which file the whole is, on the worker's host.
    """

    async def print_output() -> None:
        from holdfast.workers.terminal.live.call_once import fetch_output

        found = await fetch_output((await open_holdfast(data, address)).get_turn(turn), call)
        if json:
            print_json({"turn": turn, "call": call, **found.model_dump(mode="json")})
        elif found.styled and sys.stdout.isatty():
            from holdfast.workers.terminal import render

            render.build_console().print(render.render_output(found), soft_wrap=True)
        else:
            print_text(found.tail.removesuffix("\n"))

    run_async(print_output())


@turns.command("list", epilog=format_example("holdfast turn list --limit 10"))
def list_turns(
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")] = 50,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """List turns, newest first."""

    async def print_turns() -> None:
        from holdfast.workers.terminal import render
        from holdfast.workers.terminal.follow_lines import fetch_turns

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
            print_text("No turns yet.")

    run_async(print_turns())


def _read_input(
    calls: str | None, prompt: str | None, keep_open: bool, chosen: ModelWish, data: Path | None
) -> TurnInput:
    from holdfast.domain.turn.turn_io import TurnInput
    from holdfast.errors import BadInput
    from holdfast.workers.terminal.input_files import read_calls

    if calls and chosen.is_given:
        raise BadInput("give --calls or a model, not both: a model decides itself which calls there are")
    if chosen.is_given and prompt is None:
        raise BadInput(f"--{'script' if chosen.script else 'model'} needs --prompt: what does the user ask?")
    if prompt is not None:
        if keep_open:
            raise BadInput("--keep-open is for turns without a model")
        model = None if calls else chosen.load_choice(data)
        if model is None:
            raise BadInput("--prompt needs --script or --model: which model is to answer?")
        return TurnInput(prompt=prompt, model=model)
    if not calls and not keep_open:
        raise BadInput("nothing to do: give --calls FILE, or --model or --script with --prompt TEXT, or --keep-open")
    return TurnInput(batches=(read_calls(calls),) if calls else (), keep_open=keep_open)


def _print_started(turn_id: str, json: bool) -> None:
    from holdfast.domain.content import escape_name
    from holdfast.workers.terminal import render

    follow = f"Follow it: holdfast turn watch {render.quote_shell(turn_id)}    Decide: holdfast inbox"
    print_answer(json, f"Started turn {escape_name(turn_id)}.\n{follow}", turn=turn_id)


async def _fetch_view(holdfast: Holdfast, turn: str, json: bool) -> TurnView:
    """How a turn stands. When no worker answers, what the server knows is shown before that is said."""
    from holdfast.client.turn_reader import fetch_memo
    from holdfast.errors import NoWorker
    from holdfast.workers.terminal import approval_text, render

    try:
        return await holdfast.get_turn(turn).fetch_view()
    except NoWorker:
        kept = await fetch_memo(holdfast.client, turn)
        if kept.approvals and not json:
            print_note(f"No worker answers; the server knows that {kept.total} wait in turn {turn}:")
            render.build_console().print(approval_text.render_approvals(kept.approvals))
        elif kept.total and not json:
            print_note(f"No worker answers; something may wait in turn {turn}, and cannot be read here.")
        raise


async def _follow_to_end(holdfast: Holdfast, turn: Turn, json: bool) -> int:
    """Show the turn until it ends or the viewer leaves; 0 only if it completed."""
    from holdfast.workers.terminal import render, turn_text
    from holdfast.workers.terminal.follow_lines import follow_lines
    from holdfast.workers.terminal.live.live_screen import follow_live

    if json:
        result = await turn.result()
        print_json({"turn": turn.id, "result": result.model_dump(mode="json")})
        return 0 if result.status == "completed" else FAILED
    stays = await (follow_live(holdfast, turn) if is_interactive() else follow_lines(turn))
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
