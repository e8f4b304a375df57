"""Classifies failed requests to models for Temporal and for the turn: whether to retry them, and when."""

from __future__ import annotations

from datetime import timedelta

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)
from temporalio.exceptions import ApplicationError

from holdfast.activities.models.model_request import ReplyCutOff
from holdfast.domain.turn.activity_io import CONTEXT_WINDOW
from holdfast.util.secrets import Secrets
from holdfast.util.text import exception_text, shorten_text

LONGEST_WAIT = 3_600.0
"""The longest delay in seconds that a provider may ask for."""
PATIENCE_SECONDS = 60.0
"""The same when another model can be asked instead."""
REJECTED_TYPE = "model_rejected"
"""The type of the failure when a provider rejects the request itself."""
_EXTRAS = ("openai", "anthropic", "google")
_LASTING_ERRORS: tuple[tuple[type[Exception] | str, str], ...] = (
    (ModelContextWindowExceededError, CONTEXT_WINDOW),
    (ModelAuthenticationError, "model_unauthorized"),
    (ModelNotFoundError, "unknown_model"),
    (ModelQuotaExceededError, "model_quota"),
    (ModelRequestRejectedError, REJECTED_TYPE),
    (ContentFilterError, "model_filtered"),
    (ReplyCutOff, "model_cut_off"),
    (UserError, "bad_model"),
    (ImportError, "model_not_installed"),
    ("DefaultCredentialsError", "model_unauthorized"),
)


def build_model_failure(error: Exception, name: str, secrets: Secrets, *, has_others: bool = False) -> ApplicationError:
    """Build the failure of the activity, without secrets. `has_others`: another model can be asked instead."""
    words = secrets.hide(_describe_error(error, name))
    for kind, type in _LASTING_ERRORS:
        if _is_named(error, kind) if isinstance(kind, str) else isinstance(error, kind):
            return ApplicationError(shorten_text(words, 2_000), type=type, non_retryable=True)
    limited = isinstance(error, ModelRateLimitError)
    broke = isinstance(error, UnexpectedModelBehavior)
    type = "rate_limited" if limited else "model_broke_off" if broke else "model_unavailable"
    wait = error.retry_after if isinstance(error, ModelAPIError) else None
    delay = timedelta(seconds=min(wait, LONGEST_WAIT)) if wait is not None and wait > 0 else None
    too_long = has_others and wait is not None and wait > PATIENCE_SECONDS
    return ApplicationError(shorten_text(words, 2_000), type=type, next_retry_delay=delay, non_retryable=too_long)


def _describe_error(error: Exception, name: str) -> str:
    words = f"{name}: {exception_text(error, 4_000)}"
    extra = next((extra for extra in _EXTRAS if extra in words.lower()), None)
    if not isinstance(error, ImportError) or extra is None:
        return words
    return f"{words}. Where the worker runs: pip install 'holdfast[{extra}]'"


def _is_named(error: Exception, kind: str) -> bool:
    """Whether an error has a class of this name: its package may not be installed."""
    return any(base.__name__ == kind for base in type(error).__mro__)
