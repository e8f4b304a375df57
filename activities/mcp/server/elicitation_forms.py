"""Questions of a server as questions of Holdfast, and the answers as the server expects them.

In the stateful protocol versions the server asks while the call is open. In the stateless ones the call ends with the
questions and a state, and is repeated with the answers, by any worker. Importing this imports no `mcp`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, JsonValue

from holdfast.domain.approvals.approval import Confirmation, QuestionAnswer
from holdfast.domain.base import Data
from holdfast.domain.calls.tool import NeedsAnswer, ToolFailure
from holdfast.domain.forms.validation import list_fields
from holdfast.domain.turn.activity_io import QUESTION_LIMIT
from holdfast.util.secrets import Secrets
from holdfast.util.text import shorten_text, strip_controls

ELICITATION = "elicitation/create"
DONE_ANSWER = "done"
"""The answer that says that an address has been opened."""
MESSAGE_LIMIT = 10_000
URL_LIMIT = 4_000
_WEB_ADDRESS = re.compile(r"(?i)https?://[^\s\\]+")
_SECRET_NAME = re.compile(
    r"(?i)pass[ _-]?(word|phrase|code)|passwd|pwd|secret|token|credential|private[ _-]?key|(api|access)[ _-]?key"
    r"|(?<![a-z])(pin|otp|cvv|cvc|ssn)(?![a-z])|(card|account)[ _-]?number|social[ _-]?security|one[ _-]?time"
)
_SECRET_WARNING = (
    "Warning: {!r} looks like something secret. What you answer goes to the server and is kept in the history of the "
    "turn, where whoever may read that finds it: decline if you do not want this."
)
REQUESTS_LIMIT = 20
"""Questions that a call may end with."""


def build_question(server: str, params: Mapping[str, Any]) -> Confirmation:
    """Build the question that a person is asked. ToolFailure when it cannot be asked."""
    message = shorten_text(strip_controls(str(params.get("message") or "")), MESSAGE_LIMIT)
    title = f"The MCP server {server!r} asks: {shorten_text(message, 200)}"
    if params.get("mode") == "url":
        url = strip_controls(str(params.get("url") or ""))
        if len(url) > URL_LIMIT:
            raise _build_unaskable(server, f"with an address of over {URL_LIMIT:,} characters")
        if not is_web_address(url):  # a scheme that runs a program or a script is nothing to click on
            words = f"{message}\n\nThis is not an address of the web: do not open it unless you know what it does"
            return _build_yes_or_no(
                server, title, f"{words}. Answer `{DONE_ANSWER}` when it is done: {url}", DONE_ANSWER
            )
        words = f"{message}\n\nOpen this yourself if you trust it, then answer `{DONE_ANSWER}`: {url}"
        return _build_yes_or_no(server, title, words, DONE_ANSWER, url)
    form = params.get("requestedSchema")
    fields = list_fields(form) if isinstance(form, Mapping) else {}
    if not isinstance(form, Mapping) or not fields:
        return _build_yes_or_no(server, title, message, "yes")  # a form without fields asks for consent
    if nested := next((name for name, field in fields.items() if _is_nested(field)), None):
        raise _build_unaskable(
            server, f"for {shorten_text(nested, 100)!r}, which is no single value and no choice of texts"
        )
    if secret := next((name for name, field in fields.items() if _is_secret_field(name, field)), None):
        message = f"{message}\n\n{_SECRET_WARNING.format(shorten_text(strip_controls(secret), 100))}"
    question = Confirmation(kind="question", title=title, question=message, server=server, form=dict(form))
    if len(question.model_dump_json()) > QUESTION_LIMIT:
        raise _build_unaskable(server, f"with a form of over {QUESTION_LIMIT:,} characters")
    return question


def is_web_address(text: str) -> bool:
    """Whether a browser opens this address as a page, and does not run it."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and _WEB_ADDRESS.fullmatch(text) is not None
    except ValueError:
        return False


def _is_secret_field(name: str, field: Mapping[str, Any]) -> bool:
    texts = (re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name), field.get("title"), field.get("description"))
    return field.get("format") == "password" or any(isinstance(one, str) and _SECRET_NAME.search(one) for one in texts)


def _build_yes_or_no(server: str, title: str, words: str, yes: str, *urls: str) -> Confirmation:
    """A question with one answer that agrees; no other text counts as consent."""
    return Confirmation(
        kind="question", title=title, question=words, server=server, urls=urls, options=(yes,), other=False
    )


def _build_unaskable(server: str, how: str) -> ToolFailure:
    return ToolFailure("bad_question", f"The MCP server {server!r} asked {how}, which nobody can be asked here")


def _is_nested(field: Mapping[str, Any]) -> bool:
    """Whether the value of this field would be more than an answer can hold."""
    items = field.get("items")
    of_texts = not isinstance(items, Mapping) or items.get("type") in (None, "string")
    return field.get("type") == "object" or (field.get("type") == "array" and not of_texts)


def build_reply(answer: QuestionAnswer, params: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Build the reply that the server expects."""
    if answer.action != "accept":
        return {"action": answer.action}
    if params.get("mode") == "url":
        return {"action": "accept"}
    return {"action": "accept", "content": {name: _flatten_value(value) for name, value in answer.fields.items()}}


def _flatten_value(value: JsonValue) -> JsonValue:
    """The value as a reply can hold it: nested values as JSON text."""
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return value if texts or not isinstance(value, list | dict) else json.dumps(value, ensure_ascii=False)


class CallCarryover(Data):
    """The state that a call needs to continue after it ended with questions."""

    state: str | None = None
    requests: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The questions, by the server's names for them."""
    replies: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    first: bool = False
    """The questions must be answered before the call is repeated, which the server checks by itself (stateful protocol
    versions).
    """

    @property
    def sent_replies(self) -> dict[str, dict[str, JsonValue]] | None:
        """The replies that are sent with the call."""
        return None if self.first else self.replies or None

    def add_answer(self, answer: QuestionAnswer) -> CallCarryover:
        """Add a person's answer to the first open question."""
        name = self._find_open()
        assert name is not None, "something was asked"
        return self.model_copy(update={"replies": {**self.replies, name: build_reply(answer, self.requests[name])}})

    def ask_next(self, server: str) -> None:
        """Raise NeedsAnswer for the next open question, if there is one. ToolFailure when the person declined."""
        if self.first and any(reply["action"] != "accept" for reply in self.replies.values()):
            raise ToolFailure(
                "declined", f"What the MCP server {server!r} asks for first was declined. The tool was not called"
            )
        name = self._find_open()
        if name is not None:
            raise NeedsAnswer(build_question(server, self.requests[name]), self.model_dump(mode="json"))

    def _find_open(self) -> str | None:
        return next((name for name in self.requests if name not in self.replies), None)


def read_carryover(state: JsonValue, answer: QuestionAnswer | None) -> CallCarryover | None:
    """Restore what an earlier attempt ended with, with the answer since; None for the first attempt."""
    if state is None or answer is None:
        return None
    return CallCarryover.model_validate(state).add_answer(answer)


def build_carryover(server: str, result: Mapping[str, Any], secrets: Secrets) -> CallCarryover:
    """Build the carryover of a call that ended with questions. ToolFailure when it asks for more than a form."""
    requests = result.get("inputRequests") or {}
    if any(secrets.hide(name) != name for name in requests):
        raise ToolFailure("bad_question", f"The MCP server {server!r} used a secret as the name of a question")
    if others := sorted({str(one.get("method")) for one in requests.values()} - {ELICITATION}):
        wants = shorten_text(secrets.hide(", ".join(others)), 300)
        raise ToolFailure("input_required", f"The MCP server {server!r} asks for {wants}, which is not supported")
    state = result.get("requestState")
    if state is not None and secrets.hide(state) != state:
        raise ToolFailure(
            "bad_question",
            f"The MCP server {server!r} asked with a state that contains a secret",
        )
    return _build_checked(
        server, {name: one.get("params") or {} for name, one in requests.items()}, secrets, state=state
    )


def build_opening_carryover(server: str, requests: Mapping[str, Mapping[str, Any]], secrets: Secrets) -> CallCarryover:
    """Build the carryover of a call that wants addresses opened first."""
    return _build_checked(server, requests, secrets, first=True)


def _build_checked(
    server: str, requests: Mapping[str, Mapping[str, Any]], secrets: Secrets, **more: Any
) -> CallCarryover:
    """Check every question before any is asked."""
    if len(requests) > REQUESTS_LIMIT:
        raise _build_unaskable(server, f"{len(requests):,} questions at once")
    shown: dict[str, Any] = {name: secrets.hide_value(dict(params)) for name, params in requests.items()}
    for params in shown.values():
        build_question(server, params)
    return CallCarryover(requests=shown, **more)
