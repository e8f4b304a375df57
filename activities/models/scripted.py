"""The scripted model: it gives the replies of a script in order, as slowly and as badly as the script says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from temporalio.exceptions import ApplicationError

from holdfast.activities.models.step_io import CallStream
from holdfast.domain.conversation.messages import Conversation, ConversationMessage, ModelReply, UserMessage

PIECE_COUNT = 10
"""The number of pieces in which the text of a slow reply is written."""


async def stream_scripted_reply(
    conversation: Conversation, stream: CallStream, attempt: int, on_text: Callable[[str], None]
) -> ModelReply:
    """Write the next reply of the script. ApplicationError when the script has ended or breaks this attempt off."""
    given = conversation.replies
    script = conversation.model.script
    if given >= len(script):
        raise ApplicationError(
            f"the script has {len(script)} replies and no reply for step {given + 1}: end it with a reply that has "
            "text and no calls",
            type="script_ended",
            non_retryable=True,
        )
    reply = script[given]
    breaks = reply.breaks[attempt - 1] if attempt <= len(reply.breaks) else None
    for number, call in enumerate(reply.calls):
        if number == breaks:
            break
        await asyncio.sleep(reply.seconds)
        await stream.send(call)
    for piece in _split_text(reply.text):
        on_text(piece)
        await asyncio.sleep(reply.seconds / PIECE_COUNT)
    await asyncio.sleep(0 if reply.text else reply.seconds)
    if breaks is not None:
        raise ApplicationError(f"the script breaks attempt {attempt} off after {breaks} calls", type="script_breaks")
    return ModelReply.model_validate(reply.model_dump(exclude={"seconds", "breaks"}))


def build_scripted_summary(past: Sequence[ConversationMessage]) -> ModelReply:
    """Build the summary of a long conversation: what the user said."""
    texts = [message.text for message in past if isinstance(message, UserMessage)]
    return ModelReply(text="The user said:\n" + "\n".join(f"- {text}" for text in texts))


def _split_text(text: str) -> list[str]:
    size = max(1, -(-len(text) // PIECE_COUNT))
    return [text[start : start + size] for start in range(0, len(text), size)]
