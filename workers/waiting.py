"""What waits in one turn: asked of the turn itself, or, when no worker answers, read from what the server keeps."""

from __future__ import annotations

from temporalio.service import RPCError

from holdfast.approvals import ApprovalId
from holdfast.client import Holdfast
from holdfast.errors import NoWorker, RequestRefused
from holdfast.looking import read_memo
from holdfast.views import ApprovalView, InboxSummary


async def fetch_waiting(holdfast: Holdfast, turn_id: str) -> list[ApprovalView]:
    """Everything that waits in a turn, in the order of its calls."""
    try:
        view = await holdfast.get_turn(turn_id).fetch_view(live=False)
    except NoWorker:
        kept = await fetch_memo_summary(holdfast, turn_id)
        if kept.total > len(kept.approvals):
            raise
        return list(kept.approvals)
    if view.result:
        raise RequestRefused("ended", f"turn {turn_id!r} has ended: nothing in it waits for a decision")
    return list(view.approvals)


async def fetch_memo_summary(holdfast: Holdfast, turn_id: str) -> InboxSummary:
    """What the turn's memo says waits; that something may, where the server does not tell it."""
    try:
        return await read_memo(await holdfast.client.get_workflow_handle(turn_id).describe())
    except RPCError:
        return InboxSummary(total=1)


def parse_turn_id(approval: ApprovalView) -> str:
    """The turn in which it waits."""
    return ApprovalId.parse(approval.approval_id).turn
