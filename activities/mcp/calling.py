"""One call of a server's tool, and what each of its endings means (S31, S39).

Nothing is repeated that may have run and must not run twice: where the connection ends before the answer, somebody is
asked. What never reached the server is sent again, and so is what may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.activities.mcp.endings import WORDS_LIMIT, Asked, ending, failed, stopped, timed_out
from holdfast.activities.mcp.exchange import Exchange
from holdfast.activities.mcp.outputs import ResultSchema
from holdfast.activities.mcp.parts import result_of
from holdfast.activities.mcp.questions import Carried, carried, required, required_first
from holdfast.activities.mcp.secrets import UNCUT, Secrets
from holdfast.activities.mcp.status import State, Unavailable
from holdfast.activities.observing import spanning
from holdfast.activities.processes import to_the_end
from holdfast.approvals import Answer, Confirmation
from holdfast.content import Result, plain, said, shorten
from holdfast.tools import Run, ToolFailure

if TYPE_CHECKING:
    from mcp_types import CallToolResult, InputRequiredResult

    from holdfast.activities.mcp.connecting import Connection
    from holdfast.activities.mcp.eliciting import Ask

TRIES = 3
"""How often a call is sent that may be: it did not arrive, or may be repeated."""
KEY = "holdfast/idempotency-key"
"""In `_meta`: the same for every attempt at one effect."""
PROGRESS_LIMIT = 1_000
"""Characters of one message."""
LONG = 100_000
"""Bytes of an answer that is looked at beside everything else."""


async def call(asked: Asked, run: Run) -> Result:
    """Call it. ToolFailure when it failed or did not run, OutcomeUnknown when nobody knows and it must not run twice.

    A second attempt of the engine's sends a call again only if it may be repeated.
    """
    from mcp_types import InputRequiredResult  # here, as below: only once there is a server

    sending = _Sending(carried(run.state, run.answer))
    try:
        answer = await _answered(asked, run, sending)
        for _ in range(TRIES):
            if not isinstance(answer, InputRequiredResult):
                break
            wanted = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
            sending.going_on = required(asked.server.name, wanted, asked.server.secrets)
            answer = await _answered(asked, run, sending)
    except asyncio.CancelledError:
        if (end := stopped(asked, run, begun=sending.begun)) is None:
            raise
        raise end from None
    if isinstance(answer, InputRequiredResult):
        raise ToolFailure("input_required", f"{asked.called} wants to be called again and again, and asks nothing")
    long = sending.exchange.size > LONG
    result, problem = await to_the_end(asyncio.to_thread(_parts, asked, answer)) if long else _parts(asked, answer)
    if answer.is_error:
        raise failed(asked, result)
    if asked.output and not problem and (unfit := await _unfit(asked.output, answer, asked.server.secrets)):
        problem = f"its result does not fit the form that it declares: {unfit}"
    if problem:
        raise ToolFailure("bad_result", f"{asked.called} has run, but {problem}", result.parts)
    return result


def _parts(asked: Asked, answer: CallToolResult) -> tuple[Result, str | None]:
    """The parts of an answer, and what is wrong with them."""
    try:
        result = result_of(answer, asked.server.secrets)
    except ValueError:
        rest = answer.model_copy(update={"structured_content": None})
        return result_of(rest, asked.server.secrets), "its structured result holds what JSON cannot say, as NaN"
    return result, None


async def _unfit(form: ResultSchema, answer: CallToolResult, secrets: Secrets) -> str | None:
    """What is wrong with a structured result, be it as it came or as it is told."""
    value = answer.structured_content
    return await form.problem(value) and await form.problem(secrets.hidden(value))


@dataclass
class _Sending:
    going_on: Carried | None = None
    """What an earlier call ended with, and the answers since."""
    exchange: Exchange = field(default_factory=Exchange)
    """With the server, this time."""
    connection: Connection | None = None
    lost: bool = False
    """Nobody knows what became of an earlier time."""

    @property
    def begun(self) -> bool:
        """May the server have got it?"""
        return self.lost or self.exchange.begun


async def _answered(asked: Asked, run: Run, sending: _Sending) -> CallToolResult | InputRequiredResult:
    """An answer in time; the clock stands still while a person is asked. Without one nobody knows, once it was sent.

    What is still to be asked before it can be sent is asked first.
    """
    if sending.going_on:
        sending.going_on.ask(asked.server.name)
    try:
        async with asyncio.timeout(asked.server.settings.timeout_seconds) as clock:

            async def ask(question: Confirmation) -> Answer:
                with _standing(clock):
                    return await run.ask(question)

            return await _sent_until_answered(asked, run, sending, ask)
    except TimeoutError:
        if sending.connection:
            asked.server.check(sending.connection)
        raise timed_out(asked, sent=sending.begun) from None


@contextmanager
def _standing(clock: asyncio.Timeout) -> Iterator[None]:
    """The clock stands still. One that has run out stays so."""
    now, when = asyncio.get_running_loop().time, clock.when()
    left = when - now() if when is not None else None
    with suppress(RuntimeError):  # here as below: the call has just ended, and its clock with it
        clock.reschedule(None)
    try:
        yield
    finally:
        if left is not None and not clock.expired():
            with suppress(RuntimeError):
                clock.reschedule(now() + left)


async def _sent_until_answered(
    asked: Asked, run: Run, sending: _Sending, ask: Ask
) -> CallToolResult | InputRequiredResult:
    """Send it until there is an answer, as far as it may be sent again."""
    from holdfast.activities.mcp.eliciting import FirstOpen  # they bring the mcp package along
    from holdfast.activities.mcp.faults import Failure, Fault

    unsent = {Fault.NOT_SENT, Fault.SESSION, Fault.STALE}
    for left in reversed(range(TRIES)):
        sending.exchange = Exchange()
        sending.connection = connection = await _connected(asked)
        try:
            return await _sent(asked, connection, run, sending, ask)
        except FirstOpen as wanted:
            sending.exchange = Exchange()
            required_first(asked.server.name, wanted.requests, asked.server.secrets).ask(asked.server.name)
        except Failure as failure:
            sending.exchange = Exchange()
            sending.lost = sending.lost or failure.fault not in unsent
            if failure.fault is Fault.STALE and left:
                await _listed_again(asked)
            elif failure.fault in unsent or failure.fault is Fault.LOST:
                asked.server.doubt(connection)
            if not left or not (failure.fault in unsent or (failure.fault is Fault.LOST and asked.repeatable)):
                raise ending(asked, failure, going_on=sending.going_on is not None) from None
    raise AssertionError("the last try ends it")


async def _connected(asked: Asked) -> Connection:
    try:
        connection = await asked.server.connected()
    except Unavailable as error:
        kind = "mcp_unauthorized" if asked.server.state is State.UNAUTHORIZED else "mcp_unavailable"
        raise ToolFailure(kind, f"{error}. The call was not made") from None
    if asked.server.definitions.get(asked.definition.name) != asked.definition:
        message = f"The server has just changed {asked.called}, or taken it away. The call was not made: ask again"
        raise ToolFailure("tool_changed", message)
    return connection


async def _listed_again(asked: Asked) -> None:
    try:
        await asked.server.listed(asked.definition.name)
    except Exception as error:
        words = shorten(asked.server.secrets.hide(said(error, UNCUT)), WORDS_LIMIT)
        raise ToolFailure("mcp_unavailable", f"{asked.called} could not be looked up again: {words}") from None


async def _sent(
    asked: Asked, connection: Connection, run: Run, sending: _Sending, ask: Ask
) -> CallToolResult | InputRequiredResult:
    from holdfast.activities.mcp.requests import called  # as above

    secrets, going_on = asked.server.secrets, sending.going_on

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        amount = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        words = shorten(secrets.hide(plain(message), cut=True), PROGRESS_LIMIT) if message else ""
        run.write(f"{amount}{f': {words}' if words else ''}\n")

    with spanning("holdfast.mcp", **{"mcp.server": asked.server.name, "mcp.method": "tools/call"}) as span:
        try:
            answer = await called(
                connection,
                asked.definition.name,
                asked.arguments,
                exchange=sending.exchange,
                meta={KEY: run.effect_key},
                progress=tell,
                ask=ask,
                answers=going_on.told if going_on else None,
                state=going_on.state if going_on else None,
            )
        except Exception as error:
            span["holdfast.outcome"] = str(getattr(error, "fault", "error"))
            raise
        span["holdfast.outcome"] = _ending_of(answer)
        return answer


def _ending_of(answer: CallToolResult | InputRequiredResult) -> str:
    """How an exchange ended, for whoever traces."""
    return "failed" if getattr(answer, "is_error", False) else "answered" if hasattr(answer, "content") else "asks"
