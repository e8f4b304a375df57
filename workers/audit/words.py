"""What terminal and page say in the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from holdfast.content import shorten
from holdfast.workers.audit.timeline import Attempted, CallStory, Question, Said, Timeline


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


def sender(identity: str) -> str:
    """The program that sent something, as it calls itself; programs need not."""
    return identity or "an unnamed program"


def counted(number: int, what: str) -> str:
    """So many of them."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def facts(told: Timeline, moment: Callable[[datetime | None], str], limit: int) -> Iterator[tuple[str, str]]:
    """What there is to say of a whole turn or session."""
    took = f", {seconds((told.ended - told.began).total_seconds())}" if told.ended else ""
    yield "started", f"{moment(told.began)} by {told.requester or 'nobody named'} (from {sender(told.started_by)})"
    yield "ended", f"{moment(told.ended)}{took}" if told.ended else "not yet"
    texts = {"because": told.reason, "model": told.model, "mode": told.mode}
    texts |= {
        "prompt": told.prompt and shorten(told.prompt, limit),
        "answer": told.answer and shorten(told.answer, limit),
    }
    yield from ((name, value) for name, value in texts.items() if value)
    for run in told.runs:
        yield "run", f"{run.run}: {run.how}, {counted(run.events, 'event')}, workers {', '.join(run.workers) or 'none'}"
    judged = {"rules": "policy", "hooks": "hooks", "tools": "catalogue"}
    for name, kind in judged.items():
        digests = dict.fromkeys(digest for run in told.runs for digest in getattr(run, kind))
        yield from (("judged by", f"{name} {digest}") for digest in digests)


def call_facts(call: CallStory, moment: Callable[[datetime | None], str]) -> Iterator[tuple[str, str]]:
    """What there is to say of one call, but for its arguments and its result."""
    yield "what", f"{call.title or call.tool}{f' (server {call.server})' if call.server else ''}"
    yield from (("verdict", verdict(call)),) if call.verdict else ()
    yield from (("settled", f"by {call.settled_by}"),) if call.settled_by else ()
    needs = needed(call)
    yield from (("needs", needs),) if needs else ()
    yield from (("asked", asked(question, moment(question.at))) for question in call.questions)
    yield from (("decided", f"{moment(said.at)} {decided(said)}") for said in call.decisions)
    if call.decided_by:
        yield "by", f"{call.decided_by}{f', by grant {call.grant}' if call.grant else ''}"
    yield from (("ran", f"{f'{moment(one.began)} ' if one.began else ''}{ran(one)}") for one in call.attempts)
    texts = {"digest": call.digest, "defined": call.definition, "error": call.error}
    yield from ((name, value) for name, value in texts.items() if value)
    yield from (("whole", path) for path in call.outputs)


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
    sent = f"by {said.how} from {sender(said.identity)}, event {said.event}"
    return f"{said.outcome} by {said.by or 'somebody'}, {signed}, {sent}{fate}{f': {said.note}' if said.note else ''}"


def ran(one: Attempted) -> str:
    """Where it ran, how long, and what came before."""
    took = f" in {seconds(one.seconds)}" if one.seconds is not None else ""
    before = f", attempt {one.number} after: {one.before}" if one.before else ""
    where = f"on {one.worker}: " if one.worker else ""
    still = " (the history names its worker when it ends)" if one.how == "not ended" and not one.worker else ""
    return f"{where}{one.how}{took}{f' ({one.why})' if one.why else still}{before}"
