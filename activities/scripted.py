"""The scripted model: it gives the replies of a script in order, as slowly and as badly as that says."""

from __future__ import annotations

import asyncio

from temporalio.exceptions import ApplicationError

from holdfast.activities.streaming import CallStream
from holdfast.conversations import AssistantMessage, Conversation, ModelReply


async def scripted(conversation: Conversation, stream: CallStream, attempt: int) -> ModelReply:
    """The reply that comes after those already given."""
    given = sum(isinstance(message, AssistantMessage) for message in conversation.messages)
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
    await asyncio.sleep(reply.seconds)
    if breaks is not None:
        raise ApplicationError(f"the script breaks attempt {attempt} off after {breaks} calls", type="script_breaks")
    return ModelReply(text=reply.text, calls=reply.calls)
