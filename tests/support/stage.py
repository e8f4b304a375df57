"""Tools that do what a test tells them when it tells them, and the timeline of what they did."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from holdfast import CallRequest, Effect, Interrupt, Result, Run, ToolFailure
from holdfast.domain.calls.tool import AbortsSiblings
from holdfast.testing import FakeTool

PATIENCE = 20.0


class Stage:
    """Calls by their labels: `+a` when a began, `-a` when it ended, `!a` when it was told to stop."""

    def __init__(self) -> None:
        self.timeline: list[str] = []
        self._began: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._go: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._fails: set[str] = set()
        self.tools = [
            self.tool("read", Effect.READ, safe=True),
            self.tool("look", Effect.READ, safe=True, interrupt=Interrupt.CANCEL),
            self.tool("alter"),
            self.tool("move", interrupt=Interrupt.CANCEL),
            self.tool("fragile", Effect.READ, safe=True, aborts="streaming"),
        ]

    def tool(
        self,
        name: str,
        effect: Effect = Effect.ONCE,
        *,
        safe: bool = False,
        interrupt: Interrupt = Interrupt.BLOCK,
        aborts: AbortsSiblings = False,
    ) -> FakeTool:
        """A tool of this stage."""
        made = FakeTool(name, self._act, safe=safe, effect=effect)
        made.interrupt, made.aborts_siblings = interrupt, aborts
        return made

    async def _act(self, arguments: dict[str, Any], run: Run) -> Result:
        label = arguments["label"]
        self.timeline.append(f"+{label}")
        self._began[label].set()
        run.write(f"{label} is at work\n")
        try:
            await self._go[label].wait()
        except asyncio.CancelledError:
            self.timeline.append(f"!{label}")
            raise
        self.timeline.append(f"-{label}")
        if label in self._fails:
            raise ToolFailure("broken", f"{label} broke")
        return Result.from_text(f"{label} is done")

    async def began(self, *labels: str) -> None:
        """Wait until these have begun."""
        async with asyncio.timeout(PATIENCE):
            for label in labels:
                await self._began[label].wait()

    def go(self, *labels: str) -> None:
        """Let these end, now or as soon as they begin."""
        for label in labels:
            self._go[label].set()

    def fail(self, label: str) -> None:
        """Let this one fail."""
        self._fails.add(label)
        self.go(label)


def call(tool: str, label: str) -> CallRequest:
    """A call of the stage."""
    return CallRequest(tool=tool, arguments={"label": label}, id=f"model-{label}")
