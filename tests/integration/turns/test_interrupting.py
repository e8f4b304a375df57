"""A user speaks while a turn runs (S18), and every other way to stop (S16, S7, S19), on a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    BadInput,
    CallRequest,
    ModelChoice,
    RequestRefused,
    Run,
    Schedule,
    ScriptedReply,
    Turn,
    TurnInput,
)
from holdfast.client.queries import query_turn
from holdfast.domain.conversation.messages import Conversation, ToolMessage
from holdfast.testing import FakeTool, wait_until
from tests.support.engine import Engine
from tests.support.stage import Stage, call
from tests.support.waiting import listed, waiting

SCHEDULES = pytest.mark.parametrize("schedule", list(Schedule))


async def _turn(engine: Engine, *replies: ScriptedReply | str, **input: Any) -> Turn:
    script = tuple(ScriptedReply(text=reply) if isinstance(reply, str) else reply for reply in replies)
    return await engine.start(TurnInput(prompt="Go", model=ModelChoice(script=script), **input))


async def _messages(engine: Engine, turn: Turn) -> list[str]:
    """The conversation, a line each."""
    conversation = await query_turn(engine.client, turn.id, "conversation", result_type=Conversation)
    return [
        " ".join(response.status for response in message.responses)
        if isinstance(message, ToolMessage)
        else f"{message.kind}: {message.text}"
        for message in conversation.messages
    ]


async def _ended(turn: Turn, call_id: str) -> bool:
    return (await turn.fetch_call(call_id)).is_terminal


@SCHEDULES
async def test_S18_one_tool_stops_at_the_users_word_and_one_finishes_first(both: Engine, schedule: Schedule) -> None:
    """`look` may be interrupted, `read` may not; what has not begun never does."""
    stage = Stage()
    calls = (call("look", "a"), call("read", "b"), call("alter", "c"))
    async with both.worker(*stage.tools):
        turn = await _turn(both, ScriptedReply(text="I look.", calls=calls), "Now the other.", schedule=schedule)
        await stage.began("a", "b")
        view = await turn.fetch_view()
        assert view.interruptible is False
        await turn.interrupt("Not that one", by="ana")
        await wait_until(lambda: _ended(turn, "b1c1"))
        assert sorted(stage.timeline[:2]) == ["+a", "+b"]  # side by side, in whatever order
        assert stage.timeline[2:] == ["!a"]
        assert not await _ended(turn, "b1c2")
        stage.go("b")
        result = await turn.result()
        messages = await _messages(both, turn)
        events = (await turn.fetch_events()).events
    assert stage.timeline[2:] == ["!a", "-b"]
    assert result.text == "Now the other."
    assert messages == [
        "user: Go",
        "assistant: I look.",
        "cancelled success cancelled",
        "user: Not that one",
        "assistant: Now the other.",
    ]
    stopped, _, never = result.responses
    assert stopped.text == "The user interrupted with a new message\na is at work\n"
    assert never.text == "The user interrupted with a new message"
    [said] = [event for event in events if event.after == "interrupted"]
    assert (said.note, said.by) == ("Not that one", "ana")


async def test_S18_the_view_says_whether_what_runs_is_interruptible(engine: Engine) -> None:
    stage = Stage()
    calls = (call("look", "a"), call("look", "b"))
    async with engine.worker(*stage.tools):
        turn = await _turn(engine, ScriptedReply(calls=calls), "Done.")
        await stage.began("a", "b")
        assert (await turn.fetch_view()).interruptible is True
        await turn.interrupt("Stop")
        assert [response.status for response in (await turn.result()).responses] == ["cancelled", "cancelled"]


async def test_S18_a_message_while_the_model_thinks_is_heard_at_once(both: Engine) -> None:
    """The step at work is given up, and another one begins that knows of it."""
    async with both.worker():
        turn = await _turn(both, ScriptedReply(text="An answer.", seconds=600))
        await wait_until(lambda: _thinking(turn))
        await turn.interrupt("Wait")
        await wait_until(lambda: _step(turn, 2))
        assert await _messages(both, turn) == ["user: Go", "user: Wait"]
        await turn.cancel()
        assert (await turn.result()).status == "cancelled"


async def _thinking(turn: Turn) -> bool:
    return (await turn.fetch_view(live=False)).state == "thinking"


async def _step(turn: Turn, number: int) -> bool:
    return (await turn.fetch_view(live=False)).step == number


async def test_S18_a_reply_that_is_half_written_is_answered_as_far_as_it_came(both: Engine) -> None:
    stage = Stage()
    slow = ScriptedReply(text="All of it.", calls=(call("read", "a"), call("read", "b")), seconds=0.01)
    never = slow.model_copy(update={"calls": (call("read", "a"), *[call("read", f"n{n}") for n in range(900)])})
    async with both.worker(*stage.tools):
        turn = await _turn(both, never, "Good.", schedule=Schedule.STREAMING, parallel=1)
        await stage.began("a")
        await turn.interrupt("Enough")
        stage.go("a")
        result = await turn.result()
        messages = await _messages(both, turn)
    assert (result.status, result.text) == ("completed", "Good.")
    user, asked, answers, said, answer = messages
    assert (user, asked, said, answer) == ("user: Go", "assistant: ", "user: Enough", "assistant: Good.")
    assert answers.split()[0] == "success"
    assert set(answers.split()[1:]) <= {"cancelled"}
    assert stage.timeline == ["+a", "-a"]


async def test_S18_an_approval_that_waits_is_withdrawn(engine: Engine) -> None:
    async def act(arguments: dict[str, Any], run: Run) -> str:
        return "done"

    async with engine.worker(FakeTool("asks", act, asks=True)):
        turn = await _turn(engine, ScriptedReply(calls=(CallRequest(tool="asks"),)), "As you like.")
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await turn.interrupt("Do something else")
        assert (await turn.result()).text == "As you like."
        await listed(engine.holdfast, item.approval_id, count=0)


async def test_S18_several_messages_are_all_heard_in_order(engine: Engine) -> None:
    stage = Stage()
    async with engine.worker(*stage.tools):
        turn = await _turn(engine, ScriptedReply(calls=(call("read", "a"),)), "Done.")
        await stage.began("a")
        for message in ("one", "two", "three"):
            await turn.interrupt(message)
        stage.go("a")
        await turn.result()
        messages = await _messages(engine, turn)
    assert messages == [
        "user: Go", "assistant: ", "success", "user: one", "user: two", "user: three", "assistant: Done.",
    ]  # fmt: skip


async def test_S18_without_a_model_the_batch_at_work_is_interrupted_and_the_queue_goes_on(engine: Engine) -> None:
    stage = Stage()
    stage.go("b")
    async with engine.worker(*stage.tools):
        turn = await engine.start(TurnInput(batches=((call("look", "a"),), (call("read", "b"),))))
        await stage.began("a")
        await turn.interrupt("Next")
        assert [response.status for response in (await turn.result()).responses] == ["cancelled", "success"]


async def test_what_is_no_message_is_refused_and_changes_nothing(engine: Engine) -> None:
    stage = Stage()
    async with engine.worker(*stage.tools):
        turn = await _turn(engine, ScriptedReply(calls=(call("look", "a"),)), "Done.")
        await stage.began("a")
        handle = engine.client.get_workflow_handle(turn.id)
        for body in (
            {},
            {"message": ""},
            {"message": 7},
            {"message": "x", "extra": 1},
            "text",
            None,
            ["a"],
            float("nan"),
        ):
            await handle.signal("interrupt", body)
        await handle.signal("interrupt", args=[{"message": "a"}, {"message": "b"}])
        for message in ("", "x" * 1_000_001):
            with pytest.raises(BadInput):
                await turn.interrupt(message)
        stage.go("a")
        result = await turn.result()
        assert [response.status for response in result.responses] == ["success"]
        with pytest.raises(RequestRefused, match="has ended"):
            await turn.interrupt("too late")


async def test_a_giant_message_is_heard_and_not_in_the_history(engine: Engine) -> None:
    stage = Stage()
    async with engine.worker(*stage.tools):
        turn = await _turn(engine, ScriptedReply(calls=(call("look", "a"),)), "Done.")
        await stage.began("a")
        await turn.interrupt("m" * 900_000)
        await turn.result()
        messages = await _messages(engine, turn)
        history = await engine.client.get_workflow_handle(turn.id).fetch_history()
    assert len(messages[3]) == 900_000 + len("user: ")
    assert sum(event.ByteSize() for event in history.events) < 100_000


# Every way to stop, while calls come and end


@pytest.mark.parametrize("level", ["call", "batch", "turn", "interrupt"])
@SCHEDULES
async def test_S16_what_ends_while_it_is_stopped_has_one_terminal_record(
    engine: Engine, schedule: Schedule, level: str
) -> None:
    """A result that arrives with the stop: whichever came first, there is one answer, and it is true."""
    async with engine.worker(*(stage := Stage()).tools):
        for again in range(8):
            labels = [f"{again}{letter}" for letter in "abcd"]
            turn = await _turn(
                engine, ScriptedReply(calls=tuple(call("look", label) for label in labels)), "Done.", schedule=schedule
            )
            await stage.began(*labels)

            async def let_go(labels: list[str] = labels) -> None:
                stage.go(*labels)

            stopping = _stop(turn, level)
            both_ways = (stopping, let_go()) if again % 2 else (let_go(), stopping)
            await asyncio.gather(*both_ways, return_exceptions=True)
            result = await turn.result()
            events = (await turn.fetch_events()).events
            assert [response.call_id for response in result.responses] == ["b1c1", "b1c2", "b1c3", "b1c4"]
            for label, response in zip(labels, result.responses, strict=True):
                assert response.status == ("success" if f"-{label}" in stage.timeline else "cancelled")
                ends = [event for event in events if event.kind == "call" and event.call == response.call_id]
                assert [event.after in ("success", "cancelled") for event in ends].count(True) == 1
            told = [event.call for event in events if event.kind == "result"]
            assert told == ["b1c1", "b1c2", "b1c3", "b1c4"]


async def _stop(turn: Turn, level: str) -> None:
    match level:
        case "call":
            await turn.cancel_call("b1c1")
        case "batch":
            await turn.cancel_batch("b1")
        case "turn":
            await turn.cancel()
        case _:
            await turn.interrupt("Stop")


async def test_S16_a_turn_that_is_cancelled_while_its_model_writes_answers_what_came(both: Engine) -> None:
    stage = Stage()
    slow = ScriptedReply(calls=(call("read", "a"), call("alter", "b"), call("read", "c")), seconds=0.2)
    async with both.worker(*stage.tools):
        turn = await _turn(both, slow.model_copy(update={"calls": (*slow.calls, *[call("read", "z")] * 500)}),
                           schedule=Schedule.STREAMING)  # fmt: skip
        await stage.began("a")
        await wait_until(lambda: _came(turn, 2))
        await turn.cancel()
        result = await turn.result()
        messages = await _messages(both, turn)
    assert result.status == "cancelled"
    assert {response.status for response in result.responses} == {"cancelled"}
    assert len(result.responses) >= 2
    assert stage.timeline == ["+a", "!a"]
    assert messages == ["user: Go", "assistant: ", " ".join(["cancelled"] * len(result.responses))]


async def _came(turn: Turn, count: int) -> bool:
    view = await turn.fetch_view(live=False)
    return view.batch is not None and len(view.batch.calls) >= count


async def test_S19_a_refusal_can_end_a_streamed_turn(engine: Engine) -> None:
    async def act(arguments: dict[str, Any], run: Run) -> str:
        return "done"

    stage = Stage()
    async with engine.worker(*stage.tools, FakeTool("asks", act, asks=True, safe=True)):
        calls = (call("read", "a"), CallRequest(tool="asks"))
        turn = await _turn(engine, ScriptedReply(calls=calls), "Never.", schedule=Schedule.STREAMING)
        await stage.began("a")
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.deny(item.approval_id, stop_turn=True)
        result = await turn.result()
    assert (result.status, result.text) == ("stopped", None)
    assert [response.status for response in result.responses] == ["cancelled", "cancelled"]
