"""One streamed request to a model: its text as it comes, its calls as soon as they are complete."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ContentFilterError, UnexpectedModelBehavior
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

_TEST_SYSTEMS = ("test", "function")
"""Models of pydantic-ai for tests, which give no reason for their end."""

OnText = Callable[[str], None]
OnCall = Callable[[ToolCallPart], Awaitable[None]]


async def request_response(
    model: Model,
    messages: Sequence[ModelMessage],
    tools: Sequence[ToolDefinition],
    *,
    instructions: str | None,
    settings: ModelSettings,
    on_text: OnText,
    on_call: OnCall,
) -> ModelResponse:
    """Send the request and return the whole response. A stream that ends before the model did is a failure.

    `on_call` gets each call, in order, once its arguments are complete and the next part has begun: some servers write
    several calls at once.
    """
    parts = [InstructionPart(content=instructions)] if instructions else None
    parameters = ModelRequestParameters(function_tools=list(tools), instruction_parts=parts)
    once: ModelSettings = {**settings, "max_retries": 0}  # Temporal retries, or the turn asks another model
    in_order = True
    async with model_request_stream(
        model, messages, model_settings=once, model_request_parameters=parameters
    ) as stream:
        async for event in stream:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                on_text(event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                on_text(event.delta.content_delta)
            elif isinstance(event, PartEndEvent) and isinstance(event.part, ToolCallPart) and event.next_part_kind:
                in_order = in_order and is_complete(event.part)
                if in_order:
                    await on_call(event.part)
        response = stream.get()
    _check_end(model, response)
    return response


def is_complete(call: ToolCallPart) -> bool:
    """Whether the arguments of a call are complete."""
    if not isinstance(call.args, str):
        return call.args is not None
    with suppress(ValueError, RecursionError):
        return isinstance(json.loads(call.args), dict)
    return False


class ReplyCutOff(Exception):
    """A reply that reached its limit before it had any content."""


def _check_end(model: Model, response: ModelResponse) -> None:
    """Raise if the stream ended early. To some packages that looks like a normal end; only the finish reason tells."""
    if model.system in _TEST_SYSTEMS:
        return
    _check_reason(response)
    reason = (response.provider_details or {}).get("finish_reason")
    if reason is None and (response.finish_reason is None or _is_openai_model(model)):
        raise UnexpectedModelBehavior("the stream ended before the model did")


def _check_reason(response: ModelResponse) -> None:
    """Raise if an empty response did not end normally."""
    if any(isinstance(part, ToolCallPart) or (isinstance(part, TextPart) and part.content) for part in response.parts):
        return
    if response.finish_reason == "content_filter":
        refusal = (response.provider_details or {}).get("refusal")
        raise ContentFilterError(f"the model refused to answer: {refusal or 'its provider filtered the reply'}")
    if response.finish_reason == "error":
        raise UnexpectedModelBehavior("the model ended with an error and said nothing")
    if response.finish_reason == "length":
        raise ReplyCutOff("the reply reached its limit of tokens before it said anything: give it more (max_tokens)")


def _is_openai_model(model: Model) -> bool:
    """Whether this is OpenAI's chat model, by class name: the package may not be installed."""
    return any(base.__name__ == "OpenAIChatModel" for base in type(model).__mro__)
