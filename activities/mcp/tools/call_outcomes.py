"""Builds the outcome of a call that has no result, by the way in which it ended (S31, S39).

When it is unknown whether a call took effect, one that must not run twice ends as `OutcomeUnknown`, and a person is
asked; other calls end as errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.activities.mcp.auth.bearer import describe_remedy
from holdfast.activities.mcp.server.definitions import Definition
from holdfast.activities.mcp.server.lifecycle import McpServerUnavailable, ServerState
from holdfast.activities.mcp.server.result_content import ResultSchema
from holdfast.activities.mcp.server.server import Server
from holdfast.domain.calls.tool import Effect, OutcomeUnknown, Run, ToolFailure
from holdfast.domain.content import Result, TextPart
from holdfast.util.text import shorten_text, strip_controls

if TYPE_CHECKING:
    from holdfast.activities.mcp.server.connection import Connection
    from holdfast.activities.mcp.transport.faults import Failure

WORDS_LIMIT = 2_000
"""Characters of an error message."""
MAYBE_EFFECT = "It may have taken effect, in whole or in part, or not at all"


class ToolRequest(NamedTuple):
    """A call of a server's tool."""

    server: Server
    definition: Definition
    arguments: Mapping[str, Any]
    effect: Effect
    output: ResultSchema | None

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again after it may have run."""
        return self.effect is not Effect.ONCE

    @property
    def label(self) -> str:
        """The tool and its server, for messages."""
        return f"{shorten_text(strip_controls(self.definition.name), 100)!r} of the MCP server {self.server.name!r}"


def build_stopped(request: ToolRequest, run: Run, *, begun: bool) -> ToolFailure | OutcomeUnknown | None:
    """The end of a stopped call, where it is more than the cancellation itself; None otherwise."""
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
    """The end of a call whose tool failed: its own text once, as the message or as parts."""
    words = "\n".join(part.text for part in result.parts)
    if words and len(words) <= WORDS_LIMIT and all(isinstance(part, TextPart) for part in result.parts):
        return ToolFailure("tool_error", words)
    return ToolFailure("tool_error", f"{request.label} failed{'' if words else ' and did not say why'}", result.parts)


def build_timed_out(request: ToolRequest, *, sent: bool) -> ToolFailure | OutcomeUnknown:
    """The end of a call that ran out of time. `sent`: the server may have received it."""
    seconds = request.server.settings.timeout_seconds
    if not sent:
        there = request.server.state is ServerState.CONNECTED
        why = f"The MCP server {request.server.name!r} accepts no calls" if there else request.server.explain_absence()
        return ToolFailure("mcp_unavailable", f"{why}. The call was not made within {seconds:g} seconds")
    message = f"{request.label} did not answer within {seconds:g} seconds, and was told to stop"
    return _build_doubtful(request, "timeout", message)


def build_ending(request: ToolRequest, failure: Failure, *, going_on: bool) -> ToolFailure | OutcomeUnknown:
    """The end of a call without a result. `going_on`: it continued an earlier call that had asked a person."""
    words = request.server.secrets.hide(strip_controls(str(failure)))
    match failure.fault:
        case "error" if going_on:
            why = "It may have forgotten its question: make the call again, and it asks again"
            return ToolFailure("mcp_error", f"{request.label} did not take the answer: {words}. {why}")
        case "error":
            return ToolFailure("mcp_error", f"{request.label} answered with an error: {words}")
        case "unauthorized":
            todo = describe_remedy(request.server.name, request.server.settings)
            message = f"The MCP server {request.server.name!r} did not take the call: {words}. It was not made; {todo}"
            return ToolFailure("mcp_unauthorized", message)
        case "refused" | "not_sent" | "session" | "stale":
            return ToolFailure("mcp_unavailable", f"The MCP server did not take the call: {words}. It was not made")
        case "unreadable":
            message = f"{request.label} has answered, but the answer cannot be read: {words}"
            return _build_doubtful(request, "bad_result", message)
        case _:
            message = f"The MCP server {request.server.name!r} was lost while {request.label} ran: {words}"
            return _build_doubtful(request, "mcp_lost", message)


def _build_doubtful(request: ToolRequest, type: str, message: str) -> ToolFailure | OutcomeUnknown:
    """An error, or, of a call that must not run twice, an unknown outcome."""
    return ToolFailure(type, message) if request.is_repeatable else OutcomeUnknown(f"{message}. {MAYBE_EFFECT}.")


async def wait_for_server(server: Server, note: str = "") -> Connection:
    """Wait for the connection of a server. ToolFailure with the reason and this note when there is none in time."""
    try:
        return await server.wait_for_connection()
    except McpServerUnavailable as error:
        kind = "mcp_unauthorized" if server.state is ServerState.UNAUTHORIZED else "mcp_unavailable"
        raise ToolFailure(kind, f"{error}{note}") from None
