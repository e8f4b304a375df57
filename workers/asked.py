"""One approval, whole: as it is asked now, of the turn itself."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.approvals import ApprovalId
from holdfast.calls import Call, Status
from holdfast.client import Holdfast
from holdfast.errors import BadInput, DecisionRefused
from holdfast.views import ApprovalView
from holdfast.workers.questions import build_whole_approval


class PendingApproval(NamedTuple):
    """What a person is asked, and the call that it is about."""

    approval: ApprovalView
    call: Call


async def fetch_pending_approval(holdfast: Holdfast, approval_id: str) -> PendingApproval:
    """What waits under an id; DecisionRefused when nothing does, or something else by now."""
    address = ApprovalId.parse(approval_id)
    try:
        call = await holdfast.get_turn(address.turn).fetch_call(address.call)
    except BadInput:
        raise DecisionRefused(
            "unknown_approval", f"nothing waits under {approval_id!r}: see `holdfast inbox`"
        ) from None
    if call.status is not Status.AWAITING_APPROVAL:
        raise DecisionRefused("not_waiting", f"call {call.id!r} does not wait for a decision: it is {call.status}")
    found = PendingApproval(build_whole_approval(address.turn, call), call)
    if address.revision > call.revision:
        raise DecisionRefused("unknown_approval", f"call {call.id!r} was asked about {call.revision} times only")
    if address.revision != call.revision:
        now = found.approval.approval_id
        raise DecisionRefused("old_revision", f"approval {approval_id!r} was replaced: look at {now!r}")
    return found
