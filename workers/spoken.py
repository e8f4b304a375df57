"""What was said in a session, and how it stands, for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.content import Response, exact, named, plain, shorten
from holdfast.conversations import AssistantMessage, ConversationMessage, UserMessage
from holdfast.modes import Mode
from holdfast.sessions import SessionView
from holdfast.turns import TurnResult
from holdfast.views import ApprovalView
from holdfast.workers import questions
from holdfast.workers.columns import Columns, Line
from holdfast.workers.render import WORDS_LIMIT, line, prose, quoted, state

TEXT_LIMIT = 4_000
"""Characters of a message where not all are asked for."""
ENDINGS = {"cancelled": "was cancelled", "stopped": "was stopped"}
YOU = "› "


def messages(shown: Sequence[ConversationMessage], total: int, *, whole: bool = False) -> Group:
    """Messages, the oldest first, after a line that says how many come before them."""
    left_out = total - len(shown)
    head = [Text(f"… {left_out:,} message{'' if left_out == 1 else 's'} before", "dim")] if left_out else []
    return Group(*head, *(part for message in shown for part in _message(message, None if whole else TEXT_LIMIT)))


def of_user(text: str) -> RenderableType:
    """What the user said."""
    return Text(YOU + plain(text), "bold")


def session(view: SessionView, approvals: Iterable[ApprovalView] = ()) -> Group:
    """How a session stands."""
    head = Text("session ").append(exact(view.id), "bold").append(": ")
    parts: list[RenderableType] = [head.append(plain(view.doing), state(view.status).style)]
    parts += [Text(f"  {words}", "dim") for words in _facts(view)]
    parts += [Text(f"  waits for its turn: {line(words, 300)}") for words in view.waiting]
    if view.grants:
        stand = "1 answer stands" if view.grants == 1 else f"{view.grants} answers stand"
        parts.append(Text(f"  {stand}: holdfast sessions grants {quoted(view.id)}", "dim"))
    for item in approvals:
        asked = questions.question(item, more=questions.see_all(item))
        decide = Text(f"  decide: {questions.how_to_say(item)}", "bold")
        parts += [Text(""), questions.label(item), asked, decide, *questions.standing_answers(item)]
    return Group(*parts)


def not_completed(result: TurnResult) -> str:
    """How a turn ended that did not complete, and why."""
    words = f"the turn {ENDINGS.get(result.status, result.status)}"
    why = (result.reason or "").strip()
    return words if why.lower().rstrip(".") in ("", words) else f"{words}: {line(why, 2_000)}"


def counted(number: int, thing: str) -> str:
    """So many things."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _facts(view: SessionView) -> Iterator[str]:
    yield f"model {line(view.model, 300)}, {counted(view.turns, 'turn')}, {counted(view.messages, 'message')}"
    if view.usage.tokens:
        yield f"{view.usage.input_tokens:,} tokens read, {view.usage.output_tokens:,} written"
    if view.mode is not Mode.DEFAULT:
        yield f"mode {view.mode.value}"
    if view.turn:
        yield f"turn {line(view.turn, 500)} runs"
    elif view.last:
        why = f": {line(view.last.reason, 1_000)}" if view.last.reason else ""
        yield f"turn {line(view.last.id, 500)} {view.last.status}{why}"


def _message(message: ConversationMessage, limit: int | None) -> Iterator[RenderableType]:
    if isinstance(message, UserMessage):
        yield of_user(_cut(message.text, limit))
    elif isinstance(message, AssistantMessage):
        if message.text.strip():
            yield prose(_cut(message.text, limit))
    else:
        yield Columns([_line(response) for response in message.responses], cuts=True)


def _line(response: Response) -> Line:
    said = Text(line(plain(response.text), WORDS_LIMIT))
    return Line((Text(f"  {response.call_id}", "dim"), state(response.status), Text(named(response.tool)), said))


def _cut(text: str, limit: int | None) -> str:
    return text if limit is None else shorten(text, limit)
