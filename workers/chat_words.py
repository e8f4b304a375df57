"""What can be typed in a conversation that is no message: `/help` and its kin. Each answers with what to show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from rich.console import RenderableType
from rich.text import Text

from holdfast.client import Session
from holdfast.errors import BadInput
from holdfast.modes import Mode
from holdfast.workers import answers, spoken
from holdfast.workers.render import line

HELP = """\
/mode MODE   how much proceeds without asking: default, auto_edit, plan, yolo
/grants      the answers that stand from now on
/status      how the session stands
/close       end the session
/quit        leave; Ctrl-D does too, and whatever runs goes on
//…          say something that begins with /
A line that ends with \\ goes on in the next one. While a turn runs: [i] interrupts it with a message, [a] adds one
that the model reads after the calls at work, [q] queues one for a turn of its own; Ctrl-C stops the turn, Ctrl-D
leaves it to itself."""


class Talk(Protocol):
    """The conversation that the words are about."""

    session: Session
    begun: bool
    """Is the session there?"""
    mode: Mode

    async def set_mode(self, mode: Mode) -> None:
        """Change it."""


@dataclass(frozen=True)
class Answer:
    """What to show, and whether that was the last of it."""

    shown: RenderableType
    leaves: bool = False


async def obeyed(text: str, talk: Talk) -> Answer:
    """Do what a line says that begins with a slash; BadInput when there is no such word."""
    word, _, rest = text.partition(" ")
    act = _WORDS.get(word)
    if act is None:
        raise BadInput(f"{line(word, 40)} is no command: /help tells what is; // says it as a message")
    return await act(talk, rest.strip())


async def _help(talk: Talk, rest: str) -> Answer:
    return Answer(Text(HELP, "dim"))


async def _mode(talk: Talk, rest: str) -> Answer:
    if not rest:
        return Answer(Text(f"The mode is {talk.mode.value}.", "dim"))
    if rest not in list(Mode):
        raise BadInput(f"{line(rest, 40)!r} is no mode: say {', '.join(list(Mode)[:-1])} or {list(Mode)[-1]}")
    await talk.set_mode(Mode(rest))
    return Answer(Text(f"The next turns go in mode {rest}, as far as the worker permits.", "dim"))


async def _grants(talk: Talk, rest: str) -> Answer:
    found = await talk.session.grants() if talk.begun else ()
    return Answer(answers.listed([(grant.id, grant) for grant in found], (), datetime.now(UTC)))


async def _status(talk: Talk, rest: str) -> Answer:
    return Answer(spoken.session(await talk.session.view()) if talk.begun else Text("Nothing was said yet.", "dim"))


async def _close(talk: Talk, rest: str) -> Answer:
    if talk.begun:
        await talk.session.close()
    return Answer(Text(f"Session {talk.session.id} is closed.", "dim"), leaves=True)


async def _quit(talk: Talk, rest: str) -> Answer:
    return Answer(Text(""), leaves=True)


_WORDS: dict[str, Callable[[Talk, str], Awaitable[Answer]]] = {
    "/help": _help,
    "/mode": _mode,
    "/grants": _grants,
    "/status": _status,
    "/close": _close,
    "/quit": _quit,
}
