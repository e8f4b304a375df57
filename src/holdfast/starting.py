"""Which calls may begin now (S9, S10, S11): pure functions over a batch and the plan of its turn."""

from __future__ import annotations

from holdfast.batches import Batch
from holdfast.calls import Call, Status
from holdfast.schedules import MAX_EXECUTING, Plan, Schedule
from holdfast.tools import Effect


def list_startable(batch: Batch, plan: Plan | None = None) -> tuple[Call, ...]:
    """Which scheduled calls may begin now, in order.

    A call may begin when nothing executes, or when it and everything executing is concurrency-safe. One that may not
    begin yet and is not safe holds back the ones behind it. One that has asked is as if executing, and goes on at once
    when it is answered.
    """
    plan = plan or Plan()
    if plan.schedule is Schedule.ALL_READY and not batch.is_ready:
        return ()
    at_work = [call for call in batch.calls if not call.is_terminal and (call.pause or call.status is Status.EXECUTING)]
    limit = min(MAX_EXECUTING, plan.parallel)
    taken: list[Call] = []
    for call in batch.calls:
        if call.is_terminal or call.pause or call.status is Status.EXECUTING:
            continue
        beside = [*at_work, *taken]
        if len(beside) >= limit:
            break
        alone_or_safe = not beside or (is_concurrency_safe(call) and all(map(is_concurrency_safe, beside)))
        if call.status is Status.SCHEDULED and alone_or_safe and _may_start_now(call, batch, plan):
            taken.append(call)
        elif not is_concurrency_safe(call):
            break
    return (*(call for call in at_work if call.status is Status.SCHEDULED), *taken)


def is_concurrency_safe(call: Call) -> bool:
    """May it run beside others that are safe?"""
    return call.bound is not None and call.bound.concurrency_safe


def _may_start_now(call: Call, batch: Batch, plan: Plan) -> bool:
    """Before the reply is complete only what merely reads begins, unless the turn says otherwise (S11)."""
    tool = call.bound.tool if call.bound else None
    reads = tool is not None and tool.effect is Effect.READ and not tool.traits.delegates
    return batch.complete or plan.early or reads
