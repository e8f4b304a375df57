"""One call of a server's tool, and what each of its endings means (S31, S39).

Nothing is repeated that may have run and must not run twice: where the connection ends before the answer, somebody is
asked. What never reached the server is sent again, and so is what may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.activities.mcp.authorizing import remedy
from holdfast.activities.mcp.definitions import Definition
from holdfast.activities.mcp.outputs import ResultSchema
from holdfast.activities.mcp.parts import result_of
from holdfast.activities.mcp.questions import Carried, carried, required, required_first
from holdfast.activities.mcp.server import Server
from holdfast.activities.mcp.status import State, Unavailable
from holdfast.approvals import Answer, Confirmation
from holdfast.content import Result, TextPart, plain, shorten
from holdfast.tools import OutcomeUnknown, Run, ToolFailure

if TYPE_CHECKING:
    from mcp_types import CallToolResult, InputRequiredResult

    from holdfast.activities.mcp.connecting import Connection
    from holdfast.activities.mcp.eliciting import Ask
    from holdfast.activities.mcp.faults import Failure

TRIES = 3
"""How often a call is sent that may be: it did not arrive, or may be repeated."""
KEY = "holdfast/idempotency-key"
"""In `_meta`: the same for every attempt at one effect."""
WORDS_LIMIT = 2_000
"""Characters of an error's message."""
PROGRESS_LIMIT = 1_000
"""Characters of one message."""
MAYBE = "It may have taken effect, in whole or in part, or not at all"


class Asked(NamedTuple):
    """What is to be called."""

    server: Server
    definition: Definition
    arguments: Mapping[str, Any]
    repeatable: bool
    output: ResultSchema | None


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
        if not run.handing_over or asked.repeatable:
            raise
        if sending.begun:
            raise OutcomeUnknown(f"The worker ended while {_called(asked)} ran. {MAYBE}.") from None
        raise ToolFailure("worker_shutdown", f"The worker ended before {_called(asked)} was called") from None
    if isinstance(answer, InputRequiredResult):
        raise ToolFailure("input_required", f"{_called(asked)} wants to be called again and again, and asks nothing")
    result = result_of(answer, asked.server.secrets)
    if answer.is_error:
        raise _failed(asked, result)
    if problem := asked.output and await asked.output.problem(answer.structured_content):
        message = f"{_called(asked)} has run, but its result does not fit the form that it declares: {problem}"
        raise ToolFailure("bad_result", message, result.parts)
    return result


@dataclass
class _Sending:
    going_on: Carried | None = None
    """What an earlier call ended with, and the answers since."""
    begun: bool = False
    """May the server have got it?"""


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
        raise _timed_out(asked, sent=sending.begun) from None


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
        connection = await _connected(asked)
        sending.begun = True
        try:
            return await _sent(asked, connection, run, sending.going_on, ask)
        except FirstOpen as wanted:
            sending.begun = False
            required_first(asked.server.name, wanted.requests, asked.server.secrets).ask(asked.server.name)
        except Failure as failure:
            sending.begun = failure.fault not in unsent
            if failure.fault is Fault.STALE and left:
                await _listed_again(asked)
            elif failure.fault in unsent or failure.fault is Fault.LOST:
                asked.server.doubt(connection)
            if not left or not (failure.fault in unsent or (failure.fault is Fault.LOST and asked.repeatable)):
                raise _ending(asked, failure, going_on=sending.going_on is not None) from None
    raise AssertionError("the last try ends it")


async def _connected(asked: Asked) -> Connection:
    try:
        connection = await asked.server.connected()
    except Unavailable as error:
        kind = "mcp_unauthorized" if asked.server.state is State.UNAUTHORIZED else "mcp_unavailable"
        raise ToolFailure(kind, f"{error}. The call was not made") from None
    if asked.server.definitions.get(asked.definition.name) != asked.definition:
        message = f"The server has just changed {_called(asked)}, or taken it away. The call was not made: ask again"
        raise ToolFailure("tool_changed", message)
    return connection


async def _listed_again(asked: Asked) -> None:
    try:
        await asked.server.listed(asked.definition.name)
    except Exception as error:
        raise ToolFailure("mcp_unavailable", f"{_called(asked)} could not be looked up again: {error}") from None


async def _sent(
    asked: Asked, connection: Connection, run: Run, going_on: Carried | None, ask: Ask
) -> CallToolResult | InputRequiredResult:
    secrets = asked.server.secrets

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        amount = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        words = shorten(secrets.hide(plain(message)), PROGRESS_LIMIT) if message else ""
        run.write(f"{amount}{f': {words}' if words else ''}\n")

    meta = {KEY: run.effect_key}
    return await connection.call(
        asked.definition.name,
        asked.arguments,
        meta=meta,
        progress=tell,
        ask=ask,
        answers=going_on.told if going_on else None,
        state=going_on.state if going_on else None,
    )


def _failed(asked: Asked, result: Result) -> ToolFailure:
    """The tool's own words, once: as the message, or as parts when they are long or no words."""
    words = "\n".join(part.text for part in result.parts)
    if words and len(words) <= WORDS_LIMIT and all(isinstance(part, TextPart) for part in result.parts):
        return ToolFailure("tool_error", words)
    return ToolFailure("tool_error", f"{_called(asked)} failed{'' if words else ' and did not say why'}", result.parts)


def _timed_out(asked: Asked, *, sent: bool) -> ToolFailure | OutcomeUnknown:
    seconds = asked.server.settings.timeout_seconds
    if not sent:
        return ToolFailure("mcp_unavailable", f"{asked.server.why()}. The call was not made within {seconds:g} seconds")
    message = f"{_called(asked)} did not answer within {seconds:g} seconds, and was told to stop"
    return ToolFailure("timeout", message) if asked.repeatable else OutcomeUnknown(f"{message}. {MAYBE}.")


def _ending(asked: Asked, failure: Failure, *, going_on: bool) -> ToolFailure | OutcomeUnknown:
    """What a call without a result comes to. `going_on`: it had asked, and was to go on with the answer."""
    words = asked.server.secrets.hide(plain(str(failure)))
    match failure.fault:
        case "told" if going_on:
            why = "It may not know any more what it had asked: make the call again, and it asks again"
            return ToolFailure("mcp_error", f"{_called(asked)} did not take the answer: {words}. {why}")
        case "told":
            return ToolFailure("mcp_error", f"{_called(asked)} answered with an error: {words}")
        case "unauthorized":
            todo = remedy(asked.server.name, asked.server.settings)
            message = f"The MCP server {asked.server.name!r} did not take the call: {words}. It was not made; {todo}"
            return ToolFailure("mcp_unauthorized", message)
        case "refused" | "not_sent" | "session" | "stale":
            return ToolFailure("mcp_unavailable", f"The MCP server did not take the call: {words}. It was not made")
        case "unreadable":
            message = f"{_called(asked)} has answered, but that cannot be read: {words}"
            return ToolFailure("bad_result", message) if asked.repeatable else OutcomeUnknown(f"{message}. {MAYBE}.")
        case _:
            message = f"The MCP server {asked.server.name!r} was lost while {_called(asked)} ran: {words}"
            return ToolFailure("mcp_lost", message) if asked.repeatable else OutcomeUnknown(f"{message}. {MAYBE}.")


def _called(asked: Asked) -> str:
    return f"{shorten(plain(asked.definition.name), 100)!r} of the MCP server {asked.server.name!r}"
