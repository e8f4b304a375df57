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

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """Around every request."""
        return _Starting(next)


class _Starting(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        input.task_timeout = TASK_TIMEOUT
        return await super().start_workflow(input)
