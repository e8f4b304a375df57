"""What one call's failure does to the calls beside it (S15)."""

from __future__ import annotations

import json

from holdfast.calls import Call, Status
from holdfast.schedules import Plan, Schedule

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
