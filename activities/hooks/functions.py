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

from holdfast.activities.hooks.answers import A, HookFailure, harmless, take_answer
from holdfast.activities.hooks.calls import ToldCall
from holdfast.content import said

THREADS_LIMIT = 32
"""Threads of one hook, those included that were left behind."""


class _Made(NamedTuple):
    """What a function answered or raised, as data: some exceptions would do harm if they were raised again."""

    answer: Any = None
    error: BaseException | None = None


class FunctionWay:
    """How a function is asked."""

    def __init__(self, function: Callable[[Any], Any], seconds: float, identity: Mapping[str, JsonValue]) -> None:
        self._function = function
        self._seconds = seconds
        self._async = _is_async(function)
        self._threads = 0
        self._left: set[asyncio.Task[_Made]] = set()
        """Tasks that did not end when told to: somebody must hold them."""
        self.identity: dict[str, JsonValue] = {**identity, "seconds": seconds}

    async def ask(self, call: ToldCall, kind: type[A], slots: asyncio.Semaphore) -> A:
        """The answer; HookFailure when there is none. Waiting for a slot costs nothing of its time."""
        given = call.model_copy(deep=True)  # its own: it may write in it
        if self._async:
            made = await self._awaited(given, kind)
        else:
            async with slots:
                made = await self._in_thread(given, kind)
        if isinstance(made.error, HookFailure):
            raise made.error
        if made.error is not None:
            raise HookFailure(harmless(f"{type(made.error).__name__}: {said(made.error)}"))
        return cast("A", made.answer)

    async def _awaited(self, given: ToldCall, kind: type[A]) -> _Made:
        async def work() -> _Made:
            try:
                return _Made(take_answer(await self._function(given), kind))
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # other people's code may call `sys.exit`
                return _Made(error=error)

        task = asyncio.create_task(work())
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        try:
            await asyncio.wait({task}, timeout=self._seconds)
        finally:
            late = not task.done()
            task.cancel()
        if late:
            raise self._too_long()
        if task.cancelled():
            raise HookFailure("it cancelled itself")
        return task.result()

    async def _in_thread(self, given: ToldCall, kind: type[A]) -> _Made:
        if self._threads >= THREADS_LIMIT:
            raise HookFailure(f"{self._threads} earlier runs of it have not ended")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Made] = loop.create_future()
        context = contextvars.copy_context()

        def settle(made: _Made) -> None:
            self._threads -= 1
            if not done.done():
                done.set_result(made)

        def work() -> None:
            try:
                made = _Made(take_answer(_now(context.run(self._function, given)), kind))
            except BaseException as error:
                made = _Made(error=error)
            with suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(settle, made)

        threading.Thread(target=work, name="hook", daemon=True).start()
        self._threads += 1
        await asyncio.wait({done}, timeout=self._seconds)
        if not done.done():
            raise self._too_long()
        return done.result()

    def _too_long(self) -> HookFailure:
        return HookFailure(f"it took longer than {self._seconds:g} seconds")


def _is_async(function: Any) -> bool:
    """Of an object that can be called, too."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)


def _now(given: object) -> object:
    """What was given back, if it is there already."""
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()
        raise HookFailure("it gave back something to await: write it with `async def`")
    return given
