"""What a server asks a person in the middle of a call, as a question of ours, and the answer as the server expects it.

In the older protocol the server asks while the call is open, and the call waits. In the newer one the call ends with
what is asked and a state; it is made again with the answers, by any worker. Nothing here knows the `mcp` package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, JsonValue

from holdfast.approvals import Answer, Confirmation
from holdfast.content import plain, shorten
from holdfast.model import Data
from holdfast.tools import NeedsAnswer, ToolFailure

ELICITATION = "elicitation/create"
MESSAGE_LIMIT = 10_000
URL_LIMIT = 4_000
REQUESTS_LIMIT = 20
"""Questions that a call may end with."""


def question_of(server: str, params: Mapping[str, Any]) -> Confirmation:
    """As a person sees it: who asks, what, and which fields it wants."""
    message = shorten(plain(str(params.get("message") or "")), MESSAGE_LIMIT)
    title = f"The MCP server {server!r} asks: {shorten(message, 200)}"
    if params.get("mode") == "url":
        url = shorten(plain(str(params.get("url") or "")), URL_LIMIT)
        words = f"{message}\n\nOpen this yourself if you trust it, then answer `done`: {url}"
        return Confirmation(kind="question", title=title, question=words, server=server, urls=(url,))
    form = params.get("requestedSchema")
    fields = form.get("properties") if isinstance(form, Mapping) else None
    if not isinstance(form, Mapping) or not isinstance(fields, Mapping) or not fields:
        # Nothing to fill in: it wants to know whether to go on.
        return Confirmation(kind="question", title=title, question=message, server=server, options=("yes",), other=True)
    return Confirmation(kind="question", title=title, question=message, server=server, form=dict(form))


def reply_of(answer: Answer, params: Mapping[str, Any]) -> dict[str, JsonValue]:
    """What a person said, as the server expects it."""
    if answer.action != "accept":
        return {"action": answer.action}
    if params.get("mode") == "url":
        return {"action": "accept"}
    return {"action": "accept", "content": dict(answer.fields)}


class Carried(Data):
    """A call that ended with questions: what it goes on with."""

    state: str | None = None
    requests: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """What is asked, by the server's own names for it."""
    replies: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)

    def answered(self, answer: Answer) -> Carried:
        """With what a person said to the first that has no reply."""
        name = self._open()
        assert name is not None, "something was asked"
        return self.model_copy(update={"replies": {**self.replies, name: reply_of(answer, self.requests[name])}})

    def ask(self, server: str) -> None:
        """Ask the next question, if there is one."""
        name = self._open()
        if name is not None:
            raise NeedsAnswer(question_of(server, self.requests[name]), self.model_dump(mode="json"))

    def _open(self) -> str | None:
        return next((name for name in self.requests if name not in self.replies), None)


def carried(state: JsonValue, answer: Answer | None) -> Carried | None:
    """What an earlier call of ours ended with, and what was answered since; None for the first."""
    if state is None or answer is None:
        return None
    return Carried.model_validate(state).answered(answer)


def required(result: Mapping[str, Any]) -> Carried:
    """What a call ended with. ToolFailure when it wants what we have not: a model to ask, or the user's folders."""
    requests = result.get("inputRequests") or {}
    others = sorted({str(one.get("method")) for one in requests.values()} - {ELICITATION})
    if others or len(requests) > REQUESTS_LIMIT:
        wants = ", ".join(others) or f"{len(requests)} answers at once"
        raise ToolFailure("input_required", f"The tool wants {shorten(wants, 300)} from us, which it cannot have here")
    return Carried(
        state=result.get("requestState"),
        requests={name: dict(one.get("params") or {}) for name, one in requests.items()},
    )
