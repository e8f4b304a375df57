"""Finishes a call that has run: applies hooks, shares its outputs and checks its change of the context.

Nothing here fails the call, since it has run, and a stop that comes now waits. A second attempt does the same again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from temporalio import activity

from holdfast.activities.execution.live_run import LiveRun
from holdfast.activities.execution.run_tool import BEAT_SECONDS
from holdfast.activities.files.workspace import Workspace
from holdfast.activities.hooks.hook_chain import AfterOutcome, Hooks
from holdfast.activities.hooks.hook_io import AfterTool
from holdfast.activities.process.output_store import OutputStore
from holdfast.domain.calls.verdicts import BoundCall, ExecutionOutcome, Failed, Finished, Lost, Stopped
from holdfast.domain.content import CallError, DataPart, Part, Result, TextPart
from holdfast.domain.context import Context, ContextChange
from holdfast.domain.modes import Mode
from holdfast.util.redaction import Redacted
from holdfast.util.text import exception_text, shorten_text

T = TypeVar("T")

EndedOutcome = Finished | Failed | Stopped

WITHHELD_TYPE = "withheld"
MESSAGE_LIMIT = 4_000
SHARE_SECONDS = 60.0
"""How long a store may take. After that the call is answered all the same, and its outputs are on its host alone."""
_LOGGER = logging.getLogger(__name__)


async def _run_through_stops(work: Coroutine[Any, Any, T], beat: Callable[[], object] | None = None) -> T:
    """Run `work` and send heartbeats until it ends. A stop that comes meanwhile is not passed on to it."""
    task = asyncio.create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=BEAT_SECONDS)
        if not task.done():
            activity.heartbeat(*([beat()] if beat else []))
    return task.result()


# Hooks


async def apply_after_hooks(
    hooks: Hooks, outcome: ExecutionOutcome, run: LiveRun, bound: BoundCall, mode: Mode, outputs: OutputStore
) -> ExecutionOutcome:
    """The outcome as hooks leave it: they may replace what the model reads, withhold it, or end the turn (S35)."""
    if hooks.is_empty or not isinstance(outcome, Finished | Failed | Stopped):
        return outcome
    asked = hooks.ask_after(_build_hook_input(outcome, run, bound, mode))
    return _apply_hook_answer(outcome, await _run_through_stops(asked, run.build_heartbeat), outputs)


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
    """Apply the answer of hooks. A stopped call stays stopped, and the model reads what hooks leave of its output."""
    text = hook_answer.result
    if isinstance(outcome, Stopped):
        parts = outputs.bound_parts((TextPart(text=text),)) if text is not None else outcome.parts
        return outcome.model_copy(update={"parts": () if hook_answer.failed else parts})
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


# Outputs


async def share_outputs(outputs: OutputStore, turn: str, outcome: ExecutionOutcome) -> None:
    """Share the saved outputs of an outcome with workers of other hosts: the model step and `read_output` run anywhere.

    The outcome is what hooks left: nothing else is shared. Where sharing fails, the outputs are on this host alone.
    """
    if needs_sharing(outputs, outcome):
        await _run_through_stops(_share_parts(outputs, turn, _list_saved_parts(outcome)))


def needs_sharing(outputs: OutputStore, outcome: ExecutionOutcome) -> bool:
    """Has it saved outputs, and is there a place where workers of other hosts read them?"""
    return outputs.shared_outputs is not None and bool(_list_saved_parts(outcome))


def _list_saved_parts(outcome: ExecutionOutcome) -> tuple[Part, ...]:
    return tuple(part for part in _list_parts(outcome) if not isinstance(part, DataPart) and part.whole)


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


# Context


def resolve_context_change(
    outcome: ExecutionOutcome, bound: BoundCall, context: Context, workspace: Path
) -> ExecutionOutcome:
    """Check the change of the context for later calls; a note in the outcome explains a dropped change (S47)."""
    if not isinstance(outcome, Finished) or outcome.result.context is None:
        return outcome
    if bound.concurrency_safe:
        _LOGGER.warning("The context change of %r is ignored: the call may run beside others", bound.tool.name)
        return outcome.model_copy(update={"result": outcome.result.model_copy(update={"context": None})})
    resolved = _resolve_change(outcome.result, outcome.result.context, context, workspace)
    return outcome.model_copy(update={"result": resolved})


def _resolve_change(result: Result, change: ContextChange, context: Context, workspace: Path) -> Result:
    try:
        change = ContextChange.model_validate(change.model_dump(warnings=False))
    except Exception as error:
        words = f"The context for the calls after this one is invalid: {exception_text(error, 300)}"
        return _add_note(result, None, words)
    if change.folder is None:
        return result
    try:
        return result.model_copy(update={"context": _resolve_folder(change, change.folder, workspace)})
    except Exception as error:
        folder = shorten_text(context.folder, 300)
        words = f"The calls after it stay in the folder {folder!r}: {exception_text(error, 300)}"
        return _add_note(result, change.model_copy(update={"folder": None}), words)


def _resolve_folder(change: ContextChange, folder: str, workspace: Path) -> ContextChange:
    """Resolve the folder relative to the workspace, links followed. ValueError when it is outside."""
    place = Workspace(workspace).resolve_path(folder)
    if not (workspace / place).is_dir():
        raise ValueError(f"{folder!r} is not a folder")
    return ContextChange.model_validate({**change.model_dump(), "folder": place})


def _add_note(result: Result, change: ContextChange | None, words: str) -> Result:
    """Add a line for the model."""
    return result.model_copy(update={"context": change, "parts": (*result.parts, TextPart(text=f"[{words}]"))})
