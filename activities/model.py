"""The model step: one request to a model, as an activity. And the summary of a conversation that became too long.

The conversation is fetched from the workflow by query, so that a step's input stays small and the history grows with
the steps, not with their square. Providers answer behind one function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from holdfast.activities.catalogue.registry import Registry
from holdfast.activities.conversations import Conversations
from holdfast.activities.live import LiveRun
from holdfast.activities.running import beating
from holdfast.activities.scripted import scripted, scripted_summary
from holdfast.activities.streaming import CallStream
from holdfast.calls import CallRequest
from holdfast.compaction import AIM, as_text, compacted, cut_for, size, told, without_results
from holdfast.content import shorten
from holdfast.contexts import names_tool
from holdfast.conversations import Compaction, Conversation, ConversationMessage, ModelReply
from holdfast.delegating import DEEPEST
from holdfast.tools import Declaration
from holdfast.work import Compacted, CompactInput, ModelStepInput, model_call

if TYPE_CHECKING:
    from holdfast.activities.models.media import Media
    from holdfast.activities.models.providers import Models
    from holdfast.shared_outputs import SharedOutputs

SCRIPTED = "scripted"
SHOWN = 200
"""Characters of a call's arguments, in what is seen of a reply that is being written."""
INSTRUCTIONS = (
    "You are given a conversation of a user and an assistant. Summarise it for the assistant, who goes on with it and "
    "has nothing else: what the user wants, what was decided and why, what was done and with which result, what was "
    "learnt (names, paths, values, errors) and what is still to do. Leave out nothing that is needed to go on. Answer "
    "with the summary alone."
)


class ModelActivities:
    """Asks models, with one worker's client and credentials."""

    def __init__(
        self,
        client: Client,
        models: Callable[[], Models],
        tools: Callable[[], Registry],
        outputs: SharedOutputs | None = None,
    ) -> None:
        """`models` and `tools` are had when they are first needed: packages of providers take a second to load.

        `outputs` has the bytes that tools gave; without it models are told of these in words.
        """
        self._client = client
        self._models = models
        self._tools = tools
        self._outputs = outputs
        self._conversations = Conversations(client)

    @cached_property
    def _media(self) -> Media:
        from holdfast.activities.models.media import Media  # as the models

        return Media(self._outputs)

    @activity.defn(name="holdfast.model")
    async def step(self, input: ModelStepInput) -> ModelReply:
        """One reply. A second attempt asks again."""
        turn_id, run_id = _turn()
        stream = CallStream(self._client, turn_id, run_id, input)
        run = LiveRun(turn_id, model_call(input.step), workspace=Path())
        return await beating(self._reply(turn_id, run_id, input, stream, run), run.beat)

    async def _reply(
        self, turn_id: str, run_id: str | None, input: ModelStepInput, stream: CallStream, run: LiveRun
    ) -> ModelReply:
        conversation = (await self._conversations.fetch(turn_id, run_id)).conversation
        name = conversation.model.names[input.model]
        if name == SCRIPTED:
            return await scripted(conversation, stream, max(input.attempt, activity.info().attempt), run.write)
        from holdfast.activities.models.asking import reply_to  # loads packages of providers

        tools = [entry.declaration for entry in self._tools().entries if _offered(entry.declaration, conversation)]

        async def called(call: CallRequest) -> None:
            run.write(f"\n→ {call.tool} {shorten(json.dumps(call.arguments, ensure_ascii=False), SHOWN)}\n")
            await stream.send(call)

        others = input.model + 1 < len(conversation.model.names)
        return await reply_to(
            self._models(),
            name,
            conversation,
            tools,
            heard=run.write,
            called=called,
            media=self._media,
            turn=turn_id,
            others=others,
        )

    @activity.defn(name="holdfast.compact")
    async def compact(self, input: CompactInput) -> Compacted:
        """What to leave out of a conversation that its model can hardly read any more, and a summary of it."""
        return await beating(self._compact(*_turn(), input))

    async def _compact(self, turn_id: str, run_id: str | None, input: CompactInput) -> Compacted:
        fetched = await self._conversations.fetch(turn_id, run_id)
        conversation = fetched.conversation
        before = size(conversation.messages)
        aim = int(AIM * min(input.window or before, before) / 2 ** (input.times - 1))
        cut = cut_for(conversation.messages, aim)
        reply = ModelReply()
        if cut.before:
            past = without_results(conversation.messages[: cut.before])
            reply = await self._summary(conversation, past, input)
        left, after = compacted(0, conversation.messages, Compaction(), cut, reply.text)
        return Compacted(
            cut=cut,
            summary=reply.text if cut.before else None,
            session=fetched.session,
            tokens=before,
            tokens_after=size(told((), left, after)),
            usage=reply.usage,
        )

    async def _summary(
        self, conversation: Conversation, past: Sequence[ConversationMessage], input: CompactInput
    ) -> ModelReply:
        name = conversation.model.names[input.model]
        if name == SCRIPTED:
            return scripted_summary(past)
        from holdfast.activities.models.asking import answer_to

        most = (input.window or size(past)) // 2**input.times
        return await answer_to(self._models(), name, as_text(past, most), INSTRUCTIONS, conversation.model.settings)


def _offered(tool: Declaration, conversation: Conversation) -> bool:
    """Is the model told of this tool?"""
    too_deep = tool.traits.delegates and conversation.depth >= DEEPEST
    there = conversation.tools is None or tool.name in conversation.tools
    return not too_deep and there and names_tool(conversation.allowed, tool.name)


def _turn() -> tuple[str, str | None]:
    """The turn that asks, and its run."""
    info = activity.info()
    if info.workflow_id is None:
        raise ApplicationError("only a turn may ask a model", type="not_a_turn", non_retryable=True)
    return info.workflow_id, info.workflow_run_id
