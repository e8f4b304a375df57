"""The floor: the workflow one would write by hand, with its tools as activities. Nothing validates, asks or records.

The workflow `local` does the same with local activities, `ask` waits for a signal before its one call, and `effect`
runs one activity that is never tried again.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from serve import serve
from temporalio import activity, workflow
from temporalio.common import RetryPolicy

LIMIT = timedelta(seconds=60)


@activity.defn
async def model(messages: list[str], count: int) -> list[str]:
    """A model that asks for `count` tools, then answers."""
    return [f"{number}" for number in range(count)] if len(messages) == 1 else []


@activity.defn
async def tool(name: str) -> str:
    """A tool that does nothing."""
    return "done"


@workflow.defn(name="floor")
class Floor:
    """Model, tools side by side, model."""

    @workflow.run
    async def run(self, count: int) -> list[str]:
        """Until the model asks for nothing."""
        messages = ["go"]
        while calls := await workflow.execute_activity(model, args=[messages, count], start_to_close_timeout=LIMIT):
            messages += await asyncio.gather(
                *(workflow.execute_activity(tool, call, start_to_close_timeout=LIMIT) for call in calls)
            )
        return messages


@workflow.defn(name="local")
class Local:
    """The same with local activities."""

    @workflow.run
    async def run(self, count: int) -> list[str]:
        """Until the model asks for nothing."""
        messages = ["go"]
        while calls := await workflow.execute_local_activity(
            model, args=[messages, count], start_to_close_timeout=LIMIT
        ):
            messages += await asyncio.gather(
                *(workflow.execute_local_activity(tool, call, start_to_close_timeout=LIMIT) for call in calls)
            )
        return messages


@workflow.defn(name="ask")
class Ask:
    """One call that waits for a person."""

    def __init__(self) -> None:
        self._answers: list[str] = []

    @workflow.run
    async def run(self, count: int) -> list[str]:
        """The call's answer."""
        await workflow.wait_condition(lambda: len(self._answers) >= count)
        return [await workflow.execute_activity(tool, "0", start_to_close_timeout=LIMIT)]

    @workflow.signal
    def approve(self, call: str) -> None:
        """A person's yes."""
        self._answers.append(call)


@workflow.defn(name="effect")
class Effect:
    """One activity that runs at most once."""

    @workflow.run
    async def run(self, count: int) -> list[str]:
        """The call's answer."""
        once = RetryPolicy(maximum_attempts=1)
        return [await workflow.execute_activity(tool, "0", start_to_close_timeout=LIMIT, retry_policy=once)]


async def main() -> None:
    """Serve."""
    await serve([Floor, Local, Ask, Effect], [model, tool])
