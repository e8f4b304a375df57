"""What each ending of a call means, in words and for the engine (S31, S39). Pure.

Where nobody knows what became of a call, that is said of one that must not run twice, and asked; of others it is an
error like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.activities.mcp.auth.bearer import describe_remedy
from holdfast.activities.mcp.server.definitions import Definition
from holdfast.activities.mcp.server.lifecycle import ServerState
from holdfast.activities.mcp.server.result_content import ResultSchema
from holdfast.activities.mcp.server.server import Server
from holdfast.domain.calls.tool import Effect, OutcomeUnknown, Run, ToolFailure
from holdfast.domain.content import Result, TextPart
from holdfast.util.text import shorten_text, strip_controls

if TYPE_CHECKING:
    from holdfast.activities.mcp.transport.faults import Failure

WORDS_LIMIT = 2_000
"""Characters of an error's message."""
MAYBE_EFFECT = "It may have taken effect, in whole or in part, or not at all"


class ToolRequest(NamedTuple):
    """What is to be called."""

    server: Server
    definition: Definition
    arguments: Mapping[str, Any]
    effect: Effect
    output: ResultSchema | None

    @property
    def is_repeatable(self) -> bool:
        """May it be sent again that may have run?"""
        return self.effect is not Effect.ONCE

    @property
    def label(self) -> str:
        """It, in words."""
        return f"{shorten_text(strip_controls(self.definition.name), 100)!r} of the MCP server {self.server.name!r}"


def build_stopped(request: ToolRequest, run: Run, *, begun: bool) -> ToolFailure | OutcomeUnknown | None:
    """What a call that is stopped ends with, where that is not simply that it was."""
    if run.is_handing_over:
        if request.is_repeatable:
            return None
        if begun:
            return OutcomeUnknown(f"The worker ended while {request.label} ran. {MAYBE_EFFECT}.")
        return ToolFailure("worker_shutdown", f"The worker ended before {request.label} was called")
    if begun and request.effect is not Effect.READ:
        return OutcomeUnknown(f"{request.label} was told to stop. {MAYBE_EFFECT}.")
    return None


def build_failed(request: ToolRequest, result: Result) -> ToolFailure:
    """The tool's own words, once: as the message, or as parts when they are long or no words."""
    words = "\n".join(part.text for part in result.parts)
    if words and len(words) <= WORDS_LIMIT and all(isinstance(part, TextPart) for part in result.parts):
        return ToolFailure("tool_error", words)
    return ToolFailure("tool_error", f"{request.label} failed{'' if words else ' and did not say why'}", result.parts)


def build_timed_out(request: ToolRequest, *, sent: bool) -> ToolFailure | OutcomeUnknown:
    """What a call comes to whose time is up. `sent`: the server may have got it."""
    seconds = request.server.settings.timeout_seconds
    if not sent:
        there = request.server.state is ServerState.CONNECTED
        why = f"The MCP server {request.server.name!r} takes nothing" if there else request.server.explain_absence()
        return ToolFailure("mcp_unavailable", f"{why}. The call was not made within {seconds:g} seconds")
    message = f"{request.label} did not answer within {seconds:g} seconds, and was told to stop"
    return ToolFailure("timeout", message) if request.is_repeatable else OutcomeUnknown(f"{message}. {MAYBE_EFFECT}.")


def build_ending(request: ToolRequest, failure: Failure, *, going_on: bool) -> ToolFailure | OutcomeUnknown:
    """What a call without a result comes to. `going_on`: it had asked, and was to go on with the answer."""
    words = request.server.secrets.hide(strip_controls(str(failure)))
    match failure.fault:
        case "told" if going_on:
            why = "It may not know any more what it had asked: make the call again, and it asks again"
            return ToolFailure("mcp_error", f"{request.label} did not take the answer: {words}. {why}")
        case "told":
            return ToolFailure("mcp_error", f"{request.label} answered with an error: {words}")
        case "unauthorized":
            todo = describe_remedy(request.server.name, request.server.settings)
            message = f"The MCP server {request.server.name!r} did not take the call: {words}. It was not made; {todo}"
            return ToolFailure("mcp_unauthorized", message)
        case "refused" | "not_sent" | "session" | "stale":
            return ToolFailure("mcp_unavailable", f"The MCP server did not take the call: {words}. It was not made")
        case "unreadable":
            message = f"{request.label} has answered, but that cannot be read: {words}"
            return (
                ToolFailure("bad_result", message)
                if request.is_repeatable
                else OutcomeUnknown(f"{message}. {MAYBE_EFFECT}.")
            )
        case _:
            message = f"The MCP server {request.server.name!r} was lost while {request.label} ran: {words}"
            return (
                ToolFailure("mcp_lost", message)
                if request.is_repeatable
                else OutcomeUnknown(f"{message}. {MAYBE_EFFECT}.")
            )
