"""What all hooks of a call say together, and what one more answer changes in it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from pydantic import JsonValue

from holdfast.activities.hooks.hook_io import AfterAnswer, BeforeAnswer
from holdfast.config.schema import OnFailure
from holdfast.util.json_values import digest_canonical

Arguments = dict[str, JsonValue]
Phase = Literal["validate", "execute"]


class Denial(NamedTuple):
    """Which hook denied a call, and why: a sentence for the model."""

    hook: str
    reason: str


@dataclass(frozen=True)
class BeforeOutcome:
    """What the hooks before a call said of it."""

    arguments: Arguments
    """As they were rewritten; the very same object when they were not."""
    rewritten_by: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    """Why a person has to say, one sentence for each hook that wants it."""
    deny: Denial | None = None
    stop_turn: str | None = None
    """Why the turn is to end; then the call is denied too."""
    notes: tuple[str, ...] = ()
    """What else was said, for the record: why something was rewritten, which failures were ignored."""


@dataclass(frozen=True)
class AfterOutcome:
    """What the hooks after a call said of it."""

    result: str | None = None
    """What the model reads instead; None when nothing was replaced."""
    replaced_by: tuple[str, ...] = ()
    failed: str | None = None
    """Why the model reads nothing of the result, though the call has run: a sentence for the model."""
    stop_turn: str | None = None
    notes: tuple[str, ...] = ()


def apply_before_answer(so_far: BeforeOutcome, hook: str, answer: BeforeAnswer, phase: Phase) -> BeforeOutcome:
    """One more answer."""
    reason = answer.reason
    if answer.stop_turn or answer.decision == "deny":
        stop = (reason or f"The hook {hook!r} stops the turn.") if answer.stop_turn else None
        return replace(so_far, deny=Denial(hook, reason or f"Denied by the hook {hook!r}."), stop_turn=stop)
    given = answer.arguments
    if given is not None and not _is_same(given, so_far.arguments):
        if phase == "execute":
            return replace(so_far, deny=Denial(hook, _describe_rewrite(hook)))
        so_far = replace(so_far, arguments=given, rewritten_by=(*so_far.rewritten_by, hook))
    if answer.decision == "ask":
        return replace(so_far, ask=(*so_far.ask, f"The hook {hook!r} asks{f': {reason}' if reason else '.'}"))
    return replace(so_far, notes=(*so_far.notes, *_format_note(hook, reason)))


def apply_before_failure(so_far: BeforeOutcome, hook: str, reason: str, on_failure: OnFailure) -> BeforeOutcome:
    """A hook that gave no answer."""
    if on_failure is OnFailure.IGNORE:
        return replace(so_far, notes=(*so_far.notes, _describe_ignored(hook, reason)))
    return replace(so_far, deny=Denial(hook, f"The hook {hook!r} failed, so the call is denied: {reason}"))


def apply_after_answer(so_far: AfterOutcome, hook: str, answer: AfterAnswer, text: str) -> AfterOutcome:
    """One more answer; `text` is what the hook was told that the model would read."""
    reason = answer.reason
    if answer.result is not None and answer.result != text:
        so_far = replace(so_far, result=answer.result, replaced_by=(*so_far.replaced_by, hook))
    if answer.stop_turn:
        stop = so_far.stop_turn or reason or f"The hook {hook!r} stops the turn."
        return replace(so_far, stop_turn=stop)
    return replace(so_far, notes=(*so_far.notes, *_format_note(hook, reason)))


def apply_after_failure(so_far: AfterOutcome, hook: str, reason: str, on_failure: OnFailure) -> AfterOutcome:
    """A hook that gave no answer. What it would have kept back is kept back."""
    if on_failure is OnFailure.IGNORE:
        return replace(so_far, notes=(*so_far.notes, _describe_ignored(hook, reason)))
    message = f"The call has run, but its result is withheld because the hook {hook!r} failed: {reason}"
    return replace(so_far, result=None, replaced_by=(), failed=message)


def _is_same(one: Arguments, other: Arguments) -> bool:
    """As JSON: for Python 1 is also 1.0 and true."""
    return digest_canonical(one) == digest_canonical(other)


def _describe_rewrite(hook: str) -> str:
    return (
        f"The hook {hook!r} rewrote the arguments again where the call executes, so what would run is not what was "
        "judged. A hook must leave alone what it wrote itself."
    )


def _format_note(hook: str, reason: str | None) -> tuple[str, ...]:
    return (f"The hook {hook!r}: {reason}",) if reason else ()


def _describe_ignored(hook: str, why: str) -> str:
    return f"The hook {hook!r} failed, which its settings ignore: {why}"
