"""`holdfast run`: one question to a model and its answer, for scripts."""

from __future__ import annotations

import sys
from typing import Annotated, Any
from uuid import uuid4

import typer

from holdfast.client.client import Holdfast
from holdfast.client.session import Session
from holdfast.client.turn import Turn
from holdfast.domain.conversation.messages import ModelChoice
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.session.session_io import SessionInput
from holdfast.domain.turn.turn_io import TurnInput, TurnLimits
from holdfast.errors import BadInput
from holdfast.util.text import drop_surrogates
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example
from holdfast.workers.cli.turn_options import (
    NO_MODEL,
    Confirm,
    Fallbacks,
    InMode,
    Instructions,
    MaxCalls,
    MaxSeconds,
    MaxSteps,
    MaxTokens,
    ModelName,
    ModelWish,
    ScriptFile,
    Timeout,
    Tools,
    When,
    build_limits,
    build_plan,
    build_tool_options,
    check_new_session,
    read_model_options,
)
from holdfast.workers.lookup.sessions import build_session, session_exists
from holdfast.workers.terminal.input_files import read_text
from holdfast.workers.terminal.live.run_once import SingleTurnRun
from holdfast.workers.terminal.output import is_interactive

Prompt = Annotated[str, typer.Argument(metavar="PROMPT|-", help="Message of the user; - is stdin.")]
OfSession = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Id of the session that the turn belongs to; it is created if it does not exist.",
    ),
]
Ask = Annotated[
    bool,
    typer.Option("--ask", help="Wait for approvals, and ask in place on a terminal; default: deny them."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Print progress on standard error, even if that is not a terminal.")
]


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "run",
        epilog=format_example(
            'holdfast run "What changed since yesterday?" --model anthropic:claude-sonnet-4-5',
            "git diff | holdfast run - --json --timeout 5m | jq -r .text",
            'holdfast run "Go on" --session nightly --mode auto_edit --max-steps 30',
        ),
    )(run_once)


def run_once(
    prompt: Prompt,
    session: OfSession = None,
    model: ModelName = None,
    fallback: Fallbacks = None,
    script: ScriptFile = None,
    instructions: Instructions = None,
    mode: InMode = None,
    tool: Tools = None,
    confirm: Confirm = Confirming.POLICY,
    ask: Ask = False,
    schedule: When = "all_ready",
    max_steps: MaxSteps = None,
    max_calls: MaxCalls = None,
    max_seconds: MaxSeconds = None,
    max_tokens: MaxTokens = None,
    timeout: Timeout = None,
    verbose: Verbose = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Ask a model one question. Only its answer is on standard output; the exit code is 0 only if the turn completed.

    Calls that need approval are denied, unless --ask is given. Ctrl-C cancels the turn. In an existing session --model
    and --mode also apply to its next turns, and --confirm to this turn; its tools and its schedule stay as they are.
    """
    text = _read_prompt(prompt, script, instructions)
    chosen = read_model_options(model, fallback, script, instructions)
    named = chosen.get_choice(data) if chosen.is_given or not session else chosen.load_choice(data)
    limits = build_limits(max_steps, max_calls, max_seconds, max_tokens)
    input = {"mode": mode or Mode.DEFAULT, "limits": limits, **build_plan(schedule, False, None, None)}
    input |= {"confirm": confirm, **build_tool_options(tool)}

    async def ask_once() -> int:
        holdfast = await open_holdfast(data, address)
        found: Session | None = None
        message: str | None = None
        if session is None:
            turn = await _start_turn(holdfast, text, named, {**input, "interactive": ask})
        else:
            message = uuid4().hex
            found, turn = await _start_in_session(holdfast, session, text, message, chosen, named, mode, input, ask=ask)
        once = SingleTurnRun(
            holdfast,
            turn,
            found,
            message,
            is_verbose=verbose or sys.stderr.isatty(),
            is_live=ask and is_interactive(),
            seconds=timeout,
        )
        return await once.run(json)

    if code := run_async(ask_once()):
        raise typer.Exit(code)


def _read_prompt(prompt: str, script: str | None, instructions: str | None) -> str:
    if [prompt, script, instructions].count("-") > 1:
        raise BadInput("only one of the prompt, the script and the instructions can be read from standard input")
    text = read_text(prompt)
    if text != drop_surrogates(text):
        raise BadInput("the prompt is not UTF-8")
    if not text.strip():
        raise BadInput("the prompt is empty: give the message of the user")
    return text


async def _start_turn(holdfast: Holdfast, prompt: str, model: ModelChoice | None, input: dict[str, Any]) -> Turn:
    return await holdfast.start(TurnInput(prompt=prompt, model=model).model_copy(update=input))


async def _start_in_session(
    holdfast: Holdfast,
    session_id: str,
    prompt: str,
    message: str,
    chosen: ModelWish,
    model: ModelChoice | None,
    mode: Mode | None,
    input: dict[str, Any],
    *,
    ask: bool,
) -> tuple[Session, Turn]:
    """The turn that gets the message, in an existing session or a new one."""
    session = build_session(holdfast, session_id)
    if await session_exists(holdfast, session):
        chosen.check_whole()
        check_new_session(session_id, input["tools"])
        if chosen.is_given or mode:
            await session.configure(model=model if chosen.is_given else None, mode=mode)
        limits = input["limits"] if input["limits"] != TurnLimits() else None
        sent = await session.send(prompt, message_id=message, interactive=ask, limits=limits, confirm=input["confirm"])
        return session, session.get_turn(sent.turn)
    if model is None:
        raise BadInput(NO_MODEL)
    start = TurnInput(model=model, requester=holdfast.actor_name).model_copy(update=input)
    sent = await session.send(prompt, start=SessionInput(turn=start), message_id=message, interactive=ask)
    return session, session.get_turn(sent.turn)
