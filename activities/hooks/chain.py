"""The hooks of one worker: asked one after another, each told what the ones before it left.

Whatever goes wrong with a hook is its failure, and never an exception of ours. Only a stop passes through: it ends the
hook that is being asked, with everything it started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import JsonValue

from holdfast.activities.hooks.answers import A, AfterAnswer, BeforeAnswer, HookFailure, harmless
from holdfast.activities.hooks.calls import AfterTool, BeforeTool, ToldCall
from holdfast.activities.hooks.results import After, Before, failed_after, failed_before, heard_after, heard_before
from holdfast.activities.policy.globs import Glob
from holdfast.approvals import canonical_digest
from holdfast.configuration import OnFailure, When
from holdfast.content import said

T = TypeVar("T")

AT_ONCE = 8
"""Commands and threads of hooks that run at once on one worker. The others wait, and their time limits with them."""


class Way(Protocol):
    """How a hook is asked."""

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What it is, for the digest."""

    async def ask(self, call: ToldCall, kind: type[A], slots: asyncio.Semaphore) -> A:
        """The answer; HookFailure when there is none."""


@dataclass(frozen=True)
class Hook:
    """One hook, ready to be asked."""

    name: str
    when: When
    way: Way
    tools: tuple[str, ...] = ("*",)
    on_failure: OnFailure = OnFailure.DENY

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What it is, for the digest."""
        own = {"name": self.name, "when": self.when.value, "on_failure": self.on_failure.value}
        return {**own, "tools": list(self.tools), **self.way.identity}


class Hooks:
    """All hooks of a worker, in their order."""

    def __init__(self, hooks: Iterable[Hook] = (), *, at_once: int = AT_ONCE) -> None:
        self._hooks = tuple((hook, tuple(map(Glob, hook.tools))) for hook in hooks)
        self._slots = asyncio.Semaphore(at_once)

    @property
    def empty(self) -> bool:
        """Is there nobody to ask?"""
        return not self._hooks

    @property
    def digest(self) -> str:
        """Changes whenever the configuration of any hook does, or their order."""
        return canonical_digest(self.said)

    @property
    def said(self) -> list[dict[str, JsonValue]]:
        """What they are, in their order. Of variables the names alone."""
        return [hook.identity for hook, _ in self._hooks]

    async def before(self, call: BeforeTool) -> Before:
        """Ask before a call may run. The first that denies has the last word."""
        found = Before(call.arguments)
        for hook in self._concerned(When.BEFORE, call.tool):
            told = call.model_copy(update={"arguments": found.arguments})
            try:
                answer = await self._asked(hook, told, BeforeAnswer)
            except HookFailure as failure:
                found = failed_before(found, hook.name, str(failure), hook.on_failure)
            else:
                found = heard_before(found, hook.name, answer, call.phase)
            if found.deny:
                break
        return found

    async def after(self, call: AfterTool) -> After:
        """Ask after a call has run. All are asked, since each may have something to keep back, until one fails."""
        found = After()
        for hook in self._concerned(When.AFTER, call.tool):
            text = call.text if found.result is None else found.result
            try:
                answer = await self._asked(hook, call.model_copy(update={"text": text}), AfterAnswer)
            except HookFailure as failure:
                found = failed_after(found, hook.name, str(failure), hook.on_failure)
            else:
                found = heard_after(found, hook.name, answer, text)
            if found.failed:
                break
        return found

    def _concerned(self, when: When, tool: str) -> Iterator[Hook]:
        return (hook for hook, globs in self._hooks if hook.when is when and any(glob.matches(tool) for glob in globs))

    async def _asked(self, hook: Hook, call: ToldCall, kind: type[A]) -> A:
        try:
            return await _apart(hook.way.ask(call, kind, self._slots))
        except HookFailure:
            raise
        except Exception as error:
            raise HookFailure(harmless(f"{type(error).__name__}: {said(error)}")) from None


async def _apart(work: Coroutine[Any, Any, T]) -> T:
    """`work` in a task of its own: ours may have been told to stop before, and have answered that already.

    A stop that comes meanwhile is never lost, also not in the clean-up after a command.
    """
    ours = asyncio.current_task()
    heard = ours.cancelling() if ours else 0
    try:
        return await asyncio.create_task(work)
    finally:
        if ours and ours.cancelling() > heard:
            raise asyncio.CancelledError
