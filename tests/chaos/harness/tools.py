"""The tools of the harness's workers: each has one effect outside, and dies where that is planned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from pydantic import Field

from holdfast import Confirmation, Effect, Invocation, Result, Run, Tool
from holdfast.domain.calls.tool import StrictParameters
from tests.chaos.harness.attempts import Attempts
from tests.chaos.harness.deaths import Deaths
from tests.chaos.harness.effects import Effects, post
from tests.chaos.harness.plan import Kind, Point
from tests.chaos.harness.sabotage import Sabotage

HEARTBEAT_SECONDS = 1.0
"""How long a worker is silent before its calls count as lost."""


class Arguments(StrictParameters):
    """Of every tool here."""

    label: str = Field(description="What it is counted by")
    seconds: float = Field(default=0, description="How long the effect takes")
    asks: bool = Field(default=False, description="Somebody is to be asked first")


Body = Callable[[Arguments, Run], Awaitable[None]]
Verify = Callable[[Arguments, Run], Awaitable[bool]]


class OutsideTool(Tool):
    """A tool whose body has an effect outside."""

    Parameters = Arguments
    heartbeat_seconds = HEARTBEAT_SECONDS

    def __init__(
        self, kind: Kind, effect: Effect, attempts: Attempts, body: Body, verify: Verify | None = None
    ) -> None:
        self.name = kind.value
        self.description = f"Chaos: {kind.value}."
        self.effect = effect
        self.attempts = attempts
        self.body = body
        self.verify = verify

    def build(self, arguments: Arguments, workspace: Path) -> Invocation:
        """Bind the arguments."""
        return _Acting(self, arguments)


class _Acting(Invocation):
    def __init__(self, tool: OutsideTool, arguments: Arguments) -> None:
        self._tool = tool
        self._arguments = arguments

    def describe(self) -> str:
        return f"{self._tool.name} {self._arguments.label}"

    def is_concurrency_safe(self) -> bool:
        return self._tool.effect is Effect.READ

    async def should_confirm(self) -> Confirmation | None:
        return Confirmation(kind="info", title=self.describe()) if self._arguments.asks else None

    async def verify(self, run: Run) -> Result | bool | None:
        if self._tool.verify is None:
            return None
        return (
            Result.from_text(f"done {self._arguments.label}")
            if await self._tool.verify(self._arguments, run)
            else False
        )

    async def execute(self, run: Run) -> Result:
        with self._tool.attempts.here(self._arguments.label, "tool"):
            await self._tool.body(self._arguments, run)
        return Result.from_text(f"done {self._arguments.label}")


class Acts:
    """What the tools do."""

    def __init__(self, effects: Effects, deaths: Deaths, port: int, sabotage: Sabotage) -> None:
        self._effects = effects
        self._deaths = deaths
        self._port = port
        self._sabotage = sabotage

    def tools(self) -> list[Tool]:
        """One of each."""
        attempts = self._effects.attempts
        return [
            OutsideTool(Kind.APPEND, Effect.ONCE, attempts, self._append),
            OutsideTool(Kind.POST, Effect.ONCE, attempts, self._post),
            OutsideTool(Kind.ROW, Effect.ONCE, attempts, self._row),
            OutsideTool(Kind.VERIFIED, Effect.ONCE, attempts, self._row, self._has_row),
            OutsideTool(Kind.KEYED, Effect.IDEMPOTENT, attempts, self._keyed),
            OutsideTool(Kind.LOOK, Effect.READ, attempts, self._look),
        ]

    async def _append(self, given: Arguments, run: Run) -> None:
        """Two lines, so that half of it can be done."""
        self._effects.line(given.label, run.effect_key, "begun")
        self._deaths.come_to(given.label, Point.IN_EFFECT)
        await asyncio.sleep(given.seconds)
        for _ in range(await self._sabotage.times(given.label)):
            self._effects.line(given.label, run.effect_key, "done")

    async def _post(self, given: Arguments, run: Run) -> None:
        await asyncio.sleep(given.seconds)
        for _ in range(await self._sabotage.times(given.label)):
            await post(self._port, "/once", given.label, run.effect_key, self._midway(given))

    async def _row(self, given: Arguments, run: Run) -> None:
        await asyncio.sleep(given.seconds)
        for _ in range(await self._sabotage.times(given.label)):
            await asyncio.to_thread(self._effects.row, given.label, run.effect_key, self._midway(given))

    async def _has_row(self, given: Arguments, run: Run) -> bool:
        return run.effect_key in await asyncio.to_thread(self._effects.rows, given.label)

    async def _keyed(self, given: Arguments, run: Run) -> None:
        await asyncio.sleep(given.seconds)
        for number in range(await self._sabotage.times(given.label)):
            await post(self._port, "/keyed", given.label, f"{run.effect_key}{'+' * number}", self._midway(given))
        self._deaths.come_to(given.label, Point.AFTER_EFFECT)

    async def _look(self, given: Arguments, run: Run) -> None:
        self._deaths.come_to(given.label, Point.IN_EFFECT)
        await asyncio.sleep(given.seconds)
        self._deaths.come_to(given.label, Point.AFTER_EFFECT)

    def _midway(self, given: Arguments) -> Callable[[], None]:
        return lambda: self._deaths.come_to(given.label, Point.IN_EFFECT)
