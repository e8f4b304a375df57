"""Parts, results and responses: what tools return, and what a model reads of it.

A `Result` is what a tool made: `parts` for the model, `display` for a person. A `Response` is what the
conversation gets for a call, whatever happened to it. Also here: cutting what is too long, and making text
harmless for a terminal. Nothing here knows where the whole of a cut text is kept.

text                  {"output": "…"}
    one structured value  {"output": {…}}
    several parts         {"output": "…"}, the texts in order, bytes described in their place
    bytes alone           {"output": "[image/png, 12,345 bytes …]"}
    error, refusal, stop  {"error": "…", "output": "…"}, the output only when there was some
    changed by a person   a "note" beside the above says what they changed

Bytes themselves travel beside it, by reference, for the APIs that take them.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from holdfast.domain.background_commands import CommandState
from holdfast.domain.base import Data, Variant
from holdfast.domain.context import ContextChange
from holdfast.util.json_values import is_too_deep
from holdfast.util.text import drop_surrogates, escape_controls

OUTPUT_LIMIT = 40_000
"""Characters of a result that reach the model (S33)."""

HEAD_SHARE = 0.2

OUTPUT_NAME = 32
"""Characters of the name that a saved output goes by: the beginning of its digest."""

READ_OUTPUT = "read_output"
"""The tool that reads saved outputs."""

NAME_LIMIT = 128
"""Characters of a tool's name."""


Text = Annotated[str, AfterValidator(drop_surrogates)]


def _check_writable(value: JsonValue) -> JsonValue:
    """`value` as JSON can say it: no lone surrogates; ValueError for NaN, infinity, and what nobody reads again."""
    if is_too_deep(value):
        raise ValueError("it is nested too deeply")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return value if text.isascii() else json.loads(drop_surrogates(text))


class TextPart(Variant):
    """Text for the model."""

    kind: Literal["text"] = "text"
    text: Text
    whole: str | None = None
    """The file with all of it, when `text` is only the two ends; empty when it could not be kept."""


class DataPart(Variant):
    """A structured result: any JSON value."""

    kind: Literal["data"] = "data"
    value: Annotated[JsonValue, AfterValidator(_check_writable)]

    @property
    def text(self) -> str:
        """What a model that only reads text is given."""
        return json.dumps(self.value, ensure_ascii=False)


class BlobPart(Variant):
    """Bytes that are no text: an image, a document, a sound. They are kept in a file and travel by reference."""

    kind: Literal["blob"] = "blob"
    media_type: Text
    size: int
    digest: str
    """SHA-256 of the bytes."""
    name: Text | None = None
    whole: str | None = None
    """The file with the bytes, on the host where they were made; empty when they could not be kept."""
    data: bytes | None = Field(default=None, exclude=True, repr=False)
    """The bytes on their way from the tool to their file. Never in a history."""

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, *, name: str | None = None) -> BlobPart:
        """A part of these bytes."""
        digest = hashlib.sha256(data).hexdigest()
        return cls(media_type=media_type, size=len(data), digest=digest, name=name, data=data)

    @property
    def text(self) -> str:
        """Described, for whoever cannot take bytes."""
        called = f"{self.name}, " if self.name else ""
        kept = f", kept in {self.whole}" if self.whole else ", not kept" if self.whole == "" else ""
        return f"[{called}{self.media_type}, {self.size:,} bytes{kept}]"


Part = Annotated[TextPart | DataPart | BlobPart, Field(discriminator="kind")]


class CallError(Data):
    """Why a call did not succeed: a stable type for programs, a sentence for the model."""

    type: Text
    message: Text


class Result(Data):
    """What a tool made. `display` is what a person is shown instead of the parts, if it differs."""

    parts: tuple[Part, ...] = ()
    display: Text | None = None
    shown: tuple[Part, ...] = Field(default=(), exclude=True, repr=False)
    """What a person is shown, on its way to become the `display`: bytes among it are kept first. Never in a history."""
    seen: dict[str, str] = Field(default_factory=dict)
    """Files of the workspace that the tool read or wrote whole: the digest of each as it was then."""
    context: ContextChange | None = None
    """What it leaves for the calls after it, if it ran alone (S47)."""
    command: CommandState | None = None
    """Of a background command: whether it runs."""

    @classmethod
    def from_text(cls, text: str, *, display: str | None = None) -> Result:
        """A result of one text part."""
        return cls(parts=(TextPart(text=text),), display=display)


class Response(Data):
    """The one answer to a call: `model_id` is the id the model gave it, `call_id` the engine's own (S4)."""

    call_id: str
    model_id: str | None = None
    tool: str
    status: Literal["success", "error", "cancelled"]
    parts: tuple[Part, ...] = ()
    display: str | None = None
    changes: str | None = None
    """Of a call that did not run: how many lines it would have added and removed (`+3 −450`). `display` is the diff."""
    error: CallError | None = None
    note: str | None = None
    """What the model must know besides: that people changed its arguments."""

    @property
    def text(self) -> str:
        """What the model reads: the error or reason first, then what people changed, then the output."""
        lines = [self.error.message] if self.error else []
        lines += [self.note] if self.note else []
        lines += [part.text for part in self.parts]
        return "\n".join(lines)


def format_tool_name(tool: str) -> str:
    """A tool's name for people: whole, and harmless. What is longer than any name is cut, and says how long it is.

    A name that was cut before stays as it is.
    """
    shown = escape_controls(tool[: NAME_LIMIT + 1])
    if len(shown) <= NAME_LIMIT:
        return shown
    note = f"… ({len(tool):,} characters)"
    return shown[: NAME_LIMIT - len(note)] + note


def truncate_output(text: str, limit: int = OUTPUT_LIMIT, *, whole: str | None = None) -> str:
    """Keep 20 % of `limit` from the start of `text` and 80 % from its end (S33); `whole` says where all of it is."""
    if len(text) <= limit:
        return text
    head = int(limit * HEAD_SHARE)
    return join_ends(text[:head], text[len(text) - (limit - head) :], len(text) - limit, whole=whole)


def join_ends(head: str, tail: str, omitted: int | None, *, whole: str | None = None) -> str:
    """The two ends of a long text with a line between them that says what is missing and how to read it."""
    where = f"; {describe_saved_output(whole)}" if whole else "" if whole is None else "; the rest could not be kept"
    count = "more" if omitted is None else f"{omitted:,} characters"
    return f"{head}\n… [{count} left out{where}] …\n{tail}"


def format_output_name(whole: str) -> str:
    """What a saved output is called by models, from the path or the name of its file."""
    return whole.rpartition("/")[2][:OUTPUT_NAME]


def describe_saved_output(whole: str) -> str:
    """What a model is told of an output that was saved in this file."""
    return f"{READ_OUTPUT} reads the whole, by the name {format_output_name(whole)}"


def escape_name(text: str) -> str:
    """A name in one line, so that no two look alike of which one hides something: an id, by which somebody decides."""
    return escape_controls(text).replace("\u3000", "⟨U+3000⟩").replace("\n", "␊").replace("\t", "␉")


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
