"""What a call leaves: changes of the context for later calls, and the files that tell whether it has run.

It has run: nothing here fails it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from holdfast.activities.files.workspace import Workspace, digest_content
from holdfast.domain.calls.tool import ToolFailure
from holdfast.domain.calls.verdicts import BoundCall, ExecutionOutcome, Finished
from holdfast.domain.content import Result, TextPart
from holdfast.domain.context import Context, ContextChange
from holdfast.util.text import exception_text, shorten_text

_LOGGER = logging.getLogger(__name__)


def resolve_context_change(
    outcome: ExecutionOutcome, bound: BoundCall, context: Context, workspace: Path
) -> ExecutionOutcome:
    """The outcome with a change of the context that the calls after it can go by, or with why there is none."""
    if not isinstance(outcome, Finished) or outcome.result.context is None:
        return outcome
    if bound.concurrency_safe:
        _LOGGER.warning("What %r leaves for other calls does not count: it may run beside them", bound.tool.name)
        return outcome.model_copy(update={"result": outcome.result.model_copy(update={"context": None})})
    return outcome.model_copy(update={"result": _resolve_result(outcome.result, context, workspace)})


def _resolve_result(result: Result, context: Context, workspace: Path) -> Result:
    change = result.context
    assert change, "it was just there"
    try:
        change = ContextChange.model_validate(change.model_dump(warnings=False))
    except Exception as error:
        words = f"What it leaves for the calls after it cannot be used: {exception_text(error, 300)}"
        return _add_note(result, None, words)
    if change.folder is None:
        return result
    try:
        return result.model_copy(update={"context": _resolve_folder(change, change.folder, workspace)})
    except Exception as error:
        words = (
            f"The calls after it stay in the folder {shorten_text(context.folder, 300)!r}: {exception_text(error, 300)}"
        )
        return _add_note(result, change.model_copy(update={"folder": None}), words)


def _resolve_folder(change: ContextChange, folder: str, workspace: Path) -> ContextChange:
    """With its folder as seen from the workspace, links followed. ValueError when it is none of the workspace."""
    place = Workspace(workspace).resolve_path(folder)
    if not (workspace / place).is_dir():
        raise ValueError(f"{folder!r} is not a folder")
    return ContextChange.model_validate({**change.model_dump(), "folder": place})


def _add_note(result: Result, change: ContextChange | None, words: str) -> Result:
    """With a line for the model."""
    return result.model_copy(update={"context": change, "parts": (*result.parts, TextPart(text=f"[{words}]"))})


FileState = Literal["done", "untouched", "otherwise"]
"""`otherwise`: somebody else was there, before the call or after it."""


def find_file_state(folder: Path, bound: BoundCall, wrote: Mapping[str, str]) -> FileState:
    """How the files that a call changes are now, given what the turn itself has written of them."""
    room = Workspace(folder)
    try:
        now = {path: digest_content(room.read_present(path)) for path in {**bound.basis, **bound.leaves}}
    except (ToolFailure, OSError):
        return "otherwise"
    if all(now[path] == digest for path, digest in bound.leaves.items()):
        return "done"
    return (
        "untouched"
        if all(now[path] in (digest, wrote.get(path)) for path, digest in bound.basis.items())
        else "otherwise"
    )
