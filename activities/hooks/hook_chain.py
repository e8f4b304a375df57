"""The hooks of one worker: asked one after another, each with what the hooks before it left of the call.

An error of a hook is its failure, and never raised here. Only a stop passes through: it ends the hook
that is being asked, with everything that it started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import JsonValue

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
from holdfast.activities.hooks.hook_runners import HookRunner
from holdfast.config.schema import OnFailure, When
from holdfast.util.globs import Glob
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import exception_text

T = TypeVar("T")
Arguments = dict[str, JsonValue]
Phase = Literal["validate", "execute"]

CONCURRENT_HOOKS = 8
"""Commands and threads of hooks that run at once on one worker. The others wait, and their time limits with them."""


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
        """The configuration of the hook, for the digest of a worker's hooks."""
        own = {"name": self.name, "when": self.when.value, "on_failure": self.on_failure.value}
        return {**own, "tools": list(self.tools), **self.runner.identity}


class Denial(NamedTuple):
    """Which hook denied a call, and why: a sentence for the model."""

    hook: str
    reason: str


@dataclass(frozen=True)
class BeforeOutcome:
    """The combined answer of the hooks before a call."""

    arguments: Arguments
    """The arguments after all rewrites; the very same object when there was none."""
    rewritten_by: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    """Why a person has to decide: one sentence for each hook that asks."""
    deny: Denial | None = None
    stop_turn: str | None = None
    """Why the turn is to end; then the call is denied too."""
    notes: tuple[str, ...] = ()
    """Notes for the record: why arguments were rewritten, which failures were ignored."""


@dataclass(frozen=True)
class AfterOutcome:
    """The combined answer of the hooks after a call."""

    result: str | None = None
    """The text that the model reads instead; None when nothing was replaced."""
    replaced_by: tuple[str, ...] = ()
    failed: str | None = None
    """Why the model reads nothing of the result, though the call has run: a sentence for the model."""
    stop_turn: str | None = None
    notes: tuple[str, ...] = ()


class Hooks:
    """All hooks of a worker, in their order."""

    def __init__(self, hooks: Iterable[Hook] = (), *, at_once: int = CONCURRENT_HOOKS) -> None:
        self._hooks = tuple((hook, tuple(map(Glob, hook.tools))) for hook in hooks)
        self._slots = asyncio.Semaphore(at_once)

    @property
    def all_hooks(self) -> list[Hook]:
        """The hooks in their order."""
        return [hook for hook, _ in self._hooks]

    @property
    def is_empty(self) -> bool:
        """Has the worker no hooks at all?"""
        return not self._hooks

    @property
    def digest(self) -> str:
        """Changes whenever the configuration of any hook does, or their order."""
        return digest_canonical(self.hook_descriptions)

    @property
    def hook_descriptions(self) -> list[dict[str, JsonValue]]:
        """The configuration of each hook, in order; variables by name only."""
        return [hook.identity for hook in self.all_hooks]

    async def ask_before(self, call: BeforeTool) -> BeforeOutcome:
        """Ask the hooks before a call runs, until one denies it. Never raises for a hook's failure."""
        found = BeforeOutcome(call.arguments)
        for hook in self._select_hooks(When.BEFORE, call.tool):
            given = call.model_copy(update={"arguments": found.arguments})
            try:
                answer = await self._ask_hook(hook, given, BeforeAnswer)
            except HookFailure as failure:
                found = apply_before_failure(found, hook.name, str(failure), hook.on_failure)
            else:
                found = apply_before_answer(found, hook.name, answer, call.phase)
            if found.deny:
                break
        return found

    async def ask_after(self, call: AfterTool) -> AfterOutcome:
        """Ask the hooks after a call has run, until one fails: each may have something to withhold."""
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
    """Run `work` in a task of its own: ours may have been cancelled before, and have answered that already.

    A stop that comes meanwhile is never lost, also not in the clean-up after a command.
    """
    ours = asyncio.current_task()
    before = ours.cancelling() if ours else 0
    try:
        return await asyncio.create_task(work)
    finally:
        if ours and ours.cancelling() > before:
            raise asyncio.CancelledError


# Adding an answer or a failure to the outcome. Pure.


def apply_before_answer(so_far: BeforeOutcome, hook: str, answer: BeforeAnswer, phase: Phase) -> BeforeOutcome:
    """The outcome with one more answer. Where the call executes, a hook that rewrites arguments again denies it."""
    reason = answer.reason
    if answer.stop_turn or answer.decision == "deny":
        stop = (reason or f"The hook {hook!r} stops the turn.") if answer.stop_turn else None
        return replace(so_far, deny=Denial(hook, reason or f"Denied by the hook {hook!r}."), stop_turn=stop)
    given = answer.arguments
    if given is not None and not _is_same(given, so_far.arguments):
        if phase == "execute":
            return replace(so_far, deny=Denial(hook, _describe_rewrite(hook)))
        so_far = replace(so_far, arguments=given, rewritten_by=(*so_far.rewritten_by, hook))
    if answer.decision == "ask":
        return replace(so_far, ask=(*so_far.ask, f"The hook {hook!r} asks{f': {reason}' if reason else '.'}"))
    return replace(so_far, notes=(*so_far.notes, *_format_note(hook, reason)))


def apply_before_failure(so_far: BeforeOutcome, hook: str, reason: str, on_failure: OnFailure) -> BeforeOutcome:
    """The outcome when a hook failed: the call is denied, or the failure is noted where its settings ignore it."""
    if on_failure is OnFailure.IGNORE:
        return replace(so_far, notes=(*so_far.notes, _describe_ignored(hook, reason)))
    return replace(so_far, deny=Denial(hook, f"The hook {hook!r} failed, so the call is denied: {reason}"))


def apply_after_answer(so_far: AfterOutcome, hook: str, answer: AfterAnswer, text: str) -> AfterOutcome:
    """The outcome with one more answer; `text` is what the model would read, as the hook was told."""
    reason = answer.reason
    if answer.result is not None and answer.result != text:
        so_far = replace(so_far, result=answer.result, replaced_by=(*so_far.replaced_by, hook))
    if answer.stop_turn:
        stop = so_far.stop_turn or reason or f"The hook {hook!r} stops the turn."
        return replace(so_far, stop_turn=stop)
    return replace(so_far, notes=(*so_far.notes, *_format_note(hook, reason)))


def apply_after_failure(so_far: AfterOutcome, hook: str, reason: str, on_failure: OnFailure) -> AfterOutcome:
    """The outcome when a hook failed: the result is withheld, or the failure is noted where its settings ignore it."""
    if on_failure is OnFailure.IGNORE:
        return replace(so_far, notes=(*so_far.notes, _describe_ignored(hook, reason)))
    message = f"The call has run, but its result is withheld because the hook {hook!r} failed: {reason}"
    return replace(so_far, result=None, replaced_by=(), failed=message)


def _is_same(one: Arguments, other: Arguments) -> bool:
    """Are they the same as JSON? For Python 1 is also 1.0 and true."""
    return digest_canonical(one) == digest_canonical(other)


def _describe_rewrite(hook: str) -> str:
    return (
        f"The hook {hook!r} rewrote the arguments again where the call executes, so what would run is not what was "
        "judged. A hook must leave alone what it wrote itself."
    )


def _format_note(hook: str, reason: str | None) -> tuple[str, ...]:
    return (f"The hook {hook!r}: {reason}",) if reason else ()


def _describe_ignored(hook: str, why: str) -> str:
    return f"The hook {hook!r} failed, which its settings ignore: {why}"
