"""Outputs of tools, bounded for the model, with the whole kept in a file (S33).

Files are named by the hash of their content and readable by their owner only; no part of a name comes from a model.
They belong to this host. When a call ends, those of its result are also shared with workers of other hosts
(`payloads.shared_outputs`).
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from holdfast.domain.content import (
    HEAD_SHARE,
    OUTPUT_LIMIT,
    BlobPart,
    DataPart,
    Part,
    Result,
    TextPart,
    join_ends,
    truncate_output,
)
from holdfast.util.text import drop_surrogates, shorten_text

if TYPE_CHECKING:
    from holdfast.payloads.shared_outputs import SharedOutputs

SAVED_LIMIT = 5_000_000_000
"""Bytes that are kept of one output."""
BLOB_LIMIT = 50_000_000
"""Bytes that are kept of one binary part."""
PARTS_LIMIT = 100
SEEN_LIMIT = 100
NOTE_LIMIT = 1_000
PLAIN_TEXT = "text/plain"
DESCRIPTION_LIMIT = 100
"""Characters of a name or a media type."""
_OUTPUT_NAME = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{2,4}")
_SUFFIXES = {
    "application/json": ".json",
    "application/pdf": ".pdf",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/webp": ".webp",
}


class OutputStore:
    """Content-addressed files below one folder."""

    def __init__(self, folder: Path, limit: int = OUTPUT_LIMIT, max_bytes: int = SAVED_LIMIT) -> None:
        self.folder = folder
        self.limit = limit
        self.max_bytes = max_bytes
        self.shared_outputs: SharedOutputs | None = None
        """The store in which workers of other hosts read outputs; None outside of a worker."""

    def save(self, text: str) -> str:
        """Keep a text; the path of its file, or an empty text when it could not be kept."""
        return self._save_data(text.encode("utf-8", "replace"), ".txt")

    def _save_data(self, data: bytes, suffix: str) -> str:
        try:
            spool = self.open_spool()
        except OSError:
            return ""
        spool.write(data)
        return spool.keep_file(suffix)

    def find_saved(self, path: str) -> Path | None:
        """The file of a saved output; None when `path` is none. Names are hashes, which cannot be guessed."""
        file = Path(path)
        return file if file.parent == self.folder and _OUTPUT_NAME.fullmatch(file.name) else None

    async def share_parts(self, turn: str, parts: Iterable[Part]) -> None:
        """Share the saved outputs among these parts with the session of a turn, for workers of other hosts.

        Raises StoreUnavailable or OSError when that fails now. A second call writes the same again.
        """
        for part in parts:
            file = (
                self.find_saved(part.whole)
                if self.shared_outputs and not isinstance(part, DataPart) and part.whole
                else None
            )
            if self.shared_outputs and file:
                await self.shared_outputs.share_output(
                    turn, file, part.media_type if isinstance(part, BlobPart) else PLAIN_TEXT
                )

    def open_spool(self) -> Spool:
        """A spool for an output of unknown length. OSError when no file can be made."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Spool(self.folder, self.limit, self.max_bytes)

    def bound_parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Parts whose texts together are within the limit (S33). The whole is saved when they were not."""
        stored = tuple(self._keep_blob(part) if isinstance(part, BlobPart) else part for part in parts)
        length = sum(len(part.text) for part in stored)
        if len(stored) <= PARTS_LIMIT and length <= self.limit + _count_note_room(stored):
            return stored
        blobs = tuple(part for part in stored if isinstance(part, BlobPart))[:PARTS_LIMIT]
        known = [part for part in stored if isinstance(part, TextPart) and part.whole]
        others = sum(len(part.text) for part in stored if part not in known)
        if len(known) == 1 and len(stored) <= PARTS_LIMIT and others <= self.limit // 2:
            room = self.limit - others
            squeezed = _squeeze_text(known[0], room)
            return tuple(squeezed if part is known[0] else part for part in stored)
        return (self._shorten_text("\n".join(part.text for part in stored)), *blobs)

    def bound_result(self, result: object) -> Result:
        """A tool's result within the limits. Whatever else a tool returned becomes text."""
        if not isinstance(result, Result):
            result = Result.from_text(_to_text(result))
        display = self._format_parts(result.shown) if result.shown else result.display
        display = truncate_output(display, self.limit) if display else None
        known = list(result.seen.items())[:SEEN_LIMIT]
        seen = {drop_surrogates(path): digest for path, digest in known if len(path) <= 4_096 and len(digest) <= 64}
        parts = self.bound_parts(result.parts)
        return Result(parts=parts, display=display, seen=seen, context=result.context, command=result.command)

    def _format_parts(self, parts: tuple[Part, ...]) -> str:
        """The text that a person is shown of parts; for bytes, the path of their file."""
        return "\n".join((self._keep_blob(part) if isinstance(part, BlobPart) else part).text for part in parts)

    def _shorten_text(self, text: str) -> TextPart:
        if len(text) <= self.limit:
            return TextPart(text=text)
        whole = self.save(text)
        return TextPart(text=truncate_output(text, self.limit, whole=whole), whole=whole)

    def _keep_blob(self, blob: BlobPart) -> BlobPart:
        """The part with its bytes moved to a file, if that is possible, and its description shortened."""
        whole = blob.whole if blob.whole is None or self.find_saved(blob.whole) else ""
        if blob.data is not None:
            whole = "" if len(blob.data) > BLOB_LIMIT else self._save_data(blob.data, find_suffix(blob.media_type))
        name = shorten_text(blob.name, DESCRIPTION_LIMIT) if blob.name else blob.name
        described = {
            "media_type": shorten_text(blob.media_type, DESCRIPTION_LIMIT),
            "name": name,
            "digest": blob.digest[:64],
        }
        return blob.model_copy(update={**described, "whole": whole, "data": None})


def _squeeze_text(part: TextPart, room: int) -> TextPart:
    """A text that was cut before, cut further to leave room for others; the saved whole stays the same."""
    head = int(room * HEAD_SHARE)
    text = join_ends(part.text[:head], part.text[len(part.text) - (room - head) :], None, whole=part.whole)
    return TextPart(text=text, whole=part.whole)


def _count_note_room(parts: tuple[Part, ...]) -> int:
    """Characters by which a text that was cut before may exceed the limit: the line that says so."""
    return NOTE_LIMIT if any(isinstance(part, TextPart) and part.whole is not None for part in parts) else 0


def _to_text(value: object) -> str:
    """Any value as text, also one whose `__str__` raises."""
    try:
        return str(value)
    except Exception:
        return f"(a {type(value).__name__} that cannot be shown)"


def find_suffix(media_type: str) -> str:
    """The suffix of a file of this media type, from a fixed list.

    Every kind of text is `.txt`: HTML of a stranger must not open in a browser.
    """
    kind = media_type.lower().partition(";")[0].strip()
    return _SUFFIXES.get(kind, ".txt" if kind.startswith("text/") else ".bin")


class Spool:
    """A growing output, written to a file; memory holds only both of its ends."""

    def __init__(self, folder: Path, limit: int, max_bytes: int) -> None:
        descriptor, name = tempfile.mkstemp(prefix=".spool-", dir=folder)
        self._path = Path(name)
        self._file = cast(BinaryIO, os.fdopen(descriptor, "wb"))
        self._hash = hashlib.sha256()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._broken = False
        self._head = ""
        self._tail = ""
        self._size = 0
        self._head_size = int(limit * HEAD_SHARE)
        self._tail_size = limit - self._head_size
        self._limit = limit
        self._room = max_bytes

    def write(self, data: bytes) -> str:
        """Add bytes; they are returned as text."""
        if self._room < len(data):
            self._mark_broken()
        self._room -= len(data)
        self._try_step(lambda: self._file.write(data))
        self._hash.update(data)
        return self._add_text(self._decoder.decode(data))

    def build_part(self) -> TextPart:
        """The whole output when it is short, else both ends and the path of the whole. Ends the spool."""
        self._add_text(self._decoder.decode(b"", final=True))
        if self._size <= self._limit:
            self.discard()
            return TextPart(text=self._head)
        whole = self.keep_file()
        tail = self._tail[-self._tail_size :]
        text = join_ends(self._head[: self._head_size], tail, self._size - self._limit, whole=whole)
        return TextPart(text=text, whole=whole)

    def _add_text(self, text: str) -> str:
        self._size += len(text)
        if len(self._head) < self._limit:
            self._head += text[: self._limit - len(self._head)]
        self._tail = (self._tail + text)[-self._tail_size :]
        return text

    def keep_file(self, suffix: str = ".txt") -> str:
        """Keep the file under its final name; its path, or an empty text after a failed write. Ends the spool."""
        final = self._path.with_name(self._hash.hexdigest() + suffix)
        self._try_step(self._file.close)
        self._try_step(lambda: self._path.rename(final))
        return "" if self._broken else str(final)

    def _try_step(self, step: Callable[[], object]) -> None:
        """Use the file unless that failed before: on a full disk a command goes on, and only the whole is lost."""
        if self._broken:
            return
        try:
            step()
        except OSError:
            self._mark_broken()

    def _mark_broken(self) -> None:
        self._broken = True
        self.discard()

    def discard(self) -> None:
        """Remove the file unless it was kept. Ends the spool; a second call does nothing."""
        with suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)
