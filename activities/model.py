"""The model step: one request to a model, as an activity.

The conversation is fetched from the workflow by query, so that a step's input stays small and the history grows with
the steps, not with their square. Providers answer behind one function.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from holdfast.queries import ask
from holdfast.turns import AssistantMessage, Conversation, ModelReply, ModelStepInput


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
        return reply_to(conversation)


def reply_to(conversation: Conversation) -> ModelReply:
    """The reply of the model the conversation names."""
    if conversation.model.name != "scripted":
        raise ApplicationError(
            f"no model is called {conversation.model.name!r}; this version knows 'scripted'",
            type="unknown_model",
            non_retryable=True,
        )
    return _scripted(conversation)


def _scripted(conversation: Conversation) -> ModelReply:
    """The reply that comes after those already given."""
    given = sum(isinstance(message, AssistantMessage) for message in conversation.messages)
    script = conversation.model.script
    if given >= len(script):
        raise ApplicationError(
            f"the script has {len(script)} replies and no reply for step {given + 1}: end it with a reply that has "
            "text and no calls",
            type="script_ended",
            non_retryable=True,
        )
    return script[given]
