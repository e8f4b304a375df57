"""Model choice, replies, messages, and the conversation that a model step reads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, NonNegativeInt

from holdfast.domain.base import Data, StrictData, Variant, max_items
from holdfast.domain.calls.call import CallRequest, Calls
from holdfast.domain.content import Response


class Usage(Data):
    """The tokens that a model read and wrote."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens, output_tokens=self.output_tokens + other.output_tokens
        )

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


class ModelReply(StrictData):
    """One reply of a model: text, calls, or both. Without calls it ends the turn."""

    text: str = ""
    calls: Calls = ()
    said: JsonValue = None
    """The provider's own form of the reply, which the next request must contain: signatures, order of parts."""
    usage: Usage = Usage()
    model: str | None = None
    """The name of the model, as the provider reports it."""
    window: int | None = None
    """The size of its context window in tokens, if known."""
    cut: bool = False
    """The reply ended at its limit of tokens."""


class ScriptedReply(ModelReply):
    """A reply of the scripted model, with its delays and failures."""

    seconds: float = Field(default=0, ge=0, le=3_600, allow_inf_nan=False)
    """The pause before each call is written, and before the end."""
    breaks: Annotated[tuple[NonNegativeInt, ...], max_items(1_000)] = ()
    """For each attempt that fails, the number of calls after which it breaks off. The attempt after them succeeds."""


class ModelSettings(StrictData):
    """The settings of requests to a model; None leaves one to the provider."""

    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """The limit of tokens of one reply."""
    temperature: float | None = Field(default=None, ge=0, le=10, allow_inf_nan=False)
    seconds: float = Field(default=600, ge=1, le=1_700, allow_inf_nan=False)
    """The timeout of one request."""
    window: int | None = Field(default=None, ge=1_000, le=100_000_000)
    """The size of the model's context window in tokens, for models whose provider package does not know it."""


class ModelChoice(StrictData):
    """The model of a turn: `provider:model`, or `scripted`, which gives the replies of `script` in order."""

    name: str = Field(default="scripted", min_length=1, max_length=300)
    script: Annotated[tuple[ScriptedReply, ...], max_items(10_000)] = ()
    delegated: dict[str, Annotated[tuple[ScriptedReply, ...], max_items(10_000)]] = Field(default_factory=dict)
    """The scripts of delegated turns of a scripted model, by prompt."""
    fallbacks: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=300)], ...], max_items(20)] = ()
    """Further models, asked in this order when the one before fails permanently."""
    instructions: str | None = Field(default=None, max_length=1_000_000)
    """The system prompt."""
    settings: ModelSettings = ModelSettings()

    @property
    def model_names(self) -> tuple[str, ...]:
        """The name, then the fallbacks."""
        return (self.name, *self.fallbacks)


class UserMessage(Variant):
    """A message of the user."""

    kind: Literal["user"] = "user"
    text: str


class AssistantMessage(Variant):
    """A message of the model. `call_ids` are the engine's ids of its calls, in order."""

    kind: Literal["assistant"] = "assistant"
    text: str
    calls: tuple[CallRequest, ...] = ()
    call_ids: tuple[str, ...] = ()
    said: JsonValue = None
    """The provider's own form of the reply (`ModelReply.said`)."""


class ToolMessage(Variant):
    """The responses to the calls of the assistant message before it: one for each call, in order."""

    kind: Literal["tool"] = "tool"
    responses: tuple[Response, ...]


ConversationMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="kind")]


class Compaction(Data):
    """How the messages of a session are compacted for its running turn."""

    before: int = 0
    """The number of first messages that the summary replaces."""
    results_before: int = 0
    """The number of first messages whose tool results are stubs."""
    summary: str | None = None


class Conversation(Data):
    """The input of a request to a model. A model step fetches it by query, so that it is not in the history."""

    model: ModelChoice
    replies: int = 0
    """The number of replies of the model so far."""
    session: str | None = None
    """The id of the session whose messages come before the turn's own."""
    session_run: str | None = None
    compaction: Compaction = Compaction()
    tools: tuple[str, ...] | None = None
    """The tools of the turn's context; None for all."""
    allowed: tuple[str, ...] | None = None
    """The names and patterns of tools that the turn was started with; None for all."""
    depth: int = 0
    """The depth of delegation (`TurnInput.depth`)."""
    messages: tuple[ConversationMessage, ...] = ()


class ConversationPage(Data):
    """A page of the messages of a turn or a session."""

    epoch: int = 0
    """It grows when earlier messages are replaced: a reader that knows another epoch must fetch all again."""
    start: int = 0
    """The index of the first message of the page."""
    messages: tuple[ConversationMessage, ...] = ()
    more: bool = False
    about: Conversation | None = None
    """For a turn: the conversation without its messages. Only the first page has the model's script."""
