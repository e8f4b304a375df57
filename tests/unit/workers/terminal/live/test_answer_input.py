"""What people are told of their decisions and answers, in sentences that are true."""

from __future__ import annotations

import pytest

from holdfast.domain.approvals.approval import DecisionAction, Offer, Scope
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.domain.turn.update_bodies import DecisionResult
from holdfast.workers.terminal.live.answer_input import describe_waiting, format_keys, list_keys
from holdfast.workers.terminal.live.send_decisions import describe_decision
from holdfast.workers.terminal.turn_board import Row


@pytest.mark.parametrize(
    ("outcome", "status", "words"),
    [
        ("proceed_once", "scheduled", "decided; the call is scheduled."),
        ("proceed_once", "awaiting_approval", "decided; the call needs another approver too."),
        ("respond", "scheduled", "answered; the tool goes on with it."),
        ("respond", "success", "answered; the model reads it as the result of the call."),
        ("cancel", "scheduled", "declined; the tool goes on without an answer."),
        ("cancel", "cancelled", "decided; the call is cancelled."),
        ("cancel", "error", "decided; the call failed."),
        ("modify", "validating", "decided; the call is judged again."),
    ],
)
def test_S21_what_became_of_a_decision_is_a_sentence(outcome: str, status: str, words: str) -> None:
    taken = DecisionResult.model_validate({"call": "b1c1", "status": status})
    assert describe_decision("t/b1c1/1", taken, outcome) == f"t/b1c1/1: {words}"


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (("exec", "edit"), "a decision: press [a] to be asked, or use `holdfast approve`"),
        (("question",), "an answer: press [a] to be asked, or use `holdfast respond`"),
        (("exec", "question"), "a decision: press [a] to be asked, or use `holdfast approve` or `holdfast respond`"),
    ],
)
def test_S41_what_is_put_off_says_with_which_command_it_is_answered(kinds: tuple[str, ...], words: str) -> None:
    rows = [Row("b1c1", "b1", 1, 1, "t", "awaiting_approval", "t", asks=kind) for kind in kinds]
    assert describe_waiting(rows, "press [a]") == words


OFFER = Offer(outcome=DecisionAction.PROCEED_ALWAYS, covers="`date`", scope=Scope())


def an_approval(kind: str, *offers: Offer) -> ApprovalView:
    return ApprovalView(approval_id="t/b1c1/1", digest="d", tool="shell", kind=kind, title="Run it", offers=offers)


@pytest.mark.parametrize(
    ("approval", "offer", "keys"),
    [
        (an_approval("exec", OFFER), None, "yaenNsvr"),
        (an_approval("exec"), None, "yenNsvr"),
        (an_approval("exec", OFFER, OFFER), 0, "yn12"),
        (an_approval("outcome_unknown"), None, "ydnNsv"),
        (an_approval("question"), None, ""),
    ],
)
def test_the_keys_that_are_shown_are_those_that_answer(approval: ApprovalView, offer: int | None, keys: str) -> None:
    assert "".join(list_keys(approval, offer)) == keys
    shown = format_keys(approval, offer, 40)
    assert all(len(line) <= 40 for line in shown.split("\n"))
    assert [key for key in keys if f"[{key}]" not in shown and not key.isdigit()] == []
