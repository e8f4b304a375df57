"""Compaction of a conversation that grows too long for the context window of its model. Pure.

Results of tools are cut first: they are the longest, and the model's answers to them stay. When that is not enough,
everything but the last steps becomes a summary that the model writes. Calls and their responses are never separated
(S3). The history keeps everything that is left out.
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
"""The share of the context window at which a conversation is compacted."""
TARGET_SHARE = 0.5
"""The share of the context window that a compacted conversation takes."""
CHARACTERS_PER_TOKEN = 4
"""An estimate, for text that no provider has counted."""
STUB_CHARACTERS = 300
"""Characters of a stub, which replaces a result."""
SHORTEST_RESULT = 1_000
"""Characters that each of the last results keeps at least."""
PAGE_CHARACTERS = 1_000_000
"""Characters of one page of messages; more if a single message is longer."""
BLOB_CHARACTERS = 6_000
"""The estimated size of an image or a document: about 1,500 tokens."""
SUMMARY_HEADING = "[The conversation before this was summarised, since it had grown too long. The summary:]\n\n"


class ConversationCut(Data):
    """A plan of what to leave out of a conversation. It counts messages as the model reads them."""

    results_before: int = 0
    """Results in the messages before this one become stubs."""
    before: int = 0
    """The messages before this one become a summary; 0 for none."""
    limit: int | None = None
    """Characters that every other result keeps; None for all."""


def build_page(messages: Sequence[ConversationMessage], after: int, epoch: int, known: int | None) -> ConversationPage:
    """Build a page of the messages after the first `after`, or of all when the reader knows another epoch."""
    start = min(after, len(messages)) if known == epoch else 0
    end = start
    room = PAGE_CHARACTERS
    while end < len(messages) and (room > 0 or end == start):
        room -= _count_characters(messages[end])
        end += 1
    return ConversationPage(epoch=epoch, start=start, messages=tuple(messages[start:end]), more=end < len(messages))


def is_nearly_full(window: int | None, tokens: int) -> bool:
    """Must a conversation with this number of tokens be compacted?"""
    return window is not None and tokens >= NEARLY_FULL * window


def estimate_tokens(messages: Sequence[ConversationMessage]) -> int:
    """Estimate the number of tokens of these messages."""
    return sum(map(_count_characters, messages)) // CHARACTERS_PER_TOKEN


def plan_cut(messages: Sequence[ConversationMessage], aim: int) -> ConversationCut:
    """Plan a cut that leaves about `aim` tokens."""
    keep = _find_last_steps(messages, aim // 2)
    limit = _find_result_limit(messages[keep:], aim // 2)
    shown = [*stub_results(messages[:keep]), *shorten_results(messages[keep:], limit)]
    if keep == 0 or estimate_tokens(shown) <= aim:
        return ConversationCut(results_before=keep, limit=limit)
    return ConversationCut(results_before=keep, before=keep, limit=limit)


def build_model_messages(
    session: Sequence[ConversationMessage], own: Sequence[ConversationMessage], done: Compaction
) -> list[ConversationMessage]:
    """Build the messages that the model reads: the session's after their compaction, then the turn's own."""
    rest = [*stub_results(session[: done.results_before]), *session[done.results_before :]][done.before :]
    return [*([UserMessage(text=SUMMARY_HEADING + done.summary)] if done.summary else []), *rest, *own]


def apply_cut(
    session: int, own: Sequence[ConversationMessage], done: Compaction, cut: ConversationCut, summary: str | None
) -> tuple[list[ConversationMessage], Compaction]:
    """Apply a cut: return a turn's own messages after it, and the compaction of its session's `session` messages.

    The cut counts messages as the model read them: first the summary, if any, then the session's remaining ones.
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
    """Replace every long result by a stub, and every image or document by its description."""
    return [_shorten_message(message, STUB_CHARACTERS, described=True) for message in messages]


def shorten_results(messages: Sequence[ConversationMessage], limit: int | None) -> list[ConversationMessage]:
    """Shorten every result to `limit` characters, from its middle; None changes nothing."""
    if limit is None:
        return list(messages)
    return [_shorten_message(message, limit) for message in messages]


def format_conversation(messages: Sequence[ConversationMessage], tokens: int) -> str:
    """Format a conversation as text to summarise: providers refuse calls of tools that the request does not offer."""
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


def _find_last_steps(messages: Sequence[ConversationMessage], tokens: int) -> int:
    """Return the start of the last messages that fit into `tokens`, and at least of the last step."""
    start = room = 0
    for place in range(len(messages) - 1, -1, -1):
        room += _count_characters(messages[place]) // CHARACTERS_PER_TOKEN
        if start and room > tokens:
            return start
        if not isinstance(messages[place], ToolMessage):
            start = place
    return start


def _find_result_limit(messages: Sequence[ConversationMessage], tokens: int) -> int | None:
    """Return the limit of characters for each result, when the last steps do not fit into `tokens`; else None."""
    responses = [response for message in messages if isinstance(message, ToolMessage) for response in message.responses]
    if estimate_tokens(messages) <= tokens or not responses:
        return None
    return max(SHORTEST_RESULT, tokens * CHARACTERS_PER_TOKEN // len(responses))


def _count_characters(message: ConversationMessage) -> int:
    if isinstance(message, ToolMessage):
        blobs = sum(isinstance(part, BlobPart) for response in message.responses for part in response.parts)
        return sum(len(response.text) + 20 for response in message.responses) + blobs * BLOB_CHARACTERS
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return len(message.text) + sum(len(call.model_dump_json()) for call in calls)
