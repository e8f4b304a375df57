"""`holdfast run`: one question of a script, and its answer."""

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

Prompt = Annotated[str, typer.Argument(metavar="PROMPT|-", help="What the user asks; - is stdin.")]
OfSession = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Make the turn part of this session, new or not."),
]
Ask = Annotated[
    bool,
    typer.Option("--ask", help="Wait for people where they are asked, in place on a terminal; else that is denied."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Tell what happens on standard error, also to no terminal.")]


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
    """Ask a model one thing: its answer alone is on standard output, and the exit code is 0 only if the turn completed.

    Nobody is asked unless you say so: what would wait for a person is denied. Ctrl-C cancels the turn. In a session
    that is there, --model and --mode are for its next turns too, --confirm is for this one; its tools and its schedule
    stay as they are.
    """
    said = _read_prompt(prompt, script, instructions)
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
            turn = await _start_turn(holdfast, said, named, {**input, "interactive": ask})
        else:
            message = uuid4().hex
            found, turn = await _start_in_session(holdfast, session, said, message, chosen, named, mode, input, ask=ask)
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
        raise BadInput("standard input can be one of these: the prompt, the script or the instructions")
    said = read_text(prompt)
    if said != drop_surrogates(said):
        raise BadInput("the prompt is not UTF-8")
    if not said.strip():
        raise BadInput("the prompt is empty: what does the user ask?")
    return said


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
    """The turn that takes the message up, in a session that is there or is made."""
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
