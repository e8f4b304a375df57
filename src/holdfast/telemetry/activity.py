"""Spans of activity attempts, and of the requests that activities send to other services.

The worker that made an attempt reports its span when the attempt ends, below the span that the turn put into the
activity's header. An attempt whose worker is killed has no span.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from holdfast.telemetry.phases import OTHER
from holdfast.telemetry.spans import Span, SpanPlace, parse_place

TRACE_HEADER = "holdfast-trace"
"""The header of activities and child turns: the parent span, as a W3C `traceparent`."""

SendSpan = Callable[[Span], None]
T = TypeVar("T")


@dataclass
class _CurrentAttempt:
    """The running attempt: its span, its attributes, and the numbers of its inner spans."""

    place: SpanPlace
    tell: SendSpan
    about: Mapping[str, str | int]
    numbers: count[int] = field(default_factory=count)


_ATTEMPT: ContextVar[_CurrentAttempt | None] = ContextVar("holdfast_attempt", default=None)
_CALL: ContextVar[Mapping[str, str | int] | None] = ContextVar("holdfast_call", default=None)


def list_log_fields() -> dict[str, str | int]:
    """The fields of the running attempt for a log line: turn, call, tool, step, attempt, trace."""
    about, within = _CALL.get() or {}, _ATTEMPT.get()
    found = {name: about[f"holdfast.{key}"] for name, key in _LOG_FIELDS.items() if f"holdfast.{key}" in about}
    return {**found, "trace": within.place.trace} if within else found


_LOG_FIELDS = {"turn": "turn.id", "call": "call.id", "tool": "tool", "step": "step", "attempt": "attempt"}


def read_header(headers: Mapping[str, Payload]) -> SpanPlace | None:
    """Read the parent span from the headers; None when there is none."""
    try:
        found: Any = PayloadConverter.default.from_payload(headers[TRACE_HEADER]) if TRACE_HEADER in headers else None
    except Exception:  # anybody may send headers
        return None
    return parse_place(found)


def write_header(headers: Mapping[str, Payload], place: SpanPlace) -> dict[str, Payload]:
    """Return the headers with a parent span."""
    return {**headers, TRACE_HEADER: PayloadConverter.default.to_payload(str(place))}


class ObservedActivity(ActivityInboundInterceptor):
    """Reports a span for each attempt at an activity that a traced turn started."""

    def __init__(self, next: ActivityInboundInterceptor, tell: SendSpan | None, worker: str) -> None:
        super().__init__(next)
        self._tell = tell
        self._worker = worker

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Run the activity, and report its span."""
        info = activity.info()
        about: dict[str, str | int] = {
            "holdfast.turn.id": info.workflow_id or "",
            "holdfast.activity": info.activity_type,
            "holdfast.attempt": info.attempt,
            "holdfast.worker": self._worker,
        }
        about |= _describe_call(input.args)
        with _set_variable(_CALL, about):
            return await self._execute_observed(input, info, about)

    async def _execute_observed(
        self, input: ExecuteActivityInput, info: activity.Info, about: Mapping[str, str | int]
    ) -> Any:
        parent = read_header(input.headers)
        if self._tell is None or parent is None:
            return await super().execute_activity(input)
        place = parent.derive_place("attempt", info.activity_id, info.workflow_run_id, info.attempt)
        within = _CurrentAttempt(place, self._tell, about)
        with _record_inner_span("holdfast.attempt", within, parent) as result, _set_variable(_ATTEMPT, within):
            outcome = await super().execute_activity(input)
            result["holdfast.outcome"] = str(getattr(outcome, "kind", "answered"))
            return outcome


@contextmanager
def name_call(call_id: str, tool: str) -> Iterator[None]:
    """Add this call to the log fields within the block."""
    with _set_variable(_CALL, {**(_CALL.get() or {}), "holdfast.call.id": call_id, "holdfast.tool": tool}):
        yield


@contextmanager
def record_span(name: str, **about: str | int) -> Iterator[dict[str, str | int]]:
    """Record a span for a request that an activity sends to another service.

    Yields a dict for further attributes. Without a traced attempt nothing is recorded.
    """
    within = _ATTEMPT.get()
    if within is None:
        yield {}
        return
    inner = _CurrentAttempt(
        within.place.derive_place(name, next(within.numbers)), within.tell, {**within.about, **about}
    )
    with _record_inner_span(name, inner, within.place) as result:
        yield result


def format_error_type(error: BaseException) -> str:
    """Return the type of an error for a label; `other` when it is not a plain name, as tools may use any text."""
    kind = error.type if isinstance(error, ApplicationError) and error.type else type(error).__name__
    return kind if re.fullmatch("[A-Za-z_]{1,64}", kind) else OTHER


@contextmanager
def _set_variable(variable: ContextVar[T | None], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def _record_inner_span(name: str, within: _CurrentAttempt, parent: SpanPlace) -> Iterator[dict[str, str | int]]:
    start, result, failed = datetime.now(UTC), dict[str, str | int](), False
    try:
        yield result
    except BaseException as error:
        result.setdefault("holdfast.outcome", "error")
        result["error.type"], failed = format_error_type(error), True
        raise
    finally:
        failed = failed or result.get("holdfast.outcome") in ("failed", "lost")
        attributes = {key: value for key, value in {**within.about, **result}.items() if value != ""}
        within.tell(Span(name, within.place, start, datetime.now(UTC), parent, attributes, failed))


def _describe_call(args: Any) -> dict[str, str | int]:
    """Return the ids of the call or the model step of an activity, without arguments."""
    input = args[0] if args else None
    call, bound, step = (getattr(input, name, None) for name in ("call_id", "bound", "step"))
    found: dict[str, str | int] = {"holdfast.call.id": call} if isinstance(call, str) else {}
    if bound is not None:
        found["holdfast.tool"] = bound.tool.name
    return {**found, "holdfast.step": step} if isinstance(step, int) else found
