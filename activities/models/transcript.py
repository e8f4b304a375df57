"""Conversations as pydantic-ai's messages, and responses as replies.

Calls have the engine's ids, which are unique where a model's may not be (S4), so every provider sees each call and its
answer once. What a provider signed (its thinking) is stored unchanged and given back in its place.
"""

from __future__ import annotations

import hashlib
import json
import re
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
"""Some providers reject a conversation with an empty message."""
UNREADABLE_FIELD = "unreadable_arguments"
"""The argument that stands for arguments that were not an object, when the model is reminded of the call."""
CUT_OFF_TEXT = "(cut off: the reply reached its limit of tokens before these arguments were complete)"
_RESPONSE_ADAPTER: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


def build_messages(
    conversation: Iterable[ConversationMessage], names: ToolNames, shown: Iterable[ShownMedia] = ()
) -> list[ModelMessage]:
    """Build the messages for a provider. `shown` has an item for every part with bytes.

    Media are put into the tool's answer where the provider's API has a place for them (Anthropic), else into a user
    message after it (OpenAI's chat).
    """
    built: list[ModelMessage] = []
    ids = _CallIds()
    media = iter(shown)
    for message in conversation:
        if isinstance(message, AssistantMessage):
            ids.add_message(message)
            if (response := _build_response(message, names, ids)).parts:
                built.append(response)
            continue
        parts = list(_build_request_parts(message, names, ids, media))
        if built and isinstance(built[-1], ModelRequest):  # what tools and the user say in a row is one request
            built[-1] = ModelRequest(parts=[*built[-1].parts, *parts])
        else:
            built.append(ModelRequest(parts=parts))
    return built


class _CallIds:
    """The ids by which a provider knows calls, unique in the whole conversation.

    The turns of a session number their calls from the first. Where a provider signed its reply, its own ids are given
    back.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last: dict[str, str] = {}

    def add_message(self, message: AssistantMessage) -> None:
        """Add the calls of a message, which the next messages answer."""
        signed = message.said is not None
        pairs = zip(message.call_ids, message.calls, strict=True)
        self._last = {ours: self._make_unique((signed and call.id) or ours) for ours, call in pairs}

    def get_id(self, call_id: str) -> str:
        """Return the id of a call of the last message."""
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
    """The text of a tool's answer, with media described in place, and the media that are shown."""
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
    """The model's message: as its provider signed it, else the text and then the calls."""
    calls = [
        ToolCallPart(names.to_model_name(call.tool), _to_object(call.arguments), tool_call_id=ids.get_id(call_id))
        for call_id, call in zip(message.call_ids, message.calls, strict=True)
    ]
    if (signed := _load_signed_response(message)) is None:
        text = [TextPart(content=message.text)] if message.text.strip() else []
        return ModelResponse(parts=[*text, *calls])
    rest = iter(calls)
    return replace(signed, parts=[_complete_part(part, rest) for part in signed.parts if not _is_blank(part)])


def _complete_part(part: ModelResponsePart, calls: Iterator[ToolCallPart]) -> ModelResponsePart:
    """A stored part; the arguments of a call are stored elsewhere."""
    if not isinstance(part, ToolCallPart):
        return part
    return _sign_call(next(calls), part)


def _sign_call(call: ToolCallPart, by: ToolCallPart) -> ToolCallPart:
    """A call with what its provider signed."""
    return replace(call, id=by.id, provider_name=by.provider_name, provider_details=by.provider_details)


def _load_signed_response(message: AssistantMessage) -> ModelResponse | None:
    """The response as its provider wrote it, if it still matches the message.

    One that another version of pydantic-ai wrote may not be readable: then the model goes on without it.
    """
    if message.said is None:
        return None
    try:
        response = _RESPONSE_ADAPTER.validate_python(message.said)
    except ValidationError:
        return None
    calls = sum(isinstance(part, ToolCallPart) for part in response.parts)
    return response if calls == len(message.calls) and _extract_text(response) == message.text else None


def _to_object(arguments: JsonValue) -> dict[str, Any]:
    """Arguments as an object: some providers reject a conversation with anything else."""
    return arguments if isinstance(arguments, dict) else {UNREADABLE_FIELD: arguments}


def build_model_reply(response: ModelResponse, names: ToolNames) -> ModelReply:
    """Build a reply from a response."""
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
    """The response as its provider wrote it, if any part is signed; without what the calls store anyway."""
    parts = [part for part in response.parts if isinstance(part, ThinkingPart | TextPart | ToolCallPart)]
    if not calls or not any(isinstance(part, ThinkingPart) or part.provider_details for part in parts):
        return None
    bare = ToolCallPart("", tool_call_id="")
    bare_parts = [_sign_call(bare, part) if isinstance(part, ToolCallPart) else part for part in parts]
    signed = ModelResponse(parts=bare_parts, provider_name=response.provider_name)
    found: JsonValue = _RESPONSE_ADAPTER.dump_python(
        signed, mode="json", include={"parts", "kind", "provider_name"}, exclude_none=True
    )
    return found if is_json_value(found) else None


def _is_blank(part: ModelResponsePart) -> bool:
    return isinstance(part, TextPart) and not part.content.strip() and not part.provider_details


def build_call(part: ToolCallPart, names: ToolNames) -> CallRequest:
    """Build a call. Arguments that are not JSON are passed on: validation rejects them (S6)."""
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
    """Arguments that JSON cannot express, as text."""
    if isinstance(arguments, str):
        return drop_surrogates(arguments)
    try:
        return drop_surrogates(json.dumps(arguments, default=str))
    except (ValueError, RecursionError):
        return "(nested too deeply)"


def build_tool_definitions(tools: Iterable[Declaration], names: ToolNames) -> list[ToolDefinition]:
    """Build the definitions of tools for a model."""
    return [
        ToolDefinition(
            name=names.to_model_name(tool.name),
            description=tool.description,
            parameters_json_schema=dict(tool.parameters),
        )
        for tool in tools
    ]


NAME_LIMIT = 64
"""Providers accept names of up to 64 letters, digits, `_` and `-`."""
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """Maps our names of tools to names that models accept, and back. A valid name stays as it is."""

    def __init__(self, names: Iterable[str]) -> None:
        ours = sorted(set(names))
        self._model_names = {name: name for name in ours if _is_valid_name(name)}
        self._model_names |= {name: _build_valid_name(name) for name in ours if not _is_valid_name(name)}
        self._own_names = {theirs: name for name, theirs in self._model_names.items()}

    def to_model_name(self, name: str) -> str:
        """Return the name for a model; also of a tool that does not exist, which a model may have called."""
        return self._model_names.get(name) or (name if _is_valid_name(name) else _build_valid_name(name))

    def from_model_name(self, name: str) -> str:
        """Return our name for a tool; the name itself if it is unknown."""
        return self._own_names.get(name, name)


def _is_valid_name(name: str) -> bool:
    return 0 < len(name) <= NAME_LIMIT and _INVALID_CHARACTER.search(name) is None


def _build_valid_name(name: str) -> str:
    """A valid name, with a digest so that no two become the same."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_INVALID_CHARACTER.sub('_', name)[: NAME_LIMIT - 9]}_{digest}"
