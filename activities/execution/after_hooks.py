"""What hooks make of a call that has run: they may replace what the model reads, withhold it, or end the turn (S35)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio import activity

from holdfast.activities.execution.live_run import LiveRun
from holdfast.activities.execution.run_tool import BEAT_SECONDS
from holdfast.activities.hooks.combine import AfterOutcome
from holdfast.activities.hooks.hook_chain import Hooks
from holdfast.activities.hooks.hook_io import AfterTool
from holdfast.activities.process.output_store import OutputStore
from holdfast.domain.calls.verdicts import BoundCall, ExecutionOutcome, Failed, Finished, Stopped
from holdfast.domain.content import CallError, Result, TextPart
from holdfast.domain.modes import Mode
from holdfast.util.text import shorten_text

EndedOutcome = Finished | Failed | Stopped

WITHHELD_TYPE = "withheld"
MESSAGE_LIMIT = 4_000


async def apply_after_hooks(
    hooks: Hooks, outcome: ExecutionOutcome, run: LiveRun, bound: BoundCall, mode: Mode, outputs: OutputStore
) -> ExecutionOutcome:
    """The outcome as hooks leave it. The call has run: a stop that comes now waits for them, and loses nothing."""
    if hooks.is_empty or not isinstance(outcome, Finished | Failed | Stopped):
        return outcome
    asking = asyncio.create_task(hooks.ask_after(_build_hook_input(outcome, run, bound, mode)))
    while not asking.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({asking}, timeout=BEAT_SECONDS)
        activity.heartbeat(run.build_heartbeat())
    return _apply_hook_answer(outcome, asking.result(), outputs)


def _build_hook_input(outcome: EndedOutcome, run: LiveRun, bound: BoundCall, mode: Mode) -> AfterTool:
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


def _apply_hook_answer(outcome: EndedOutcome, hook_answer: AfterOutcome, outputs: OutputStore) -> ExecutionOutcome:
    """What was stopped stays stopped; of what it had put out the model reads what hooks leave."""
    text = hook_answer.result
    if isinstance(outcome, Stopped):
        kept = outputs.bound_parts((TextPart(text=text),)) if text is not None else outcome.parts
        return outcome.model_copy(update={"parts": () if hook_answer.failed else kept})
    if hook_answer.failed:
        return Failed(error=CallError(type=WITHHELD_TYPE, message=hook_answer.failed), stop_turn=hook_answer.stop_turn)
    left = outcome.model_copy(update={"stop_turn": hook_answer.stop_turn})
    if text is None:
        return left
    if isinstance(left, Failed):
        error = CallError(type=left.error.type, message=shorten_text(text, MESSAGE_LIMIT))
        return left.model_copy(update={"error": error, "parts": ()})
    result = Result.from_text(text).model_copy(update={"seen": left.result.seen, "context": left.result.context})
    return left.model_copy(update={"result": outputs.bound_result(result)})
