"""What terminal and page say in the same words."""

from __future__ import annotations

from holdfast.workers.audit.timeline import Attempted, CallStory, Question, Said


def seconds(value: float) -> str:
    """From milliseconds to weeks, two units at most."""
    if value < 60:
        return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"
    whole = round(value)
    for size, name, smaller, less in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size:,} {name}" + (f" {rest} {less}" if rest else "")
    return f"{value:.1f} s"


def counted(number: int, what: str) -> str:
    """So many of them."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def verdict(call: CallStory) -> str:
    """What validation said, by which rule, and why."""
    rule = f" by rule {call.rule}" if call.rule else ""
    return f"{call.verdict}{rule}{f': {call.reason}' if call.reason else ''}"


def asked(question: Question, when: str) -> str:
    """When somebody was asked, for what, and how long that waited."""
    waited = f"waited {seconds(question.seconds)}" if question.seconds is not None else "still waits"
    return f"{when} {question.approval} ({question.asks}), {waited}"


def needed(call: CallStory) -> str | None:
    """Whose word it takes, where that is not anybody's."""
    needs, deadline = call.shown.get("needs") or {}, call.shown.get("deadline") or {}
    said = [f"{needs['approvals']} people"] if needs.get("approvals", 1) > 1 else []
    said += [f"of role {needs['role']}"] if needs.get("role") else []
    said += ["not who asked for the turn"] if needs.get("not_requester") else []
    said += [f"within {seconds(deadline['seconds'])}, else {deadline.get('default', 'deny')}"] if deadline else []
    return ", ".join(said) or None


def decided(said: Said) -> str:
    """Who said what, how that is known, and how it came."""
    signed = {"none": "unsigned"}.get(said.signature, f"signature {said.signature}, key {said.key}")
    fate = "" if said.counted else "; it did not count"
    sent = f"by {said.how} from {said.identity}, event {said.event}"
    return f"{said.outcome} by {said.by or 'somebody'}, {signed}, {sent}{fate}{f': {said.note}' if said.note else ''}"


def ran(one: Attempted) -> str:
    """Where it ran, how long, and what came before."""
    took = f" in {seconds(one.seconds)}" if one.seconds is not None else ""
    before = f", attempt {one.number} after: {one.before}" if one.before else ""
    return f"on {one.worker or 'no worker yet'}: {one.how}{took}{f' ({one.why})' if one.why else ''}{before}"
