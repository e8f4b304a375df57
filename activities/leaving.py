"""Files as a call would leave them: after a crash they tell whether it has run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from holdfast.activities.builtin.writing import digest_content, read_present
from holdfast.activities.files.workspace import Workspace
from holdfast.tools import ToolFailure
from holdfast.verdicts import BoundCall

FileState = Literal["done", "untouched", "otherwise"]
"""`otherwise`: somebody else was there, before the call or after it."""


def find_file_state(folder: Path, bound: BoundCall, wrote: Mapping[str, str]) -> FileState:
    """How the files that a call changes are now, given what the turn itself has written of them."""
    room = Workspace(folder)
    try:
        now = {path: digest_content(read_present(room, path)) for path in {**bound.basis, **bound.leaves}}
    except (ToolFailure, OSError):
        return "otherwise"
    if all(now[path] == digest for path, digest in bound.leaves.items()):
        return "done"
    return (
        "untouched"
        if all(now[path] in (digest, wrote.get(path)) for path, digest in bound.basis.items())
        else "otherwise"
    )
