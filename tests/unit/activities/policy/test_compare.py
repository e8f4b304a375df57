"""Recorded turns under another policy: every call that was judged is found again, and what would change is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from holdfast.activities.policy.compare import RecordedCall, compare_policies, describe_ruling
from holdfast.activities.policy.load_policy import build_policy, load_shipped
from holdfast.activities.policy.subject import CallKind
from holdfast.domain.calls.tool import Effect
from holdfast.domain.modes import Mode
from holdfast.errors import BadInput
from holdfast.payloads.converter import build_data_converter
from holdfast.workers.lookup.recorded_calls import RecordedTurn, read_history, read_recorded_turn
from tests.support.policies import load, policy, rule, run

HISTORIES = Path(__file__).parents[3] / "replay" / "histories"
STORED = sorted(path.stem for path in HISTORIES.glob("*.json"))


async def recorded(name: str, payloads: Path = HISTORIES / "payloads") -> RecordedTurn:
    history = read_history(HISTORIES / f"{name}.json")
    return await read_recorded_turn(history, build_data_converter(None, payloads), Path("/w"))


SESSIONS = {name for name in STORED if '"holdfast.session"' in (HISTORIES / f"{name}.json").read_text()[:2_000]}


@pytest.mark.parametrize("name", sorted(set(STORED) - SESSIONS))
async def test_every_stored_history_can_be_read(name: str) -> None:
    turn = await recorded(name)
    assert turn.unreadable == 0
    assert turn.id.startswith(("turn-", "session-"))
    for call in turn.calls:
        assert call.call.startswith("b")
        call.subject.model_dump_json()


async def test_a_denied_call_is_found_by_its_request_and_judged_in_its_mode() -> None:
    calls = {call.call: call for call in (await recorded("denied_by_mode")).calls}
    assert {call.mode for call in calls.values()} == {Mode.PLAN}
    write, ask, echo = calls["b1c1"].subject, calls["b1c2"].subject, calls["b1c3"].subject
    assert (write.tool, write.kind, write.paths) == ("write_file", CallKind.EDIT, ("c.txt",))
    assert (ask.tool, ask.arguments, ask.effect) == ("ask", {"say": 1}, Effect.ONCE)
    assert (echo.tool, echo.effect) == ("echo", Effect.READ)


async def test_a_call_that_was_changed_or_shown_again_is_there_with_its_facts() -> None:
    [edit] = (await recorded("file_changed_under_approval")).calls
    assert (edit.subject.kind, edit.subject.paths) == (CallKind.EDIT, ("b.txt",)), "judged twice, and the same call"


async def test_payloads_that_are_gone_are_counted_and_the_rest_is_told(tmp_path: Path) -> None:
    turn = await recorded("large_payloads", tmp_path)
    assert turn.unreadable > 0
    assert turn.calls == ()


async def test_batches_get_the_requests_that_came_from_outside_and_from_the_model() -> None:
    """A denial says nothing of its call: the request must be the right one, wherever it came from."""
    for name in ("queue_of_batches", "model_turn", "streamed_by_a_model", "streamed_by_a_caller"):
        stored = json.loads((HISTORIES / f"{name}.json").read_text())
        before = await recorded(name)
        for event in stored["events"]:
            details = event.get("markerRecordedEventAttributes", {}).get("details", {})
            for payload in details.get("result", {}).get("payloads", ()):
                payload["data"] = _denied(payload["data"])
        history = WorkflowHistory.from_json(before.id, stored)
        after = await read_recorded_turn(history, build_data_converter(None, HISTORIES / "payloads"), Path("/w"))
        assert [(one.call, one.subject.tool, one.subject.arguments) for one in after.calls] == [
            (one.call, one.subject.tool, one.subject.arguments) for one in before.calls
        ]


def _denied(data: str) -> str:
    import base64

    result = json.loads(base64.b64decode(data))
    result["verdicts"] = {call: {"kind": "deny", "rule": "r", "message": "m"} for call in result["verdicts"]}
    return base64.b64encode(json.dumps(result).encode()).decode()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"events": []}', '{"events": [{}]}', '{"events": 5}', "\x00\xff", "[" * 100_000,
     '{"events": [{"workflowExecutionStartedEventAttributes": {"workflowId": 5, "input": 7}}]}'],
)  # fmt: skip
def test_what_is_no_history_is_bad_input(text: str, tmp_path: Path) -> None:
    file = tmp_path / "h.json"
    file.write_text(text)
    with pytest.raises(BadInput, match="is not the history of a turn"):
        read_history(file)
    for wrong in (tmp_path, tmp_path / "missing"):
        with pytest.raises(BadInput, match="cannot be read"):
            read_history(wrong)


def call(command: str, mode: Mode = Mode.DEFAULT) -> RecordedCall:
    return RecordedCall("t", "b1c1", command, run(command), mode)


def test_only_what_becomes_of_a_call_is_a_difference() -> None:
    before = build_policy([load_shipped()])
    same = build_policy([load_shipped(), load(rule("tool = 'shell'\nname = 'other'", "ask"))])
    assert compare_policies(call("make"), before, same) is None
    allowing = build_policy([load_shipped(), load(rule("tool = 'shell'\nname = 'all'"))])
    found = compare_policies(call("make"), before, allowing)
    assert found
    assert (describe_ruling(found.before), describe_ruling(found.after)) == (
        "ask by 'changes-ask' (default)",
        "allow by 'all' (user)",
    )
    stricter = build_policy(
        [load_shipped(), load(rule("tool = 'shell'\nname = 'two'\napprovals = 2\ndeadline = '1h'", "ask"))]
    )
    found = compare_policies(call("make"), before, stricter)
    assert found
    assert describe_ruling(found.after) == "ask by 'two' (user), 2 approvals, within 1 h, else deny"


def test_what_a_rule_allows_and_nobody_understands_is_left_to_the_tool() -> None:
    found = compare_policies(call("ls > x"), policy(rule("tool = 'shell'", "deny")), policy(rule("tool = 'shell'")))
    assert found
    assert (found.after, describe_ruling(found.after)) == (None, "the tool's own wish")
    assert compare_policies(call("ls > x"), policy(), policy(rule("tool = 'shell'"))) is None
