"""The metrics of turns: names, labels, buckets, and the measurements of each phase.

Labels are few and bounded: registered tools, and closed sets of words. Ids of turns and calls, and names of people, are
never labels.

Each phase counts once (`CountedKeys`). The server refuses the result of a workflow task when a message arrives just as
the turn ends; the task then runs again, not as a replay, and measures the same phases again.
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
    DECISIONS: "Approvals that were decided, by outcome and kind",
    OUTCOME_UNKNOWN: "Calls of unknown outcome, by tool",
    BATCHES: "Batches that have ended, by outcome",
    STEPS: "Model steps, by outcome",
    TOKENS: "Tokens that models read (input) and wrote (output)",
    TURNS: "Turns that have ended, by outcome",
    SPANS_LOST: "Spans that did not reach the collector",
}
_QUICK = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600)
HISTOGRAMS = {
    EXECUTION: ("Seconds from the start of a call's execution to its end, retries included, by tool", _QUICK),
    STEP_SECONDS: ("Seconds of a model step, retries included", _QUICK),
    APPROVAL_WAIT: (
        "Seconds that an approval waited, by kind and outcome",
        (1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 12 * 3_600, 86_400, 3 * 86_400, 7 * 86_400),
    ),
    TURN_SECONDS: (
        "Seconds of a turn from its start to its end, by outcome",
        (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400),
    ),
}
GAUGES = {
    LIVE_TURNS: "Turns that have not ended, of this task queue, on all workers together",
    WAITING_TURNS: "Live turns with a pending approval",
}
LOST_REASONS = ("worker_lost", "no_worker")
"""The reasons of calls that failed because no worker was there."""
BUCKETS: Mapping[str, tuple[float, ...]] = {name: buckets for name, (_, buckets) in HISTOGRAMS.items()}


class Measurement(NamedTuple):
    """An increment of a counter, or a value of a histogram."""

    name: str
    value: float
    labels: Mapping[str, str]


def measure_phase(phase: Phase) -> Iterator[Measurement]:
    """Yield the measurements of a phase that has ended."""
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
    """Yield series at zero for events that need an alert at their first occurrence: a new series has no increase."""
    yield Measurement(TURNS, 0, {"outcome": "failed"})
    for kind in get_args(ConfirmationKind):
        yield Measurement(DECISIONS, 0, {"kind": kind, "outcome": "expired"})
    for tool in tools:
        yield Measurement(OUTCOME_UNKNOWN, 0, {"tool": tool})
        for reason in LOST_REASONS:
            yield Measurement(CALLS, 0, {"tool": tool, "outcome": "error", "reason": reason})


def measure_usage(before: Usage, after: Usage) -> Iterator[Measurement]:
    """Yield the tokens that a model has used between two usages."""
    for direction in ("input", "output"):
        more = getattr(after, f"{direction}_tokens") - getattr(before, f"{direction}_tokens")
        if more > 0:
            yield Measurement(TOKENS, more, {"direction": direction})


CountedKey = tuple[str | int | None, ...]
"""The run id, and what identifies the measurement within it."""
MAX_REMEMBERED = 20_000
"""The number of newest keys that are remembered: a refused workflow task runs again at once."""


class CountedKeys:
    """The newest keys that were counted. Not thread-safe."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._keys: OrderedDict[CountedKey, None] = OrderedDict()

    def add_if_new(self, key: CountedKey) -> bool:
        """Add a key. Returns whether it is new."""
        known = key in self._keys
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._limit:
            self._keys.popitem(last=False)
        return not known
