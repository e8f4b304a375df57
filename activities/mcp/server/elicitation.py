"""Questions that a server asks while a call is open, as the stateful protocol versions have it, and their answers.

Over HTTP a question comes with the answer to its call and is known by it. Over stdio nothing says whose it is: it is
attributed to the newest of the calls that wait for no answer, or, if several began together, to the first of them.
Either way the answer goes to the request that it answers, and a call asks one question after another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import INVALID_PARAMS, URL_ELICITATION_REQUIRED, ElicitRequestParams, ElicitResult, ErrorData

from holdfast.activities.mcp.server.elicitation_forms import build_question, build_reply
from holdfast.domain.approvals.approval import Confirmation, QuestionAnswer
from holdfast.domain.calls.tool import ToolFailure
from holdfast.util.secrets import Secrets

AskPerson = Callable[[Confirmation], Awaitable[QuestionAnswer]]
TOGETHER_SECONDS = 1.0


class _AskingCall:
    """A running call that may ask a person."""

    def __init__(self, ask: AskPerson) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self.began = time.monotonic()
        self.open_count = 0
        """Its questions without an answer."""
        self.ended = asyncio.Event()

    async def wait_for_answer(self, question: Confirmation) -> QuestionAnswer | None:
        """Ask a person; None when the call ends before the answer."""
        asking, ended = asyncio.create_task(self._ask_in_turn(question)), asyncio.create_task(self.ended.wait())
        self.open_count += 1
        try:
            await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            self.open_count -= 1
            asking.cancel()
            ended.cancel()

    async def _ask_in_turn(self, question: Confirmation) -> QuestionAnswer:
        async with self._lock:
            return await self._ask(question)


_CALL: ContextVar[_AskingCall | None] = ContextVar("call", default=None)
"""The call that the current task belongs to. The `mcp` package copies the context to what comes with an answer."""


class ElicitationHandler:
    """Handles the questions of one connection's server."""

    def __init__(self, server: str, secrets: Secrets) -> None:
        self._server = server
        self._secrets = secrets
        self._under_way: list[_AskingCall] = []

    @contextmanager
    def track_call(self, ask: AskPerson) -> Iterator[None]:
        """Register a running call, and how it asks a person, for the block."""
        asker = _AskingCall(ask)
        self._under_way.append(asker)
        token = _CALL.set(asker)
        try:
            yield
        finally:
            _CALL.reset(token)
            self._under_way.remove(asker)
            asker.ended.set()

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Answer one question of the server; `cancel` when no call is running."""
        asked: Any = self._secrets.hide_value(params.model_dump(mode="json", by_alias=True))
        try:
            question = build_question(self._server, asked)
        except ToolFailure as error:
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        return ElicitResult.model_validate(build_reply(await self._answer_question(question), asked))

    async def _answer_question(self, question: Confirmation) -> QuestionAnswer:
        """Ask in the name of a call. When that call ends first, the question was another's."""
        known = _CALL.get()
        while asker := self._find_asker(known):
            if answer := await asker.wait_for_answer(question):
                return answer
        return QuestionAnswer(action="cancel")

    def _find_asker(self, known: _AskingCall | None) -> _AskingCall | None:
        if known or not self._under_way:
            return known if known in self._under_way else None
        least = min(asker.open_count for asker in self._under_way)
        free = [asker for asker in self._under_way if asker.open_count == least]
        return next(asker for asker in free if free[-1].began - asker.began <= TOGETHER_SECONDS)


class AddressesToOpen(Exception):
    """The server wants a person to open addresses before the call is repeated; nothing has run."""

    def __init__(self, requests: dict[str, dict[str, Any]]) -> None:
        super().__init__("addresses have to be opened first")
        self.requests = requests


def find_addresses_to_open(error: MCPError) -> AddressesToOpen | None:
    """Return the addresses that an error of the stateful protocol versions asks for, if it does."""
    if error.code != URL_ELICITATION_REQUIRED:
        return None
    try:
        found = UrlElicitationRequiredError.from_error(error.error).elicitations
    except (ValueError, TypeError, AttributeError):  # the error names no addresses
        return None
    requests = {str(number): one.model_dump(mode="json", by_alias=True) for number, one in enumerate(found)}
    return AddressesToOpen(requests) if requests else None
