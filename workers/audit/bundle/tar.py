"""The file format of a bundle: a plain tar archive in which every byte is accounted for.

Any `tar` opens it. A header is determined by the name and the size of its member, padding is zero, and the end is where
it must be. So every byte is either content, which the chain covers, or known beforehand, and any change is found.

A bundle may come from a stranger: no member is read whole without a limit, and no search is endless.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from holdfast.errors import BadInput

BLOCK = 512
CHUNK_SIZE = 1024 * 1024
LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of a line that is read whole."""
SEARCH_LIMIT = 64 * 1024 * 1024
"""How far behind a damaged header the next one is searched."""
_END = bytes(2 * BLOCK)


def build_header(name: str, size: int) -> bytes:
    """Build the only header that a member with this name and size has."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o600, 0
    return info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def _build_padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


class ContainerWriter:
    """Writes members one after another."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, name: str, data: bytes) -> None:
        """Write a member."""
        self._file.write(build_header(name, len(data)) + data + _build_padding(len(data)))

    def add_file(self, name: str, source: Path, sha256: str) -> bool:
        """Write a member from a file. False, and nothing is written, when it is unreadable or has other content."""
        place = self._file.tell()
        with suppress(FileNotFoundError, PermissionError, IsADirectoryError), source.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            self._file.write(build_header(name, size))
            if self._copy_chunks(opened, size) == sha256:
                self._file.write(_build_padding(size))
                return True
        self._file.seek(place)
        self._file.truncate()
        return False

    def _copy_chunks(self, source: BinaryIO, size: int) -> str:
        """The SHA-256 of what was copied; empty when the file became shorter meanwhile."""
        copied, left = hashlib.sha256(), size
        while left and (piece := source.read(min(CHUNK_SIZE, left))):
            self._file.write(piece)
            copied.update(piece)
            left -= len(piece)
        return copied.hexdigest() if not left else ""

    def close(self) -> None:
        """Write the end of the archive."""
        self._file.write(_END)


@dataclass(frozen=True)
class Member:
    """The position of a member's content."""

    name: str
    start: int
    size: int


@dataclass
class Container:
    """An archive that was inspected: its members, and what does not belong."""

    file: Path
    members: dict[str, Member] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def read(self, name: str, limit: int = LINE_LIMIT) -> bytes:
        """Return the content of a member. BadInput when it is over the limit."""
        if self.members[name].size > limit:
            raise BadInput(f"{name!r} is larger than any that a bundle has")
        return b"".join(self._read_chunks(name))

    def digest_member(self, name: str) -> str:
        """Return the SHA-256 of a member."""
        found = hashlib.sha256()
        for piece in self._read_chunks(name):
            found.update(piece)
        return found.hexdigest()

    def read_lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a member; an unfinished last line differs from any line. BadInput for a line over the
        limit.
        """
        rest = b""
        for piece in self._read_chunks(name):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
            if len(rest) > LINE_LIMIT:
                raise BadInput(f"a line of {name!r} is longer than any that a bundle has")
        if rest:
            yield rest + b"\0"

    def digest_lines(self, name: str) -> Iterator[str]:
        """Yield the SHA-256 of each line, however long."""
        found, open_line = hashlib.sha256(), False
        for piece in self._read_chunks(name):
            first, *others = piece.split(b"\n")
            found.update(first)
            open_line = open_line or bool(first)
            for line in others:
                yield found.hexdigest()
                found, open_line = hashlib.sha256(line), bool(line)
        if open_line:
            yield "without an end"

    def _read_chunks(self, name: str) -> Iterator[bytes]:
        member = self.members[name]
        with self.file.open("rb") as opened:
            opened.seek(member.start)
            left = member.size
            while left and (piece := opened.read(min(CHUNK_SIZE, left))):
                left -= len(piece)
                yield piece


def inspect_container(file: Path) -> Container:
    """Find the members of an archive, whatever was done to it. OSError when it cannot be read."""
    found, length = Container(file), _measure_file(file)
    with file.open("rb") as opened:
        place = 0
        while (member := _find_next(opened, place, length, found)) is not None:
            if member.name in found.members:
                found.problems.append(f"added: a second {member.name!r} at byte {member.start - BLOCK:,}")
            else:
                found.members[member.name] = member
            place = _find_end(opened, member, found)
        _check_end(opened, min(place, length), length, found)
    return found


def _measure_file(file: Path) -> int:
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(0, "it is not a file")
    return status.st_size


def _find_next(opened: BinaryIO, place: int, length: int, found: Container) -> Member | None:
    """The member at a place, or at the first after it that is one."""
    start, limit = place, min(length, place + SEARCH_LIMIT)
    opened.seek(place)
    while place + BLOCK <= limit:
        blocks = opened.read(CHUNK_SIZE)
        for offset in range(0, len(blocks) - BLOCK + 1, BLOCK):
            block = blocks[offset : offset + BLOCK]
            if start == place + offset and block == bytes(BLOCK):
                return None
            if block[257:262] == b"ustar" and (member := _parse_member(block, place + offset)):
                if place + offset > start:
                    found.problems.append(f"changed: bytes {start:,} to {place + offset:,} are no member of a bundle")
                return member
        place += CHUNK_SIZE
    if start < length:
        found.problems.append(f"changed: nothing after byte {start:,} is a member of a bundle")
    return None


def _parse_member(block: bytes, place: int) -> Member | None:
    try:
        info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        exact = build_header(info.name, info.size) == block
    except (tarfile.HeaderError, ValueError):
        return None
    return Member(info.name, place + BLOCK, info.size) if exact else None


def _find_end(opened: BinaryIO, member: Member, found: Container) -> int:
    """Where the next member begins. What fills up the last block is zero."""
    end = member.start + member.size
    opened.seek(end)
    filler = opened.read(-member.size % BLOCK)
    if filler.strip(b"\0"):
        found.problems.append(f"changed: what follows {member.name!r}, at byte {end:,}, is not empty")
    return end + -member.size % BLOCK


def _check_end(opened: BinaryIO, place: int, length: int, found: Container) -> None:
    opened.seek(place)
    rest = opened.read(len(_END) + 1)
    if rest == _END:
        return
    what = "it was cut off" if len(rest) < len(_END) else "something was added after it"
    if rest.strip(b"\0") and len(rest) <= len(_END):
        what = "it was changed"
    where = f"at byte {place:,} of {length:,}"
    found.problems.append(f"changed: the end of the archive, {where}, is not as it was: {what}")
