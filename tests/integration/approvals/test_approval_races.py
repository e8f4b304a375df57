"""Decisions, changes, grants and hooks at the wrong moment: nothing hangs, runs unasked, or is forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.api.common.v1 import Payload, Payloads

from holdfast import ApprovalView, Mode, Turn, TurnInput
from holdfast.config.schema import HookSettings
from holdfast.domain.approvals.approval import Approver
from holdfast.domain.approvals.signing import format_public_key
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import asked, waiting

MADE = build_request("shell", command="touch made")


def _hook(name: str, script: str, **more: Any) -> HookSettings:
    return HookSettings.model_validate(
        {"name": name, "when": "before", "command": ["sh", "-c", script], "timeout_seconds": 60, **more}
    )


async def _items(turn: Turn, count: int = 1) -> tuple[ApprovalView, ...]:
    found: tuple[ApprovalView, ...] = (await wait_until(lambda: waiting(turn, count))).approvals
    return found


@pytest.mark.parametrize("number", ["1e400", "NaN", "-1e999"])
async def test_S23_a_signal_with_what_is_no_number_changes_nothing(engine: Engine, number: str) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        [item] = await _items(turn)
        body = '{"approval_id": "%s", "digest": "%s", "outcome": "modify", "arguments": {"x": %s}}'
        said = (body % (item.approval_id, item.digest, number)).encode()
        payload = Payload(metadata={"encoding": b"json/plain"}, data=said)
        await engine.raw_signal(turn.id, "decide", Payloads(payloads=[payload]))
        await engine.holdfast.deny(item.approval_id)
        assert (await turn.result()).responses[0].status == "cancelled"


async def test_S36_a_slow_hook_where_a_call_executes_does_not_make_it_count_as_lost(engine: Engine) -> None:
    slow = _hook("slow", "grep -q execute && sleep 12; true")
    engine.with_rules('[[rule]]\ndecision = "allow"\ncommand = "touch **"\n', hooks=(slow,))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        [response] = (await turn.result()).responses
    assert response.status == "success"


async def test_S17_a_stop_reaches_a_call_that_a_hook_still_looks_at(engine: Engine) -> None:
    began = engine.workspace.parent / "began"
    slow = _hook("slow", f"grep -q execute && touch {began} && sleep 50; true")
    engine.with_rules('[[rule]]\ndecision = "allow"\ncommand = "touch **"\n', hooks=(slow,))

    async def begun() -> bool:
        return await asyncio.to_thread(began.exists)

    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        await wait_until(begun)
        await turn.cancel()
        async with asyncio.timeout(30):
            [response] = (await turn.result()).responses
    assert response.status == "cancelled"
    assert not (engine.workspace / "made").exists()


async def test_S28_where_approvers_have_keys_a_deadline_only_denies(engine: Engine) -> None:
    key = Ed25519PrivateKey.generate().public_key()
    rules = '[[rule]]\ndecision = "ask"\ncommand = "touch **"\ndeadline = "5s"\non_deadline = "allow"\n'
    engine.with_rules(rules, approvers=(Approver(name="ana", key=format_public_key(key)),))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        [item] = await _items(turn)
        assert item.on_deadline == "deny"
        [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type == "expired"


async def test_S28_what_a_hook_wants_somebody_to_see_does_not_run_because_nobody_did(engine: Engine) -> None:
    rules = '[[rule]]\ndecision = "ask"\ncommand = "touch **"\ndeadline = "1s"\non_deadline = "allow"\n'
    engine.with_rules(rules, hooks=(_hook("look", """echo '{"decision": "ask"}'"""),))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type == "expired"


async def test_S28_what_only_a_hook_asks_about_has_the_turns_deadline(engine: Engine) -> None:
    engine.with_rules(
        '[[rule]]\ndecision = "allow"\ncommand = "touch **"\n', hooks=(_hook("look", """echo '{"decision": "ask"}'"""),)
    )
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),), approval_seconds=1))
        [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type == "expired"


async def test_S24_a_call_that_a_second_grant_covers_goes_on_when_the_first_is_revoked(both: Engine) -> None:
    commands = tuple(build_request("shell", command=f"echo {word}") for word in ("a", "a", "b", "c"))
    async with both.worker():
        held = build_request("write_file", path="held.txt", content="x")
        turn = await both.start(TurnInput(batches=((*commands, held),)))
        items = await _items(turn, 5)
        await both.holdfast.decide(items[0].approval_id, "proceed_always")
        await wait_until(lambda: _left(turn, 3))
        await both.holdfast.decide(items[2].approval_id, "proceed_always_tool")
        await wait_until(lambda: _left(turn, 1))
        await turn.revoke("g1")
        await both.holdfast.deny(items[4].approval_id)
        result = await turn.result()
        call = await turn.fetch_call("b1c2")
    assert [response.status for response in result.responses] == ["success"] * 4 + ["cancelled"]
    assert call.revision == 1


async def _left(turn: Turn, count: int) -> bool:
    return len((await turn.fetch_view(live=False)).approvals) <= count


async def test_S22_what_somebody_else_wrote_since_the_diff_was_shown_is_asked_about_though_the_turn_read_it(
    engine: Engine,
) -> None:
    file = engine.workspace / "a.txt"
    file.write_text("shown")
    batch = (build_request("read_file", path="a.txt"), build_request("write_file", path="a.txt", content="new"))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(batch,)))
        [item] = await _items(turn)
        file.write_text("a person's own work")
        await engine.holdfast.approve(item.approval_id, digest=item.digest)
        again = (await wait_until(lambda: asked(turn, "b1c2", 2))).approvals[0]
        assert "a person's own work" in (again.diff or "")
        await engine.holdfast.deny(again.approval_id)
        await turn.result()
    assert file.read_text() == "a person's own work"


async def test_S25_what_policy_would_let_pass_is_shown_again_whole_when_somebody_changed_it(engine: Engine) -> None:
    engine.with_rules('[[rule]]\ndecision = "allow"\npath = "free/**"\ntool = "write_file"\n')
    async with engine.worker():
        write = build_request("write_file", path="a.txt", content="x\n")
        turn = await engine.start(TurnInput(batches=((write,),), approval_seconds=3_600))
        [item] = await _items(turn)
        arguments = {"path": "free/a.txt", "content": "y\n"}
        await engine.holdfast.decide(item.approval_id, "modify", arguments=arguments)
        [again] = (await wait_until(lambda: asked(turn, "b1c1", 2))).approvals
        assert (again.kind, again.path, again.edits) == ("edit", "free/a.txt", "content")
        assert (again.diff or "").endswith("+y\n")
        assert again.deadline is not None
        await turn.cancel()


async def test_S25_a_change_into_what_needs_two_is_asked_about_at_once(engine: Engine) -> None:
    engine.with_rules('[[rule]]\ndecision = "ask"\ncommand = "touch **"\napprovals = 2\n')
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="echo hi"),),)))
        [item] = await _items(turn)
        taken = await engine.holdfast.decide(item.approval_id, "proceed_once", content="touch made", by="ana")
        assert taken is not None
        assert taken.status == "awaiting_approval"
        [again] = (await wait_until(lambda: asked(turn, "b1c1", 2))).approvals
        assert again.needs.approvals == 2
        await turn.cancel()


async def test_S24_a_refusal_that_is_remembered_reaches_what_was_approved_before_and_has_not_begun(
    engine: Engine,
) -> None:
    batch = (MADE, MADE, build_request("shell", command="echo hi"))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(batch,)))
        items = await _items(turn, 3)
        await engine.holdfast.approve(items[0].approval_id)
        await engine.holdfast.deny(items[1].approval_id, remember=True, by="ben")
        await engine.holdfast.approve(items[2].approval_id)
        first, second, third = (await turn.result()).responses
    assert [first.status, second.status, third.status] == ["cancelled", "cancelled", "success"]
    assert not (engine.workspace / "made").exists()


async def test_S35_a_hook_that_stops_the_turn_where_a_call_executes_is_obeyed(engine: Engine) -> None:
    stop = _hook("stop", """grep -q '"execute"' && echo '{"stop_turn": true, "reason": "Enough."}'; true""")
    engine.with_rules('[[rule]]\ndecision = "allow"\ncommand = "touch **"\n', hooks=(stop,))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,), (MADE,))))
        result = await turn.result()
    assert (result.status, result.reason) == ("stopped", "Enough.")
    assert [response.error.type for response in result.responses if response.error] == ["denied", "cancelled"]


async def test_S7_a_call_that_failed_keeps_its_error_when_a_hook_stops_the_turn(engine: Engine) -> None:
    stop = _hook("stop", """echo '{"stop_turn": true, "reason": "Enough."}'""", when="after")
    engine.with_rules('[[rule]]\ndecision = "allow"\ncommand = "false"\n', hooks=(stop,))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="false"),),)))
        result = await turn.result()
    assert result.status == "stopped"
    assert result.responses[0].status == "error"


async def test_S27_planning_is_permitted_everywhere_and_the_view_tells_the_mode_that_counts(engine: Engine) -> None:
    engine.with_rules("", modes=(Mode.DEFAULT,))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),), mode=Mode.YOLO, keep_open=True))
        await _items(turn)
        assert (await turn.fetch_view(live=False)).mode is Mode.DEFAULT
        await turn.set_mode(Mode.PLAN)

        async def ended() -> bool:
            return (await turn.fetch_call("b1c1")).is_terminal

        await wait_until(ended)
        assert (await turn.fetch_view(live=False)).mode is Mode.PLAN
        await turn.finish()
        [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type == "denied"


async def test_S25_an_editor_that_never_said_it_was_done_is_not_believed_for_ever(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        [item] = await _items(turn)
        await turn.note_editing(item.approval_id, by="ghost", seconds=1)

        async def forgotten() -> bool:
            return (await _items(turn))[0].editing is None

        await wait_until(forgotten)
        await turn.cancel()


@pytest.mark.parametrize("other", ["ana ", "ANA", "ａｎａ"])
async def test_S22_two_spellings_of_one_name_are_one_person(engine: Engine, other: str) -> None:
    engine.with_rules('[[rule]]\ndecision = "ask"\ncommand = "touch **"\napprovals = 2\n')
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        [item] = await _items(turn)
        await engine.holdfast.approve(item.approval_id, by="ana")
        with pytest.raises(Exception, match="has already approved this call"):
            await engine.holdfast.approve(item.approval_id, by=other)
        await turn.cancel()


async def test_taint_counts_for_what_was_stopped_too(engine: Engine) -> None:
    command = "echo begun; curl -s http://127.0.0.1:1/ ; sleep 60"
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command=command),),), keep_open=True))
        [item] = await _items(turn)
        await engine.holdfast.approve(item.approval_id)
        await wait_until(lambda: _speaks(turn))
        await turn.cancel_call("b1c1")

        async def tainted() -> bool:
            return bool((await turn.fetch_view(live=False)).tainted)

        await wait_until(tainted)
        await turn.finish()
        await turn.result()


async def _speaks(turn: Turn) -> bool:
    view = await turn.fetch_view()
    return any(call.live_output for call in (view.batch.calls if view.batch else ()))
