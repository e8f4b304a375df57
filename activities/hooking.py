"""What hooks make of a call that has run: they may replace what the model reads, withhold it, or end the turn (S35)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio import activity

from holdfast.activities.hooks.calls import AfterTool
from holdfast.activities.hooks.chain import Hooks
from holdfast.activities.hooks.results import After
from holdfast.activities.live import LiveRun
from holdfast.activities.outputs import OutputStore
from holdfast.activities.running import BEAT_SECONDS
from holdfast.content import CallError, Result, TextPart, shorten
from holdfast.modes import Mode
from holdfast.verdicts import Bound, CallOutcome, Failed, Finished, Stopped

Ran = Finished | Failed | Stopped

WITHHELD = "withheld"
MESSAGE_LIMIT = 4_000


async def hear_after(
    hooks: Hooks, outcome: CallOutcome, run: LiveRun, bound: Bound, mode: Mode, outputs: OutputStore
) -> CallOutcome:
    """The outcome as hooks leave it. The call has run: a stop that comes now waits for them, and loses nothing."""
    if hooks.empty or not isinstance(outcome, Finished | Failed | Stopped):
        return outcome
    asking = asyncio.create_task(hooks.after(_told(outcome, run, bound, mode)))
    while not asking.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({asking}, timeout=BEAT_SECONDS)
        activity.heartbeat(run.beat())
    return _left(outcome, asking.result(), outputs)


def _told(outcome: Ran, run: LiveRun, bound: Bound, mode: Mode) -> AfterTool:
    parts = outcome.result.parts if isinstance(outcome, Finished) else outcome.parts
    lines = [outcome.error.message] if isinstance(outcome, Failed) else []
    kind = outcome.error.type if isinstance(outcome, Failed) else "cancelled"
    return AfterTool(
        turn_id=run.turn_id,
        call_id=run.call_id,
        tool=bound.tool.name,
        server=bound.tool.server,
        effect=bound.tool.effect,
        arguments=bound.arguments,
        mode=mode,
        workspace=run.workspace,
        status="success" if isinstance(outcome, Finished) else "error",
        text="\n".join([*lines, *(part.text for part in parts)]),
        error_type=None if isinstance(outcome, Finished) else kind,
    )


def _left(outcome: Ran, heard: After, outputs: OutputStore) -> CallOutcome:
    """What was stopped stays stopped; of what it had put out the model reads what hooks leave."""
    text = heard.result
    if isinstance(outcome, Stopped):
        kept = outputs.bounded((TextPart(text=text),)) if text is not None else outcome.parts
        return outcome.model_copy(update={"parts": () if heard.failed else kept})
    if heard.failed:
        return Failed(error=CallError(type=WITHHELD, message=heard.failed), stop_turn=heard.stop_turn)
    left = outcome.model_copy(update={"stop_turn": heard.stop_turn})
    if text is None:
        return left
    if isinstance(left, Failed):
        error = CallError(type=left.error.type, message=shorten(text, MESSAGE_LIMIT))
        return left.model_copy(update={"error": error, "parts": ()})
    result = Result.of(text).model_copy(update={"seen": left.result.seen, "context": left.result.context})
    return left.model_copy(update={"result": outputs.bounded_result(result)})
