"""The present content of a file of the workspace, and the digest of a content."""

from __future__ import annotations

import hashlib

from holdfast.activities.files.workspace import READ_LIMIT, Workspace
from holdfast.domain.calls.tool import ToolFailure


def digest_content(content: bytes | None) -> str:
    """Of a file's content; empty when there is no file."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def read_present(workspace: Workspace, path: str) -> bytes | None:
    """What a file holds now; None when there is none. ToolFailure when that cannot be told."""
    try:
        return workspace.read(path, READ_LIMIT + 1) if workspace.read_status(path) else None
    except OSError as error:
        raise ToolFailure("file_not_readable", f"{path!r} cannot be read: {error.strerror or error}") from error
