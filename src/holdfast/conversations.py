"""What a model is told and what it says: replies, messages, and the conversation that a model step reads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from holdfast.calls import CallRequest, Calls
from holdfast.content import Response
from holdfast.model import Data, Message, few


class ModelReply(Message):
    """One reply of a model: text, calls, or both. Without calls it ends the turn."""

    text: str = ""
    calls: Calls = ()


class ScriptedReply(ModelReply):
    """A reply of the scripted model, and how it comes."""

    seconds: float = Field(default=0, ge=0, le=3_600, allow_inf_nan=False)
    """What passes before each call is written, and before the end."""
    breaks: Annotated[tuple[NonNegativeInt, ...], few(1_000)] = ()
    """After how many calls the first attempts at it break off; the one after them does not."""


class ModelChoice(Message):
    """Which model answers. `scripted` gives the replies of `script` in order, one per step."""

    name: str = "scripted"
    script: Annotated[tuple[ScriptedReply, ...], few(10_000)] = ()


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


class ToolMessage(Data):
    """The responses to the calls of the assistant message before it: every one, once, in order."""

    kind: Literal["tool"] = "tool"
    responses: tuple[Response, ...]


ConversationMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="kind")]


class Conversation(Data):
    """What a model step needs to know, fetched by query so that it is not in every activity's input."""

    model: ModelChoice
    messages: tuple[ConversationMessage, ...]
