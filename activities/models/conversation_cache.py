"""Conversations on their way from turns and sessions to the model: in pages, and only what is new since the last step.

A worker keeps what it has fetched, so that a step asks for the few messages since the one before, and the whole comes
again only where another worker took that (S42).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from temporalio.client import Client

from holdfast.client.queries import query_turn
from holdfast.domain.conversation.compaction import build_model_messages
from holdfast.domain.conversation.messages import Conversation, ConversationMessage, ConversationPage, ModelChoice

MAX_KNOWN = 100
"""Conversations that are kept, those last asked for."""
FETCH_SECONDS = 60.0
"""How long one page may take: a session that is not in any worker's memory is replayed first."""


@dataclass
class _KnownMessages:
    """What was fetched of a turn's or a session's messages."""

    epoch: int | None = None
    messages: list[ConversationMessage] = field(default_factory=list)
    model: ModelChoice | None = None


@dataclass(frozen=True)
class FetchedConversation:
    """What a model is told, and how much of it the session said."""

    conversation: Conversation
    session: int


class ConversationCache:
    """Those that this worker has fetched."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, str | None], _KnownMessages] = OrderedDict()

    async def fetch(self, turn_id: str, run_id: str | None) -> FetchedConversation:
        """What the model of a turn is told now."""
        own, about = await self._fetch_messages(turn_id, run_id, run_id)
        assert about, "only a turn with a model takes a step"
        session = (await self._fetch_messages(about.session, None, about.session_run))[0] if about.session else []
        messages = tuple(build_model_messages(session, own, about.compaction))
        return FetchedConversation(about.model_copy(update={"messages": messages}), len(session))

    async def _fetch_messages(
        self, workflow_id: str, run_id: str | None, known_by: str | None
    ) -> tuple[list[ConversationMessage], Conversation | None]:
        """What one run, or the last, says; `known_by` tells apart what had the same id at another time."""
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
