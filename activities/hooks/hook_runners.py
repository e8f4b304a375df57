"""Asks a hook: a command with the call as JSON on its standard input, or a Python function.

Both are other people's code: it may fail, hang, print or return anything, or ask to end the process. Each of these is a
HookFailure, and nothing of it reaches the worker. Nothing of a command is left when its answer is there, when it took
too long, or when the call is stopped; a thread cannot be stopped and is left behind, at most `THREADS_LIMIT` of a hook.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast
from uuid import uuid4

from pydantic import JsonValue

from holdfast.activities.hooks.hook_io import (
    ANSWER_LIMIT,
    A,
    HookCall,
    HookFailure,
    clean_text,
    convert_answer,
    read_answer,
)
from holdfast.activities.process.command import Command, build_environment, describe_exit_code, run_command
from holdfast.domain.calls.tool import ToolFailure
from holdfast.util.text import exception_text

ERROR_LIMIT = 2_000
"""Bytes that are kept of the end of a command's standard error."""
THREADS_LIMIT = 32
"""Threads of one hook, those included that were left behind."""


class HookRunner(Protocol):
    """Asks one hook."""

    @property
    def identity(self) -> dict[str, JsonValue]:
        """The configuration of the hook, for the digest of all hooks; variables by name only: values may be secret."""

    async def ask(self, call: HookCall, kind: type[A], slots: asyncio.Semaphore) -> A:
        """Ask the hook; HookFailure when there is no answer. Time spent waiting for a slot is not part of its time."""


# Commands


@dataclass(frozen=True)
class CommandRunner:
    """Runs a command for each call; its answer is JSON on standard output."""

    words: Sequence[str]
    folder: Path
    seconds: float
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, JsonValue]:
        """See `HookRunner`."""
        return {"command": [*self.words], "environment": [*sorted(self.environment)], "seconds": self.seconds}

    async def ask(self, call: HookCall, kind: type[A], slots: asyncio.Semaphore) -> A:
        """See `HookRunner`."""
        command = Command(
            words=self.words,
            directory=self.folder,
            seconds=self.seconds,
            environment=build_environment(self.environment),
            input=call.encode(),
        )
        async with slots:
            printed = await _run_command(command)
        return read_answer(printed, kind)


async def _run_command(command: Command) -> bytes:
    printed, errors = bytearray(), bytearray()

    def take_output(data: bytes) -> None:
        if len(printed) > ANSWER_LIMIT:
            return
        printed.extend(data)
        if len(printed) > ANSWER_LIMIT:
            time_limit.reschedule(0)  # it may go on printing for ever

    def take_errors(data: bytes) -> None:
        errors.extend(data)
        del errors[:-ERROR_LIMIT]

    key = f"hook/{uuid4().hex}"
    try:
        async with asyncio.timeout(None) as time_limit:
            code = await run_command(command, key, output=take_output, errors=take_errors, on_start=lambda _: None)
    except TimeoutError:
        code = None
    except ToolFailure as failure:
        raise HookFailure(clean_text(str(failure))) from None
    if len(printed) > ANSWER_LIMIT:
        raise HookFailure(f"it printed over {ANSWER_LIMIT:,} bytes")
    if code is None:
        raise HookFailure(f"it took longer than {command.seconds:g} seconds{_describe_errors(errors)}")
    if code != 0:
        raise HookFailure(f"{describe_exit_code(code)}{_describe_errors(errors)}")
    return bytes(printed)


def _describe_errors(errors: bytearray) -> str:
    text = clean_text(errors.decode("utf-8", "replace"), ERROR_LIMIT)
    return f"; it said: {text}" if text else ""


# Functions


class _FunctionResult(NamedTuple):
    """The value that a function returned, or its exception, as data: some exceptions would do harm if raised again."""

    answer: Any = None
    error: BaseException | None = None


class FunctionRunner:
    """Calls a function for each call: an `async` one on the event loop, any other in a thread of its own."""

    def __init__(self, function: Callable[[Any], Any], seconds: float, identity: Mapping[str, JsonValue]) -> None:
        self._function = function
        self._seconds = seconds
        self._is_async = _is_async(function)
        self._thread_count = 0
        self._unended: set[asyncio.Task[_FunctionResult]] = set()
        """Tasks that did not end when cancelled: asyncio itself keeps no reference to them."""
        self.identity: dict[str, JsonValue] = {**identity, "seconds": seconds}

    async def ask(self, call: HookCall, kind: type[A], slots: asyncio.Semaphore) -> A:
        """See `HookRunner`. The function gets a copy of the call, which it may write in."""
        given = call.model_copy(deep=True)
        if self._is_async:
            result = await self._run_async(given, kind)
        else:
            async with slots:
                result = await self._run_in_thread(given, kind)
        if isinstance(result.error, HookFailure):
            raise result.error
        if result.error is not None:
            raise HookFailure(clean_text(f"{type(result.error).__name__}: {exception_text(result.error)}"))
        return cast("A", result.answer)

    async def _run_async(self, given: HookCall, kind: type[A]) -> _FunctionResult:
        async def call_function() -> _FunctionResult:
            try:
                return _FunctionResult(convert_answer(await self._function(given), kind))
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # other people's code may call `sys.exit`
                return _FunctionResult(error=error)

        task = asyncio.create_task(call_function())
        self._unended.add(task)
        task.add_done_callback(self._unended.discard)
        try:
            await asyncio.wait({task}, timeout=self._seconds)
        finally:
            is_late = not task.done()
            task.cancel()
        if is_late:
            raise self._build_timeout()
        if task.cancelled():
            raise HookFailure("it cancelled itself")
        return task.result()

    async def _run_in_thread(self, given: HookCall, kind: type[A]) -> _FunctionResult:
        if self._thread_count >= THREADS_LIMIT:
            raise HookFailure(f"{self._thread_count} earlier runs of it have not ended")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_FunctionResult] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: _FunctionResult) -> None:
            self._thread_count -= 1
            if not done.done():
                done.set_result(result)

        def call_function() -> None:
            try:
                returned = _check_not_awaitable(context.run(self._function, given))
                result = _FunctionResult(convert_answer(returned, kind))
            except BaseException as error:
                result = _FunctionResult(error=error)
            with suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(settle, result)

        threading.Thread(target=call_function, name="hook", daemon=True).start()
        self._thread_count += 1
        await asyncio.wait({done}, timeout=self._seconds)
        if not done.done():
            raise self._build_timeout()
        return done.result()

    def _build_timeout(self) -> HookFailure:
        return HookFailure(f"it took longer than {self._seconds:g} seconds")


def _is_async(function: Any) -> bool:
    """Is it a coroutine function, or an object whose `__call__` is one?"""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)


def _check_not_awaitable(returned: object) -> object:
    """`returned`; HookFailure when it would have to be awaited."""
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise HookFailure("it gave back something to await: write it with `async def`")
    return returned
