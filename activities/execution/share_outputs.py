"""What a call answered with, for workers of other hosts: the model step, and `read_output`, may run anywhere."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from temporalio import activity

from holdfast.activities.execution.run_tool import BEAT_SECONDS
from holdfast.activities.process.output_store import OutputStore
from holdfast.domain.calls.verdicts import ExecutionOutcome, Failed, Finished, Lost, Stopped
from holdfast.domain.content import DataPart, Part
from holdfast.util.redaction import Redacted

SHARE_SECONDS = 60.0
"""How long a store may take. After that the call is answered all the same, and its outputs are on its host alone."""
_LOGGER = logging.getLogger(__name__)


async def share_outputs(outputs: OutputStore, turn: str, outcome: ExecutionOutcome) -> None:
    """Share the saved outputs of an outcome with the turn's session. It is what hooks left: nothing else is shared.

    The call has ended: a stop that comes now waits, and nothing that fails here costs the outcome. A second attempt
    shares the same again.
    """
    parts = tuple(part for part in _list_parts(outcome) if not isinstance(part, DataPart) and part.whole)
    if not parts or outputs.shared_outputs is None:
        return
    sharing = asyncio.create_task(_share_parts(outputs, turn, parts))
    while not sharing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({sharing}, timeout=BEAT_SECONDS)
        if not sharing.done():
            activity.heartbeat()


async def _share_parts(outputs: OutputStore, turn: str, parts: tuple[Part, ...]) -> None:
    try:
        async with asyncio.timeout(SHARE_SECONDS):
            await outputs.share_parts(turn, parts)
    except Exception as error:
        _LOGGER.warning("Outputs of a call can be read on its host alone: %s", Redacted(error))


def _list_parts(outcome: ExecutionOutcome) -> tuple[Part, ...]:
    match outcome:
        case Finished():
            return outcome.result.parts
        case Failed() | Stopped() | Lost():
            return outcome.parts
        case _:
            return ()
