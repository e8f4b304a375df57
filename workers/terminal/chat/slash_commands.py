"""What can be typed in a conversation that is no message: `/help` and its kin. Each answers with what to show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from rich.console import RenderableType
from rich.text import Text

from holdfast.client.session import Session
from holdfast.domain.modes import Mode
from holdfast.errors import BadInput
from holdfast.workers.terminal import grant_text, session_text
from holdfast.workers.terminal.render import format_line

HELP_TEXT = """\
/mode MODE   how much proceeds without asking: default, auto_edit, plan, yolo
/grants      the answers that stand from now on
/status      how the session stands
/close       end the session
/quit        leave; Ctrl-D does too, and whatever runs goes on
//…          say something that begins with /
A line that ends with \\ goes on in the next one. While a turn runs: [i] interrupts it with a message, [a] adds one
that the model reads after the calls at work, [q] queues one for a turn of its own; Ctrl-C stops the turn, Ctrl-D
leaves it to itself."""


class ChatContext(Protocol):
    """The conversation that the words are about."""

    session: Session
    has_begun: bool
    """Is the session there?"""
    mode: Mode

    async def set_mode(self, mode: Mode) -> None:
        """Change it."""


@dataclass(frozen=True)
class CommandAnswer:
    """What to show, and whether that was the last of it."""

    shown: RenderableType
    leaves: bool = False


async def run_chat_command(text: str, talk: ChatContext) -> CommandAnswer:
    """Do what a line says that begins with a slash; BadInput when there is no such word."""
    word, _, rest = text.partition(" ")
    act = _COMMANDS.get(word)
    if act is None:
        raise BadInput(f"{format_line(word, 40)} is no command: /help tells what is; // says it as a message")
    return await act(talk, rest.strip())


async def _show_help(talk: ChatContext, rest: str) -> CommandAnswer:
    return CommandAnswer(Text(HELP_TEXT, "dim"))


async def _handle_mode(talk: ChatContext, rest: str) -> CommandAnswer:
    if not rest:
        return CommandAnswer(Text(f"The mode is {talk.mode.value}.", "dim"))
    if rest not in list(Mode):
        raise BadInput(f"{format_line(rest, 40)!r} is no mode: say {', '.join(list(Mode)[:-1])} or {list(Mode)[-1]}")
    await talk.set_mode(Mode(rest))
    return CommandAnswer(Text(f"The next turns go in mode {rest}, as far as the worker permits.", "dim"))


async def _show_grants(talk: ChatContext, rest: str) -> CommandAnswer:
    found = await talk.session.fetch_grants() if talk.has_begun else ()
    return CommandAnswer(grant_text.render_grants([(grant.id, grant) for grant in found], (), datetime.now(UTC)))


async def _show_status(talk: ChatContext, rest: str) -> CommandAnswer:
    return CommandAnswer(
        session_text.render_session(await talk.session.fetch_view())
        if talk.has_begun
        else Text("Nothing was said yet.", "dim")
    )


async def _close_session(talk: ChatContext, rest: str) -> CommandAnswer:
    if talk.has_begun:
        await talk.session.close()
    return CommandAnswer(Text(f"Session {talk.session.id} is closed.", "dim"), leaves=True)


async def _quit_chat(talk: ChatContext, rest: str) -> CommandAnswer:
    return CommandAnswer(Text(""), leaves=True)


_COMMANDS: dict[str, Callable[[ChatContext, str], Awaitable[CommandAnswer]]] = {
    "/help": _show_help,
    "/mode": _handle_mode,
    "/grants": _show_grants,
    "/status": _show_status,
    "/close": _close_session,
    "/quit": _quit_chat,
}
