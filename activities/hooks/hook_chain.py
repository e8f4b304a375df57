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

from holdfast.activities.hooks.combine import (
    AfterOutcome,
    BeforeOutcome,
    apply_after_answer,
    apply_after_failure,
    apply_before_answer,
    apply_before_failure,
)
from holdfast.activities.hooks.hook_io import (
    A,
    AfterAnswer,
    AfterTool,
    BeforeAnswer,
    BeforeTool,
    HookCall,
    HookFailure,
    clean_text,
)
from holdfast.config.schema import OnFailure, When
from holdfast.util.globs import Glob
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import exception_text

T = TypeVar("T")

CONCURRENT_HOOKS = 8
"""Commands and threads of hooks that run at once on one worker. The others wait, and their time limits with them."""


class HookRunner(Protocol):
    """How a hook is asked."""

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What it is, for the digest."""

    async def ask(self, call: HookCall, kind: type[A], slots: asyncio.Semaphore) -> A:
        """The answer; HookFailure when there is none."""


@dataclass(frozen=True)
class Hook:
    """One hook, ready to be asked."""

    name: str
    when: When
    runner: HookRunner
    tools: tuple[str, ...] = ("*",)
    on_failure: OnFailure = OnFailure.DENY

    @property
    def identity(self) -> dict[str, JsonValue]:
        """What it is, for the digest."""
        own = {"name": self.name, "when": self.when.value, "on_failure": self.on_failure.value}
        return {**own, "tools": list(self.tools), **self.runner.identity}


class Hooks:
    """All hooks of a worker, in their order."""

    def __init__(self, hooks: Iterable[Hook] = (), *, at_once: int = CONCURRENT_HOOKS) -> None:
        self._hooks = tuple((hook, tuple(map(Glob, hook.tools))) for hook in hooks)
        self._slots = asyncio.Semaphore(at_once)

    @property
    def is_empty(self) -> bool:
        """Is there nobody to ask?"""
        return not self._hooks

    @property
    def digest(self) -> str:
        """Changes whenever the configuration of any hook does, or their order."""
        return digest_canonical(self.hook_descriptions)

    @property
    def hook_descriptions(self) -> list[dict[str, JsonValue]]:
        """What they are, in their order. Of variables the names alone."""
        return [hook.identity for hook, _ in self._hooks]

    async def ask_before(self, call: BeforeTool) -> BeforeOutcome:
        """Ask before a call may run. The first that denies has the last word."""
        found = BeforeOutcome(call.arguments)
        for hook in self._select_hooks(When.BEFORE, call.tool):
            told = call.model_copy(update={"arguments": found.arguments})
            try:
                answer = await self._ask_hook(hook, told, BeforeAnswer)
            except HookFailure as failure:
                found = apply_before_failure(found, hook.name, str(failure), hook.on_failure)
            else:
                found = apply_before_answer(found, hook.name, answer, call.phase)
            if found.deny:
                break
        return found

    async def ask_after(self, call: AfterTool) -> AfterOutcome:
        """Ask after a call has run. All are asked, since each may have something to keep back, until one fails."""
        found = AfterOutcome()
        for hook in self._select_hooks(When.AFTER, call.tool):
            text = call.text if found.result is None else found.result
            try:
                answer = await self._ask_hook(hook, call.model_copy(update={"text": text}), AfterAnswer)
            except HookFailure as failure:
                found = apply_after_failure(found, hook.name, str(failure), hook.on_failure)
            else:
                found = apply_after_answer(found, hook.name, answer, text)
            if found.failed:
                break
        return found

    def _select_hooks(self, when: When, tool: str) -> Iterator[Hook]:
        return (hook for hook, globs in self._hooks if hook.when is when and any(glob.matches(tool) for glob in globs))

    async def _ask_hook(self, hook: Hook, call: HookCall, kind: type[A]) -> A:
        try:
            return await _run_in_task(hook.runner.ask(call, kind, self._slots))
        except HookFailure:
            raise
        except Exception as error:
            raise HookFailure(clean_text(f"{type(error).__name__}: {exception_text(error)}")) from None


async def _run_in_task(work: Coroutine[Any, Any, T]) -> T:
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
