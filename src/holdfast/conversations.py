"""What a model is told and what it says: replies, messages, and the conversation that a model step reads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, NonNegativeInt

from holdfast.calls import CallRequest, Calls
from holdfast.content import Response
from holdfast.model import Data, Message, few


class Usage(Data):
    """What a model read and wrote."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens, output_tokens=self.output_tokens + other.output_tokens
        )

    @property
    def tokens(self) -> int:
        """Both."""
        return self.input_tokens + self.output_tokens


class ModelReply(Message):
    """One reply of a model: text, calls, or both. Without calls it ends the turn."""

    text: str = ""
    calls: Calls = ()
    said: JsonValue = None
    """What its provider wants to be given back with it: thinking that it signed."""
    usage: Usage = Usage()
    model: str | None = None
    """Who answered, as the provider says."""


class ScriptedReply(ModelReply):
    """A reply of the scripted model, and how it comes."""

    seconds: float = Field(default=0, ge=0, le=3_600, allow_inf_nan=False)
    """What passes before each call is written, and before the end."""
    breaks: Annotated[tuple[NonNegativeInt, ...], few(1_000)] = ()
    """After how many calls the first attempts at it break off; the one after them does not."""


class ModelSettings(Message):
    """What a provider is told beside the conversation; left out, it decides itself."""

    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """Of one reply."""
    temperature: float | None = Field(default=None, ge=0, le=10, allow_inf_nan=False)
    seconds: float = Field(default=600, ge=1, le=1_700, allow_inf_nan=False)
    """How long one request may take."""


class ModelChoice(Message):
    """Which model answers: `provider:model`, or `scripted`, which gives the replies of `script` in order."""

    name: str = Field(default="scripted", min_length=1, max_length=300)
    script: Annotated[tuple[ScriptedReply, ...], few(10_000)] = ()
    fallbacks: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=300)], ...], few(20)] = ()
    """Asked in this order when the one before fails for good."""
    instructions: str | None = Field(default=None, max_length=1_000_000)
    """What the model is told before everything else."""
    settings: ModelSettings = ModelSettings()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in order."""
        return (self.name, *self.fallbacks)


class UserMessage(Data):
    """What the user said."""

    kind: Literal["user"] = "user"
    text: str


class AssistantMessage(Data):
    """What the model said. `call_ids` are the engine's ids of its calls, in order."""

    kind: Literal["assistant"] = "assistant"
    text: str
    calls: tuple[CallRequest, ...] = ()
    call_ids: tuple[str, ...] = ()
    said: JsonValue = None
    """What its provider is given back with it."""


class ToolMessage(Data):
    """The responses to the calls of the assistant message before it: every one, once, in order."""

    kind: Literal["tool"] = "tool"
    responses: tuple[Response, ...]


ConversationMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="kind")]


class Conversation(Data):
    """What a model step needs to know, fetched by query so that it is not in every activity's input."""

    model: ModelChoice
    messages: tuple[ConversationMessage, ...]
