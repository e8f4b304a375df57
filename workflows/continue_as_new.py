"""When a workflow continues as new: a long history, or a newer version of the code.

All of it is told by the history: the server writes into each workflow task on which version it ran, and whether there
was another to go on with. Where workers have no versions nothing here does anything.

Why: docs/decisions/0024-continue-as-new.md.
"""

from __future__ import annotations

from typing import Any, NoReturn

from temporalio import workflow
from temporalio.workflow import ContinueAsNewVersioningBehavior


def find_version() -> str | None:
    """The version of the code that takes the workflow's present task; None where there are none."""
    found = workflow.info().get_current_deployment_version()
    return found.to_canonical_string() if found and found.deployment_name else None


def has_newer_version() -> bool:
    """Would it begin on another version, if it began now?"""
    return workflow.info().is_target_worker_deployment_version_changed()


def continue_on_newer_version(input: Any) -> NoReturn:
    """Continue as new, on the version on which it would begin now."""
    if find_version() is None:
        workflow.continue_as_new(input)
    workflow.continue_as_new(input, initial_versioning_behavior=ContinueAsNewVersioningBehavior.AUTO_UPGRADE)


EVENT_LIMIT = 250
"""Far below the server's limit of 51,200: a worker that takes a run up anew replays it within a tenth of a second."""


def is_history_long() -> bool:
    """Is it time to continue as new?"""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= EVENT_LIMIT
