"""When the calls of a batch start (S9-S11), and what an error does to the other calls (S15). Pure."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Literal

from holdfast.domain.base import Data
from holdfast.domain.calls.batch import Batch
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.tool import Effect

MAX_EXECUTING = 50
"""Calls of one batch that run at once. It bounds the commands of one workflow task."""

OnError = Literal["isolate", "abort"]
"""The effect of a tool's error on the other calls of the batch: none, or it cancels them."""


class Schedule(StrEnum):
    """When the calls of a batch start."""

    ALL_READY = "all_ready"
    """When every call is scheduled or has ended (S9)."""
    STREAMING = "streaming"
    """Each as soon as it is scheduled, while the model still writes (S11)."""


class Plan(Data):
    """The fields of a turn's input that say when its calls start."""

    schedule: Schedule = Schedule.ALL_READY
    early: bool = False
    """May calls that do more than read start before the model's reply is complete?"""
    parallel: int = MAX_EXECUTING
    """The number of calls that run at once."""
    on_error: OnError | None = None
    """The effect of an error on the other calls; None leaves it to the traits of the tool."""


def list_startable(batch: Batch, plan: Plan | None = None) -> tuple[Call, ...]:
    """List the scheduled calls that may start now, in order (S10).

    A call may start when nothing executes, or when it and all executing calls are concurrency-safe. A call that is not
    safe and may not start yet holds back the calls behind it. A call whose tool has asked a question counts as
    executing, and goes on at once when it is answered.
    """
    plan = plan or Plan()
    if plan.schedule is Schedule.ALL_READY and not batch.is_ready:
        return ()
    started = [call for call in batch.calls if not call.is_terminal and (call.pause or call.status is Status.EXECUTING)]
    limit = min(MAX_EXECUTING, plan.parallel)
    taken: list[Call] = []
    for call in batch.calls:
        if call.is_terminal or call.pause or call.status is Status.EXECUTING:
            continue
        others = [*started, *taken]
        if len(others) >= limit:
            break
        alone_or_safe = not others or (is_concurrency_safe(call) and all(map(is_concurrency_safe, others)))
        if call.status is Status.SCHEDULED and alone_or_safe and _may_start_now(call, batch, plan):
            taken.append(call)
        elif not is_concurrency_safe(call):
            break
    return (*(call for call in started if call.status is Status.SCHEDULED), *taken)


def may_run_at_once(batch: Batch, plan: Plan) -> bool:
    """Could all calls of a batch start at once, if all were reads and rules allowed all of them?"""
    unjudged = len(batch.unvalidated_calls) == len(batch.calls)
    return batch.complete and unjudged and len(batch.calls) <= min(MAX_EXECUTING, plan.parallel) and not plan.on_error


def is_concurrency_safe(call: Call) -> bool:
    """May it run at the same time as other calls that are safe?"""
    return call.bound is not None and call.bound.concurrency_safe


def _may_start_now(call: Call, batch: Batch, plan: Plan) -> bool:
    """May it start before the reply is complete? Only reads may, unless the turn says otherwise (S11)."""
    tool = call.bound.tool if call.bound else None
    reads = tool is not None and tool.effect is Effect.READ and not tool.traits.delegates
    return batch.complete or plan.early or reads


DESCRIPTION_LIMIT = 40
"""Characters of the failed call's description."""


def needs_abort(call: Call, plan: Plan) -> bool:
    """Does the end of this call cancel the other calls (S15)? Only a call that ran and failed does."""
    if call.status is not Status.ERROR or call.started_at is None or call.bound is None:
        return False
    if plan.on_error is not None:
        return plan.on_error == "abort"
    aborts = call.bound.tool.traits.aborts_siblings
    return plan.schedule is Schedule.STREAMING if aborts == "streaming" else aborts


def describe_abort(call: Call) -> str:
    """Describe, for the cancelled calls, the error that cancelled them."""
    described = _describe_call(call)
    return f"Cancelled: parallel tool call {call.tool}{f'({described})' if described else ''} errored"


def _describe_call(call: Call) -> str:
    """Shorten its `command`, or its first text argument, or else all arguments as JSON."""
    given = call.request.arguments
    arguments = given if isinstance(given, dict) else {}
    texts = [value for value in (arguments.get("command"), *arguments.values()) if isinstance(value, str) and value]
    text = texts[0] if texts else json.dumps(given, ensure_ascii=False) if given else ""
    return text if len(text) <= DESCRIPTION_LIMIT else f"{text[:DESCRIPTION_LIMIT]}…"
