"""The lines of a chat that begin with a slash: `/help`, `/mode` and so on. Each answers with what is printed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from rich.console import Group, RenderableType
from rich.styled import Styled
from rich.text import Text

from holdfast.client.session import Session
from holdfast.domain.modes import Mode
from holdfast.domain.session.session_io import Steering
from holdfast.errors import BadInput
from holdfast.util.suggestions import did_you_mean
from holdfast.workers.terminal import grant_text, session_text
from holdfast.workers.terminal.render import build_table, format_line

KEYS_HELP = """\
Enter sends. While a turn runs, the model reads the message after the calls that run. \\ and Enter, Alt-Enter or Ctrl-J
begin a new line; a paste may have several. Tab completes commands and @files. Up and Ctrl-R find earlier messages.
Esc or Ctrl-C stops the turn, Ctrl-C again leaves. Ctrl-D leaves, and the turn goes on. Ctrl-Z suspends."""


class ChatContext(Protocol):
    """The chat that a command is about."""

    session: Session
    has_begun: bool
    """Does the session exist?"""
    mode: Mode

    async def set_mode(self, mode: Mode) -> None:
        """Change the mode of the next turns."""

    async def send_message(self, text: str, how: Steering) -> None:
        """Send a message to the session."""

    def ask_again(self) -> bool:
        """Ask about the approvals that were skipped; False when none were."""


@dataclass(frozen=True)
class CommandAnswer:
    """What to print, and whether the chat ends."""

    shown: RenderableType | None = None
    leaves: bool = False
    closes: bool = False
    """Has the session ended with it?"""


@dataclass(frozen=True)
class ChatCommand:
    """One command."""

    run: Callable[[ChatContext, str], Awaitable[CommandAnswer]]
    about: str
    takes: str = ""
    """What follows it."""


async def run_chat_command(text: str, chat: ChatContext) -> CommandAnswer:
    """Run a line that begins with a slash; BadInput when no command has this name."""
    word, _, rest = text.partition(" ")
    command = COMMANDS.get(word)
    if command is None:
        near = did_you_mean(word, list(COMMANDS))
        hint = f"{near} /help lists the commands; // sends it as a message".strip()
        raise BadInput(f"no command is called {format_line(word, 40)}. {hint}")
    return await command.run(chat, rest.strip())


async def _show_help(chat: ChatContext, rest: str) -> CommandAnswer:
    usages = {f"{name} {command.takes}".rstrip(): command.about for name, command in COMMANDS.items()}
    usages["//…"] = "send a message that begins with /"
    table = build_table((), usages.items())
    return CommandAnswer(Styled(Group(table, Text(KEYS_HELP)), "dim"))


async def _change_mode(chat: ChatContext, rest: str) -> CommandAnswer:
    if not rest:
        return CommandAnswer(Text(f"The mode is {chat.mode.value}.", "dim"))
    if rest not in list(Mode):
        raise BadInput(f"no mode is called {format_line(rest, 40)!r}: the modes are {', '.join(Mode)}")
    await chat.set_mode(Mode(rest))
    return CommandAnswer(Text(f"The next turns run in mode {rest}, if the worker permits it.", "dim"))


async def _show_grants(chat: ChatContext, rest: str) -> CommandAnswer:
    found = await chat.session.fetch_grants() if chat.has_begun else ()
    return CommandAnswer(grant_text.render_grants([(grant.id, grant) for grant in found], (), datetime.now(UTC)))


async def _show_status(chat: ChatContext, rest: str) -> CommandAnswer:
    if not chat.has_begun:
        return CommandAnswer(Text("No message was sent yet.", "dim"))
    return CommandAnswer(session_text.render_session(await chat.session.fetch_view()))


async def _interrupt_turn(chat: ChatContext, rest: str) -> CommandAnswer:
    return await _send_words(chat, rest, "interrupt")


async def _queue_message(chat: ChatContext, rest: str) -> CommandAnswer:
    return await _send_words(chat, rest, "queue")


async def _send_words(chat: ChatContext, text: str, how: Steering) -> CommandAnswer:
    if not text:
        raise BadInput(f"the message is missing: /{how} TEXT")
    await chat.send_message(text, how)
    return CommandAnswer()


async def _ask_again(chat: ChatContext, rest: str) -> CommandAnswer:
    return CommandAnswer(None if chat.ask_again() else Text("No approval was skipped.", "dim"))


async def _close_session(chat: ChatContext, rest: str) -> CommandAnswer:
    if chat.has_begun:
        await chat.session.close()
    return CommandAnswer(Text(f"Session {chat.session.id} is closed.", "dim"), leaves=True, closes=True)


async def _leave_chat(chat: ChatContext, rest: str) -> CommandAnswer:
    return CommandAnswer(leaves=True)


COMMANDS = {
    "/help": ChatCommand(_show_help, "the commands and the keys"),
    "/mode": ChatCommand(_change_mode, "how much runs without asking: default, auto_edit, plan, yolo", "MODE"),
    "/interrupt": ChatCommand(_interrupt_turn, "stop the calls that run; the turn goes on with TEXT", "TEXT"),
    "/queue": ChatCommand(_queue_message, "send TEXT as a turn of its own, after the one that runs", "TEXT"),
    "/ask": ChatCommand(_ask_again, "ask again about the approvals that you skipped"),
    "/grants": ChatCommand(_show_grants, "the grants of this session"),
    "/status": ChatCommand(_show_status, "the state of the session"),
    "/close": ChatCommand(_close_session, "end the session"),
    "/quit": ChatCommand(_leave_chat, "leave, as Ctrl-D does"),
}
COMMAND_HELP = {name: command.about for name, command in COMMANDS.items()}
COMMAND_ARGUMENTS = {"/mode": [mode.value for mode in Mode]}
