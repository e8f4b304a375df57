"""A conversation as pydantic-ai's messages, and a response as our reply.

Calls go under the engine's own ids, which are unique where a model's need not be (S4): every provider sees each call
once and its answer once. What it signed (its thinking) is kept as it was, in its place, and given back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai.messages import (
    BinaryContent,
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

from holdfast.activities.models.media import ShownMedia
from holdfast.activities.models.model_request import is_complete
from holdfast.activities.models.tool_names import ToolNames
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Declaration
from holdfast.domain.content import NO_OUTPUT, BlobPart, Part, Response
from holdfast.domain.content import TextPart as Text
from holdfast.domain.conversation.messages import (
    AssistantMessage,
    ConversationMessage,
    ModelReply,
    ToolMessage,
    Usage,
    UserMessage,
)
from holdfast.util.json_values import is_json_value
from holdfast.util.text import drop_surrogates

BLANK_TEXT = "(an empty message)"
"""Some providers refuse a conversation in which anybody says nothing."""
UNREADABLE_FIELD = "unreadable_arguments"
"""The one argument of a call whose arguments were no object, as a model is reminded of it."""
CUT_OFF_TEXT = "(cut off: the reply reached its limit of tokens before these arguments were complete)"
_RESPONSE_ADAPTER: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


def build_messages(
    conversation: Iterable[ConversationMessage], names: ToolNames, shown: Iterable[ShownMedia] = ()
) -> list[ModelMessage]:
    """What a provider is sent. `shown` has one for every part with bytes; it goes to where the provider's API wants it.

    With what a tool gave where that may hold it, as Anthropic's does; in a user's message after it, as OpenAI's chat.
    """
    told: list[ModelMessage] = []
    ids = _CallIds()
    media = iter(shown)
    for message in conversation:
        if isinstance(message, AssistantMessage):
            ids.add_message(message)
            if (response := _build_response(message, names, ids)).parts:
                told.append(response)
            continue
        parts = list(_build_request_parts(message, names, ids, media))
        if told and isinstance(told[-1], ModelRequest):  # what tools and the user say in a row is one request
            told[-1] = ModelRequest(parts=[*told[-1].parts, *parts])
        else:
            told.append(ModelRequest(parts=parts))
    return told


class _CallIds:
    """The ids under which a provider knows calls: each stands for one call of the whole conversation.

    The turns of a session number their calls each from the first. Where a provider signed what it said, its own ids go
    back with that.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last: dict[str, str] = {}

    def add_message(self, message: AssistantMessage) -> None:
        """The calls of this message are the ones that are answered next."""
        signed = message.said is not None
        pairs = zip(message.call_ids, message.calls, strict=True)
        self._last = {ours: self._make_unique((signed and call.id) or ours) for ours, call in pairs}

    def get_id(self, call_id: str) -> str:
        """What a call of the last message is known by."""
        return self._last.get(call_id, call_id)

    def _make_unique(self, wanted: str) -> str:
        found, number = wanted, 1
        while found in self._used:
            number += 1
            found = f"{wanted}-{number}"
        self._used.add(found)
        return found


def _build_request_parts(
    message: UserMessage | ToolMessage, names: ToolNames, ids: _CallIds, media: Iterator[ShownMedia]
) -> Iterator[Any]:
    if isinstance(message, UserMessage):
        yield UserPromptPart(content=message.text if message.text.strip() else BLANK_TEXT)
        return
    for response in message.responses:
        content = _build_content(response, media)
        yield ToolReturnPart(names.to_model_name(response.tool), content, tool_call_id=ids.get_id(response.call_id))


def _build_content(response: Response, media: Iterator[ShownMedia]) -> Any:
    """What a tool gave: its text, with bytes described in their place, and what of them is shown."""
    files: list[BinaryContent] = []
    parts: list[Part] = []
    for part in response.parts:
        if isinstance(part, BlobPart):
            one = next(media, "")
            files += [one] if isinstance(one, BinaryContent) else []
            part = Text(text=f"{part.text} ({one})" if isinstance(one, str) and one else part.text)
        parts.append(part)
    text = response.model_copy(update={"parts": tuple(parts)}).text
    text = text if text.strip() else NO_OUTPUT
    return [text, *files] if files else text


def _build_response(message: AssistantMessage, names: ToolNames, ids: _CallIds) -> ModelResponse:
    """What the model said: as its provider had it where that signed it, else the text and then the calls."""
    calls = [
        ToolCallPart(names.to_model_name(call.tool), _to_object(call.arguments), tool_call_id=ids.get_id(call_id))
        for call_id, call in zip(message.call_ids, message.calls, strict=True)
    ]
    if (kept := _load_kept_response(message)) is None:
        text = [TextPart(content=message.text)] if message.text.strip() else []
        return ModelResponse(parts=[*text, *calls])
    rest = iter(calls)
    return replace(kept, parts=[_complete_part(part, rest) for part in kept.parts if not _is_blank(part)])


def _complete_part(part: ModelResponsePart, calls: Iterator[ToolCallPart]) -> ModelResponsePart:
    """A part that was kept; of a call all but this was kept elsewhere."""
    if not isinstance(part, ToolCallPart):
        return part
    return _sign_call(next(calls), part)


def _sign_call(call: ToolCallPart, by: ToolCallPart) -> ToolCallPart:
    """A call with what its provider said of it."""
    return replace(call, id=by.id, provider_name=by.provider_name, provider_details=by.provider_details)


def _load_kept_response(message: AssistantMessage) -> ModelResponse | None:
    """What its provider said, if that is still what the message says.

    What another version of pydantic-ai wrote may not be readable: then the model goes on without it.
    """
    if message.said is None:
        return None
    try:
        kept = _RESPONSE_ADAPTER.validate_python(message.said)
    except ValidationError:
        return None
    calls = sum(isinstance(part, ToolCallPart) for part in kept.parts)
    return kept if calls == len(message.calls) and _extract_text(kept) == message.text else None


def _to_object(arguments: JsonValue) -> dict[str, Any]:
    """Some providers take nothing else, and would refuse the whole conversation."""
    return arguments if isinstance(arguments, dict) else {UNREADABLE_FIELD: arguments}


def build_model_reply(response: ModelResponse, names: ToolNames) -> ModelReply:
    """What a provider answered."""
    parts = [part for part in response.parts if isinstance(part, ToolCallPart)]
    cut = response.finish_reason == "length"
    if cut and parts and not is_complete(parts[-1]):
        parts = [*parts[:-1], replace(parts[-1], args=CUT_OFF_TEXT)]
    used = response.usage
    return ModelReply(
        text=_extract_text(response),
        calls=tuple(build_call(part, names) for part in parts),
        said=_dump_signed(response, parts),
        usage=Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens),
        model=drop_surrogates(response.model_name) if response.model_name else None,
        cut=cut,
    )


def _extract_text(response: ModelResponse) -> str:
    return drop_surrogates("".join(part.content for part in response.parts if isinstance(part, TextPart)))


def _dump_signed(response: ModelResponse, calls: Sequence[ToolCallPart]) -> JsonValue:
    """What the provider said, in its order, where it signed some of it and wants that back with the calls' answers.

    Without what is kept of the calls anyway.
    """
    parts = [part for part in response.parts if isinstance(part, ThinkingPart | TextPart | ToolCallPart)]
    if not calls or not any(isinstance(part, ThinkingPart) or part.provider_details for part in parts):
        return None
    bare = ToolCallPart("", tool_call_id="")
    said = [_sign_call(bare, part) if isinstance(part, ToolCallPart) else part for part in parts]
    kept = ModelResponse(parts=said, provider_name=response.provider_name)
    found: JsonValue = _RESPONSE_ADAPTER.dump_python(
        kept, mode="json", include={"parts", "kind", "provider_name"}, exclude_none=True
    )
    return found if is_json_value(found) else None


def _is_blank(part: ModelResponsePart) -> bool:
    return isinstance(part, TextPart) and not part.content.strip() and not part.provider_details


def build_call(part: ToolCallPart, names: ToolNames) -> CallRequest:
    """A call that a model wrote. Arguments that are no JSON are passed on as they are: validation says so (S6)."""
    arguments: JsonValue = part.args if part.args is not None else {}
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            parsed = json.loads(arguments) if arguments.strip() else {}
            arguments = parsed if is_json_value(parsed) else arguments
    if not is_json_value(arguments):
        arguments = _describe_arguments(arguments)
    return CallRequest(
        tool=drop_surrogates(names.from_model_name(part.tool_name)),
        arguments=arguments,
        id=drop_surrogates(part.tool_call_id),
    )


def _describe_arguments(arguments: JsonValue) -> str:
    """What JSON cannot say, as far as it can be told."""
    if isinstance(arguments, str):
        return drop_surrogates(arguments)
    try:
        return drop_surrogates(json.dumps(arguments, default=str))
    except (ValueError, RecursionError):
        return "(nested too deeply)"


def build_tool_definitions(tools: Iterable[Declaration], names: ToolNames) -> list[ToolDefinition]:
    """What a model is told of tools."""
    return [
        ToolDefinition(
            name=names.to_model_name(tool.name),
            description=tool.description,
            parameters_json_schema=dict(tool.parameters),
        )
        for tool in tools
    ]
