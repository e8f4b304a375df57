"""Parts, results and responses of tool calls, and the function response that a model reads.

A `Result` is what a tool returns: `parts` for the model, `display` for a person. A `Response` is the one answer to a
call in the conversation, whatever its outcome. Long outputs are truncated here; others store the whole.

A function response is one of these:

    text                  {"output": "…"}
    one structured value  {"output": {…}}
    several parts         {"output": "…"}, the texts in order, bytes described in their place
    bytes alone           {"output": "[image/png, 12,345 bytes …]"}
    error, refusal, stop  {"error": "…", "output": "…"}, the output only when there was some
    changed by a person   a "note" beside the above describes the change

Bytes travel beside it, by reference, for APIs that take them.
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
"""Characters of the name of a saved output: the beginning of its digest."""

READ_OUTPUT = "read_output"
"""The tool that reads saved outputs."""

NAME_LIMIT = 128
"""Characters of a tool's name."""


Text = Annotated[str, AfterValidator(drop_surrogates)]


def _check_writable(value: JsonValue) -> JsonValue:
    """Check that JSON can express a value, and replace lone surrogates. ValueError for NaN and deep nesting."""
    if is_too_deep(value):
        raise ValueError("it is nested too deeply")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return value if text.isascii() else json.loads(drop_surrogates(text))


class TextPart(Variant):
    """Text for the model."""

    kind: Literal["text"] = "text"
    text: Text
    whole: str | None = None
    """The file with the whole text, when `text` is truncated; empty when it could not be saved."""


class DataPart(Variant):
    """A structured result: any JSON value."""

    kind: Literal["data"] = "data"
    value: Annotated[JsonValue, AfterValidator(_check_writable)]

    @property
    def text(self) -> str:
        """The value as JSON, for a model that only reads text."""
        return json.dumps(self.value, ensure_ascii=False)


class BlobPart(Variant):
    """Bytes that are not text: an image, a document, a sound. They are saved in a file, and travel by reference."""

    kind: Literal["blob"] = "blob"
    media_type: Text
    size: int
    digest: str
    """SHA-256 of the bytes."""
    name: Text | None = None
    whole: str | None = None
    """The file with the bytes, on the host where they were made; empty when they could not be saved."""
    data: bytes | None = Field(default=None, exclude=True, repr=False)
    """The bytes, until they are saved in their file. Never in a history."""

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, *, name: str | None = None) -> BlobPart:
        """Build a part from bytes."""
        digest = hashlib.sha256(data).hexdigest()
        return cls(media_type=media_type, size=len(data), digest=digest, name=name, data=data)

    @property
    def text(self) -> str:
        """A description, for models and viewers that cannot take bytes."""
        name = f"{self.name}, " if self.name else ""
        where = f", kept in {self.whole}" if self.whole else ", not kept" if self.whole == "" else ""
        return f"[{name}{self.media_type}, {self.size:,} bytes{where}]"


Part = Annotated[TextPart | DataPart | BlobPart, Field(discriminator="kind")]


class CallError(Data):
    """The error of a call: a stable type for programs, and a message for the model."""

    type: Text
    message: Text


class Result(Data):
    """The result of a tool. A person is shown `display` instead of the parts, if it is set."""

    parts: tuple[Part, ...] = ()
    display: Text | None = None
    shown: tuple[Part, ...] = Field(default=(), exclude=True, repr=False)
    """The parts from which the worker makes `display`, after saving their bytes. Never in a history."""
    seen: dict[str, str] = Field(default_factory=dict)
    """The digests of workspace files that the tool read or wrote whole, by path."""
    context: ContextChange | None = None
    """The change of the context for later calls, if this call ran alone (S47)."""
    command: CommandState | None = None
    """The state of a background command."""

    @classmethod
    def from_text(cls, text: str, *, display: str | None = None) -> Result:
        """Build a result with one text part."""
        return cls(parts=(TextPart(text=text),), display=display)


class Response(Data):
    """The one response to a call. `model_id` is the model's id of the call, `call_id` the engine's (S4)."""

    call_id: str
    model_id: str | None = None
    tool: str
    status: Literal["success", "error", "cancelled"]
    parts: tuple[Part, ...] = ()
    display: str | None = None
    changes: str | None = None
    """For a call that did not run: the counts of lines in the diff (`+3 −450`). `display` is the diff."""
    error: CallError | None = None
    note: str | None = None
    """A note for the model: what people and hooks changed in its arguments."""

    @property
    def text(self) -> str:
        """The text that the model reads: the error, then the note, then the output."""
        lines = [self.error.message] if self.error else []
        lines += [self.note] if self.note else []
        lines += [part.text for part in self.parts]
        return "\n".join(lines)


def format_tool_name(tool: str) -> str:
    """Format a tool's name for people: control characters escaped, and cut beyond 128 characters, with its length.

    A name that was cut before stays as it is.
    """
    shown = escape_controls(tool[: NAME_LIMIT + 1])
    if len(shown) <= NAME_LIMIT:
        return shown
    note = f"… ({len(tool):,} characters)"
    return shown[: NAME_LIMIT - len(note)] + note


def truncate_output(text: str, limit: int = OUTPUT_LIMIT, *, whole: str | None = None) -> str:
    """Keep 20 % of `limit` from the start of `text` and 80 % from its end (S33). `whole` is the file with all of it."""
    if len(text) <= limit:
        return text
    head = int(limit * HEAD_SHARE)
    return join_ends(text[:head], text[len(text) - (limit - head) :], len(text) - limit, whole=whole)


def join_ends(head: str, tail: str, omitted: int | None, *, whole: str | None = None) -> str:
    """Join the ends of a long text by a line that says what is missing, and how to read it."""
    where = f"; {describe_saved_output(whole)}" if whole else "" if whole is None else "; the rest could not be kept"
    count = "more" if omitted is None else f"{omitted:,} characters"
    return f"{head}\n… [{count} left out{where}] …\n{tail}"


def format_output_name(whole: str) -> str:
    """Return the name of a saved output for models, from the path or the name of its file."""
    return whole.rpartition("/")[2][:OUTPUT_NAME]


def describe_saved_output(whole: str) -> str:
    """Describe for a model how to read an output that was saved in this file."""
    return f"{READ_OUTPUT} reads the whole, by the name {format_output_name(whole)}"


def escape_name(text: str) -> str:
    """Escape every character of an id that could make it look like another one, line breaks included."""
    return escape_controls(text).replace("\u3000", "⟨U+3000⟩").replace("\n", "␊").replace("\t", "␉")


NO_OUTPUT = "(no output)"


class FunctionResponse(Data):
    """The response to one function call, in the form that APIs of models take."""

    id: str
    """The model's id of the call; the engine's when the model gave none."""
    name: str
    response: dict[str, JsonValue]
    media: tuple[BlobPart, ...] = ()
    """The bytes of the response, by their files."""


def build_function_response(response: Response) -> FunctionResponse:
    """Build the one function response of a call, with an `output`, an `error`, or both."""
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
    """Build the output from the parts; None when they are empty."""
    if len(parts) == 1 and isinstance(parts[0], DataPart):
        return parts[0].value if parts[0].value is not None else "null"
    return "\n".join(part.text for part in parts) or None
