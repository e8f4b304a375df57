"""What is right and what is wrong: what every turn answered, held against what is true outside. Pure.

    success              the effect is there exactly once (of a call that may be repeated: under one key)
    ledger_unavailable   the call was not run: there is no effect; nor after command_not_started or mcp_unavailable
    outcome_unknown      somebody was asked, and took it as failed: there is at most one, or a share
    anything else        should not have been

Whoever said "run again" had seen that there was nothing: so an effect of an earlier run that comes later is doubled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from holdfast.domain.base import Data
from holdfast.domain.content import Response
from holdfast.domain.turn.turn_io import TurnResult
from holdfast.util.text import shorten_text
from tests.chaos.harness.effects import Truth
from tests.chaos.harness.person import FAIL, UNKNOWN, Question
from tests.chaos.harness.plan import Kind, PlannedCall, PlannedTurn

NOT_RUN = ("ledger_unavailable", "command_not_started", "mcp_unavailable")
FILES = frozenset({Kind.WRITE, Kind.EDIT})
"""Their answers need not name the call: what is already there is said to have been done before."""


class Wrong(StrEnum):
    """What must not be."""

    LOST = "lost"
    """It is said to be done, and is not."""
    DOUBLED = "doubled"
    """There are more effects than there should be."""
    HUNG = "hung"
    """The turn did not end in time."""
    UNASKED = "unasked"
    """Nobody knows what became of it, and nobody was asked."""
    UNTRUE = "untrue"
    """It is said that it was not run, and it was; or it is answered with something else."""
    FAILED = "failed"
    """An error that nothing here accounts for."""
    ANSWERS = "answers"
    """Not one answer per call, in order."""


class Finding(Data):
    """One thing that is wrong."""

    wrong: Wrong
    where: str
    words: str


class EndedTurn(Data):
    """What came of a turn."""

    turn: PlannedTurn
    result: TurnResult | None = None
    """None when it did not end, or not by itself."""
    problem: str = ""
    """Why there is none."""


def judge(turns: Iterable[EndedTurn], truths: Mapping[str, Truth], questions: Sequence[Question]) -> list[Finding]:
    """Everything that is wrong."""
    said: dict[str, list[Question]] = {}
    for question in questions:
        said.setdefault(question.label, []).append(question)
    return [finding for turn in turns for finding in _turn(turn, truths, said)]


def _turn(ended: EndedTurn, truths: Mapping[str, Truth], said: Mapping[str, Sequence[Question]]) -> Iterable[Finding]:
    turn, result = ended.turn, ended.result
    if result is None:
        yield Finding(wrong=Wrong.HUNG, where=turn.id, words=ended.problem or "it did not end")
        yield from _without_answers(turn, truths)
        return
    if result.status != "completed":
        yield Finding(wrong=Wrong.FAILED, where=turn.id, words=f"the turn is {result.status}: {result.reason}")
    expected = [call.label for call in turn.calls]
    answered = [f"{turn.id}-{response.call_id}" for response in result.responses]
    if answered != expected:
        words = f"answered {' '.join(answered)} for {' '.join(expected)}"
        yield Finding(wrong=Wrong.ANSWERS, where=turn.id, words=shorten_text(words, 500))
    responses = dict(zip(answered, result.responses, strict=True))
    for call in turn.calls:
        truth = truths[call.label]
        if call.label in responses:
            yield from _call(call, responses[call.label], truth, said.get(call.label, ()))
        yield from _twice(call, truth)


def _without_answers(turn: PlannedTurn, truths: Mapping[str, Truth]) -> Iterable[Finding]:
    for call in turn.calls:
        yield from _twice(call, truths[call.label])


def _twice(call: PlannedCall, truth: Truth) -> Iterable[Finding]:
    if truth.count > 1:
        keys = len(set(truth.keys))
        words = f"{call.kind}: {truth.count} effects, by {keys} key{'s' * (keys > 1)}"
        yield Finding(wrong=Wrong.DOUBLED, where=call.label, words=words)


def _call(call: PlannedCall, response: Response, truth: Truth, questions: Sequence[Question]) -> Iterable[Finding]:
    def found(wrong: Wrong, words: str) -> Finding:
        return Finding(wrong=wrong, where=call.label, words=f"{call.kind}: {words}")

    error = response.error.type if response.error else None
    if response.status == "success":
        if call.kind is not Kind.LOOK and truth.count == 0:
            yield found(Wrong.LOST, f"answered {shorten_text(response.text, 200)!r}, and there is no effect")
        if call.kind not in FILES and call.label not in response.text:
            yield found(Wrong.UNTRUE, f"answered {shorten_text(response.text, 200)!r}, which is not about this call")
    elif error in NOT_RUN:
        if truth.count + truth.shares:
            yield found(Wrong.UNTRUE, f"{shorten_text(response.text, 300)!r}, and it had run")
    elif error == UNKNOWN:
        if not questions or questions[-1].answer != FAIL:
            yield found(Wrong.UNASKED, shorten_text(response.text, 300))
    else:
        yield found(Wrong.FAILED, f"{response.status} {error}: {shorten_text(response.text, 300)}")
