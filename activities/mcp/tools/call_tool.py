"""One call of a server's tool (S31, S39).

A call that may have run and must not run twice is never repeated: when the connection ends before the answer, a person
is asked. A call that never reached the server is sent again, and so is one that may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.activities.mcp.server.elicitation_forms import (
    CallCarryover,
    build_carryover,
    build_opening_carryover,
    read_carryover,
)
from holdfast.activities.mcp.server.result_content import ResultSchema, build_result
from holdfast.activities.mcp.tools.call_outcomes import (
    WORDS_LIMIT,
    ToolRequest,
    build_ending,
    build_failed,
    build_stopped,
    build_timed_out,
    wait_for_server,
)
from holdfast.activities.mcp.transport.exchange import Exchange
from holdfast.activities.process.command import run_to_end
from holdfast.domain.approvals.approval import Confirmation, QuestionAnswer
from holdfast.domain.calls.tool import Run, ToolFailure
from holdfast.domain.content import Result
from holdfast.telemetry.activity import record_span
from holdfast.util.secrets import UNCUT, Secrets
from holdfast.util.text import exception_text, shorten_text, strip_controls

if TYPE_CHECKING:
    from mcp_types import CallToolResult, InputRequiredResult

    from holdfast.activities.mcp.server.connection import Connection
    from holdfast.activities.mcp.server.elicitation import AskPerson

MAX_TRIES = 3
"""How often a call is sent."""
IDEMPOTENCY_KEY = "holdfast/idempotency-key"
"""A key in `_meta`, the same for every attempt at one effect."""
PROGRESS_LIMIT = 1_000
"""Characters of one progress message."""
LONG_ANSWER = 100_000
"""Bytes from which on an answer is read in a thread."""


async def call_tool(request: ToolRequest, run: Run) -> Result:
    """Call the tool and return its result. A second attempt of the engine sends the call again only if it may be
    repeated.

    Raises ToolFailure when it failed or did not run, OutcomeUnknown when that is not known and it must not run twice,
    NeedsAnswer when it needs a person first.
    """
    from mcp_types import InputRequiredResult  # imports the mcp package

    sending = _CallState(read_carryover(run.state, run.answer))
    try:
        answer = await _wait_for_answer(request, run, sending)
        for _ in range(MAX_TRIES):
            if not isinstance(answer, InputRequiredResult):
                break
            wanted = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
            sending.going_on = build_carryover(request.server.name, wanted, request.server.secrets)
            answer = await _wait_for_answer(request, run, sending)
    except asyncio.CancelledError:
        if (end := build_stopped(request, run, begun=sending.has_begun)) is None:
            raise
        raise end from None
    if isinstance(answer, InputRequiredResult):
        raise ToolFailure(
            "input_required", f"{request.label} asks again and again to be called again, without a question"
        )
    long = sending.exchange.size > LONG_ANSWER
    result, problem = (
        await run_to_end(asyncio.to_thread(_build_result, request, answer)) if long else _build_result(request, answer)
    )
    if answer.is_error:
        raise build_failed(request, result)
    if (
        request.output
        and not problem
        and (unfit := await _explain_unfit(request.output, answer, request.server.secrets))
    ):
        problem = f"its result does not fit the form that it declares: {unfit}"
    if problem:
        raise ToolFailure("bad_result", f"{request.label} has run, but {problem}", result.parts)
    return result


def _build_result(request: ToolRequest, answer: CallToolResult) -> tuple[Result, str | None]:
    """Build the result of an answer, and describe what is wrong with it."""
    try:
        result = build_result(answer, request.server.secrets)
    except ValueError:
        rest = answer.model_copy(update={"structured_content": None})
        return build_result(rest, request.server.secrets), "its structured result holds what JSON cannot say, as NaN"
    return result, None


async def _explain_unfit(form: ResultSchema, answer: CallToolResult, secrets: Secrets) -> str | None:
    """Describe what is wrong with the structured result, both as it came and without secrets."""
    value = answer.structured_content
    return await form.find_problem(value) and await form.find_problem(secrets.hide_value(value))


@dataclass
class _CallState:
    going_on: CallCarryover | None = None
    """The carryover of an earlier call, with the answers since."""
    exchange: Exchange = field(default_factory=Exchange)
    """The current attempt."""
    connection: Connection | None = None
    lost: bool = False
    """The outcome of an earlier attempt is unknown."""

    @property
    def has_begun(self) -> bool:
        """Whether the server may have received the call."""
        return self.lost or self.exchange.was_sent


async def _wait_for_answer(request: ToolRequest, run: Run, sending: _CallState) -> CallToolResult | InputRequiredResult:
    """Ask the open questions, send the call and wait for its answer. Time for a person's answer does not count."""
    if sending.going_on:
        sending.going_on.ask_next(request.server.name)
    try:
        async with asyncio.timeout(request.server.settings.timeout_seconds) as clock:

            async def ask(question: Confirmation) -> QuestionAnswer:
                with _pause_clock(clock):
                    return await run.ask(question)

            return await _send_until_answered(request, run, sending, ask)
    except TimeoutError:
        if sending.connection:
            request.server.check_connection(sending.connection)
        raise build_timed_out(request, sent=sending.has_begun) from None


@contextmanager
def _pause_clock(clock: asyncio.Timeout) -> Iterator[None]:
    """Pause the time limit for the block, unless it has expired."""
    now, when = asyncio.get_running_loop().time, clock.when()
    left = when - now() if when is not None else None
    with suppress(RuntimeError):  # the call, and its clock, have just ended; also below
        clock.reschedule(None)
    try:
        yield
    finally:
        if left is not None and not clock.expired():
            with suppress(RuntimeError):
                clock.reschedule(now() + left)


async def _send_until_answered(
    request: ToolRequest, run: Run, sending: _CallState, ask: AskPerson
) -> CallToolResult | InputRequiredResult:
    """Send the call until there is an answer, as far as it may be sent again."""
    from holdfast.activities.mcp.server.elicitation import AddressesToOpen  # imports the mcp package
    from holdfast.activities.mcp.transport.faults import Failure, Fault

    unsent = {Fault.NOT_SENT, Fault.SESSION, Fault.STALE}
    for left in reversed(range(MAX_TRIES)):
        sending.exchange = Exchange()
        sending.connection = connection = await _wait_for_connection(request)
        try:
            return await _send_call(request, connection, run, sending, ask)
        except AddressesToOpen as wanted:
            sending.exchange = Exchange()
            build_opening_carryover(request.server.name, wanted.requests, request.server.secrets).ask_next(
                request.server.name
            )
        except Failure as failure:
            sending.exchange = Exchange()
            sending.lost = sending.lost or failure.fault not in unsent
            if failure.fault is Fault.STALE and left:
                await _list_again(request)
            elif failure.fault in unsent or failure.fault is Fault.LOST:
                request.server.replace_connection(connection)
            if not left or not (failure.fault in unsent or (failure.fault is Fault.LOST and request.is_repeatable)):
                raise build_ending(request, failure, going_on=sending.going_on is not None) from None
    raise AssertionError("the last attempt returns or raises")


async def _wait_for_connection(request: ToolRequest) -> Connection:
    connection = await wait_for_server(request.server, ". The call was not made")
    if request.server.definitions.get(request.definition.name) != request.definition:
        message = f"The server has just changed {request.label}, or removed it. The call was not made: ask again"
        raise ToolFailure("tool_changed", message)
    return connection


async def _list_again(request: ToolRequest) -> None:
    try:
        await request.server.fetch_definition(request.definition.name)
    except Exception as error:
        words = shorten_text(request.server.secrets.hide(exception_text(error, UNCUT)), WORDS_LIMIT)
        raise ToolFailure("mcp_unavailable", f"{request.label} could not be looked up again: {words}") from None


async def _send_call(
    request: ToolRequest, connection: Connection, run: Run, sending: _CallState, ask: AskPerson
) -> CallToolResult | InputRequiredResult:
    from holdfast.activities.mcp.server.requests import send_tool_call

    secrets, going_on = request.server.secrets, sending.going_on

    async def report_progress(progress: float, total: float | None, message: str | None) -> None:
        amount = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        words = shorten_text(secrets.hide(strip_controls(message)), PROGRESS_LIMIT) if message else ""
        run.write(f"{amount}{f': {words}' if words else ''}\n")

    with record_span("holdfast.mcp", **{"mcp.server": request.server.name, "mcp.method": "tools/call"}) as span:
        try:
            answer = await send_tool_call(
                connection,
                request.definition.name,
                request.arguments,
                exchange=sending.exchange,
                meta={IDEMPOTENCY_KEY: run.effect_key},
                progress=report_progress,
                ask=ask,
                answers=going_on.sent_replies if going_on else None,
                state=going_on.state if going_on else None,
            )
        except Exception as error:
            span["holdfast.outcome"] = str(getattr(error, "fault", "error"))
            raise
        span["holdfast.outcome"] = _describe_ending(answer)
        return answer


def _describe_ending(answer: CallToolResult | InputRequiredResult) -> str:
    """The outcome of an exchange, for traces."""
    return "failed" if getattr(answer, "is_error", False) else "answered" if hasattr(answer, "content") else "asks"
