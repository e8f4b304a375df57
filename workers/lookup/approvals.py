"""Pending approvals of a turn: asked of the turn, or read from the memo when no worker answers."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.client.client import Holdfast
from holdfast.client.turn_reader import fetch_memo
from holdfast.domain.approvals.approval import ApprovalId
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.turn.approval_view import ApprovalView, build_whole_approval
from holdfast.errors import BadInput, DecisionRefused, NoWorker, RequestRefused


class PendingApproval(NamedTuple):
    """An approval, and the call that it is about."""

    approval: ApprovalView
    call: Call


async def fetch_pending_approval(holdfast: Holdfast, approval_id: str) -> PendingApproval:
    """The pending approval with this id; DecisionRefused when there is none, or it was replaced."""
    address = ApprovalId.parse(approval_id)
    try:
        call = await holdfast.get_turn(address.turn).fetch_call(address.call)
    except BadInput:
        raise DecisionRefused(
            "unknown_approval", f"no pending approval {approval_id!r} (see `holdfast inbox`)"
        ) from None
    if call.status is not Status.AWAITING_APPROVAL:
        raise DecisionRefused("not_waiting", f"call {call.id!r} has no pending approval: it is {call.status}")
    found = PendingApproval(build_whole_approval(address.turn, call), call)
    if address.revision > call.revision:
        raise DecisionRefused(
            "unknown_approval",
            f"no approval {approval_id!r}: the latest is revision {call.revision} (see `holdfast inbox`)",
        )
    if address.revision != call.revision:
        now = found.approval.approval_id
        raise DecisionRefused("old_revision", f"approval {approval_id!r} was replaced: look at {now!r}")
    return found


async def fetch_waiting(holdfast: Holdfast, turn_id: str) -> list[ApprovalView]:
    """The pending approvals of a turn, in the order of its calls. NoWorker when they are known only in part."""
    try:
        view = await holdfast.get_turn(turn_id).fetch_view(live=False)
    except NoWorker:
        memo = await fetch_memo(holdfast.client, turn_id)
        if memo.total > len(memo.approvals):
            raise
        return list(memo.approvals)
    if view.result:
        raise RequestRefused("ended", f"turn {turn_id!r} has ended: it has no pending approval")
    return list(view.approvals)


def parse_turn_id(approval: ApprovalView) -> str:
    """The turn of an approval."""
    return ApprovalId.parse(approval.approval_id).turn
