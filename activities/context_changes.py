"""What a call leaves for those after it, as far as that can be taken (S47). It has run: nothing here fails it."""

from __future__ import annotations

import logging
from pathlib import Path

from holdfast.activities.files.workspace import Workspace
from holdfast.content import Result, TextPart, said, shorten
from holdfast.contexts import Context, ContextChange
from holdfast.verdicts import Bound, CallOutcome, Finished

_LOGGER = logging.getLogger(__name__)


def with_usable_change(outcome: CallOutcome, bound: Bound, context: Context, workspace: Path) -> CallOutcome:
    """The outcome with a change of the context that the calls after it can go by, or with why there is none."""
    if not isinstance(outcome, Finished) or outcome.result.context is None:
        return outcome
    if bound.concurrency_safe:
        _LOGGER.warning("What %r leaves for other calls does not count: it may run beside them", bound.tool.name)
        return outcome.model_copy(update={"result": outcome.result.model_copy(update={"context": None})})
    return outcome.model_copy(update={"result": _usable(outcome.result, context, workspace)})


def _usable(result: Result, context: Context, workspace: Path) -> Result:
    change = result.context
    assert change, "it was just there"
    try:
        change = ContextChange.model_validate(change.model_dump(warnings=False))
    except Exception as error:
        words = f"What it leaves for the calls after it cannot be used: {said(error, 300)}"
        return _noted(result, None, words)
    if change.folder is None:
        return result
    try:
        return result.model_copy(update={"context": _placed(change, change.folder, workspace)})
    except Exception as error:
        words = f"The calls after it stay in the folder {shorten(context.folder, 300)!r}: {said(error, 300)}"
        return _noted(result, change.model_copy(update={"folder": None}), words)


def _placed(change: ContextChange, folder: str, workspace: Path) -> ContextChange:
    """With its folder as seen from the workspace, links followed. ValueError when it is none of the workspace."""
    place = Workspace(workspace).place(folder)
    if not (workspace / place).is_dir():
        raise ValueError(f"{folder!r} is not a folder")
    return ContextChange.model_validate({**change.model_dump(), "folder": place})


def _noted(result: Result, change: ContextChange | None, words: str) -> Result:
    """With a line for the model."""
    return result.model_copy(update={"context": change, "parts": (*result.parts, TextPart(text=f"[{words}]"))})
