"""Asking a model what a conversation needs: its next reply, or an answer to one question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings as ProviderSettings
from pydantic_ai.tools import ToolDefinition
from temporalio.exceptions import ApplicationError

from holdfast.activities.models.failures import REJECTED, failure_of
from holdfast.activities.models.media import Media, Shown, described
from holdfast.activities.models.providers import Models
from holdfast.activities.models.requesting import Called, Heard, request
from holdfast.activities.models.tool_names import ToolNames
from holdfast.activities.models.transcripts import call_of, definitions_of, messages_of, reply_of
from holdfast.calls import CallRequest
from holdfast.conversations import Conversation, ModelReply, ModelSettings, UserMessage
from holdfast.errors import BadInput
from holdfast.tools import Declaration


async def reply_to(
    models: Models,
    name: str,
    conversation: Conversation,
    tools: Sequence[Declaration],
    *,
    heard: Heard,
    called: Callable[[CallRequest], Awaitable[None]],
    media: Media,
    turn: str,
    others: bool = False,
) -> ModelReply:
    """The next reply of the model with this name. ApplicationError when it fails, with what is to be done then.

    `media` has what the turn's tools gave beside text. `others` are there to be asked instead.
    """
    names = ToolNames(tool.name for tool in tools)

    async def call(part: ToolCallPart) -> None:
        await called(call_of(part, names))

    async def ask(shown: Sequence[Shown]) -> ModelResponse:
        messages = messages_of(conversation.messages, names, shown)
        said = _Said(messages, definitions_of(tools, names), conversation.model.instructions)
        return await _ask(asked, model, said, conversation.model.settings, heard, call)

    asked = _Asked(models, name, others)
    model = await asked.model()
    shown = await media.shown(turn, name, conversation.messages, models.takes(name, model))
    try:
        response = await ask(shown)
    except ApplicationError as error:
        if error.type != REJECTED or not any(isinstance(one, BinaryContent) for one in shown):
            raise
        # An image that the provider cannot read would fail every later step too, and with it the session.
        response = await ask(described(shown))
        media.refuse(name, conversation.messages, shown)
    window = conversation.model.settings.window or models.window(name) or model.context_window
    return asked.read(response, names).model_copy(update={"window": window})


async def answer_to(models: Models, name: str, question: str, instructions: str, settings: ModelSettings) -> ModelReply:
    """What the model with this name answers to a question alone; it is offered no tools."""
    names = ToolNames(())

    async def call(part: ToolCallPart) -> None:
        return

    said = _Said(messages_of((UserMessage(text=question),), names), (), instructions)
    asked = _Asked(models, name)
    response = await _ask(asked, await asked.model(), said, settings, lambda text: None, call)
    reply = asked.read(response, names)
    if not reply.text.strip():
        raise ApplicationError(f"{name}: the model answered nothing", type="no_answer")
    return reply


@dataclass(frozen=True)
class _Asked:
    """Who is asked."""

    models: Models
    name: str
    others: bool = False

    async def model(self) -> Model:
        """The model. ApplicationError when it cannot be had."""
        try:
            return await self.models.get(self.name)
        except BadInput as error:
            raise ApplicationError(str(error), type="bad_model", non_retryable=True) from None
        except Exception as error:
            raise self.failure(error) from None

    def failure(self, error: Exception) -> ApplicationError:
        """The failure of the activity."""
        return failure_of(error, self.name, self.models.secrets, others=self.others)

    def read(self, response: ModelResponse, names: ToolNames) -> ModelReply:
        """What it answered; ApplicationError when that cannot be used."""
        try:
            return reply_of(response, names)
        except Exception as error:
            raise self.failure(error) from None


@dataclass(frozen=True)
class _Said:
    """What a provider is sent."""

    messages: Sequence[ModelMessage]
    tools: Sequence[ToolDefinition]
    instructions: str | None


async def _ask(
    asked: _Asked, model: Model, said: _Said, wishes: ModelSettings, heard: Heard, called: Called
) -> ModelResponse:
    settings = ProviderSettings()
    if wishes.max_tokens is not None:
        settings["max_tokens"] = wishes.max_tokens
    if wishes.temperature is not None:
        settings["temperature"] = wishes.temperature
    try:
        async with asyncio.timeout(wishes.seconds):
            return await request(
                model,
                said.messages,
                said.tools,
                instructions=said.instructions,
                settings=settings,
                heard=heard,
                called=called,
            )
    except TimeoutError:
        words = f"{asked.name}: no whole reply came within {wishes.seconds:g} seconds"
        raise ApplicationError(words, type="model_slow") from None
    except Exception as error:
        raise asked.failure(error) from None
