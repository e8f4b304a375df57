"""What one call's failure does to the calls beside it (S15)."""

from __future__ import annotations

import json

from holdfast.calls import Call, Status
from holdfast.schedules import Plan, Schedule

DESCRIBED = 40
"""Characters of what the failed call was about."""


def aborts(call: Call, plan: Plan) -> bool:
    """Does the end of this call cancel the calls beside it? Only what ran and failed does."""
    if call.status is not Status.ERROR or call.started_at is None or call.bound is None:
        return False
    if plan.on_error is not None:
        return plan.on_error == "abort"
    said = call.bound.tool.traits.aborts_siblings
    return plan.schedule is Schedule.STREAMING if said == "streaming" else said


def abort_reason(call: Call) -> str:
    """What the cancelled ones say."""
    return f"Cancelled: parallel tool call {call.tool}({_described(call)}) errored"


def _described(call: Call) -> str:
    """The beginning of its first text, which for most tools is what it is about; else of all its arguments."""
    arguments = call.bound.arguments if call.bound else {}
    texts = (value for value in arguments.values() if isinstance(value, str) and value)
    text = next(texts, None) or (json.dumps(arguments, ensure_ascii=False) if arguments else "")
    return text if len(text) <= DESCRIBED else f"{text[:DESCRIBED]}…"
