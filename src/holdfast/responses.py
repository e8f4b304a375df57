"""A response as models' APIs need it: one function response for each call, whatever the tool made (S34).

    text                  {"output": "…"}
    one structured value  {"output": {…}}
    several parts         {"output": "…"}, the texts in order, bytes described in their place
    bytes alone           {"output": "[image/png, 12,345 bytes …]"}
    error, refusal, stop  {"error": "…", "output": "…"}, the output only when there was some
    changed by a person   a "note" beside the above says what they changed

Bytes themselves travel beside it, by reference, for the APIs that take them.
"""

from __future__ import annotations

from pydantic import JsonValue

from holdfast.content import BlobPart, DataPart, Part, Response
from holdfast.model import Data

NO_OUTPUT = "(no output)"


class FunctionResponse(Data):
    """The one answer to one function call."""

    id: str
    """The model's own id for the call; the engine's when the model gave none."""
    name: str
    response: dict[str, JsonValue]
    media: tuple[BlobPart, ...] = ()
    """Bytes that belong to it, kept in files."""


def build_function_response(response: Response) -> FunctionResponse:
    """Exactly one function response, with an `output` or an `error`."""
    output = _build_output(response.parts)
    body: dict[str, JsonValue] = {"output": NO_OUTPUT if output is None else output}
    if response.error:
        body = {"error": response.error.message}
        if output is not None:
            body["output"] = output
    if response.note:
        body["note"] = response.note
    return FunctionResponse(
        id=response.model_id or response.call_id,
        name=response.tool,
        response=body,
        media=tuple(part for part in response.parts if isinstance(part, BlobPart) and part.whole),
    )


def _build_output(parts: tuple[Part, ...]) -> JsonValue:
    """What the parts say; None when they say nothing."""
    if len(parts) == 1 and isinstance(parts[0], DataPart):
        return parts[0].value if parts[0].value is not None else "null"
    return "\n".join(part.text for part in parts) or None
