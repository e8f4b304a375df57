"""A hook that is a Python function: `async` on the worker's event loop, any other in a thread of its own.

It is other people's code: it may raise anything, change what it is given, hang, or ask to end the process. None of
that reaches the worker. A thread cannot be stopped: one that takes too long is left behind, and when too many are, the
hook fails at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from pydantic import JsonValue

from holdfast.activities.hooks.hook_io import A, HookCall, HookFailure, clean_text, convert_answer
from holdfast.util.text import exception_text

THREADS_LIMIT = 32
"""Threads of one hook, those included that were left behind."""


class _FunctionResult(NamedTuple):
    """What a function answered or raised, as data: some exceptions would do harm if they were raised again."""

    answer: Any = None
    error: BaseException | None = None


class FunctionRunner:
    """How a function is asked."""

    def __init__(self, function: Callable[[Any], Any], seconds: float, identity: Mapping[str, JsonValue]) -> None:
        self._function = function
        self._seconds = seconds
        self._async = _is_async(function)
        self._threads = 0
        self._left: set[asyncio.Task[_FunctionResult]] = set()
        """Tasks that did not end when told to: somebody must hold them."""
        self.identity: dict[str, JsonValue] = {**identity, "seconds": seconds}

    async def ask(self, call: HookCall, kind: type[A], slots: asyncio.Semaphore) -> A:
        """The answer; HookFailure when there is none. Waiting for a slot costs nothing of its time."""
        given = call.model_copy(deep=True)  # its own: it may write in it
        if self._async:
            made = await self._run_async(given, kind)
        else:
            async with slots:
                made = await self._run_in_thread(given, kind)
        if isinstance(made.error, HookFailure):
            raise made.error
        if made.error is not None:
            raise HookFailure(clean_text(f"{type(made.error).__name__}: {exception_text(made.error)}"))
        return cast("A", made.answer)

    async def _run_async(self, given: HookCall, kind: type[A]) -> _FunctionResult:
        async def call_function() -> _FunctionResult:
            try:
                return _FunctionResult(convert_answer(await self._function(given), kind))
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # other people's code may call `sys.exit`
                return _FunctionResult(error=error)

        task = asyncio.create_task(call_function())
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        try:
            await asyncio.wait({task}, timeout=self._seconds)
        finally:
            late = not task.done()
            task.cancel()
        if late:
            raise self._build_timeout()
        if task.cancelled():
            raise HookFailure("it cancelled itself")
        return task.result()

    async def _run_in_thread(self, given: HookCall, kind: type[A]) -> _FunctionResult:
        if self._threads >= THREADS_LIMIT:
            raise HookFailure(f"{self._threads} earlier runs of it have not ended")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_FunctionResult] = loop.create_future()
        context = contextvars.copy_context()

        def settle_result(made: _FunctionResult) -> None:
            self._threads -= 1
            if not done.done():
                done.set_result(made)

        def call_function() -> None:
            try:
                made = _FunctionResult(convert_answer(_check_not_awaitable(context.run(self._function, given)), kind))
            except BaseException as error:
                made = _FunctionResult(error=error)
            with suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(settle_result, made)

        threading.Thread(target=call_function, name="hook", daemon=True).start()
        self._threads += 1
        await asyncio.wait({done}, timeout=self._seconds)
        if not done.done():
            raise self._build_timeout()
        return done.result()

    def _build_timeout(self) -> HookFailure:
        return HookFailure(f"it took longer than {self._seconds:g} seconds")


def _is_async(function: Any) -> bool:
    """Of an object that can be called, too."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)


def _check_not_awaitable(given: object) -> object:
    """What was given back, if it is there already."""
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()
        raise HookFailure("it gave back something to await: write it with `async def`")
    return given
