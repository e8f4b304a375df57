"""Translation of Temporal's exceptions into those of `holdfast.errors`, for everything that talks to a turn from
outside.
"""

from __future__ import annotations

from typing import Any

from temporalio.client import (
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import DecisionRefused, HoldfastError, NoWorker, RequestRefused, ServerUnavailable, TurnNotFound

ENCODED = "Encoded failure"
"""The message of a failure that a codec encrypted and this process cannot decrypt."""
UNDECODED = "Failed decoding arguments"


def translate_refusal(error: WorkflowUpdateFailedError, kind: type[DecisionRefused] | type[RequestRefused]) -> Any:
    """The exception for an update that a turn refused; the type of its ApplicationError becomes the `code`."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return kind(cause.type or "refused", cause.message)
    words = str(cause or error)
    if UNDECODED in words:
        words = (
            "the worker could not decode the request: it may lack this client's encryption key, or have no access to "
            "its payload store (run `holdfast encryption check` and `holdfast storage check` on both sides)"
        )
    return kind("refused", words)


def translate_error(error: Exception, turn_id: str, kind: str = "turn") -> HoldfastError:
    """The exception for any error of Temporal's client. `kind`: what the id is of, `turn` or `session`."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, WorkflowFailureError):
        cause = error.cause
        words = cause.message if isinstance(cause, ApplicationError) else str(cause or error)
        if words == ENCODED:
            words = "the reason is encrypted with a key that is missing here (see `holdfast encryption check`)"
        return HoldfastError(f"{kind} {turn_id!r} failed: {words}")
    if isinstance(error, WorkflowQueryFailedError | WorkflowQueryRejectedError):
        return NoWorker(f"no worker could answer for {kind} {turn_id!r}: {error}")
    if isinstance(error, TimeoutError | WorkflowUpdateRPCTimeoutOrCancelledError):
        return build_no_worker(turn_id, kind)
    if isinstance(error, RPCError):
        return _translate_rpc_error(error, turn_id, kind)
    name = type(error).__name__
    if name == "WorkflowAlreadyStartedError":
        return RequestRefused("id_in_use", f"the {kind} id {turn_id!r} is in use: choose another id")
    return HoldfastError(f"{name}: {error}")


def build_no_worker(turn_id: str, kind: str = "turn") -> NoWorker:
    """The exception for a request that no worker answered."""
    return NoWorker(f"no worker answered for {kind} {turn_id!r}: start one with `holdfast worker` or `holdfast up`")


def _translate_rpc_error(error: RPCError, turn_id: str, kind: str) -> HoldfastError:
    if error.status is RPCStatusCode.NOT_FOUND:
        if "already completed" in error.message or "closing workflow" in error.message:
            return RequestRefused("ended", f"{kind} {turn_id!r} has ended")
        if error.message.startswith("Namespace "):
            return HoldfastError(f"the Temporal server refused: {error.message.rstrip('.')}: see TEMPORAL_NAMESPACE")
        return TurnNotFound(f"no {kind} is called {turn_id!r}")
    nobody_polls = error.status is RPCStatusCode.FAILED_PRECONDITION and "no poller" in error.message
    if nobody_polls or error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
        return build_no_worker(turn_id, kind)
    if "invalid search attribute" in error.message:
        return NoWorker("no Holdfast worker has ever run on this server: start one with `holdfast worker`")
    if error.status is RPCStatusCode.UNAVAILABLE:
        return ServerUnavailable(f"the Temporal server does not answer: {error.message}")
    return HoldfastError(f"the Temporal server refused ({error.status.name}): {error.message}")
