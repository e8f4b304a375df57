"""The messages and the state of a session, for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.domain.content import escape_name
from holdfast.domain.conversation.messages import AssistantMessage, ConversationMessage, UserMessage
from holdfast.domain.modes import Mode
from holdfast.domain.session.session_io import SessionView
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.domain.turn.turn_io import TurnResult
from holdfast.util.text import shorten_text, strip_controls
from holdfast.workers.terminal import approval_text
from holdfast.workers.terminal.render import build_prose, build_responses, format_line, quote_shell, render_state

TEXT_LIMIT = 4_000
"""Most characters of a message, unless the whole is wanted."""
ENDINGS = {"cancelled": "was cancelled", "stopped": "was stopped"}
USER_PREFIX = "› "


def render_messages(shown: Sequence[ConversationMessage], total: int, *, whole: bool = False) -> Group:
    """Messages, the oldest first, after a line that says how many come before them."""
    left_out = total - len(shown)
    head = [Text(f"… {left_out:,} message{'' if left_out == 1 else 's'} before", "dim")] if left_out else []
    return Group(
        *head, *(part for message in shown for part in _render_message(message, None if whole else TEXT_LIMIT))
    )


def render_user_text(text: str) -> RenderableType:
    """A message of the user."""
    return Text(USER_PREFIX + strip_controls(text), "bold")


def render_session(view: SessionView, approvals: Iterable[ApprovalView] = ()) -> Group:
    """The state of a session, and its pending approvals."""
    head = Text("session ").append(escape_name(view.id), "bold").append(": ")
    parts: list[RenderableType] = [head.append(strip_controls(view.doing), render_state(view.status).style)]
    parts += [Text(f"  {words}", "dim") for words in _list_facts(view)]
    parts += [Text(f"  queued: {format_line(words, 300)}") for words in view.waiting]
    if view.grants:
        grants = format_count(view.grants, "grant")
        parts.append(Text(f"  {grants}: holdfast sessions grants {quote_shell(view.id)}", "dim"))
    for item in approvals:
        asked = approval_text.render_question(item, more=approval_text.describe_full_view(item))
        decide = Text(f"  decide: {approval_text.format_answer_command(item)}", "bold")
        parts += [Text(""), approval_text.render_label(item), asked, decide, *approval_text.render_offers(item)]
    return Group(*parts)


def describe_ending(result: TurnResult) -> str:
    """How a turn ended that did not complete, and why."""
    words = f"the turn {ENDINGS.get(result.status, result.status)}"
    why = (result.reason or "").strip()
    return words if why.lower().rstrip(".") in ("", words) else f"{words}: {format_line(why, 2_000)}"


def format_count(number: int, thing: str) -> str:
    """The number with the singular or plural of the noun."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _list_facts(view: SessionView) -> Iterator[str]:
    turns, messages = format_count(view.turns, "turn"), format_count(view.messages, "message")
    yield f"model {format_line(view.model, 300)}, {turns}, {messages}"
    if view.usage.total_tokens:
        yield f"{view.usage.input_tokens:,} tokens read, {view.usage.output_tokens:,} written"
    if view.mode is not Mode.DEFAULT:
        yield f"mode {view.mode.value}"
    if view.turn:
        yield f"turn {format_line(view.turn, 500)} runs"
    elif view.last:
        why = f": {format_line(view.last.reason, 1_000)}" if view.last.reason else ""
        yield f"turn {format_line(view.last.id, 500)} {view.last.status}{why}"


def _render_message(message: ConversationMessage, limit: int | None) -> Iterator[RenderableType]:
    if isinstance(message, UserMessage):
        yield render_user_text(_cut_text(message.text, limit))
    elif isinstance(message, AssistantMessage):
        if message.text.strip():
            yield build_prose(_cut_text(message.text, limit))
    else:
        yield build_responses(message.responses, {})


def _cut_text(text: str, limit: int | None) -> str:
    return text if limit is None else shorten_text(text, limit)
