"""Images, documents and sounds of tools, for a model that accepts them (S34).

A conversation holds references. The bytes are loaded for one request from the outputs that workers share, the newest
first, bounded in size and number. Others are described in words, with the reason.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from pydantic_ai.messages import BinaryContent

from holdfast.activities.files.media_types import find_binary_type
from holdfast.config.schema import MediaKind
from holdfast.domain.content import BlobPart, format_output_name
from holdfast.domain.conversation.messages import ConversationMessage, ToolMessage
from holdfast.errors import HoldfastError
from holdfast.payloads.bucket_store import ObjectNotFound
from holdfast.payloads.shared_outputs import SharedOutputs

MEDIA_KINDS: Mapping[str, MediaKind] = {
    "image/png": "image",
    "image/jpeg": "image",
    "image/gif": "image",
    "image/webp": "image",
    "application/pdf": "document",
    "audio/mpeg": "audio",
    "audio/wav": "audio",
}
"""The types that every provider accepts that accepts their kind at all; all are recognised by their first bytes."""
_SYNONYMS = {"image/jpg": "image/jpeg", "audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav"}
ITEM_BYTES = 3_750_000
"""Bytes of one item: 5 MB as base64, which is Anthropic's limit."""
REQUEST_BYTES = 15_000_000
"""Bytes of all items in a request: providers accept about 30 MB, base64 adds a third, and there is the conversation."""
REQUEST_ITEMS = 20
REFUSED_LIMIT = 10_000

ShownMedia = BinaryContent | str
"""The bytes that a model is shown, or why it is not shown them."""


class MediaLoader:
    """Loads the media that one worker shows to models."""

    def __init__(self, shared: SharedOutputs | None) -> None:
        self._shared = shared
        self._refused: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def fetch_shown(
        self, turn: str, model: str, messages: Iterable[ConversationMessage], takes: frozenset[MediaKind]
    ) -> list[ShownMedia]:
        """Load the media of a conversation: one item for every part with bytes, in order."""
        blobs = list_blobs(messages)
        found: list[ShownMedia] = [self._explain_not_shown(blob, model, takes) for blob in blobs]
        chosen = _select_newest([place for place, why in enumerate(found) if not why], blobs)
        for place, why in enumerate(found):
            if not why and place not in chosen:
                found[place] = "not shown: newer ones are. read_output shows it again"
        fetched = await asyncio.gather(*(self._fetch_blob(turn, blobs[place]) for place in chosen))
        for place, one in zip(chosen, fetched, strict=True):
            found[place] = one
        return found

    def note_refused(self, model: str, messages: Iterable[ConversationMessage], shown: Sequence[ShownMedia]) -> None:
        """Remember what a provider rejected, so that it is not sent again."""
        for blob, one in zip(list_blobs(messages), shown, strict=True):
            if isinstance(one, BinaryContent):
                self._refused[model, blob.digest] = None
        while len(self._refused) > REFUSED_LIMIT:
            self._refused.popitem(last=False)

    def _explain_not_shown(self, blob: BlobPart, model: str, takes: frozenset[MediaKind]) -> str:
        """Explain why an item is not shown; empty when it is."""
        kind = MEDIA_KINDS.get(_find_type(blob))
        if kind is None:
            return "not shown: models do not accept its type"
        if not blob.whole:
            return "not shown: its bytes were not stored"
        if kind not in takes:
            return f"not shown: this model accepts no {kind}"
        if blob.size > ITEM_BYTES:
            return f"not shown: it is over {ITEM_BYTES:,} bytes"
        return REFUSED_NOTE if (model, blob.digest) in self._refused else ""

    async def _fetch_blob(self, turn: str, blob: BlobPart) -> ShownMedia:
        try:
            if self._shared is None:
                raise ObjectNotFound
            data = (await self._shared.read(turn, format_output_name(blob.whole or ""))).data
        except (HoldfastError, ObjectNotFound):
            return "not shown: its bytes cannot be loaded now"
        if hashlib.sha256(data).hexdigest() != blob.digest or find_binary_type(data) != _find_type(blob):
            return "not shown: its content does not match its type"
        return BinaryContent(data, media_type=_find_type(blob), identifier=blob.digest[:12])


REFUSED_NOTE = "not shown: the provider of the model rejected it"


def describe_shown(shown: Sequence[ShownMedia]) -> list[ShownMedia]:
    """Replace the bytes of all items by the note that the provider rejected them."""
    return [one if isinstance(one, str) else REFUSED_NOTE for one in shown]


def list_blobs(messages: Iterable[ConversationMessage]) -> list[BlobPart]:
    """List the parts with bytes in a conversation, in order."""
    responses = [response for message in messages if isinstance(message, ToolMessage) for response in message.responses]
    return [part for response in responses for part in response.parts if isinstance(part, BlobPart)]


def _select_newest(places: Sequence[int], blobs: Sequence[BlobPart]) -> list[int]:
    """The newest items that fit into one request."""
    chosen: list[int] = []
    room = REQUEST_BYTES
    for place in reversed(places[-REQUEST_ITEMS:]):
        room -= blobs[place].size
        if room < 0:
            break
        chosen.append(place)
    return chosen


def _find_type(blob: BlobPart) -> str:
    kind = blob.media_type.partition(";")[0].strip().lower()
    return _SYNONYMS.get(kind, kind)
