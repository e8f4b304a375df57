"""The connection to the workflow of one turn or session: updates, queries and signals, with Temporal's errors
translated.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Awaitable
from typing import Any, ClassVar, TypeVar, cast

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.error_mapping import build_no_worker, translate_error, translate_refusal
from holdfast.client.queries import QUERY_SECONDS, query_turn
from holdfast.client.watch import TurnFeeds
from holdfast.domain.turn.carryover import EarlierRun
from holdfast.domain.turn.turn_io import TurnResult
from holdfast.errors import NoWorker, RequestRefused

T = TypeVar("T")


class WorkflowConnection:
    """The connection to one turn or session. `id` is its workflow id."""

    kind: ClassVar[str] = "turn"
    _result_type: ClassVar[type] = TurnResult

    def __init__(self, client: Client, turn_id: str, feeds: TurnFeeds) -> None:
        self.id = turn_id
        self._client = client
        self._feeds = feeds
        self._runs: tuple[EarlierRun, ...] = ()
        """The earlier runs of a turn that continued as new, as of the last time they were fetched."""
        self._handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(turn_id, result_type=self._result_type)

    async def _send_update(self, name: str, body: Any, result_type: type[T] | None, update_id: str | None = None) -> T:
        args = [] if body is None else [body]
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                return cast(
                    T, await self._handle.execute_update(name, args=args, result_type=result_type, id=update_id)
                )
        except WorkflowUpdateFailedError as error:
            raise translate_refusal(error, RequestRefused) from None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise NoWorker(
                f"no worker answered for {self.kind} {self.id!r}; "
                "a worker that starts later may still do it: check before you repeat it"
            ) from error
        except Exception as error:
            raise translate_error(error, self.id, self.kind) from error

    async def _send_query(self, name: str, result_type: type[T], *args: Any, run_id: str | None = None) -> T:
        try:
            return await query_turn(self._client, self.id, name, *args, result_type=result_type, run_id=run_id)
        except RPCError as error:
            if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:  # a workflow task waits for a worker
                raise build_no_worker(self.id, self.kind) from error
            raise translate_error(error, self.id, self.kind) from error
        except Exception as error:
            raise translate_error(error, self.id, self.kind) from error

    async def _translate_errors(self, awaitable: Awaitable[T]) -> T:
        try:
            return await awaitable
        except Exception as error:
            raise translate_error(error, self.id, self.kind) from error

    async def _check_running(self) -> None:
        """Raise RequestRefused with the code `ended` if the workflow has ended."""
        description = await self._translate_errors(self._handle.describe())
        if description.status is not WorkflowExecutionStatus.RUNNING:
            raise RequestRefused("ended", f"{self.kind} {self.id!r} has ended")


def get_login_name() -> str:
    """Return the default name of the person who decides: the login name and the host of this process."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return socket.gethostname()
