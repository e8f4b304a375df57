"""The phrases that the terminal and the page share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from holdfast.util.text import shorten_text
from holdfast.workers.audit.timeline.timeline import AttemptStory, CallStory, MessageStory, QuestionStory, Timeline


def format_seconds(value: float) -> str:
    """Format a duration from milliseconds to weeks, in two units at most."""
    if value < 60:
        return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"
    whole = round(value)
    for size, name, smaller, less in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size:,} {name}" + (f" {rest} {less}" if rest else "")
    return f"{value:.1f} s"


def describe_sender(identity: str) -> str:
    """The identity of the sending program, which may be empty."""
    return identity or "an unnamed program"


def format_count(number: int, what: str) -> str:
    """Format a number of things."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def list_facts(timeline: Timeline, moment: Callable[[datetime | None], str], limit: int) -> Iterator[tuple[str, str]]:
    """Yield the facts of a whole turn or session, as names and texts."""
    took = f", {format_seconds((timeline.ended - timeline.began).total_seconds())}" if timeline.ended else ""
    yield (
        "started",
        f"{moment(timeline.began)} by {timeline.requester or 'nobody named'} "
        f"(from {describe_sender(timeline.started_by)})",
    )
    yield "ended", f"{moment(timeline.ended)}{took}" if timeline.ended else "not yet"
    texts = {"because": timeline.reason, "model": timeline.model, "mode": timeline.mode}
    texts |= {
        "prompt": timeline.prompt and shorten_text(timeline.prompt, limit),
        "answer": timeline.answer and shorten_text(timeline.answer, limit),
    }
    yield from ((name, value) for name, value in texts.items() if value)
    for run in timeline.runs:
        yield (
            "run",
            f"{run.run}: {run.how}, {format_count(run.events, 'event')}, workers {', '.join(run.workers) or 'none'}",
        )
    judged = {"rules": "policy", "hooks": "hooks", "tools": "catalogue"}
    for name, kind in judged.items():
        digests = dict.fromkeys(digest for run in timeline.runs for digest in getattr(run, kind))
        yield from (("judged by", f"{name} {digest}") for digest in digests)


def list_call_facts(call: CallStory, moment: Callable[[datetime | None], str]) -> Iterator[tuple[str, str]]:
    """Yield the facts of one call, without its arguments and its result."""
    yield "what", f"{call.title or call.tool}{f' (server {call.server})' if call.server else ''}"
    yield from (("verdict", describe_verdict(call)),) if call.verdict else ()
    yield from (("settled", f"by {call.settled_by}"),) if call.settled_by else ()
    needs = describe_approvers(call)
    yield from (("needs", needs),) if needs else ()
    yield from (("asked", describe_question(question, moment(question.at))) for question in call.questions)
    yield from (("decided", f"{moment(one.at)} {describe_decision(one)}") for one in call.decisions)
    if call.decided_by:
        yield "by", f"{call.decided_by}{f', by grant {call.grant}' if call.grant else ''}"
    yield from (
        ("ran", f"{f'{moment(one.began)} ' if one.began else ''}{describe_attempt(one)}") for one in call.attempts
    )
    texts = {"digest": call.digest, "defined": call.definition, "error": call.error}
    yield from ((name, value) for name, value in texts.items() if value)
    yield from (("whole", path) for path in call.outputs)


def describe_verdict(call: CallStory) -> str:
    """Describe what validation said, by which rule, and why."""
    rule = f" by rule {call.rule}" if call.rule else ""
    return f"{call.verdict}{rule}{f': {call.reason}' if call.reason else ''}"


def describe_question(question: QuestionStory, when: str) -> str:
    """Describe when a person was asked, for what, and how long it waited."""
    waited = f"waited {format_seconds(question.seconds)}" if question.seconds is not None else "still waits"
    return f"{when} {question.approval} ({question.asks}), {waited}"


def describe_approvers(call: CallStory) -> str | None:
    """Describe whose decision a call needs; None if anybody's."""
    needs, deadline = call.shown.get("needs") or {}, call.shown.get("deadline") or {}
    parts = [f"{needs['approvals']} people"] if needs.get("approvals", 1) > 1 else []
    parts += [f"of role {needs['role']}"] if needs.get("role") else []
    parts += ["not the requester of the turn"] if needs.get("not_requester") else []
    parts += (
        [f"within {format_seconds(deadline['seconds'])}, else {deadline.get('default', 'deny')}"] if deadline else []
    )
    return ", ".join(parts) or None


def describe_decision(decision: MessageStory) -> str:
    """Describe who decided what, how that is known, and how it was sent."""
    signed = {"none": "unsigned"}.get(decision.signature, f"signature {decision.signature}, key {decision.key}")
    fate = "" if decision.counted else "; it did not count"
    sent = f"by {decision.how} from {describe_sender(decision.identity)}, event {decision.event}"
    note = f": {decision.note}" if decision.note else ""
    return f"{decision.outcome} by {decision.by or 'somebody'}, {signed}, {sent}{fate}{note}"


def describe_attempt(attempt: AttemptStory) -> str:
    """Describe where an attempt ran, how long, and what came before."""
    took = f" in {format_seconds(attempt.seconds)}" if attempt.seconds is not None else ""
    before = f", attempt {attempt.number} after: {attempt.before}" if attempt.before else ""
    where = f"on {attempt.worker}: " if attempt.worker else ""
    still = " (the history names its worker when it ends)" if attempt.how == "not ended" and not attempt.worker else ""
    return f"{where}{attempt.how}{took}{f' ({attempt.why})' if attempt.why else still}{before}"
