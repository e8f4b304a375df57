"""Where whole outputs are kept when only part of them reaches the model (S33).

Files are named by the hash of their content, readable by their owner only. Nothing of a name comes from a model.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from holdfast.content import HEAD_SHARE, OUTPUT_LIMIT, Part, Result, TextPart, joined, truncate


class OutputStore:
    """Content-addressed files below one folder."""

    def __init__(self, folder: Path, limit: int = OUTPUT_LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def save(self, text: str) -> str:
        """Keep a text; where it is."""
        spool = self.spool()
        spool.write(text.encode("utf-8", "replace"))
        return spool.keep()

    def spool(self) -> Spool:
        """A growing output whose length nobody knows yet."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Spool(self.folder, self.limit)

    def bounded(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Parts that together respect the limit; the whole is saved when they did not."""
        if len(parts) == 1 and parts[0].whole is not None:
            return parts
        text = "\n".join(part.text for part in parts)
        if len(text) <= self.limit:
            return parts
        whole = self.save(text)
        return (TextPart(text=truncate(text, self.limit, whole=whole), whole=whole),)

    def bounded_result(self, result: object) -> Result:
        """A tool's result within the limit. What is no result at all becomes text: tools are other people's code."""
        if not isinstance(result, Result):
            result = Result.of(str(result))
        display = truncate(result.display, self.limit) if result.display else None
        return Result(parts=self.bounded(result.parts), display=display)


class Spool:
    """An output on its way to a file: memory holds only its two ends, however long it gets."""

    def __init__(self, folder: Path, limit: int) -> None:
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

    def write(self, data: bytes) -> str:
        """Add bytes; the text they are."""
        self._try(lambda: self._file.write(data))
        self._hash.update(data)
        return self._take(self._decoder.decode(data))

    def part(self) -> TextPart:
        """The output if it is short, otherwise its two ends and where the whole is. Ends the spool."""
        self._take(self._decoder.decode(b"", final=True))
        if self._size <= self._limit:
            self.discard()
            return TextPart(text=self._head)
        whole = self.keep()
        tail = self._tail[-self._tail_size :]
        text = joined(self._head[: self._head_size], tail, self._size - self._limit, whole=whole)
        return TextPart(text=text, whole=whole)

    def _take(self, text: str) -> str:
        self._size += len(text)
        if len(self._head) < self._limit:
            self._head += text[: self._limit - len(self._head)]
        self._tail = (self._tail + text)[-self._tail_size :]
        return text

    def keep(self) -> str:
        """Give the file its name, and say where it is; nothing when the disk was full. Ends the spool."""
        final = self._path.with_name(self._hash.hexdigest() + ".txt")
        self._try(self._file.close)
        self._try(lambda: self._path.rename(final))
        return "" if self._broken else str(final)

    def _try(self, step: Callable[[], object]) -> None:
        """Use the file while that works: on a full disk the command and the ends of its output go on without."""
        if self._broken:
            return
        try:
            step()
        except OSError:
            self._broken = True
            self.discard()

    def discard(self) -> None:
        """Drop the file, unless it was kept. Ends the spool."""
        with suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)
