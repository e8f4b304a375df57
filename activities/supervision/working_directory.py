"""Where a command's shell ended, so that the commands after it go on there (S47).

The shell says so itself when it exits, on a descriptor that nobody else uses. One that sets a trap of its own for that
moment, or becomes another program, says nothing, and is not followed.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

FOLDER_DESCRIPTOR = 240
FOLDER_LIMIT = 1_000
"""Bytes of a path that are kept. A longer one counts as none."""
_FOLDER_COMMANDS = re.compile(r"(?<![\w-])(cd|pushd|popd)(?![\w-])")
# Whatever fails in it changes neither what the command says nor its exit code. On the first line of the command, whose
# lines so keep their numbers.
_FOLDER_TRAP = "trap '{{ set +x; builtin pwd -P; }} 2>/dev/null >&{} || :' EXIT; "


def may_move(command: str) -> bool:
    """Does it perhaps go to another folder?"""
    return _FOLDER_COMMANDS.search(command) is not None


def add_folder_report(command: str) -> str:
    """The command for bash, telling in the end where it is."""
    return _FOLDER_TRAP.format(FOLDER_DESCRIPTOR) + command


def read_folder(receiving: int) -> str:
    """The folder that was told; nothing when that is no path."""
    told = b""
    with suppress(BlockingIOError):
        told = os.read(receiving, FOLDER_LIMIT + 1)
    path = told.removesuffix(b"\n")
    with suppress(UnicodeDecodeError):
        return path.decode() if path.startswith(b"/") and len(told) <= FOLDER_LIMIT else ""
    return ""
