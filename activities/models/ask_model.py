"""Asking a model for its next reply in a conversation, or for an answer to one question.

Why: docs/decisions/0031-model-providers.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings as ProviderSettings
from pydantic_ai.tools import ToolDefinition
from temporalio.exceptions import ApplicationError

from holdfast.activities.models.failures import REJECTED_TYPE, build_model_failure
from holdfast.activities.models.media import MediaLoader, ShownMedia, describe_shown
from holdfast.activities.models.model_request import OnCall, OnText, request_response
from holdfast.activities.models.providers import Models
from holdfast.activities.models.transcript import (
    ToolNames,
    build_call,
    build_messages,
    build_model_reply,
    build_tool_definitions,
)
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Declaration
from holdfast.domain.conversation.messages import Conversation, ModelReply, ModelSettings, UserMessage
from holdfast.errors import BadInput


async def request_reply(
    models: Models,
    name: str,
    conversation: Conversation,
    tools: Sequence[Declaration],
    *,
    on_text: OnText,
    on_call: Callable[[CallRequest], Awaitable[None]],
    media: MediaLoader,
    turn: str,
    others: bool = False,
) -> ModelReply:
    """Request the next reply of a model. ApplicationError when it fails; its type and delay say whether to retry.

    `on_text` and `on_call` get text and calls as they are written. `media` loads images and the like of the turn.
    `others`: other models can be asked instead.
    """
    names = ToolNames(tool.name for tool in tools)

    async def send_call(part: ToolCallPart) -> None:
        await on_call(build_call(part, names))

    async def request_once(shown: Sequence[ShownMedia]) -> ModelResponse:
        messages = build_messages(conversation.messages, names, shown)
        model_input = _ModelInput(messages, build_tool_definitions(tools, names), conversation.model.instructions)
        return await _request_response(asked, model, model_input, conversation.model.settings, on_text, send_call)

    asked = _AskedModel(models, name, others)
    model = await asked.get_model()
    shown = await media.fetch_shown(turn, name, conversation.messages, models.find_media_kinds(name, model))
    try:
        response = await request_once(shown)
    except ApplicationError as error:
        if error.type != REJECTED_TYPE or not any(isinstance(one, BinaryContent) for one in shown):
            raise
        # A conversation keeps its images, so one that the provider rejects would fail every later step of the session.
        response = await request_once(describe_shown(shown))
        media.note_refused(name, conversation.messages, shown)
    window = conversation.model.settings.window or models.find_window(name) or model.context_window
    return asked.read_response(response, names).model_copy(update={"window": window})


async def request_answer(
    models: Models, name: str, question: str, instructions: str, settings: ModelSettings
) -> ModelReply:
    """Request an answer to one question, without tools. ApplicationError when it fails or is empty."""
    names = ToolNames(())

    async def ignore_call(part: ToolCallPart) -> None:
        return

    model_input = _ModelInput(build_messages((UserMessage(text=question),), names), (), instructions)
    asked = _AskedModel(models, name)
    response = await _request_response(
        asked, await asked.get_model(), model_input, settings, lambda text: None, ignore_call
    )
    reply = asked.read_response(response, names)
    if not reply.text.strip():
        raise ApplicationError(f"{name}: the model answered nothing", type="no_answer")
    return reply


@dataclass(frozen=True)
class _AskedModel:
    """The model that is asked."""

    models: Models
    name: str
    others: bool = False

    async def get_model(self) -> Model:
        """Return the model. ApplicationError when it cannot be loaded."""
        try:
            return await self.models.get(self.name)
        except BadInput as error:
            raise ApplicationError(str(error), type="bad_model", non_retryable=True) from None
        except Exception as error:
            raise self.build_failure(error) from None

    def build_failure(self, error: Exception) -> ApplicationError:
        """Build the failure of the activity."""
        return build_model_failure(error, self.name, self.models.secrets, has_others=self.others)

    def read_response(self, response: ModelResponse, names: ToolNames) -> ModelReply:
        """Convert a response to a reply. ApplicationError when it is unusable."""
        try:
            return build_model_reply(response, names)
        except Exception as error:
            raise self.build_failure(error) from None


@dataclass(frozen=True)
class _ModelInput:
    """The input of a request to a provider."""

    messages: Sequence[ModelMessage]
    tools: Sequence[ToolDefinition]
    instructions: str | None


async def _request_response(
    asked: _AskedModel, model: Model, model_input: _ModelInput, wishes: ModelSettings, on_text: OnText, on_call: OnCall
) -> ModelResponse:
    settings = ProviderSettings()
    if wishes.max_tokens is not None:
        settings["max_tokens"] = wishes.max_tokens
    if wishes.temperature is not None:
        settings["temperature"] = wishes.temperature
    try:
        async with asyncio.timeout(wishes.seconds):
            return await request_response(
                model,
                model_input.messages,
                model_input.tools,
                instructions=model_input.instructions,
                settings=settings,
                on_text=on_text,
                on_call=on_call,
            )
    except TimeoutError:
        words = f"{asked.name}: the reply was not complete within {wishes.seconds:g} seconds"
        raise ApplicationError(words, type="model_slow") from None
    except Exception as error:
        raise asked.build_failure(error) from None
