"""The start of a run of a turn or session from its input, and when the run continues as new (S42).

Both depend on the history alone. With every workflow task the server records the length of the history, the worker
version that ran it, and whether there is a newer version. Workers without versions never see a newer one.

Why: docs/decisions/0024-continue-as-new.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.workflow import ContinueAsNewVersioningBehavior

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.base import UnreadablePayload, describe_problems
    from holdfast.errors import PayloadUnreadable, RequestRefused
    from holdfast.util.text import shorten_text

EVENT_LIMIT = 250
"""Far below the server's limit of 51,200: a worker that takes up a run replays this many in a tenth of a second."""

T = TypeVar("T")


def read_input(inputs: tuple[Any, ...], parse: Callable[[Any], T], name: str) -> tuple[T | None, Exception | None]:
    """Parse the input of a run. Returns the input, or the error that the run must raise.

    Temporal would retry a failed decoding for ever, so the input is parsed here. A bad input ends the workflow with a
    reason. An input whose stored payload or key is missing fails the workflow task, which is retried until a worker can
    read it.
    """
    missing = next((input.reason for input in inputs if isinstance(input, UnreadablePayload) and input.gone), None)
    if missing:
        return None, PayloadUnreadable(missing)
    try:
        return parse(inputs[0] if len(inputs) == 1 else None), None
    except RequestRefused as refusal:
        problem = str(refusal)
    except ValidationError as error:
        problem = shorten_text(describe_problems(error, "input"), 2_000)
    return None, ApplicationError(f"The {name} cannot start: {problem}", type="bad_input", non_retryable=True)


def is_history_long() -> bool:
    """Is the history long enough to continue as new?"""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= EVENT_LIMIT


def find_version() -> str | None:
    """The worker version that runs the current workflow task; None for workers without versions."""
    found = workflow.info().get_current_deployment_version()
    return found.to_canonical_string() if found and found.deployment_name else None


def has_newer_version() -> bool:
    """Would the workflow run on another worker version if it started now?"""
    return workflow.info().is_target_worker_deployment_version_changed()


def continue_on_newer_version(input: Any) -> NoReturn:
    """Continue as new, on the worker version on which the workflow would start now."""
    if find_version() is None:
        workflow.continue_as_new(input)
    workflow.continue_as_new(input, initial_versioning_behavior=ContinueAsNewVersioningBehavior.AUTO_UPGRADE)
