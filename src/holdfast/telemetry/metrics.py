"""The metrics of turns: names, labels, buckets, and what each phase adds. Each phase counts once.

Labels are few and bounded: registered tools, and closed sets of words. No turn, no call and nobody's name is one.

It refuses one when a message arrives just as the turn ends. The second run is no replay, and finds the same again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, get_args

from holdfast.domain.approvals.approval import ConfirmationKind
from holdfast.domain.conversation.messages import Usage
from holdfast.telemetry.phases import Phase

CALLS = "holdfast_calls"
EXECUTION = "holdfast_execution_seconds"
APPROVAL_WAIT = "holdfast_approval_wait_seconds"
DECISIONS = "holdfast_decisions"
OUTCOME_UNKNOWN = "holdfast_outcome_unknown"
BATCHES = "holdfast_batches"
STEPS = "holdfast_model_steps"
STEP_SECONDS = "holdfast_model_step_seconds"
TOKENS = "holdfast_model_tokens"
TURNS = "holdfast_turns"
TURN_SECONDS = "holdfast_turn_seconds"
LIVE_TURNS = "holdfast_live_turns"
WAITING_TURNS = "holdfast_waiting_turns"
SPANS_LOST = "holdfast_spans_lost"

COUNTERS = {
    CALLS: "Calls that have ended, by tool, outcome and reason",
    DECISIONS: "Approvals that somebody or something has answered, by outcome and kind",
    OUTCOME_UNKNOWN: "Calls of which nobody knew whether they took effect, by tool",
    BATCHES: "Batches that have ended, by outcome",
    STEPS: "Steps of models, by outcome",
    TOKENS: "Tokens that models read (input) and wrote (output)",
    TURNS: "Turns that have ended, by outcome",
    SPANS_LOST: "Spans that did not reach the collector",
}
_QUICK = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600)
HISTOGRAMS = {
    EXECUTION: ("Seconds from the beginning of a call's execution to its end, retries included, by tool", _QUICK),
    STEP_SECONDS: ("Seconds of a model's step, retries included", _QUICK),
    APPROVAL_WAIT: (
        "Seconds that an approval waited, by kind and outcome",
        (1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 12 * 3_600, 86_400, 3 * 86_400, 7 * 86_400),
    ),
    TURN_SECONDS: (
        "Seconds of a turn from its beginning to its end, by outcome",
        (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400),
    ),
}
GAUGES = {
    LIVE_TURNS: "Turns that have not ended, of this task queue, on all workers together",
    WAITING_TURNS: "Those of them that wait for somebody",
}
LOST_REASONS = ("worker_lost", "no_worker")
"""Reasons of calls for which there was nobody."""
BUCKETS: Mapping[str, tuple[float, ...]] = {name: buckets for name, (_, buckets) in HISTOGRAMS.items()}


class Measurement(NamedTuple):
    """One thing more to count, or one value more."""

    name: str
    value: float
    labels: Mapping[str, str]


def measure_phase(phase: Phase) -> Iterator[Measurement]:
    """What a phase that has ended adds."""
    outcome, tool = {"outcome": phase.outcome}, {"tool": phase.tool}
    match phase.kind:
        case "call":
            yield Measurement(CALLS, 1, {**tool, **outcome, "reason": phase.reason})
        case "approval":
            kinds = {"kind": phase.asks or "info", **outcome}
            yield Measurement(APPROVAL_WAIT, phase.seconds, kinds)
            yield Measurement(DECISIONS, 1, kinds)
        case "execute":
            yield Measurement(EXECUTION, phase.seconds, {**tool, **outcome})
            if phase.outcome == "outcome_unknown" or (phase.outcome == "error" and phase.reason == "outcome_unknown"):
                yield Measurement(OUTCOME_UNKNOWN, 1, tool)
        case "batch":
            yield Measurement(BATCHES, 1, outcome)
        case "step":
            yield Measurement(STEPS, 1, outcome)
            yield Measurement(STEP_SECONDS, phase.seconds, outcome)
        case "turn":
            yield Measurement(TURNS, 1, outcome)
            yield Measurement(TURN_SECONDS, phase.seconds, outcome)


def list_zero_series(tools: Iterable[str]) -> Iterator[Measurement]:
    """What is alarming when it happens for the first time, as it is before that: a series at zero."""
    yield Measurement(TURNS, 0, {"outcome": "failed"})
    for kind in get_args(ConfirmationKind):
        yield Measurement(DECISIONS, 0, {"kind": kind, "outcome": "expired"})
    for tool in tools:
        yield Measurement(OUTCOME_UNKNOWN, 0, {"tool": tool})
        for reason in LOST_REASONS:
            yield Measurement(CALLS, 0, {"tool": tool, "outcome": "error", "reason": reason})


def measure_usage(before: Usage, after: Usage) -> Iterator[Measurement]:
    """What a model has read and written since."""
    for direction in ("input", "output"):
        more = getattr(after, f"{direction}_tokens") - getattr(before, f"{direction}_tokens")
        if more > 0:
            yield Measurement(TOKENS, more, {"direction": direction})


CountedKey = tuple[str | int | None, ...]
"""Which run of a turn, and what of it."""
MAX_REMEMBERED = 20_000
"""A refused task is run again at once: what was counted long ago does not come back."""


class CountedKeys:
    """The newest of what was counted. One thread at a time may ask."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._keys: OrderedDict[CountedKey, None] = OrderedDict()

    def add_if_new(self, key: CountedKey) -> bool:
        """Was this not counted before? From now on it was."""
        known = key in self._keys
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._limit:
            self._keys.popitem(last=False)
        return not known
