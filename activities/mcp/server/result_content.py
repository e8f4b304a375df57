"""The content of a server's answer as the parts of a result.

Content for one audience goes to that one: for the model into the parts, for a person into what is shown. Structured
content that is repeated as text is kept once, as data.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from holdfast.activities.mcp.transport.exchange import PARTS_LIMIT
from holdfast.activities.registry.json_schema import CHECK_EXECUTOR, CheckedSchema
from holdfast.domain.content import BlobPart, DataPart, Part, Result, TextPart
from holdfast.errors import BadInput
from holdfast.util.json_values import is_too_deep
from holdfast.util.secrets import Secrets
from holdfast.util.text import shorten_text

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, ResourceLink


NAME_LIMIT = 200


def build_result(answer: CallToolResult, secrets: Secrets) -> Result:
    """Build the result of an answer, without secrets. ValueError when its data is not valid JSON."""
    blocks = answer.content[:PARTS_LIMIT]
    shown = [block for block in blocks if _is_for_reader(block, "user")]
    read = [block for block in blocks if _is_for_reader(block, "assistant")] or blocks
    data = _find_data(answer, secrets)
    parts = [part for block in read for part in _build_parts(block, secrets) if not _is_repetition(part, data)]
    if data and not any(_is_wrapper(data[0], part) for part in parts):
        parts.append(_build_structured_part(data[0]))
    if missing := len(answer.content) - len(blocks):
        parts.append(TextPart(text=f"[{missing:,} further parts were left out]"))
    differs = len(shown) != len(blocks) or len(read) != len(blocks)
    return Result(
        parts=tuple(parts),
        shown=tuple(part for block in shown for part in _build_parts(block, secrets)) if differs else (),
    )


def _build_structured_part(value: Any) -> Part:
    """Data that is nested too deeply to be read again becomes text."""
    return TextPart(text=json.dumps(value, ensure_ascii=False)) if is_too_deep(value) else DataPart(value=value)


def _is_for_reader(block: ContentBlock, reader: str) -> bool:
    audience = block.annotations.audience if block.annotations else None
    return not audience or reader in audience


def _find_data(answer: CallToolResult, secrets: Secrets) -> tuple[Any] | tuple[()]:
    """The structured content, in a tuple: null may be a value."""
    value = answer.structured_content
    return () if value is None else (secrets.hide_value(value),)


def _is_repetition(part: Part, data: Sequence[Any]) -> bool:
    """Whether a text repeats the structured content, or its only field, as servers do for older clients."""
    if not data or not isinstance(part, TextPart):
        return False
    fields = list(data[0].values()) if isinstance(data[0], dict) else []
    try:
        text = _encode_canonical(json.loads(part.text))
        return text in (_encode_canonical(value) for value in (data[0], *(fields if len(fields) == 1 else ())))
    except (ValueError, RecursionError):
        return False


def _encode_canonical(value: Any) -> str:
    """Equal for equal JSON alone: in Python 1 equals True."""
    return json.dumps(value, sort_keys=True)


def _is_wrapper(value: Any, part: Part) -> bool:
    """Whether the data is the text as the only value of an object. Then the text is easier to read."""
    return isinstance(part, TextPart) and isinstance(value, dict) and list(value.values()) == [part.text]


def _build_parts(block: ContentBlock, secrets: Secrets) -> Iterator[Part]:
    if block.type == "text":
        yield TextPart(text=secrets.hide(block.text))
    elif block.type == "image" or block.type == "audio":
        yield _build_blob(block.data, block.mime_type, secrets)
    elif block.type == "resource_link":
        yield TextPart(text=secrets.hide(_format_link(block)))
    else:
        resource = block.resource
        name, kind = _shorten_hidden(resource.uri, secrets), resource.mime_type
        text = getattr(resource, "text", None)
        if text is None:
            yield _build_blob(getattr(resource, "blob", ""), kind or "application/octet-stream", secrets, name)
        else:
            about = f", {_shorten_hidden(kind, secrets)}" if kind else ""
            yield TextPart(text=f"[resource {name}{about}]\n{secrets.hide(text)}")


def _format_link(link: ResourceLink) -> str:
    facts = [link.title or link.name, link.uri, link.mime_type, f"{link.size:,} bytes" if link.size else None]
    about = f": {link.description}" if link.description else ""
    return f"[link to {', '.join(fact for fact in facts if fact)}{about}]"


def _build_blob(data: str, media_type: str, secrets: Secrets, name: str | None = None) -> Part:
    kind = _shorten_hidden(media_type, secrets)
    try:
        return BlobPart.from_bytes(secrets.hide_bytes(base64.b64decode(data, validate=True)), kind, name=name)
    except (binascii.Error, ValueError):
        called = f"{name}, " if name else ""
        return TextPart(text=f"[{called}{kind}: not valid base64]")


def _shorten_hidden(text: str, secrets: Secrets) -> str:
    return shorten_text(secrets.hide(text), NAME_LIMIT)


class ResultSchema:
    """The JSON schema of results. An unusable schema checks nothing."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self._schema: CheckedSchema | None = None
        try:
            self._schema = CheckedSchema(schema, "its result", all_problems=False)
        except BadInput:
            return

    async def find_problem(self, value: JsonValue) -> str | None:
        """Return what is wrong with a result, or None."""
        if self._schema is None:
            return None
        loop = asyncio.get_running_loop()
        try:
            return next(iter(await loop.run_in_executor(CHECK_EXECUTOR, self._schema.find_problems, value)), None)
        except BadInput:
            return None
