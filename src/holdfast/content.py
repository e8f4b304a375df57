"""What tools give back: parts, results, and the one response that answers a call.

A `Result` is what a tool made: `parts` for the model, `display` for a person. A `Response` is what the
conversation gets for a call, whatever happened to it. Also here: cutting what is too long, and making text
harmless for a terminal. Nothing here knows where the whole of a cut text is kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from holdfast.background import CommandState
from holdfast.contexts import ContextChange
from holdfast.model import Data
from holdfast.values import is_too_deep

OUTPUT_LIMIT = 40_000
"""Characters of a result that reach the model (S33)."""

HEAD_SHARE = 0.2

OUTPUT_NAME = 32
"""Characters of the name that a saved output goes by: the beginning of its digest."""

READ_OUTPUT = "read_output"
"""The tool that reads saved outputs."""

NAME_LIMIT = 128
"""Characters of a tool's name."""


def drop_surrogates(text: str) -> str:
    """`text` without what UTF-8 cannot say (lone surrogates): it must be writable wherever it goes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


Text = Annotated[str, AfterValidator(drop_surrogates)]


def _check_writable(value: JsonValue) -> JsonValue:
    """`value` as JSON can say it: no lone surrogates; ValueError for NaN, infinity, and what nobody reads again."""
    if is_too_deep(value):
        raise ValueError("it is nested too deeply")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return value if text.isascii() else json.loads(drop_surrogates(text))


class TextPart(Data):
    """Text for the model."""

    kind: Literal["text"] = "text"
    text: Text
    whole: str | None = None
    """The file with all of it, when `text` is only the two ends; empty when it could not be kept."""


class DataPart(Data):
    """A structured result: any JSON value."""

    kind: Literal["data"] = "data"
    value: Annotated[JsonValue, AfterValidator(_check_writable)]

    @property
    def text(self) -> str:
        """What a model that only reads text is given."""
        return json.dumps(self.value, ensure_ascii=False)


class BlobPart(Data):
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


def shorten_text(text: str, limit: int) -> str:
    """One line's worth of `text`, for summaries and views; says how much it left out."""
    if len(text) <= limit:
        return text
    note = f"… ({len(text):,} characters)"
    return text[: max(0, limit - len(note))] + note


def format_tool_name(tool: str) -> str:
    """A tool's name for people: whole, and harmless. What is longer than any name is cut, and says how long it is.

    A name that was cut before stays as it is.
    """
    shown = escape_controls(tool[: NAME_LIMIT + 1])
    if len(shown) <= NAME_LIMIT:
        return shown
    note = f"… ({len(tool):,} characters)"
    return shown[: NAME_LIMIT - len(note)] + note


def first_line(text: str, limit: int = 200) -> str:
    """The first line of a stranger's text, harmless; an ellipsis says that there is more."""
    lines = [line for line in map(str.strip, text.split("\n", 50)) if line]
    if not lines:
        return ""
    more = " …" if len(lines) > 1 else ""
    return shorten_text(escape_controls(" ".join(lines[0][: 2 * limit].split())), limit - len(more)) + more


def elide_middle(text: str, limit: int) -> str:
    """Both ends of `text` when it is long, with what is between them counted: nobody hides at the end of a line."""
    if len(text) <= limit:
        return text
    half = max(0, limit - 50 - 2 * len(f"{len(text):,}")) // 2
    left_out = f" … [{len(text) - 2 * half:,} of {len(text):,} characters left out] … "
    return text[:half] + left_out + text[len(text) - half :]


def exception_text(error: BaseException, limit: int = 1_000) -> str:
    """An exception's words, whatever its author did to them."""
    try:
        return shorten_text(str(error), limit) or type(error).__name__
    except Exception:
        return type(error).__name__


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


_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # operating system commands: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)"  # device control and friends
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]?"  # everything else that starts with escape
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
_UNSEEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_DRAWN_AS_NOTHING = (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef"
)
"""Letters and marks that some scripts need: ordinary text has them, and words that somebody decides on have not."""
_NO_EMOJI = r"|(?<![^\x00-\x7f\ufe00-\ufe0f])[\ufe0e\ufe0f]"
"""How a character is drawn, where there is none that could be drawn in two ways."""
_CONTROLS = re.compile(f"[{_UNSEEN}]")
_HIDDEN = re.compile(f"[{_UNSEEN}{_DRAWN_AS_NOTHING}]{_NO_EMOJI}")
_NOT_PLAIN = re.compile(rf"[{_UNSEEN}{_DRAWN_AS_NOTHING}\xa0\u1680\u2000-\u200a\u202f\u205f]{_NO_EMOJI}")
"""Also what looks like a blank, and is a part of a word."""


def has_invisible(text: str) -> bool:
    """Does it hold control or invisible characters?"""
    return _HIDDEN.search(text) is not None


def escape_controls(text: str) -> str:
    """`text` with every control and invisible character written out: harmless, and nothing in it is hidden.

    For what a person decides on. A command that hides part of itself behind an escape code would run all of it.
    """
    return _NOT_PLAIN.sub(lambda found: _escape_character(found[0]), text)


def exact(text: str) -> str:
    """A name in one line, so that no two look alike of which one hides something: an id, by which somebody decides."""
    return escape_controls(text).replace("\u3000", "⟨U+3000⟩").replace("\n", "␊").replace("\t", "␉")


def _escape_character(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def strip_controls(text: str) -> str:
    """`text` without terminal escape codes, control or invisible characters: safe to show anywhere (S32).

    For output, where what an escape code encloses is meant for a terminal and not for a reader. A carriage return that
    is not part of a line ending starts a new line, so progress bars stay readable.
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    return _CONTROLS.sub("", text)


def seen(text: str) -> str:
    """`text` as `plain` makes it, without anything that a model reads and a person does not see."""
    return _HIDDEN.sub("", strip_controls(text))


_STYLE = re.compile(r"\x1b\[([0-9;]{0,60})m")
_COLOURS = (*range(30, 38), 39, *range(40, 48), 49, *range(90, 98), *range(100, 108))
_STYLES = {0, 1, 2, 3, 4, 7, 9, 22, 23, 24, 27, 29, *_COLOURS}
"""Colours; bold, dim, italic, underlined, reversed, struck, and the end of each. Nothing that blinks or hides."""
RESET = "\x1b[0m"


def strip_all_but_styles(text: str) -> str:
    """`text` as `plain` has it, but for the styles of its letters: the one escape code left is `ESC [ … m`.

    Ends without a style. For viewers that can show it, where what is shown decides nothing.
    """
    text, pieces, place = text.replace("\r\n", "\n"), [], 0
    for escape in _ESCAPES.finditer(text):
        pieces += [strip_controls(text[place : escape.start()]), _keep_style(escape[0])]
        place = escape.end()
    found = "".join([*pieces, strip_controls(text[place:])])
    return found + RESET if "\x1b" in found and not found.endswith(RESET) else found


def _keep_style(escape: str) -> str:
    """What is harmless of an escape code; empty for one that is no style."""
    style = _STYLE.fullmatch(escape)
    codes = [int(code or 0) for code in style[1].split(";")] if style else []
    kept: list[int] = []
    while codes:
        code = codes.pop(0)
        if code in (38, 48):  # one of 256 colours, or red, green and blue
            size = {5: 2, 2: 4}.get(codes[0] if codes else 0, 0)
            colour, codes = codes[:size], codes[size:]
            if not size or len(colour) < size or max(colour) > 255:
                break
            kept += [code, *colour]
        elif code in _STYLES:
            kept.append(code)
    return f"\x1b[{';'.join(map(str, kept))}m" if kept else ""
