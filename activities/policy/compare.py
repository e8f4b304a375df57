"""Compares two policies by their rulings on recorded calls."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.activities.policy.command_reading import CommandReading
from holdfast.activities.policy.policy import Policy, Ruling
from holdfast.activities.policy.rules import RuleEffect
from holdfast.activities.policy.subject import Subject
from holdfast.domain.modes import Mode
from holdfast.util.durations import format_duration


@dataclass(frozen=True)
class RecordedCall:
    """A call of a turn, as rules see it."""

    turn: str
    call: str
    title: str
    subject: Subject
    mode: Mode


@dataclass(frozen=True)
class RulingDifference:
    """A call that two policies decide differently; a ruling is None where the tool's own wish decides."""

    recorded: RecordedCall
    before: Ruling | None
    after: Ruling | None


def compare_policies(recorded: RecordedCall, before: Policy, after: Policy) -> RulingDifference | None:
    """The difference between two policies on a call; None when both decide the same, by whichever rules."""
    one, other = (decide_call(policy, recorded.subject, recorded.mode) for policy in (before, after))
    return RulingDifference(recorded, one, other) if _comparison_key(one) != _comparison_key(other) else None


def decide_call(policy: Policy, subject: Subject, mode: Mode) -> Ruling | None:
    """The ruling as the gate applies it: an allow counts only for a command that can be rebuilt from its words."""
    ruling = policy.find_ruling(subject, mode)
    allowed = ruling is not None and ruling.decision is RuleEffect.ALLOW and not ruling.anything
    unclear = allowed and subject.command is not None and CommandReading(subject.command).rebuilt is None
    return None if unclear else ruling


def describe_ruling(ruling: Ruling | None) -> str:
    """A ruling for a person."""
    if ruling is None:
        return "the tool's own wish"
    return ", ".join([f"{ruling.decision.value} by {ruling.rule!r} ({ruling.tier.value})", *describe_asking(ruling)])


def describe_asking(ruling: Ruling) -> list[str]:
    """The special demands of a ruling on its approvals, for a person."""
    words = ["each time"] if ruling.always_ask else []
    needs, deadline = ruling.needs, ruling.deadline
    words += [f"{needs.approvals} approvals"] if needs.approvals > 1 else []
    words += [f"by the role {needs.role!r}"] if needs.role is not None else []
    words += ["not by whoever started the turn"] if needs.not_requester else []
    words += [f"within {format_duration(deadline.seconds)}, else {deadline.default}"] if deadline else []
    return words


def _comparison_key(ruling: Ruling | None) -> object:
    return ruling and (ruling.decision, ruling.always_ask, ruling.needs, ruling.deadline)
