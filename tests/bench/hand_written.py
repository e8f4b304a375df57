"""The workflow one would write by hand, in a module of its own: the sandbox loads it anew for every run."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow

LIMIT = timedelta(seconds=10)


@activity.defn
async def model(step: int) -> list[str]:
    """A model that asks for three tools, then answers."""
    return ["a", "b", "c"] if step == 0 else []


@activity.defn
async def tool(name: str) -> str:
    """A tool that does nothing."""
    return name


@workflow.defn
class HandWritten:
    """Model, tools side by side, model; no approval, no validation, no events, no order."""

    @workflow.run
    async def run(self, prompt: str) -> list[str]:
        """Until the model asks for nothing."""
        results: list[str] = []
        step = 0
        while names := await workflow.execute_activity(model, step, start_to_close_timeout=LIMIT):
            results += await asyncio.gather(
                *(workflow.execute_activity(tool, name, start_to_close_timeout=LIMIT) for name in names)
            )
            step += 1
        return results
