"""The life of a call on a real server: what ended stays ended, results keep their order, verdicts are on record."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.api.enums.v1 import EventType

from holdfast import Decision, Event, LiveOutput, Run, TurnInput
from holdfast.domain.calls.verdicts import Allow, Ask
from holdfast.domain.turn.activity_io import ValidateResult
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import waiting


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return "echo"


ASK = FakeTool("ask", _echo, asks=True)


async def test_S1_a_late_decision_for_an_ended_call_changes_nothing_and_leaves_no_event(both: Engine) -> None:
    async with both.worker(ASK):
        turn = await both.start(TurnInput(batches=((build_request("ask", n=1), build_request("ask", n=2)),)))
        view = await wait_until(lambda: waiting(turn, 2))
        first, second = view.approvals
        await turn.cancel_call("b1c1")
        ended, events = await turn.fetch_call("b1c1"), (await turn.fetch_events()).events
        late = Decision.model_validate(
            {"approval_id": first.approval_id, "digest": first.digest, "outcome": "yes", "id": "late"}
        )
        handle = both.client.get_workflow_handle(turn.id)
        for _ in range(3):
            await handle.signal("decide", late)
        assert await turn.fetch_call("b1c1") == ended
        assert (await turn.fetch_events()).events == events
        await both.holdfast.approve(second.approval_id)
        result = await turn.result()
        assert await turn.fetch_call("b1c1") == ended
    assert [response.status for response in result.responses] == ["cancelled", "success"]


async def test_S13_results_keep_the_order_of_the_request_and_progress_comes_at_once(engine: Engine) -> None:
    heard = asyncio.Event()

    async def first(arguments: dict[str, Any], run: Run) -> str:
        async with asyncio.timeout(20):
            await heard.wait()
        return "first"

    async def second(arguments: dict[str, Any], run: Run) -> str:
        run.write("under way\n")
        async with asyncio.timeout(20):
            await heard.wait()
        return "second"

    async def third(arguments: dict[str, Any], run: Run) -> str:
        return "third"

    tools = [FakeTool(name, body, safe=True) for name, body in [("one", first), ("two", second), ("three", third)]]
    ends: list[str] = []
    async with engine.worker(*tools):
        turn = await engine.start(
            TurnInput(batches=((build_request("one"), build_request("two"), build_request("three")),))
        )
        async for item in turn.watch():
            if isinstance(item, LiveOutput):
                assert ends == ["b1c3"], "progress is seen while earlier calls still run"
                heard.set()
            elif isinstance(item, Event) and item.after == "success" and item.call:
                ends.append(item.call)
        result = await turn.result()
    assert ends[0] == "b1c3"
    assert [response.text for response in result.responses] == ["first", "second", "third"]


async def test_S20_the_verdict_with_what_a_person_is_shown_is_in_the_history(engine: Engine) -> None:
    (engine.workspace / "a.txt").write_text("old\n")
    calls = (
        build_request("read_file", path="a.txt"),
        build_request("write_file", path="a.txt", content="new\n"),
        build_request("shell", command="cat a.txt | wc -l"),
    )
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(calls,)))
        view = await wait_until(lambda: waiting(turn, 2))
        history = await engine.client.get_workflow_handle(turn.id).fetch_history()
        await turn.cancel()
        await turn.result()
    [marker] = [event for event in history.events if event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED]
    recorded = marker.marker_recorded_event_attributes.details["result"].payloads
    [answer] = await engine.client.data_converter.decode(recorded, [ValidateResult])
    read, write, shell = (answer.verdicts[f"b1c{n}"] for n in (1, 2, 3))
    assert isinstance(read, Allow)
    assert isinstance(write, Ask)
    assert (write.confirmation.kind, write.confirmation.path) == ("edit", "a.txt")
    assert write.confirmation.diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n"
    assert write.confirmation.arguments == {"path": "a.txt", "content": "new\n"}
    assert isinstance(shell, Ask)
    assert (shell.confirmation.kind, shell.confirmation.command) == ("exec", "cat a.txt | wc -l")
    assert shell.confirmation.programs == ("cat", "wc")
    assert all(verdict.rule for verdict in (read, write, shell))
    assert [item.digest for item in view.approvals] == [write.bound.digest, shell.bound.digest]
