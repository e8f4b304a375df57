"""When the calls of a turn begin, and what a failure does to the calls beside it. Pure."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Literal

from holdfast.domain.base import Data
from holdfast.domain.calls.batch import Batch
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.tool import Effect

MAX_EXECUTING = 50
"""Calls of one batch that run at once: bounds what one workflow task schedules."""

OnError = Literal["isolate", "abort"]
"""What a tool's failure does to the calls beside it: nothing, or it cancels them."""


class Schedule(StrEnum):
    """When the calls of a batch begin."""

    ALL_READY = "all_ready"
    """When every one of them is scheduled or has ended."""
    STREAMING = "streaming"
    """Each as soon as it is itself ready, while the model still writes."""


class Plan(Data):
    """How a turn starts its calls."""

    schedule: Schedule = Schedule.ALL_READY
    early: bool = False
    """May also what does more than read begin before the model's reply is complete?"""
    parallel: int = MAX_EXECUTING
    """How many run at once."""
    on_error: OnError | None = None
    """What a failure does to the calls beside it, whatever their tools say."""


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


def may_run_at_once(batch: Batch, plan: Plan) -> bool:
    """Would all calls of a batch begin at once, if they merely read and rules allowed every one of them?"""
    unjudged = len(batch.unvalidated_calls) == len(batch.calls)
    return batch.complete and unjudged and len(batch.calls) <= min(MAX_EXECUTING, plan.parallel) and not plan.on_error


def is_concurrency_safe(call: Call) -> bool:
    """May it run beside others that are safe?"""
    return call.bound is not None and call.bound.concurrency_safe


def _may_start_now(call: Call, batch: Batch, plan: Plan) -> bool:
    """Before the reply is complete only what merely reads begins, unless the turn says otherwise (S11)."""
    tool = call.bound.tool if call.bound else None
    reads = tool is not None and tool.effect is Effect.READ and not tool.traits.delegates
    return batch.complete or plan.early or reads


DESCRIPTION_LIMIT = 40
"""Characters of what the failed call was about."""


def needs_abort(call: Call, plan: Plan) -> bool:
    """Does the end of this call cancel the calls beside it? Only what ran and failed does."""
    if call.status is not Status.ERROR or call.started_at is None or call.bound is None:
        return False
    if plan.on_error is not None:
        return plan.on_error == "abort"
    said = call.bound.tool.traits.aborts_siblings
    return plan.schedule is Schedule.STREAMING if said == "streaming" else said


def describe_abort(call: Call) -> str:
    """What the cancelled ones say."""
    described = _describe_call(call)
    return f"Cancelled: parallel tool call {call.tool}{f'({described})' if described else ''} errored"


def _describe_call(call: Call) -> str:
    """The beginning of its command, or of its first text, as the model wrote it; else of all its arguments."""
    given = call.request.arguments
    arguments = given if isinstance(given, dict) else {}
    texts = [value for value in (arguments.get("command"), *arguments.values()) if isinstance(value, str) and value]
    text = texts[0] if texts else json.dumps(given, ensure_ascii=False) if given else ""
    return text if len(text) <= DESCRIPTION_LIMIT else f"{text[:DESCRIPTION_LIMIT]}…"
