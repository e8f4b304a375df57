"""Conditions to wait for (with `holdfast.testing.wait_until`), and waiting for what the server lists."""

from __future__ import annotations

from holdfast import ApprovalView, Holdfast, Turn, TurnView
from holdfast.testing import wait_until


async def waiting(turn: Turn, count: int = 1) -> TurnView | None:
    """The view, once this many approvals wait."""
    view = await turn.fetch_view(live=False)
    return view if len(view.approvals) >= count else None


async def executing(turn: Turn, call_id: str) -> bool:
    """Is this call executing?"""
    view = await turn.fetch_view(live=False)
    calls = view.batch.calls if view.batch else ()
    return any(call.id == call_id and call.status == "executing" for call in calls)


async def done(turn: Turn, batch_id: str) -> bool:
    """Has this batch ended?"""
    return (await turn.fetch_batch(batch_id)).status == "done"


async def speaking(turn: Turn, words: str = "") -> bool:
    """Has live output with these words been seen?"""
    view = await turn.fetch_view()
    calls = view.batch.calls if view.batch else ()
    return any(call.live_output and words in call.live_output for call in calls)


async def asked(turn: Turn, call_id: str, revision: int) -> TurnView | None:
    """The view, once this call has been asked about so often."""
    view = await waiting(turn)
    wanted = f"/{call_id}/{revision}"
    return view if view and any(item.approval_id.endswith(wanted) for item in view.approvals) else None


async def listed(holdfast: Holdfast, *turns: str, count: int = 1, seconds: float = 20) -> list[ApprovalView]:
    """What the inbox has of these turns, once it is this many: the server lists what has changed a moment later."""

    async def found() -> tuple[list[ApprovalView]] | None:
        ours = [item for item in await holdfast.list_approvals() if item.approval_id.startswith(turns)]
        return (ours,) if len(ours) == count else None

    items: list[ApprovalView]
    [items] = await wait_until(found, seconds)
    return items
