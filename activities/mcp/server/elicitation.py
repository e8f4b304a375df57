"""What a server asks while a call is open, as the older protocol has it: whose question it is, and its answer.

Over HTTP it comes with the answer to its call, and is known by that. On standard streams nothing says whose it is: of
the calls that wait for no answer the newest is taken for it, or, where some began together, the first of them. Either
way each answer goes to the request that it answers, and of one call's questions one is asked after the other.
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
    """A call that is under way, and how it asks a person."""

    def __init__(self, ask: AskPerson) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self.began = time.monotonic()
        self.open_count = 0
        """How many of its questions have no answer."""
        self.ended = asyncio.Event()

    async def wait_for_answer(self, question: Confirmation) -> QuestionAnswer | None:
        """What a person says; None when the call ended before they did."""
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
"""The call that this is done for. The `mcp` package hands it on to what comes with an answer over HTTP."""


class ElicitationHandler:
    """What one connection's server asks."""

    def __init__(self, server: str, secrets: Secrets) -> None:
        self._server = server
        self._secrets = secrets
        self._under_way: list[_AskingCall] = []

    @contextmanager
    def track_call(self, ask: AskPerson) -> Iterator[None]:
        """A call is under way, and this is how it asks."""
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
        """The answer to one question; `cancel` when there is no call to ask it for."""
        asked: Any = self._secrets.hide_value(params.model_dump(mode="json", by_alias=True))
        try:
            question = build_question(self._server, asked)
        except ToolFailure as error:
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        return ElicitResult.model_validate(build_reply(await self._answer_question(question), asked))

    async def _answer_question(self, question: Confirmation) -> QuestionAnswer:
        """Where the call that was taken for the asker ends first, it was another one's."""
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
    """The server wants addresses opened before the call is made again; nothing has run."""

    def __init__(self, requests: dict[str, dict[str, Any]]) -> None:
        super().__init__("addresses are to be opened first")
        self.requests = requests


def find_addresses_to_open(error: MCPError) -> AddressesToOpen | None:
    """What an error of the older protocol asks for, if it does."""
    if error.code != URL_ELICITATION_REQUIRED:
        return None
    try:
        found = UrlElicitationRequiredError.from_error(error.error).elicitations
    except (ValueError, TypeError, AttributeError):  # it says so, and does not say what
        return None
    requests = {str(number): one.model_dump(mode="json", by_alias=True) for number, one in enumerate(found)}
    return AddressesToOpen(requests) if requests else None
