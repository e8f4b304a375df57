"""A conversation as pydantic-ai's messages, and a response as our reply.

Calls go under the engine's own ids, which are unique where a model's need not be (S4): every provider sees each call
once and its answer once. What it said beside text and calls (signed thinking) is kept as it was and given back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from holdfast.activities.models.tool_names import ToolNames
from holdfast.calls import CallRequest
from holdfast.conversations import (
    AssistantMessage,
    ConversationMessage,
    ModelReply,
    ToolMessage,
    Usage,
    UserMessage,
)
from holdfast.responses import NOTHING
from holdfast.tools import Declaration

BLANK = "(an empty message)"
"""Some providers refuse a conversation in which anybody says nothing."""
UNREAD = "unreadable_arguments"
"""The one argument of a call whose arguments were no object, as a model is reminded of it."""
_PARTS: TypeAdapter[Sequence[ModelResponsePart]] = TypeAdapter(Sequence[ModelResponsePart])


def messages_of(conversation: Iterable[ConversationMessage], names: ToolNames) -> list[ModelMessage]:
    """What a provider is sent.

    The turns of a session number their calls each from the first; a provider wants every id once.
    """
    told: list[ModelMessage] = []
    used: Counter[str] = Counter()
    for message in conversation:
        if isinstance(message, AssistantMessage):
            used.update(message.call_ids)
            if parts := list(_said(message, names, used)):
                told.append(ModelResponse(parts=parts))
            continue
        parts_ = list(_asked(message, names, used))
        if told and isinstance(told[-1], ModelRequest):  # what tools and the user say in a row is one request
            told[-1] = ModelRequest(parts=[*told[-1].parts, *parts_])
        else:
            told.append(ModelRequest(parts=parts_))
    return told


def _once(call_id: str, used: Counter[str]) -> str:
    """The id under which a provider knows a call, of which the conversation has had so many under this one."""
    return call_id if used[call_id] <= 1 else f"{call_id}-{used[call_id]}"


def _asked(message: UserMessage | ToolMessage, names: ToolNames, used: Counter[str]) -> Iterator[Any]:
    if isinstance(message, UserMessage):
        yield UserPromptPart(content=message.text if message.text.strip() else BLANK)
        return
    for response in message.responses:
        text = response.text if response.text.strip() else NOTHING
        call_id = _once(response.call_id, used)
        yield ToolReturnPart(tool_name=names.theirs(response.tool), content=text, tool_call_id=call_id)


def _said(message: AssistantMessage, names: ToolNames, used: Counter[str]) -> Iterator[ModelResponsePart]:
    kept = _kept(message.said)
    yield from (part for part in kept if isinstance(part, ThinkingPart))
    if message.text.strip():
        yield TextPart(content=message.text)
    details = [part.provider_details for part in kept if isinstance(part, ToolCallPart)]
    signed = details if len(details) == len(message.calls) else [None] * len(message.calls)
    for call_id, call, said in zip(message.call_ids, message.calls, signed, strict=True):
        arguments = _object(call.arguments)
        known = _once(call_id, used)
        yield ToolCallPart(names.theirs(call.tool), arguments, tool_call_id=known, provider_details=said)


def _kept(said: JsonValue) -> Sequence[ModelResponsePart]:
    """What another version of pydantic-ai wrote may not be readable: then the model goes on without it."""
    if not said:
        return ()
    try:
        return _PARTS.validate_python(said)
    except ValidationError:
        return ()


def _object(arguments: JsonValue) -> dict[str, Any]:
    """Some providers take nothing else, and would refuse the whole conversation."""
    return arguments if isinstance(arguments, dict) else {UNREAD: arguments}


def reply_of(response: ModelResponse, names: ToolNames) -> ModelReply:
    """What a provider answered."""
    parts = [part for part in response.parts if isinstance(part, ToolCallPart)]
    calls = tuple(call_of(part, names) for part in parts)
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    used = response.usage
    return ModelReply(
        text=text,
        calls=calls,
        said=_signed(response, parts),
        usage=Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens),
        model=response.model_name,
    )


def _signed(response: ModelResponse, calls: Sequence[ToolCallPart]) -> JsonValue:
    """What the provider signed beside text and calls, and wants back while the calls are answered."""
    thinking = [part for part in response.parts if isinstance(part, ThinkingPart)]
    if not calls or not (thinking or any(part.provider_details for part in calls)):
        return None
    bare = [ToolCallPart("", {}, tool_call_id="", provider_details=part.provider_details) for part in calls]
    found: JsonValue = _PARTS.dump_python([*thinking, *bare], mode="json")
    return found


def call_of(part: ToolCallPart, names: ToolNames) -> CallRequest:
    """A call that a model wrote. Arguments that are no JSON are passed on as they are: validation says so (S6)."""
    arguments: JsonValue = part.args if part.args is not None else {}
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments) if arguments.strip() else {}
    return CallRequest(tool=names.ours(part.tool_name), arguments=arguments, id=part.tool_call_id)


def definitions_of(tools: Iterable[Declaration], names: ToolNames) -> list[ToolDefinition]:
    """What a model is told of tools."""
    return [
        ToolDefinition(
            name=names.theirs(tool.name), description=tool.description, parameters_json_schema=dict(tool.parameters)
        )
        for tool in tools
    ]
