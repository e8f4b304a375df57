"""The model step: one request to a model, as an activity.

The conversation is fetched from the workflow by query, so that a step's input stays small and the history grows with
the steps, not with their square. Providers answer behind one function.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from holdfast.activities.running import beating
from holdfast.activities.scripted import scripted
from holdfast.activities.streaming import CallStream
from holdfast.conversations import Conversation, ModelReply
from holdfast.queries import ask
from holdfast.work import ModelStepInput


class ModelActivities:
    """Asks models, with one worker's client and credentials."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name="holdfast.model")
    async def step(self, input: ModelStepInput) -> ModelReply:
        """One reply. A second attempt asks again."""
        info = activity.info()
        if info.workflow_id is None:
            raise ApplicationError("only a turn may ask a model", type="not_a_turn", non_retryable=True)
        conversation = await ask(
            self._client, info.workflow_id, "conversation", result_type=Conversation, run_id=info.workflow_run_id
        )
        stream = CallStream(self._client, info.workflow_id, info.workflow_run_id, input)
        return await beating(reply_to(conversation, stream, max(input.attempt, info.attempt)))


async def reply_to(conversation: Conversation, stream: CallStream, attempt: int) -> ModelReply:
    """The reply of the model the conversation names, its calls streamed as they come."""
    if conversation.model.name != "scripted":
        raise ApplicationError(
            f"no model is called {conversation.model.name!r}; this version knows 'scripted'",
            type="unknown_model",
            non_retryable=True,
        )
    return await scripted(conversation, stream, attempt)
