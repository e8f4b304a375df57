"""What a model is told and what it says: replies, messages, and the conversation that a model step reads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, NonNegativeInt

from holdfast.domain.base import Data, Message, Variant, max_items
from holdfast.domain.calls.call import CallRequest, Calls
from holdfast.domain.content import Response


class Usage(Data):
    """What a model read and wrote."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens, output_tokens=self.output_tokens + other.output_tokens
        )

    @property
    def total_tokens(self) -> int:
        """Both."""
        return self.input_tokens + self.output_tokens


class ModelReply(Message):
    """One reply of a model: text, calls, or both. Without calls it ends the turn."""

    text: str = ""
    calls: Calls = ()
    said: JsonValue = None
    """What its provider wants to be given back with it: what it signed, and in which order it came."""
    usage: Usage = Usage()
    model: str | None = None
    """Who answered, as the provider says."""
    window: int | None = None
    """How many tokens it can read at once, if that is known."""
    cut: bool = False
    """Did it reach its limit of tokens before it was done?"""


class ScriptedReply(ModelReply):
    """A reply of the scripted model, and how it comes."""

    seconds: float = Field(default=0, ge=0, le=3_600, allow_inf_nan=False)
    """What passes before each call is written, and before the end."""
    breaks: Annotated[tuple[NonNegativeInt, ...], max_items(1_000)] = ()
    """After how many calls the first attempts at it break off; the one after them does not."""


class ModelSettings(Message):
    """What a provider is told beside the conversation; left out, it decides itself."""

    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """Of one reply."""
    temperature: float | None = Field(default=None, ge=0, le=10, allow_inf_nan=False)
    seconds: float = Field(default=600, ge=1, le=1_700, allow_inf_nan=False)
    """How long one request may take."""
    window: int | None = Field(default=None, ge=1_000, le=100_000_000)
    """Tokens that the model can read at once, where its provider's package does not know."""


class ModelChoice(Message):
    """Which model answers: `provider:model`, or `scripted`, which gives the replies of `script` in order."""

    name: str = Field(default="scripted", min_length=1, max_length=300)
    script: Annotated[tuple[ScriptedReply, ...], max_items(10_000)] = ()
    delegated: dict[str, Annotated[tuple[ScriptedReply, ...], max_items(10_000)]] = Field(default_factory=dict)
    """Scripts of the turns that a scripted model delegates, by their prompts."""
    fallbacks: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=300)], ...], max_items(20)] = ()
    """Asked in this order when the one before fails for good."""
    instructions: str | None = Field(default=None, max_length=1_000_000)
    """What the model is told before everything else."""
    settings: ModelSettings = ModelSettings()

    @property
    def model_names(self) -> tuple[str, ...]:
        """All of them, in order."""
        return (self.name, *self.fallbacks)


class UserMessage(Variant):
    """What the user said."""

    kind: Literal["user"] = "user"
    text: str


class AssistantMessage(Variant):
    """What the model said. `call_ids` are the engine's ids of its calls, in order."""

    kind: Literal["assistant"] = "assistant"
    text: str
    calls: tuple[CallRequest, ...] = ()
    call_ids: tuple[str, ...] = ()
    said: JsonValue = None
    """What its provider is given back with it."""


class ToolMessage(Variant):
    """The responses to the calls of the assistant message before it: every one, once, in order."""

    kind: Literal["tool"] = "tool"
    responses: tuple[Response, ...]


ConversationMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="kind")]


class Compaction(Data):
    """What of a session's messages its turn no longer tells the model, and what it tells in their place."""

    before: int = 0
    """So many of them are in the summary."""
    results_before: int = 0
    """Of so many the results of tools are left out."""
    summary: str | None = None


class Conversation(Data):
    """What a model step needs to know, fetched by query so that it is in no activity's input."""

    model: ModelChoice
    replies: int = 0
    """How many the model has given so far."""
    session: str | None = None
    """Whose messages come before the turn's own."""
    session_run: str | None = None
    compaction: Compaction = Compaction()
    tools: tuple[str, ...] | None = None
    """The tools there are, if not all."""
    allowed: tuple[str, ...] | None = None
    """Names and patterns of the tools that the turn was started with, if not all."""
    depth: int = 0
    """How many turns have delegated to one another, down to this one."""
    messages: tuple[ConversationMessage, ...] = ()


class ConversationPage(Data):
    """Messages of a turn or a session from some place on: what whoever asks does not have yet."""

    epoch: int = 0
    """Another one: what was said before is no longer told as it was, and is to be asked for again."""
    start: int = 0
    """The place of the first of them."""
    messages: tuple[ConversationMessage, ...] = ()
    more: bool = False
    about: Conversation | None = None
    """Of a turn: what its model step needs besides. Its script comes with the first page alone."""
