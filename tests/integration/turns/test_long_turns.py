"""Turns of hundreds of steps: their history grows with the steps, and they continue as new by themselves (S42)."""

from __future__ import annotations

from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from holdfast import ModelChoice, Run, ScriptedReply, TurnInput
from holdfast.domain.conversation.messages import AssistantMessage, ToolMessage
from holdfast.testing import FakeTool, build_request
from tests.support.engine import Engine

STEPS = 300
OUTPUT = 40_000
MOST_EVENTS = 400
"""Of one run: a worker that takes it up replays all of them."""


async def _note(arguments: dict[str, Any], run: Run) -> str:
    return f"{arguments['number']} " + "r" * OUTPUT


NOTE = FakeTool("note", _note, safe=True)


def _script(steps: int) -> ModelChoice:
    replies = (ScriptedReply(calls=(build_request("note", number=number),)) for number in range(1, steps + 1))
    return ModelChoice(script=(*replies, ScriptedReply(text="All noted.")))


async def _bytes_by_step(client: Client, turn_id: str, run_id: str) -> list[int]:
    """What each model step of a run and all that came of it added to the history."""
    sizes = [0]
    async for event in client.get_workflow_handle(turn_id, run_id=run_id).fetch_history_events():
        attributes = event.activity_task_scheduled_event_attributes
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED and attributes.activity_id.startswith("mo"):
            sizes.append(0)
        sizes[-1] += event.ByteSize()
    return sizes[1:]


async def _count_events(client: Client, turn_id: str, run_id: str | None) -> int:
    return (await client.get_workflow_handle(turn_id, run_id=run_id).describe()).history_length


async def test_S42_300_steps_grow_the_history_linearly_and_continue_as_new(engine: Engine) -> None:
    async with engine.worker(NOTE):
        turn = await engine.start(TurnInput(prompt="Note it all", model=_script(STEPS)))
        result = await turn.result()
        assert (result.status, result.text, result.steps) == ("completed", "All noted.", STEPS + 1)
        assert result.runs, "it has continued as new"
        runs = [run.run_id for run in result.runs]
        assert max([await _count_events(engine.client, turn.id, run) for run in (*runs, None)]) <= MOST_EVENTS

        sizes = await _bytes_by_step(engine.client, turn.id, result.runs[0].run_id)
        early, late = sizes[10:60], sizes[-60:-10]
        assert sum(late) < 1.1 * sum(early), "a later step costs no more than an early one"

        answers = [response async for response in turn.watch_responses()]
        assert [response.call_id for response in answers] == [f"b{number}c1" for number in range(1, STEPS + 1)]
        assert [response.text.split()[0] for response in answers] == [str(number) for number in range(1, STEPS + 1)]

        conversation = await turn.fetch_conversation()
        assert conversation
        asked = [one.call_ids for one in conversation.messages if isinstance(one, AssistantMessage) and one.calls]
        told = [
            tuple(response.call_id for response in one.responses)
            for one in conversation.messages
            if isinstance(one, ToolMessage)
        ]
        assert asked == told == [(f"b{number}c1",) for number in range(1, STEPS + 1)]

        assert (await turn.fetch_call("b1c1")).status == "success", "what an earlier run did can still be looked at"
        assert (await turn.fetch_batch("b2")).responses[0].text.startswith("2 ")
        view = await turn.fetch_view()
        assert view.counts == {"success": STEPS}
