"""`holdfast chat`: a conversation on the terminal, in a session that outlives it."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.client.client import Holdfast
from holdfast.client.session import Session
from holdfast.domain.conversation.messages import ModelChoice
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.session.session_io import SessionInput
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.errors import BadInput, TurnNotFound
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, format_example
from holdfast.workers.cli.resolve_settings import resolve_client_settings
from holdfast.workers.cli.turn_options import (
    Confirm,
    Fallbacks,
    InMode,
    Instructions,
    MaxCalls,
    MaxSeconds,
    MaxSteps,
    MaxTokens,
    ModelName,
    ScriptFile,
    Tools,
    When,
    build_limits,
    build_plan,
    build_tool_options,
    check_new_session,
    read_model_options,
)
from holdfast.workers.lookup.sessions import build_session, get_newest_open, session_exists
from holdfast.workers.terminal import render
from holdfast.workers.terminal.chat.chat import Chat
from holdfast.workers.terminal.output import is_interactive

SessionId = Annotated[
    str | None, typer.Option("--session", metavar="ID", help="Id of the session; default: a new session.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the session of --session, or the newest open one.")]


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=format_example(
            "holdfast chat --model anthropic:claude-sonnet-4-5",
            "holdfast chat --resume",
            "holdfast chat --session release --model openai:gpt-5 --fallback anthropic:claude-sonnet-4-5",
            "holdfast chat --script replies.json --mode plan --max-steps 20",
        )
    )(chat)


def chat(
    session: SessionId = None,
    resume: Resume = False,
    model: ModelName = None,
    fallback: Fallbacks = None,
    script: ScriptFile = None,
    instructions: Instructions = None,
    mode: InMode = None,
    tool: Tools = None,
    confirm: Confirm = Confirming.POLICY,
    schedule: When = "all_ready",
    max_steps: MaxSteps = None,
    max_calls: MaxCalls = None,
    max_seconds: MaxSeconds = None,
    max_tokens: MaxTokens = None,
    address: Address = None,
    data: Data = None,
) -> None:
    """Talk with a model on the terminal; its calls are shown live, and approvals are asked in place.

    You can type at any time. Esc or Ctrl-C stops the turn that runs, a second Ctrl-C leaves, as Ctrl-D does; what runs
    goes on without you. --model and --mode change the next turns of an existing session; its tools, its limits and its
    schedule stay as they are.
    """
    if not is_interactive():
        raise BadInput("a chat needs a terminal: to ask one question, use `holdfast run`")
    if "-" in (script, instructions):
        raise BadInput("standard input is what you type: give a file")
    chosen = read_model_options(model, fallback, script, instructions)
    named = chosen.get_choice(data) if chosen.is_given or not (session or resume) else None
    limits = build_limits(max_steps, max_calls, max_seconds, max_tokens)
    turn = {"mode": mode or Mode.DEFAULT, "limits": limits, **build_plan(schedule, False, None, None)}
    turn |= {"confirm": confirm, **build_tool_options(tool)}

    async def run_chat() -> int:
        holdfast = await open_holdfast(data, address)
        found, there = await _open_session(holdfast, session, resume)
        start: SessionInput | None = None
        if there:
            chosen.check_whole()
            check_new_session(found.id, tool, confirm)
            await _configure_session(found, named, mode)
        else:
            turn.update(model=named or chosen.get_choice(data), requester=holdfast.actor_name)
            start = SessionInput(turn=TurnInput().model_copy(update=turn))
        settings = resolve_client_settings(data)
        # Where payloads are encrypted, nothing of a conversation is written in the clear.
        history = None if settings.encryption.keys else settings.data / "chat_history"
        console = render.build_console()
        return await Chat(holdfast, found, console, start, history=history, folder=settings.workspace).run()

    if code := run_async(run_chat()):
        raise typer.Exit(code)


async def _open_session(holdfast: Holdfast, session_id: str | None, resume: bool) -> tuple[Session, bool]:
    """The session, and whether it exists."""
    if session_id is None:
        return (await get_newest_open(holdfast), True) if resume else (build_session(holdfast, None), False)
    found = build_session(holdfast, session_id)
    there = await session_exists(holdfast, found)
    if resume and not there:
        raise TurnNotFound(f"no session is called {session_id!r}: see `holdfast sessions`, or leave out --resume")
    return found, there


async def _configure_session(session: Session, model: ModelChoice | None, mode: Mode | None) -> None:
    """Set the model and the mode of an existing session from its next turn on."""
    if model or mode:
        await session.configure(model=model, mode=mode)
