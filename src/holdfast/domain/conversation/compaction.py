"""A conversation that grows too long for its model: what is left out first, and what is summarised. Pure.

Results of tools go first: they are the most, and what the model made of them stays. When that is not enough, everything
but the last steps becomes a summary that the model writes. Calls and their responses always go together (S3). What was
left out is in the history, for whoever audits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.domain.base import Data
from holdfast.domain.content import BlobPart, Response, TextPart, describe_saved_output
from holdfast.domain.conversation.messages import (
    AssistantMessage,
    Compaction,
    ConversationMessage,
    ConversationPage,
    ToolMessage,
    UserMessage,
)
from holdfast.util.text import elide_middle

NEARLY_FULL = 0.8
"""How full a model's window may become."""
TARGET_SHARE = 0.5
"""How full it is to be afterwards."""
CHARACTERS_PER_TOKEN = 4
"""Roughly, where nobody has counted."""
STUB_CHARACTERS = 300
"""Characters that stay of a result that is left out."""
SHORTEST_RESULT = 1_000
"""Characters that stay at least of one of the last results."""
PAGE_CHARACTERS = 1_000_000
"""Of the messages that are asked for at once; more where one of them is longer."""
BLOB_CHARACTERS = 6_000
"""What an image or a document counts as: about 1,500 tokens, where it is shown to the model."""
SUMMARY_HEADING = "[The conversation before this was summarised, since it had grown too long. The summary:]\n\n"


class ConversationCut(Data):
    """What is to be left out of a conversation as the model would be told it now."""

    results_before: int = 0
    """Results in the messages before this one are left out."""
    before: int = 0
    """The messages before this one become a summary; 0 when none do."""
    limit: int | None = None
    """Characters that stay of every other result."""


def build_page(messages: Sequence[ConversationMessage], after: int, epoch: int, known: int | None) -> ConversationPage:
    """The messages after so many that somebody has of the epoch they know; all when that is another one."""
    start = min(after, len(messages)) if known == epoch else 0
    end = start
    room = PAGE_CHARACTERS
    while end < len(messages) and (room > 0 or end == start):
        room -= _count_characters(messages[end])
        end += 1
    return ConversationPage(epoch=epoch, start=start, messages=tuple(messages[start:end]), more=end < len(messages))


def is_nearly_full(window: int | None, tokens: int) -> bool:
    """Is a conversation of so many tokens nearly too long?"""
    return window is not None and tokens >= NEARLY_FULL * window


def estimate_tokens(messages: Sequence[ConversationMessage]) -> int:
    """About how many tokens these are."""
    return sum(map(_count_characters, messages)) // CHARACTERS_PER_TOKEN


def plan_cut(messages: Sequence[ConversationMessage], aim: int) -> ConversationCut:
    """What to leave out so that about `aim` tokens are left."""
    keep = _find_kept_start(messages, aim // 2)
    limit = _find_result_limit(messages[keep:], aim // 2)
    shown = [*stub_results(messages[:keep]), *shorten_results(messages[keep:], limit)]
    if keep == 0 or estimate_tokens(shown) <= aim:
        return ConversationCut(results_before=keep, limit=limit)
    return ConversationCut(results_before=keep, before=keep, limit=limit)


def build_model_messages(
    session: Sequence[ConversationMessage], own: Sequence[ConversationMessage], done: Compaction
) -> list[ConversationMessage]:
    """What the model is told: of a session's messages what is left, then the turn's own."""
    rest = [*stub_results(session[: done.results_before]), *session[done.results_before :]][done.before :]
    return [*([UserMessage(text=SUMMARY_HEADING + done.summary)] if done.summary else []), *rest, *own]


def apply_cut(
    session: int, own: Sequence[ConversationMessage], done: Compaction, cut: ConversationCut, summary: str | None
) -> tuple[list[ConversationMessage], Compaction]:
    """A turn's own messages after a cut, and what it leaves out of its session's `session` messages.

    The cut counts messages as they were told: a summary first, if there was one, then what was left of the session's.
    """
    first = 1 if done.summary else 0
    of_session = session - done.before
    results = max(0, cut.results_before - first)
    replaced = max(0, cut.before - first)
    rest = own[max(0, replaced - of_session) :]
    left = max(0, results - max(of_session, replaced))
    after = Compaction(
        before=done.before + min(replaced, of_session),
        results_before=max(done.results_before, done.before + min(results, of_session)),
        summary=summary if cut.before else done.summary,
    )
    return [*stub_results(rest[:left]), *shorten_results(rest[left:], cut.limit)], after


def stub_results(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """The same, with a stub in the place of every long result, and the description of every image or document."""
    return [_shorten_message(message, STUB_CHARACTERS, described=True) for message in messages]


def shorten_results(messages: Sequence[ConversationMessage], limit: int | None) -> list[ConversationMessage]:
    """The same, with both ends of every result that is longer than that."""
    if limit is None:
        return list(messages)
    return [_shorten_message(message, limit) for message in messages]


def format_conversation(messages: Sequence[ConversationMessage], tokens: int) -> str:
    """A conversation to be summarised: as text, since no provider takes calls of tools that it is not offered."""
    return elide_middle("\n\n".join(map(_format_message, messages)), tokens * CHARACTERS_PER_TOKEN)


def _format_message(message: ConversationMessage) -> str:
    if isinstance(message, UserMessage):
        return f"User: {message.text}"
    if isinstance(message, ToolMessage):
        return "\n".join(f"Result of {response.tool}: {response.text}" for response in message.responses)
    calls = [f"[calls {call.tool} with {json.dumps(call.arguments, ensure_ascii=False)}]" for call in message.calls]
    return "\n".join([f"Assistant: {message.text}", *calls])


def _shorten_message(message: ConversationMessage, limit: int, *, described: bool = False) -> ConversationMessage:
    if not isinstance(message, ToolMessage):
        return message
    return ToolMessage(
        responses=tuple(_shorten_response(response, limit, described=described) for response in message.responses)
    )


def _shorten_response(response: Response, limit: int, *, described: bool) -> Response:
    text = "\n".join(part.text for part in response.parts)
    has_blobs = any(isinstance(part, BlobPart) for part in response.parts)
    if len(text) <= limit and not (described and has_blobs):
        return response
    whole = next((part.whole for part in response.parts if isinstance(part, TextPart) and part.whole), None)
    text = elide_middle(text, limit) + (f"\n[{describe_saved_output(whole)}]" if whole else "")
    return response.model_copy(update={"parts": (TextPart(text=text, whole=whole),), "display": None})


def _find_kept_start(messages: Sequence[ConversationMessage], tokens: int) -> int:
    """Where the last messages begin that are kept: as many as there is room for, and always the last step."""
    start = room = 0
    for place in range(len(messages) - 1, -1, -1):
        room += _count_characters(messages[place]) // CHARACTERS_PER_TOKEN
        if start and room > tokens:
            return start
        if not isinstance(messages[place], ToolMessage):
            start = place
    return start


def _find_result_limit(kept: Sequence[ConversationMessage], tokens: int) -> int | None:
    """How long a result of the last steps may be, when even they are too long."""
    responses = [response for message in kept if isinstance(message, ToolMessage) for response in message.responses]
    if estimate_tokens(kept) <= tokens or not responses:
        return None
    return max(SHORTEST_RESULT, tokens * CHARACTERS_PER_TOKEN // len(responses))


def _count_characters(message: ConversationMessage) -> int:
    if isinstance(message, ToolMessage):
        blobs = sum(isinstance(part, BlobPart) for response in message.responses for part in response.parts)
        return sum(len(response.text) + 20 for response in message.responses) + blobs * BLOB_CHARACTERS
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return len(message.text) + sum(len(call.model_dump_json()) for call in calls)
