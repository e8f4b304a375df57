"""How a run of a turn or a session begins with its input, and when it continues as new (S42).

Both go by what is in the history alone. With every workflow task the server records the length of the history, the
version of the code that ran it, and whether a newer version is there. Workers without versions never meet a newer one.

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
    from holdfast.domain.base import Unreadable, describe_problems
    from holdfast.errors import PayloadUnreadable, RequestRefused
    from holdfast.util.text import shorten_text

EVENT_LIMIT = 250
"""Far below the server's limit of 51,200: a worker that takes up a run replays this many in a tenth of a second."""

T = TypeVar("T")


def read_input(inputs: tuple[Any, ...], parse: Callable[[Any], T], name: str) -> tuple[T | None, Exception | None]:
    """The input of a run, or the error that the run must raise.

    It is read by hand, since Temporal retries a failed decoding for ever. A bad input ends the workflow with a reason.
    An input whose file or key is missing here fails the workflow task, which is retried until a worker can read it.
    """
    missing = next((input.reason for input in inputs if isinstance(input, Unreadable) and input.gone), None)
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
    """Is it time to continue as new?"""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= EVENT_LIMIT


def find_version() -> str | None:
    """The version of the code that runs the present workflow task; None where workers have no versions."""
    found = workflow.info().get_current_deployment_version()
    return found.to_canonical_string() if found and found.deployment_name else None


def has_newer_version() -> bool:
    """Would the workflow run on another version if it started now?"""
    return workflow.info().is_target_worker_deployment_version_changed()


def continue_on_newer_version(input: Any) -> NoReturn:
    """Continue as new, on the version on which the workflow would start now."""
    if find_version() is None:
        workflow.continue_as_new(input)
    workflow.continue_as_new(input, initial_versioning_behavior=ContinueAsNewVersioningBehavior.AUTO_UPGRADE)
