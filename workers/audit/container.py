"""The file that a bundle is: a plain tar archive with nothing in it that is not accounted for.

Any `tar` opens it. Headers say a name and a size and are otherwise always the same, what fills up blocks is zero, and
the end is where it must be: so every byte of the file is either content, which the chain covers, or known beforehand,
and a byte that was changed is found wherever it is.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

BLOCK = 512
PIECE = 1024 * 1024
NAME_LIMIT = 100
_END = bytes(2 * BLOCK)


def header(name: str, size: int) -> bytes:
    """The one header that a member of this name and size has."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o600, 0
    return info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def _filler(size: int) -> bytes:
    return bytes(-size % BLOCK)


class Writer:
    """Writes members one after another."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, name: str, data: bytes) -> None:
        """One member."""
        self._file.write(header(name, len(data)) + data + _filler(len(data)))

    def add_file(self, name: str, source: BinaryIO, size: int) -> None:
        """One member from an open file; ValueError when it is not as long as it was."""
        self._file.write(header(name, size))
        left = size
        while left and (piece := source.read(min(PIECE, left))):
            self._file.write(piece)
            left -= len(piece)
        if left:
            raise ValueError("it became shorter while it was read")
        self._file.write(_filler(size))

    def close(self) -> None:
        """The end of the archive."""
        self._file.write(_END)


@dataclass(frozen=True)
class Member:
    """Where a member's content is."""

    name: str
    start: int
    size: int


@dataclass
class Container:
    """An archive that was looked through: its members, and what does not belong."""

    file: Path
    members: dict[str, Member] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def read(self, name: str) -> bytes:
        """A member's whole content."""
        return b"".join(self.pieces(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """A member's content, a megabyte at a time."""
        member = self.members[name]
        with self.file.open("rb") as opened:
            opened.seek(member.start)
            left = member.size
            while left and (piece := opened.read(min(PIECE, left))):
                left -= len(piece)
                yield piece


def look_through(file: Path) -> Container:
    """Find the members of an archive, whatever was done to it. OSError when it cannot be read at all."""
    found, length = Container(file), file.stat().st_size
    with file.open("rb") as opened:
        place = 0
        while (member := _next(opened, place, length, found)) is not None:
            if member.name in found.members:
                found.problems.append(f"added: a second {member.name!r} at byte {place:,}")
            else:
                found.members[member.name] = member
            place = _end_of(opened, member, found)
        _check_end(opened, place if place <= length else length, length, found)
    return found


def _next(opened: BinaryIO, place: int, length: int, found: Container) -> Member | None:
    """The member at a place, or at the first after it that is one."""
    start = place
    while place + BLOCK <= length:
        opened.seek(place)
        block = opened.read(BLOCK)
        if block == bytes(BLOCK) and start == place:
            return None
        if member := _member(block, place):
            if place > start:
                found.problems.append(f"changed: bytes {start:,} to {place:,} are no member of a bundle")
            return member
        place += BLOCK
    if start < length:
        found.problems.append(f"changed: nothing after byte {start:,} is a member of a bundle")
    return None


def _member(block: bytes, place: int) -> Member | None:
    try:
        info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        exact = header(info.name, info.size) == block
    except (tarfile.HeaderError, ValueError):
        return None
    return Member(info.name, place + BLOCK, info.size) if exact else None


def _end_of(opened: BinaryIO, member: Member, found: Container) -> int:
    """Where the next member begins. What fills up the last block is zero."""
    end = member.start + member.size
    opened.seek(end)
    filler = opened.read(-member.size % BLOCK)
    if filler.strip(b"\0"):
        found.problems.append(f"changed: what follows {member.name!r}, at byte {end:,}, is not empty")
    return end + -member.size % BLOCK


def _check_end(opened: BinaryIO, place: int, length: int, found: Container) -> None:
    opened.seek(place)
    rest = opened.read(PIECE)
    if rest != _END:
        what = "it was cut off" if len(rest) < len(_END) else "something was added after it"
        if rest.strip(b"\0") and len(rest) <= len(_END):
            what = "it was changed"
        where = f"at byte {place:,} of {length:,}"
        found.problems.append(f"changed: the end of the archive, {where}, is not as it was: {what}")
