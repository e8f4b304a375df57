"""When the calls of a turn begin: what its starter chose (S9, S11, S15)."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from holdfast.model import Data

MAX_EXECUTING = 50
"""Calls of one batch that run at once: bounds what one workflow task schedules."""

OnError = Literal["isolate", "abort"]
"""What a tool's failure does to the calls beside it: nothing, or it cancels them."""


class Schedule(StrEnum):
    """When the calls of a batch begin."""

    ALL_READY = "all_ready"
    """When every one of them is scheduled or has ended."""
    STREAMING = "streaming"
    """Each as soon as it is itself ready, while the model still writes."""


class Plan(Data):
    """How a turn starts its calls."""

    schedule: Schedule = Schedule.ALL_READY
    early: bool = False
    """May also what does more than read begin before the model's reply is complete?"""
    parallel: int = MAX_EXECUTING
    """How many run at once."""
    on_error: OnError | None = None
    """What a failure does to the calls beside it, whatever their tools say."""
