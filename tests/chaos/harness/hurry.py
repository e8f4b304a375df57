"""A client whose turns notice sooner that the worker that thought about them is dead: Temporal takes ten seconds.

How a turn recovers is the same; there is only more of it in a minute.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowInput, WorkflowHandle

TASK_TIMEOUT = timedelta(seconds=2)


class Hurry(Interceptor):
    """For the client that starts turns."""

    def __init__(self, task_timeout: timedelta = TASK_TIMEOUT) -> None:
        self._task_timeout = task_timeout

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """Around every request."""
        return _Starting(next, self._task_timeout)


class _Starting(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, task_timeout: timedelta) -> None:
        super().__init__(next)
        self._task_timeout = task_timeout

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        input.task_timeout = self._task_timeout
        return await super().start_workflow(input)
