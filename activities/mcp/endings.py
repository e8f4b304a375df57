"""What each ending of a call means, in words and for the engine (S31, S39). Pure.

Where nobody knows what became of a call, that is said of one that must not run twice, and asked; of others it is an
error like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.activities.mcp.authorizing import remedy
from holdfast.activities.mcp.definitions import Definition
from holdfast.activities.mcp.outputs import ResultSchema
from holdfast.activities.mcp.server import Server
from holdfast.activities.mcp.status import State
from holdfast.content import Result, TextPart, plain, shorten
from holdfast.tools import Effect, OutcomeUnknown, Run, ToolFailure

if TYPE_CHECKING:
    from holdfast.activities.mcp.faults import Failure

WORDS_LIMIT = 2_000
"""Characters of an error's message."""
MAYBE = "It may have taken effect, in whole or in part, or not at all"


class Asked(NamedTuple):
    """What is to be called."""

    server: Server
    definition: Definition
    arguments: Mapping[str, Any]
    effect: Effect
    output: ResultSchema | None

    @property
    def repeatable(self) -> bool:
        """May it be sent again that may have run?"""
        return self.effect is not Effect.ONCE

    @property
    def called(self) -> str:
        """It, in words."""
        return f"{shorten(plain(self.definition.name), 100)!r} of the MCP server {self.server.name!r}"


def stopped(asked: Asked, run: Run, *, begun: bool) -> ToolFailure | OutcomeUnknown | None:
    """What a call that is stopped ends with, where that is not simply that it was."""
    if run.handing_over:
        if asked.repeatable:
            return None
        if begun:
            return OutcomeUnknown(f"The worker ended while {asked.called} ran. {MAYBE}.")
        return ToolFailure("worker_shutdown", f"The worker ended before {asked.called} was called")
    if begun and asked.effect is not Effect.READ:
        return OutcomeUnknown(f"{asked.called} was told to stop. {MAYBE}.")
    return None


def failed(asked: Asked, result: Result) -> ToolFailure:
    """The tool's own words, once: as the message, or as parts when they are long or no words."""
    words = "\n".join(part.text for part in result.parts)
    if words and len(words) <= WORDS_LIMIT and all(isinstance(part, TextPart) for part in result.parts):
        return ToolFailure("tool_error", words)
    return ToolFailure("tool_error", f"{asked.called} failed{'' if words else ' and did not say why'}", result.parts)


def timed_out(asked: Asked, *, sent: bool) -> ToolFailure | OutcomeUnknown:
    """What a call comes to whose time is up. `sent`: the server may have got it."""
    seconds = asked.server.settings.timeout_seconds
    if not sent:
        there = asked.server.state is State.CONNECTED
        why = f"The MCP server {asked.server.name!r} takes nothing" if there else asked.server.why()
        return ToolFailure("mcp_unavailable", f"{why}. The call was not made within {seconds:g} seconds")
    message = f"{asked.called} did not answer within {seconds:g} seconds, and was told to stop"
    return ToolFailure("timeout", message) if asked.repeatable else OutcomeUnknown(f"{message}. {MAYBE}.")


def ending(asked: Asked, failure: Failure, *, going_on: bool) -> ToolFailure | OutcomeUnknown:
    """What a call without a result comes to. `going_on`: it had asked, and was to go on with the answer."""
    words = asked.server.secrets.hide(plain(str(failure)))
    match failure.fault:
        case "told" if going_on:
            why = "It may not know any more what it had asked: make the call again, and it asks again"
            return ToolFailure("mcp_error", f"{asked.called} did not take the answer: {words}. {why}")
        case "told":
            return ToolFailure("mcp_error", f"{asked.called} answered with an error: {words}")
        case "unauthorized":
            todo = remedy(asked.server.name, asked.server.settings)
            message = f"The MCP server {asked.server.name!r} did not take the call: {words}. It was not made; {todo}"
            return ToolFailure("mcp_unauthorized", message)
        case "refused" | "not_sent" | "session" | "stale":
            return ToolFailure("mcp_unavailable", f"The MCP server did not take the call: {words}. It was not made")
        case "unreadable":
            message = f"{asked.called} has answered, but that cannot be read: {words}"
            return ToolFailure("bad_result", message) if asked.repeatable else OutcomeUnknown(f"{message}. {MAYBE}.")
        case _:
            message = f"The MCP server {asked.server.name!r} was lost while {asked.called} ran: {words}"
            return ToolFailure("mcp_lost", message) if asked.repeatable else OutcomeUnknown(f"{message}. {MAYBE}.")
