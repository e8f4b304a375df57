"""Running one invocation inside an activity: heartbeats, time limit, stopping.

The tool runs as a task of its own, so that the activity sends heartbeats while the tool runs and while it stops.
Whatever the tool does becomes an `ExecutionOutcome`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast.activities.execution.live_run import LiveRun
from holdfast.activities.process.output_store import OutputStore
from holdfast.domain.calls.tool import DecisionNotice, Invocation, NeedsAnswer, OutcomeUnknown, Retries, ToolFailure
from holdfast.domain.calls.verdicts import UNFINISHED, ExecutionOutcome, Failed, Finished, Lost, QuestionRaised, Stopped
from holdfast.domain.content import CallError, Part
from holdfast.domain.turn.activity_io import QUESTION_LIMIT
from holdfast.util.text import exception_text, shorten_text

T = TypeVar("T")

BEAT_SECONDS = 0.4
"""Seconds between heartbeats. A stop comes with the answer to a heartbeat, so this bounds the delay of a stop (S17)."""
TYPE_LIMIT = 200
"""Characters of an error's type."""
STATE_LIMIT = 1_000_000
LONGEST_WAIT = 60.0
"""Seconds at most between two attempts of a tool that is retried."""
STOP_SECONDS = 20.0
"""Seconds that a tool may take to stop before it is left behind."""


async def contain_exits(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; an exception that would end the process becomes a ToolFailure: tools may call `sys.exit`."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        name = type(error).__name__
        raise ToolFailure(name, f"The tool raised {name}: {exception_text(error)}") from None


async def run_with_heartbeats(work: Coroutine[Any, Any, T], beat: Callable[[], object] | None = None) -> T:
    """Run `work` and send heartbeats until it ends, so that the activity is not lost and receives a stop.

    `beat` makes the details of each heartbeat. A local activity has none. When cancelled it cancels `work`.
    """
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=BEAT_SECONDS)
            if not task.done() and not activity.info().is_local:
                activity.heartbeat(*([beat()] if beat else []))
    finally:
        task.cancel()
    return task.result()


async def run_tool(invocation: Invocation, run: LiveRun, *, seconds: float, outputs: OutputStore) -> ExecutionOutcome:
    """Wait for the tool, which is started if it does not run yet, and return its outcome. `seconds`: its time limit.

    A stop of the call cancels the tool. A worker that shuts down cancels it too, and raises ApplicationError of type
    `unfinished`: the next worker repeats the call, finds it again, or says that its outcome is unknown. When only the
    server gave up on this attempt, that is raised without a stop: the next attempt on this worker waits for the tool.
    """
    tool = start_tool(invocation, run, seconds)
    stopping: str | None = None
    while not tool.done() and (run.is_asking or time.monotonic() < run.deadline):
        try:
            if stopping is None and _is_cancelling():
                raise asyncio.CancelledError  # the stop came before this loop
            left = BEAT_SECONDS if run.is_asking else max(0.0, run.deadline - time.monotonic())
            await asyncio.wait({tool}, timeout=min(BEAT_SECONDS, left))
        except asyncio.CancelledError:
            if stopping is None:
                stopping = _find_stop_reason()
                run.is_handing_over = stopping == WORKER_SHUTDOWN
                run.deadline, run.is_asking = min(run.deadline, time.monotonic() + STOP_SECONDS), False
                tool.cancel()
        if not tool.done():
            activity.heartbeat(run.build_heartbeat())
    if not tool.done() and stopping is None:
        return await _end_timed_out(tool, run, seconds, outputs)
    if stopping == WORKER_SHUTDOWN and (not tool.done() or tool.cancelled()):
        raise build_unfinished(WORKER_SHUTDOWN)
    outcome = build_tool_outcome(tool, run, stopping, outputs)
    if run.attempt > 1 and isinstance(outcome, Finished | Failed):
        return outcome.model_copy(update={"attempts": run.attempt})
    return outcome


def start_tool(
    invocation: Invocation,
    run: LiveRun,
    seconds: float,
    retries: Retries | None = None,
    notice: DecisionNotice | None = None,
) -> asyncio.Task[object]:
    """Start the tool, unless an earlier attempt on this worker has; its task. The time limit begins with the start.

    `notice` is the decision that lets it run: the invocation gets it first.
    """
    if run.tool is None:
        run.tool = asyncio.create_task(contain_exits(_execute_with_retries(invocation, run, retries, notice)))
        # Nobody may be left to take an exception, which asyncio would log.
        run.tool.add_done_callback(lambda task: task.cancelled() or task.exception())
        run.deadline = time.monotonic() + seconds
    return run.tool


async def _execute_with_retries(
    invocation: Invocation, run: LiveRun, retries: Retries | None, notice: DecisionNotice | None
) -> object:
    """Execute the invocation, and again after failures that `retries` name."""
    if notice:
        await invocation.on_decision(notice)
    wait = retries.wait_seconds if retries else 0.0
    while True:
        try:
            return await invocation.execute(run)
        except Exception as error:
            if retries is None or run.attempt >= retries.attempts or not retries.is_retryable(error):
                raise
            run.note_failure(error)
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


WORKER_SHUTDOWN = "the worker shut down while the call ran; the next one knows what to do about it"


def _find_stop_reason() -> str:
    """Explain why the tool is to stop: empty for a stop of the call, or the worker's shutdown.

    ApplicationError of type `unfinished` when the server only gave up on this attempt: then the tool goes on.
    """
    details = activity.cancellation_details()
    if details and details.cancel_requested:
        return ""
    if activity.is_worker_shutdown():
        return WORKER_SHUTDOWN
    if details:
        raise build_unfinished("the server gave up on this attempt, and the next one goes on with its tool")
    return ""


def build_unfinished(why: str) -> ApplicationError:
    """The error of an attempt that ends without an answer though nothing is wrong: a later one may tell more."""
    return ApplicationError(why, type=UNFINISHED, category=ApplicationErrorCategory.BENIGN)


async def _end_timed_out(
    tool: asyncio.Task[object], run: LiveRun, seconds: float, outputs: OutputStore
) -> ExecutionOutcome:
    tool.cancel()
    deadline = time.monotonic() + STOP_SECONDS
    while not tool.done() and time.monotonic() < deadline:
        with suppress(asyncio.CancelledError):  # it is being stopped already
            await asyncio.wait({tool}, timeout=BEAT_SECONDS)
        if not tool.done():
            activity.heartbeat(run.build_heartbeat())
    if tool.done() and not tool.cancelled() and tool.exception() is None:
        # it finished after all: a result is worth more than an error
        return build_tool_outcome(tool, run, None, outputs)
    message = f"The call was stopped: it ran longer than its limit of {seconds:g} seconds"
    left = "" if tool.done() else ". It did not stop, and may still be running"
    return Failed(
        error=CallError(type="timeout", message=message + left), parts=outputs.bound_parts(run.build_partial_parts())
    )


def build_tool_outcome(
    tool: asyncio.Task[object], run: LiveRun, stopping: str | None, outputs: OutputStore
) -> ExecutionOutcome:
    """Build the outcome of a tool; `stopping` is the reason why it was told to stop, if it was."""
    partial = outputs.bound_parts(run.build_partial_parts())
    if not tool.done():
        left = "The call did not stop when told to; it may still be running"
        return Stopped(reason=left, parts=partial)
    if tool.cancelled() and stopping is None:
        message = "The tool was cancelled, though nobody had stopped it; it may have taken effect"
        return Failed(error=CallError(type="cancelled_inside", message=message), parts=partial)
    if tool.cancelled():
        return Stopped(reason=stopping or "", parts=partial)
    if stopping is not None and not run.is_handing_over and isinstance(unknown := tool.exception(), OutcomeUnknown):
        return Stopped(
            reason=exception_text(unknown, 4_000), parts=outputs.bound_parts(tuple(unknown.parts)) or partial
        )
    try:
        return _read_result(tool, outputs, partial)
    except Exception as error:  # it has run: failing here would run it again
        message = f"The tool ran, but its result cannot be used: {exception_text(error)}"
        return Failed(error=CallError(type="bad_result", message=message), parts=partial)


def _read_result(tool: asyncio.Task[object], outputs: OutputStore, partial: tuple[Part, ...]) -> ExecutionOutcome:
    error = tool.exception()
    if error is None:
        return Finished(result=outputs.bound_result(tool.result()))
    if isinstance(error, OutcomeUnknown):
        return Lost(message=exception_text(error, 4_000), parts=outputs.bound_parts(tuple(error.parts)) or partial)
    if isinstance(error, NeedsAnswer):
        return _build_question(error)
    if isinstance(error, ToolFailure):
        parts = outputs.bound_parts(tuple(error.parts or ())) or partial
        kind = shorten_text(str(error.type), TYPE_LIMIT)
        return Failed(error=CallError(type=kind, message=exception_text(error, 4_000)), parts=parts)
    name = type(error).__name__
    return Failed(error=CallError(type=name, message=f"{name}: {exception_text(error, 4_000)}"), parts=partial)


def _build_question(needed: NeedsAnswer) -> ExecutionOutcome:
    """The question that the tool raised; a failure when it is none, or too large to be recorded."""
    asks = QuestionRaised(question=needed.question, state=needed.state)
    if needed.question.kind != "question" or len(needed.question.model_dump_json()) > QUESTION_LIMIT:
        message = f"The tool asked something of another kind than `question`, or over {QUESTION_LIMIT:,} characters"
        return Failed(error=CallError(type="bad_question", message=message))
    if len(asks.model_dump_json()) > STATE_LIMIT:
        message = f"The tool asked, and the state that it would continue from is over {STATE_LIMIT:,} characters"
        return Failed(error=CallError(type="bad_question", message=message))
    return asks
