"""Children that are to live: whichever dies is started again, until we are told to stop.

One step at a time, since whoever ends what a dead child left behind must know all the others. But nobody waits for
the pause of another: a gateway that keeps dying holds no worker back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.workers.children import describe_exit
from holdfast.workers.commands.codes import USAGE

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
HEALTHY_SECONDS = 60.0
"""A child that lived this long died by accident; sooner, it may die again, and the pause grows."""
Say = Callable[[str], None]
T = TypeVar("T")


class RestartingChild:
    """A child that is to live."""

    def __init__(
        self,
        name: str,
        process: Callable[[], asyncio.subprocess.Process],
        start: Callable[[], Coroutine[Any, Any, str]],
        *,
        restart_text: str = "starting another",
        give_up_text: str = "",
        clean_up: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`start` gives what to say once it is back; `bury` deals with what it left behind.

        With `hopeless`, one that says its settings are wrong is not started again, and this is said.
        """
        self._name = name
        self._process = process
        self._start = start
        self._restart_text = restart_text
        self._give_up_text = give_up_text
        self._clean_up = clean_up
        self._pause = FIRST_PAUSE
        self._last = time.monotonic()
        self._given_up = False
        self.due: float | None = None
        """When it is to be started again."""

    @property
    def living_process(self) -> asyncio.subprocess.Process | None:
        """Its process, while it runs."""
        process = self._process()
        return process if process.returncode is None else None

    @property
    def has_fallen(self) -> bool:
        """Has it died, and nobody has seen to it yet?"""
        return not self.living_process and self.due is None and not self._given_up

    async def look_after(self, stopping: asyncio.Event, say: Say) -> None:
        """Say that it died; start it again when its time has come."""
        if self.has_fallen:
            await self._report_death(say)
        if self.due is not None and time.monotonic() >= self.due:
            self.due = None
            await self._restart_child(stopping, say)

    async def _report_death(self, say: Say) -> None:
        code = self._process().returncode
        if self._give_up_text and code == USAGE:
            self._given_up = True
            say(self._give_up_text)
            return
        say(f"The {self._name} {describe_exit(code)}; {self._restart_text}.")
        if self._clean_up:
            await self._clean_up()
        now = time.monotonic()
        self._pause = FIRST_PAUSE if now - self._last > HEALTHY_SECONDS else self._pause
        self.due = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._last = self.due

    async def _restart_child(self, stopping: asyncio.Event, say: Say) -> None:
        try:
            found = await run_unless_stopping(stopping, self._start())
        except HoldfastError as error:
            say(f"That did not work: {error}")
        else:
            if found:
                say(found)


async def supervise_children(children: Sequence[RestartingChild], stopping: asyncio.Event, say: Say) -> None:
    """Keep them alive until we are told to stop."""
    while not stopping.is_set():
        await _wait_for_event(children, stopping)
        for child in children:
            if not stopping.is_set():
                await child.look_after(stopping, say)


async def _wait_for_event(children: Sequence[RestartingChild], stopping: asyncio.Event) -> None:
    """Return when one dies, when one is due, or when we are told to stop."""
    if any(child.has_fallen for child in children):
        return
    waits = [stopping.wait(), *(process.wait() for child in children if (process := child.living_process))]
    due = [child.due for child in children if child.due is not None]
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(wait) for wait in waits]
    patience = max(0.0, min(due) - time.monotonic()) if due else None
    await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def run_unless_stopping(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None when we are told to stop before it is there."""
    task = asyncio.create_task(work)
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        return task.result()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return None
