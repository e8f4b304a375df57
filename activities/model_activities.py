"""The activities of a model step: request a reply, and summarise a conversation that became too long.

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

from holdfast.activities.execution.live_run import LiveRun
from holdfast.activities.execution.run_tool import run_with_heartbeats
from holdfast.activities.models.scripted import build_scripted_summary, stream_scripted_reply
from holdfast.activities.models.step_io import CallStream, ConversationCache
from holdfast.activities.registry.registry import Registry
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Declaration
from holdfast.domain.context import names_tool
from holdfast.domain.conversation.compaction import (
    TARGET_SHARE,
    apply_cut,
    build_model_messages,
    estimate_tokens,
    format_conversation,
    plan_cut,
    stub_results,
)
from holdfast.domain.conversation.messages import Compaction, Conversation, ConversationMessage, ModelReply
from holdfast.domain.turn.activity_io import CompactInput, CompactResult, ModelStepInput, format_model_call_id
from holdfast.domain.turn.delegation import MAX_DEPTH
from holdfast.names import COMPACT_ACTIVITY, MODEL_ACTIVITY
from holdfast.util.text import shorten_text

if TYPE_CHECKING:
    from holdfast.activities.models.media import MediaLoader
    from holdfast.activities.models.providers import Models
    from holdfast.payloads.shared_outputs import SharedOutputs

SCRIPTED_MODEL = "scripted"
ARGUMENTS_SHOWN = 200
"""Characters of a call's arguments, in what is seen of a reply that is being written."""
SUMMARY_INSTRUCTIONS = (
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
        """`models` and `tools` are called when they are first needed: packages of providers take a second to load.

        `outputs` has the bytes that tools returned; without it models get a description of them.
        """
        self._client = client
        self._models = models
        self._tools = tools
        self._outputs = outputs
        self._conversations = ConversationCache(client)

    @cached_property
    def _media(self) -> MediaLoader:
        from holdfast.activities.models.media import MediaLoader  # as the models

        return MediaLoader(self._outputs)

    @activity.defn(name=MODEL_ACTIVITY)
    async def request_reply(self, input: ModelStepInput) -> ModelReply:
        """One reply. A second attempt asks again."""
        turn_id, run_id = _find_turn()
        stream = CallStream(self._client, turn_id, run_id, input)
        run = LiveRun(turn_id, format_model_call_id(input.step), workspace=Path())
        return await run_with_heartbeats(self._request_reply(turn_id, run_id, input, stream, run), run.build_heartbeat)

    async def _request_reply(
        self, turn_id: str, run_id: str | None, input: ModelStepInput, stream: CallStream, run: LiveRun
    ) -> ModelReply:
        conversation = (await self._conversations.fetch(turn_id, run_id)).conversation
        name = conversation.model.model_names[input.model]
        if name == SCRIPTED_MODEL:
            return await stream_scripted_reply(
                conversation, stream, max(input.attempt, activity.info().attempt), run.write
            )
        from holdfast.activities.models.ask_model import request_reply  # loads packages of providers

        tools = [entry.declaration for entry in self._tools().entries if _is_offered(entry.declaration, conversation)]

        async def send_call(call: CallRequest) -> None:
            run.write(
                f"\n→ {call.tool} {shorten_text(json.dumps(call.arguments, ensure_ascii=False), ARGUMENTS_SHOWN)}\n"
            )
            await stream.send(call)

        others = input.model + 1 < len(conversation.model.model_names)
        return await request_reply(
            self._models(),
            name,
            conversation,
            tools,
            on_text=run.write,
            on_call=send_call,
            media=self._media,
            turn=turn_id,
            others=others,
        )

    @activity.defn(name=COMPACT_ACTIVITY)
    async def compact_conversation(self, input: CompactInput) -> CompactResult:
        """Choose what to leave out of a conversation that nears its model's window, and summarise it."""
        return await run_with_heartbeats(self._compact_conversation(*_find_turn(), input))

    async def _compact_conversation(self, turn_id: str, run_id: str | None, input: CompactInput) -> CompactResult:
        fetched = await self._conversations.fetch(turn_id, run_id)
        conversation = fetched.conversation
        before = estimate_tokens(conversation.messages)
        aim = int(TARGET_SHARE * min(input.window or before, before) / 2 ** (input.times - 1))
        cut = plan_cut(conversation.messages, aim)
        reply = ModelReply()
        if cut.before:
            past = stub_results(conversation.messages[: cut.before])
            reply = await self._request_summary(conversation, past, input)
        left, after = apply_cut(0, conversation.messages, Compaction(), cut, reply.text)
        return CompactResult(
            cut=cut,
            summary=reply.text if cut.before else None,
            session=fetched.session,
            tokens=before,
            tokens_after=estimate_tokens(build_model_messages((), left, after)),
            usage=reply.usage,
        )

    async def _request_summary(
        self, conversation: Conversation, past: Sequence[ConversationMessage], input: CompactInput
    ) -> ModelReply:
        name = conversation.model.model_names[input.model]
        if name == SCRIPTED_MODEL:
            return build_scripted_summary(past)
        from holdfast.activities.models.ask_model import request_answer

        most = (input.window or estimate_tokens(past)) // 2**input.times
        return await request_answer(
            self._models(), name, format_conversation(past, most), SUMMARY_INSTRUCTIONS, conversation.model.settings
        )


def _is_offered(tool: Declaration, conversation: Conversation) -> bool:
    """Is this tool offered to the model?"""
    too_deep = tool.traits.delegates and conversation.depth >= MAX_DEPTH
    there = conversation.tools is None or tool.name in conversation.tools
    return not too_deep and there and names_tool(conversation.allowed, tool.name)


def _find_turn() -> tuple[str, str | None]:
    """The turn that asks, and its run."""
    info = activity.info()
    if info.workflow_id is None:
        raise ApplicationError("only a turn may ask a model", type="not_a_turn", non_retryable=True)
    return info.workflow_id, info.workflow_run_id
