"""Calls that begin while the model still writes (S10–S13, S15), on a real server: who runs beside whom, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    CallRequest,
    Effect,
    Event,
    ModelChoice,
    RequestRefused,
    Response,
    Run,
    Schedule,
    ScriptedReply,
    Turn,
    TurnInput,
)
from holdfast.client.queries import query_turn
from holdfast.domain.conversation.messages import AssistantMessage, Conversation, ToolMessage
from holdfast.testing import FakeTool, wait_until
from tests.support.engine import Engine
from tests.support.stage import Stage, call
from tests.support.waiting import done, executing, waiting


async def _open(engine: Engine, **input: Any) -> Turn:
    given = {"keep_open": True, "schedule": Schedule.STREAMING, "requester": "ana", **input}
    return await engine.start(TurnInput(**given))


async def _ended(turn: Turn, call_id: str) -> bool:
    return (await turn.fetch_call(call_id)).is_terminal


async def _statuses(turn: Turn) -> list[str]:
    return [response.status for response in (await turn.result()).responses]


# Timelines


async def test_S10_two_reads_run_beside_each_other_and_an_edit_alone(both: Engine) -> None:
    stage = Stage()
    async with both.worker(*stage.tools):
        turn = await _open(both)
        await turn.add_calls("reply", [call("read", "a")])
        await stage.began("a")
        await turn.add_calls("reply", [call("read", "b"), call("alter", "c")], at=1)
        await stage.began("b")
        stage.go("a", "c")
        await turn.add_calls("reply", at=3, complete=True)
        await wait_until(lambda: _ended(turn, "b1c1"))
        stage.go("b")
        await turn.finish()
        assert await _statuses(turn) == ["success"] * 3
    assert stage.timeline == ["+a", "+b", "-a", "-b", "+c", "-c"]


async def test_S10_an_exclusive_call_in_the_middle_holds_back_what_is_behind_it(both: Engine) -> None:
    stage = Stage()
    async with both.worker(*stage.tools):
        turn = await _open(both)
        await turn.add_calls("reply", [call("read", "a"), call("alter", "b"), call("read", "c")], complete=True)
        await stage.began("a")
        stage.go("c", "a")
        await stage.began("b")
        stage.go("b")
        await turn.finish()
        assert await _statuses(turn) == ["success"] * 3
    assert stage.timeline == ["+a", "-a", "+b", "-b", "+c", "-c"]


async def test_S11_before_the_reply_is_complete_only_reads_begin(engine: Engine) -> None:
    stage = Stage()
    async with engine.worker(*stage.tools):
        turn = await _open(engine)
        await turn.add_calls("reply", [call("read", "a"), call("alter", "b")])
        stage.go("a", "b")
        await wait_until(lambda: _ended(turn, "b1c1"))
        assert (await turn.fetch_call("b1c2")).status == "scheduled"
        await turn.add_calls("reply", complete=True)
        await turn.finish()
        assert await _statuses(turn) == ["success"] * 2


async def test_S11_a_turn_may_let_everything_begin_early(engine: Engine) -> None:
    stage = Stage()
    stage.go("b")
    async with engine.worker(*stage.tools):
        turn = await _open(engine, early=True)
        await turn.add_calls("reply", [call("alter", "b")])
        await wait_until(lambda: _ended(turn, "b1c1"))
        assert (await turn.fetch_batch("b1")).status == "active"
        await turn.finish()
        assert await _statuses(turn) == ["success"]


async def test_S9_under_all_ready_a_stream_begins_when_it_is_complete_and_ready(engine: Engine) -> None:
    stage = Stage()
    stage.go("a", "b")
    async with engine.worker(*stage.tools):
        turn = await _open(engine, schedule=Schedule.ALL_READY)
        await turn.add_calls("reply", [call("read", "a")])
        await wait_until(lambda: _scheduled(turn, "b1c1"))
        assert stage.timeline == []
        await turn.add_calls("reply", [call("read", "b")], at=1, complete=True)
        await turn.finish()
        assert await _statuses(turn) == ["success"] * 2


async def _scheduled(turn: Turn, call_id: str) -> bool:
    return (await turn.fetch_call(call_id)).status == "scheduled"


async def test_S10_no_more_run_at_once_than_the_turn_allows(engine: Engine) -> None:
    stage = Stage()
    labels = "abcd"
    async with engine.worker(*stage.tools):
        turn = await _open(engine, parallel=2)
        await turn.add_calls("reply", [call("read", label) for label in labels], complete=True)
        await stage.began("a", "b")
        stage.go("b")
        await stage.began("c")
        assert set(stage.timeline[:2]) == {"+a", "+b"}, "both are at work, whichever a worker took up first"
        assert stage.timeline[2:] == ["-b", "+c"]
        stage.go(*labels)
        await turn.finish()
        assert await _statuses(turn) == ["success"] * 4


# Failures that cascade


async def test_S15_a_failure_cancels_what_runs_and_waits_beside_it_and_the_turn_goes_on(both: Engine) -> None:
    stage = Stage()
    async with both.worker(*stage.tools):
        turn = await _open(both)
        await turn.add_calls("reply", [call("read", "a"), call("fragile", "b"), call("alter", "c")])
        await stage.began("a", "b")
        stage.fail("b")
        await wait_until(lambda: _ended(turn, "b1c3"))
        await turn.add_calls("reply", [call("read", "d")], at=3, complete=True)
        await turn.add_calls("next", [call("read", "e")], complete=True)
        stage.go("e")
        await turn.finish()
        result = await turn.result()
    assert set(stage.timeline[:2]) == {"+a", "+b"}, "both were at work, whichever a worker took up first"
    assert stage.timeline[2:] == ["-b", "!a", "+e", "-e"]
    words = [response.text.splitlines()[0] for response in result.responses]
    cancelled = "Cancelled: parallel tool call fragile(b) errored"
    assert words == [cancelled, "b broke", cancelled, cancelled, "e is done"]
    assert [response.status for response in result.responses] == [
        "cancelled", "error", "cancelled", "cancelled", "success",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "input", "sibling"),
    [
        ("fragile", {"on_error": "isolate"}, "success"),
        ("read", {"on_error": "abort"}, "cancelled"),
        ("fragile", {"schedule": Schedule.ALL_READY}, "success"),
        ("read", {"schedule": Schedule.ALL_READY, "on_error": "abort"}, "cancelled"),
    ],
)
async def test_S15_a_turn_overrides_what_tools_say(
    engine: Engine, tool: str, input: dict[str, Any], sibling: str
) -> None:
    stage = Stage()
    async with engine.worker(*stage.tools):
        turn = await _open(engine, **input)
        await turn.add_calls("reply", [call(tool, "a"), call("read", "b")], complete=True)
        await stage.began("a", "b")
        stage.fail("a")
        await wait_until(lambda: _ended(turn, "b1c1" if sibling == "success" else "b1c2"))
        stage.go("b")
        await turn.finish()
        assert await _statuses(turn) == ["error", sibling]


async def test_S15_a_command_that_fails_cancels_what_is_behind_it_where_calls_are_streamed(engine: Engine) -> None:
    engine.with_rules('[[rule]]\ndecision = "allow"\ntool = "shell"\n')
    commands = [CallRequest(tool="shell", arguments={"command": word}) for word in ("false", "echo never")]
    async with engine.worker():
        for schedule, second in ((Schedule.STREAMING, "cancelled"), (Schedule.ALL_READY, "success")):
            turn = await engine.start(TurnInput(batches=(tuple(commands),), schedule=schedule))
            assert await _statuses(turn) == ["error", second]


# Attempts


async def test_S12_an_attempt_that_breaks_off_while_its_tools_run_leaves_nothing_in_the_conversation(
    both: Engine,
) -> None:
    """The model's stream breaks after two calls that are running; the next attempt asks for others."""
    stage = Stage()
    stage.go("b")
    model = ModelChoice(
        script=(
            ScriptedReply(calls=(call("read", "a"), call("read", "b"), call("alter", "c")), breaks=(1,), seconds=1),
            ScriptedReply(text="Done."),
        )
    )
    async with both.worker(*stage.tools):
        turn = await both.start(TurnInput(prompt="Go", model=model, schedule=Schedule.STREAMING))
        await stage.began("a")
        await wait_until(lambda: _ended(turn, "b1c1"))
        stage.go("a", "c")
        result = await turn.result()
        conversation = await query_turn(both.client, turn.id, "conversation", result_type=Conversation)
        events = (await turn.fetch_events()).events
    assert stage.timeline[:2] == ["+a", "!a"]
    assert sorted(stage.timeline[2:]) == sorted(["+a", "-a", "+b", "-b", "+c", "-c"])
    assert [(batch.id, batch.status) for batch in result.batches] == [("b1", "discarded"), ("b2", "done")]
    assert [response.call_id for response in result.responses] == ["b2c1", "b2c2", "b2c3"]
    _check_whole(conversation, ["b2c1", "b2c2", "b2c3"])
    [discarded] = [event for event in events if event.after == "discarding"]
    assert "breaks attempt 1 off after 1 calls" in str(discarded.note)
    told = [event.call for event in events if event.kind == "result"]
    assert told == ["b2c1", "b2c2", "b2c3"]
    [call_ended] = result.batches[0].responses
    assert call_ended.status == "cancelled"


def _check_whole(conversation: Conversation, calls: list[str]) -> None:
    """S3: every call that the model is told it made has its one response, and no other call has."""
    asked = [
        one for message in conversation.messages if isinstance(message, AssistantMessage) for one in message.call_ids
    ]
    answered = [
        response.call_id
        for message in conversation.messages
        if isinstance(message, ToolMessage)
        for response in message.responses
    ]
    assert asked == answered == calls


async def test_S12_a_model_that_never_gets_through_fails_and_keeps_what_was_before(engine: Engine) -> None:
    stage = Stage()
    stage.go("a", "b")
    model = ModelChoice(
        script=(
            ScriptedReply(calls=(call("read", "a"),)),
            ScriptedReply(calls=(call("read", "b"),), breaks=(0, 1)),
        )
    )
    async with engine.worker(*stage.tools):
        turn = await engine.start(TurnInput(prompt="Go", model=model, schedule=Schedule.STREAMING))
        result = await turn.result()
    assert (result.status, [response.text for response in result.responses]) == (
        "failed", ["a is done", "b is done"],
    )  # fmt: skip
    assert "no reply for step 3" in str(result.reason)


async def test_S12_a_caller_begins_its_reply_anew(engine: Engine) -> None:
    stage = Stage()
    async with engine.worker(*stage.tools):
        turn = await _open(engine)
        first = await turn.add_calls("reply", [call("read", "a")])
        await stage.began("a")
        second = await turn.add_calls("reply", [call("read", "b")], attempt=2, reason="my line broke")
        assert (first.batch, second.batch) == ("b1", "b2")
        with pytest.raises(RequestRefused, match="discarded"):
            await turn.add_calls("reply", [call("read", "c")], at=1)
        stage.go("b")
        await turn.add_calls("reply", attempt=2, at=1, complete=True)
        await turn.finish()
        result = await turn.result()
    assert stage.timeline == ["+a", "!a", "+b", "-b"]
    assert [(batch.status, len(batch.responses)) for batch in result.batches] == [("discarded", 1), ("done", 1)]
    assert "my line broke" in result.batches[0].responses[0].text


# Adding


async def test_what_is_added_twice_counts_once_and_what_does_not_fit_is_refused(engine: Engine) -> None:
    stage = Stage()
    stage.go("a", "b", "c")
    async with engine.worker(*stage.tools):
        turn = await _open(engine)
        await turn.add_calls("reply", [call("read", "a"), call("read", "b")])
        again = await turn.add_calls("reply", [call("read", "a"), call("read", "b"), call("read", "c")])
        assert (again.batch, again.calls) == ("b1", 3)
        for code, given in (
            ("calls_missing", {"calls": [call("read", "x")], "at": 7}),
            ("other_calls", {"calls": [call("read", "x")], "at": 1}),
            ("empty_batch", {"stream": "empty", "complete": True}),
        ):
            with pytest.raises(RequestRefused) as refusal:
                await turn.add_calls(**{"stream": "reply", **given})  # type: ignore[arg-type]
            assert refusal.value.code == code
        await turn.add_calls("reply", at=3, complete=True)
        with pytest.raises(RequestRefused, match="complete"):
            await turn.add_calls("reply", [call("read", "d")], at=3)
        await turn.finish()
        assert await _statuses(turn) == ["success"] * 3


async def test_a_turn_with_a_model_takes_calls_from_nobody_else(engine: Engine) -> None:
    stage = Stage()
    model = ModelChoice(script=(ScriptedReply(calls=(call("read", "a"),)), ScriptedReply(text="Done")))
    async with engine.worker(*stage.tools):
        turn = await engine.start(TurnInput(prompt="Go", model=model, schedule=Schedule.STREAMING))
        await stage.began("a")
        with pytest.raises(RequestRefused, match="has a model"):
            await turn.add_calls("step-1", [call("alter", "x")], at=1)
        handle = engine.client.get_workflow_handle(turn.id)
        for body in (
            {"stream": "step-1", "calls": [{"tool": "alter"}], "at": 1},
            {"garbage": 1},
            "text",
            None,
            10**400,
        ):
            await handle.signal("add_calls", body)
        await handle.signal("add_calls")
        stage.go("a")
        result = await turn.result()
    assert (result.status, len(result.responses)) == ("completed", 1)


async def test_a_turn_that_is_finishing_takes_no_calls_by_signal_either(engine: Engine) -> None:
    """Else it would wait for ever for the rest of them."""
    stage = Stage()
    async with engine.worker(*stage.tools):
        turn = await _open(engine)
        await turn.add_calls("reply", [call("read", "a")])
        await stage.began("a")
        await turn.finish()
        handle = engine.client.get_workflow_handle(turn.id)
        await handle.signal("add_calls", {"stream": "late", "calls": [{"tool": "read"}]})
        stage.go("a")
        assert await _statuses(turn) == ["success"]


# Delivering


async def test_S13_results_are_delivered_in_request_order_as_they_become_final(engine: Engine) -> None:
    stage = Stage()
    got: list[Response] = []
    first, second = asyncio.Event(), asyncio.Event()
    async with engine.worker(*stage.tools):
        turn = await _open(engine)
        await turn.add_calls("reply", [call("read", label) for label in "abc"], complete=True)

        async def listen() -> None:
            async for response in turn.watch_responses():
                got.append(response)
                (first if len(got) == 1 else second).set()

        listening = asyncio.create_task(listen())
        await stage.began("a", "b", "c")
        stage.go("b")
        await wait_until(lambda: _ended(turn, "b1c2"))
        assert got == []
        stage.go("a")
        async with asyncio.timeout(20):
            await second.wait()
        assert [response.call_id for response in got] == ["b1c1", "b1c2"]
        stage.go("c")
        await turn.finish()
        async with asyncio.timeout(20):
            await listening
        result = await turn.result()
    assert tuple(got) == result.responses


async def test_S13_progress_is_seen_at_once_also_of_what_is_delivered_late(engine: Engine) -> None:
    stage = Stage()
    async with engine.worker(*stage.tools):
        turn = await _open(engine)
        await turn.add_calls("reply", [call("alter", "a"), call("read", "b")], complete=True)
        seen: list[tuple[str, str]] = []
        stage.go("b")
        await stage.began("a")
        async for item in turn.watch():
            if isinstance(item, Event):
                seen.append((item.kind, f"{item.call} {item.after}"))
            if isinstance(item, Event) and item.after == "executing" and item.call == "b1c1":
                stage.go("a")
            if isinstance(item, Event) and item.after == "done":
                break
        await turn.finish()
    told = [what for kind, what in seen if kind == "result"]
    assert told == ["b1c1 success", "b1c2 success"]
    assert ("call", "b1c1 executing") in seen


# Approval


async def test_S11_what_needs_a_person_waits_while_the_reads_around_it_run(engine: Engine) -> None:
    """Under `streaming` nobody waits for the approval of another."""
    stage = Stage()
    stage.go("a", "c", "b")

    async def act(arguments: dict[str, Any], run: Run) -> str:
        return "asked and done"

    asks = FakeTool("asks", act, asks=True, safe=True, effect=Effect.READ)
    async with engine.worker(*stage.tools, asks):
        turn = await _open(engine)
        await turn.add_calls("reply", [call("read", "a"), CallRequest(tool="asks"), call("read", "c")], complete=True)
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await wait_until(lambda: _ended(turn, "b1c3"))
        await engine.holdfast.approve(item.approval_id)
        await wait_until(lambda: done(turn, "b1"))
        await turn.finish()
        assert await _statuses(turn) == ["success"] * 3


# At size


async def test_S11_200_calls_of_a_streamed_reply_with_long_results(engine: Engine) -> None:
    async def long(arguments: dict[str, Any], run: Run) -> str:
        return "r" * 40_000

    tool = FakeTool("long", long, safe=True, effect=Effect.READ)
    calls = tuple(CallRequest(tool="long", arguments={"number": number}) for number in range(200))
    model = ModelChoice(script=(ScriptedReply(calls=calls, breaks=(60,)), ScriptedReply(text="Done.")))
    async with engine.worker(tool):
        turn = await engine.start(TurnInput(prompt="Go", model=model, schedule=Schedule.STREAMING))
        result = await turn.result()
        runs = [*(run.run_id for run in result.runs), None]
        history = [event for run in runs for event in await engine.history(turn, run)]
    assert (result.status, len(result.responses)) == ("completed", 200)
    assert {(response.status, len(response.text)) for response in result.responses} == {("success", 40_000)}
    signals = history.count("WORKFLOW_EXECUTION_SIGNALED")
    assert signals == 260
    assert len(history) < 4 * 260 + 8 * 200


async def test_S11_a_streamed_reply_without_calls_is_the_answer(engine: Engine) -> None:
    async with engine.worker():
        model = ModelChoice(script=(ScriptedReply(text="Done.", breaks=(0,)),))
        turn = await engine.start(TurnInput(prompt="Go", model=model, schedule=Schedule.STREAMING))
        result = await turn.result()
    assert (result.status, result.text, result.batches) == ("completed", "Done.", ())


async def test_S16_a_call_that_still_grows_into_a_cancelled_batch_never_begins(engine: Engine) -> None:
    stage = Stage()
    async with engine.worker(*stage.tools):
        turn = await _open(engine)
        await turn.add_calls("reply", [call("read", "a")])
        await wait_until(lambda: executing(turn, "b1c1"))
        await turn.cancel_batch("b1", "not this")
        with pytest.raises(RequestRefused):
            await turn.add_calls("reply", [call("read", "b")], at=1)
        await turn.finish()
        assert await _statuses(turn) == ["cancelled"]
    assert stage.timeline == ["+a", "!a"]
