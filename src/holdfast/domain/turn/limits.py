"""What a turn may use up before it ends with a reason (S44): steps, calls, time, tokens."""

from __future__ import annotations

from pydantic import Field

from holdfast.domain.base import Message

LONGEST_SECONDS = 366 * 86_400.0
"""Of a turn that says nothing of its time."""


class TurnLimits(Message):
    """The limits of one turn. What it has reached ends it as `stopped`; what was answered by then stays."""

    steps: int = Field(default=1_000, ge=1, le=1_000_000)
    """Requests to the model."""
    calls: int = Field(default=20_000, ge=1, le=10_000_000)
    """Tool calls, of all batches."""
    seconds: float | None = Field(default=None, ge=1, le=LONGEST_SECONDS, allow_inf_nan=False)
    """From its start, waiting for people included."""
    tokens: int | None = Field(default=None, ge=1)
    """What the model read and wrote, as its provider counts."""


def describe_time_limit(limits: TurnLimits) -> str:
    """Why a turn ends whose time has passed."""
    seconds = limits.seconds or LONGEST_SECONDS
    return f"The turn reached its limit of {seconds:,.0f} seconds"


def find_reached_limit(limits: TurnLimits, *, calls: int, tokens: int, seconds: float) -> str | None:
    """Which limit a turn has gone beyond, in words; None while it may go on."""
    if calls > limits.calls:
        return f"The turn reached its limit of {limits.calls:,} tool calls: this batch would make {calls:,}"
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"The turn reached its limit of {limits.tokens:,} tokens: it has used {tokens:,}"
    if seconds >= (limits.seconds or LONGEST_SECONDS):
        return describe_time_limit(limits)
    return None


def explain_no_step(limits: TurnLimits, steps: int) -> str | None:
    """Why a turn with so many steps may not take another; None when it may."""
    return f"The turn reached its limit of {limits.steps:,} model steps" if steps >= limits.steps else None
