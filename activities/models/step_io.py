"""The exchange of a model step with its turn: the conversation is fetched, calls are sent. No provider is imported.

A conversation is fetched in pages. A worker caches it, so that a step fetches only what is new since the one before; it
is fetched whole where another worker took that step (S42).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from temporalio.client import Client

from holdfast.client.queries import query_turn
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.conversation.compaction import build_model_messages
from holdfast.domain.conversation.messages import Conversation, ConversationMessage, ConversationPage, ModelChoice
from holdfast.domain.turn.activity_io import ModelStepInput
from holdfast.domain.turn.update_bodies import AddCalls
from holdfast.names import TurnSignal

MAX_KNOWN = 100
"""Conversations in the cache, the last used ones."""
FETCH_SECONDS = 60.0
"""How long a page may take: a session that no worker has cached is replayed first."""


@dataclass
class _KnownMessages:
    """The cached messages of a turn or a session."""

    epoch: int | None = None
    messages: list[ConversationMessage] = field(default_factory=list)
    model: ModelChoice | None = None


@dataclass(frozen=True)
class FetchedConversation:
    """The conversation for a model, and how many of its messages are the session's."""

    conversation: Conversation
    session: int


class ConversationCache:
    """The conversations that this worker has fetched."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, str | None], _KnownMessages] = OrderedDict()

    async def fetch(self, turn_id: str, run_id: str | None) -> FetchedConversation:
        """Fetch the present conversation of a turn for its model. RPCError when the turn cannot be queried."""
        own, about = await self._fetch_messages(turn_id, run_id, run_id)
        assert about, "only a turn with a model takes a step"
        session = (await self._fetch_messages(about.session, None, about.session_run))[0] if about.session else []
        messages = tuple(build_model_messages(session, own, about.compaction))
        return FetchedConversation(about.model_copy(update={"messages": messages}), len(session))

    async def _fetch_messages(
        self, workflow_id: str, run_id: str | None, known_by: str | None
    ) -> tuple[list[ConversationMessage], Conversation | None]:
        """Fetch the messages of one run, or of the last. `known_by` separates workflows that had the same id."""
        key = (workflow_id, known_by)
        known = self._known.setdefault(key, _KnownMessages())
        self._known.move_to_end(key)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        while True:
            page = await query_turn(
                self._client,
                workflow_id,
                "messages",
                len(known.messages),
                known.epoch,
                result_type=ConversationPage,
                run_id=run_id,
                seconds=FETCH_SECONDS,
            )
            known.messages = [*known.messages[: page.start], *page.messages]
            known.epoch = page.epoch
            if page.about and page.start == 0:
                known.model = page.about.model
            if not page.more:
                break
        about = page.about
        if about and known.model:
            about = about.model_copy(update={"model": known.model})
        return list(known.messages), about


class CallStream:
    """Sends the calls of a reply to the turn while the reply is being written, if the turn streams (S11)."""

    def __init__(self, client: Client, turn_id: str, run_id: str | None, step: ModelStepInput) -> None:
        self._turn = client.get_workflow_handle(turn_id, run_id=run_id)
        self._step = step
        self._sent = 0

    async def send(self, *calls: CallRequest) -> None:
        """Send calls that are complete, in order. Sends nothing without a stream."""
        if self._step.stream is None or not calls:
            return
        body = AddCalls(stream=self._step.stream, attempt=self._step.attempt, at=self._sent, calls=calls)
        await self._turn.signal(TurnSignal.ADD_CALLS, body)
        self._sent += len(calls)
