"""Decorators for the message handlers of turns and sessions: `update`, `signal` and `query`.

Temporal decodes a message by the type hints of its handler before any of our code runs. A wrong number of arguments, or
a body that does not fit the hints, then fails the workflow task, which is retried for ever. So handlers accept any
arguments (`*bodies`), and this module parses the body. A bad body refuses the message, with an error of bounded length,
and changes nothing. A bad update is refused before it is accepted, so it leaves nothing in the history.

Why: docs/decisions/0003-message-bodies-are-read-by-the-workflow.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.base import StrictData, UnreadablePayload, describe_problems
    from holdfast.errors import PayloadUnreadable, Refused, RequestRefused
    from holdfast.util.redaction import Redacted
    from holdfast.util.text import exception_text, shorten_text

REFUSAL_LIMIT = 2_000
"""Characters of a refusal. The refused message may be megabytes, and the error quotes it."""
BAD_BODY = "bad_body"

F = TypeVar("F", bound=Callable[..., Any])
ReadBodies = Callable[[tuple[Any, ...]], list[Any]]
"""Reads the arguments of a handler from the bodies of a message; raises Refused."""


class UpdateHandler(Protocol):
    """A handler of an update."""

    def __call__(self, *bodies: Any) -> Any:
        """Handle the update."""

    def validator(self, check: F, /) -> F:
        """Decorate a check of the body, which raises Refused and changes nothing."""


def update(name: str, body: type[StrictData] | None = None) -> Callable[[Callable[..., Any]], UpdateHandler]:
    """Declare the handler of an update, which is called with the parsed body. `body` None: the update has none."""

    def declare(handle: Callable[..., Any]) -> UpdateHandler:
        checks: list[Callable[..., None]] = []

        def read(bodies: tuple[Any, ...]) -> list[Any]:
            gone = [each.reason for each in bodies if isinstance(each, UnreadablePayload) and each.gone]
            if gone:  # a worker that could read it has accepted it: the task is retried until this one can
                raise PayloadUnreadable(gone[0])
            return read_bodies(name, body, bodies)

        def validate(self: Any, *bodies: Any) -> None:
            with translate_refusals():
                given = read_bodies(name, body, bodies)
                for check in checks:
                    check(self, *given)

        def take_check(check: F) -> F:
            checks.append(check)
            return check

        taken: Any = workflow.update(name=name)(_wrap_handler(handle, read))  # noqa: TID251
        taken.validator(_erase_types(validate, f"validate_{handle.__name__}", handle))
        taken.validator = take_check
        found: UpdateHandler = taken
        return found

    return declare


def signal(name: str, body: type[StrictData] | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare the handler of a signal. Nobody waits for an answer: a refused signal changes nothing, and is logged.

    A class that declares one with a body has an attribute `_dropped`, its `DroppedSignals`.
    """

    def declare(handle: Callable[..., None]) -> Callable[..., None]:
        def take(self: Any, *bodies: Any) -> None:
            if body is not None and self._dropped.is_dropped(bodies):
                return
            try:
                handle(self, *read_bodies(name, body, bodies))
            except Refused as refusal:
                workflow.logger.warning(
                    "Ignored signal %r: %s", name, Redacted(shorten_text(str(refusal), 500), refusal.code)
                )

        return workflow.signal(name=name)(_erase_types(take, handle.__name__, handle))  # noqa: TID251

    return declare


def query(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the handler of a query. The query takes the parameters of its handler."""

    def declare(handle: Callable[..., Any]) -> Callable[..., Any]:
        hints = get_type_hints(handle)
        names = list(inspect.signature(handle).parameters)[1:]
        needed = [
            each for each in list(inspect.signature(handle).parameters.values())[1:] if each.default is each.empty
        ]
        adapters: list[TypeAdapter[Any]] = [TypeAdapter(hints[each]) for each in names]

        def read(bodies: tuple[Any, ...]) -> list[Any]:
            if not len(needed) <= len(bodies) <= len(names):
                takes = f"{len(names)}" if len(needed) == len(names) else f"{len(needed)} to {len(names)}"
                raise RequestRefused(BAD_BODY, f"{name!r} takes {takes} arguments, and got {len(bodies)}")
            return [
                _parse_body(name, adapter.validate_python, given)
                for adapter, given in zip(adapters, bodies, strict=False)
            ]

        return workflow.query(name=name)(_wrap_handler(handle, read))  # noqa: TID251

    return declare


class DroppedSignals:
    """Counts the signals of one run, and drops those that a worker could not read.

    Whether a payload can be read depends on the keys and files of the worker, which are not in the history. So the
    worker that drops a signal records that in the history, and every worker that replays the run drops it too.
    """

    def __init__(self) -> None:
        self._signals = 0

    def is_dropped(self, bodies: tuple[Any, ...]) -> bool:
        """Is the next signal dropped? Call it once for every signal with a body."""
        self._signals += 1
        mark, replays = f"unread-{self._signals}", workflow.unsafe.is_replaying()
        gone = [body.reason for body in bodies if isinstance(body, UnreadablePayload) and body.gone]
        # Not a patch of the code: `patched` writes the record "signal N was dropped". It is the only command whose
        # presence in the history the SDK answers before the workflow decides, and in the task that has the signal. A
        # local activity or a memo would have to be written for every signal, as a replay cannot know which had one.
        # Failing the task until the body can be read, as updates do, would let anybody stop a turn for ever by one
        # signal that is encrypted with a key of theirs.
        noted = (bool(gone) or replays) and workflow.patched(mark)
        if gone:
            workflow.logger.warning("Dropped a signal: %s", Redacted(gone[0], "its body cannot be read here"))
        return bool(gone) or noted


@contextmanager
def translate_refusals() -> Iterator[None]:
    """Raise Refused as ApplicationError: any other error of a handler retries the workflow task for ever."""
    try:
        yield
    except Refused as refusal:
        message = shorten_text(str(refusal), REFUSAL_LIMIT)
        raise ApplicationError(message, type=refusal.code, non_retryable=True) from None


def _wrap_handler(handle: Callable[..., Any], read: ReadBodies) -> Callable[..., Any]:
    """Wrap a handler so that it takes any arguments, and parses them."""

    def take(self: Any, *bodies: Any) -> Any:
        with translate_refusals():
            return handle(self, *read(bodies))

    async def take_and_wait(self: Any, *bodies: Any) -> Any:
        with translate_refusals():
            return await handle(self, *read(bodies))

    return _erase_types(take_and_wait if inspect.iscoroutinefunction(handle) else take, handle.__name__, handle)


def _erase_types(take: Callable[..., Any], name: str, handle: Callable[..., Any]) -> Callable[..., Any]:
    """`take` with the name and the result type of `handle`, and without the types of bodies that `wraps` would copy."""
    take.__name__, take.__doc__, take.__module__ = name, handle.__doc__, handle.__module__
    take.__qualname__ = f"{handle.__qualname__.rpartition('.')[0]}.{name}"
    take.__annotations__ = {"bodies": Any, "return": get_type_hints(handle).get("return")}
    return take


def read_bodies(name: str, body: type[StrictData] | None, bodies: tuple[Any, ...]) -> list[Any]:
    """Parse the body of a message, into a list of one; an empty list if it has none. RequestRefused for a bad body."""
    wanted = 0 if body is None else 1
    if len(bodies) != wanted:
        raise RequestRefused(BAD_BODY, f"{name!r} takes {'one body' if wanted else 'no body'}, and got {len(bodies)}")
    return [_parse_body(name, body.model_validate, given) for given in bodies] if body else []


def _parse_body(name: str, parse: Callable[[Any], Any], given: Any) -> Any:
    """Parse a body. RequestRefused for anything that is wrong with it."""
    if isinstance(given, UnreadablePayload):
        raise RequestRefused(BAD_BODY, f"the body of {name!r} cannot be read: {shorten_text(given.reason, 500)}")
    try:
        return parse(given)
    except ValidationError as error:
        raise RequestRefused(
            BAD_BODY, f"invalid body of {name!r}: {shorten_text(describe_problems(error, 'body'), 1_000)}"
        ) from None
    except Exception as error:  # no bytes that a stranger sends may fail the workflow task
        raise RequestRefused(BAD_BODY, f"invalid body of {name!r}: {exception_text(error, 500)}") from None
