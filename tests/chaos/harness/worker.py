"""A worker to be killed: a real one, with tools that are counted outside and a process that dies where that is planned.

It reaches the server only through a proxy of its own.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import temporalio.client
import temporalio.worker
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, WorkerConfig

from holdfast import HoldfastPlugin, Settings
from holdfast.activities.builtin.edit import Edit
from holdfast.activities.builtin.shell import Shell
from holdfast.activities.builtin.write_file import WriteFile
from holdfast.activities.ledger.ledger import Ledger
from holdfast.activities.mcp.tools.mcp_tool import McpTool
from holdfast.config.schema import McpServerSettings, McpSettings
from holdfast.domain.base import Data
from holdfast.domain.calls.tool import Effect
from holdfast.domain.calls.verdicts import Failed, Finished
from holdfast.domain.modes import Mode
from holdfast.workers.runtime import log_setup
from holdfast.workers.runtime.connect import connect_to
from holdfast.workers.runtime.worker import run_worker
from tests.chaos.harness.deaths import Deaths
from tests.chaos.harness.effects import Effects
from tests.chaos.harness.ledger import DeadlyLedger
from tests.chaos.harness.plan import REPEATABLE, Point
from tests.chaos.harness.sabotage import Sabotage
from tests.chaos.harness.tools import HEARTBEAT_SECONDS, Acts

QUEUE = "chaos"
STICKY_TIMEOUT = timedelta(seconds=1)
COMMAND_SECONDS = 0.01
"""How often it is looked whether a command wants its worker dead."""
LOCAL = Path(__file__).with_name("services") / "mcp_local.py"
EFFECTS = {"keyed": Effect.IDEMPOTENT}
_BY_REPEATABLE = {kind.value for kind in REPEATABLE}


class Orders(Data):
    """What a worker is told at its start."""

    slot: int
    address: str
    """Of its proxy."""
    host: str
    data: Path
    """Of its host."""
    ledger: Path
    workspace: Path
    outside: Path
    counter: int
    """The port of the service that counts."""
    remote: str
    """Where the MCP server is that all of them reach."""
    sabotage: Sabotage


class ChaosPlugin(HoldfastPlugin):
    """Holdfast, with a ledger around which one dies."""

    def __init__(self, settings: Settings, orders: Orders) -> None:
        self._orders = orders
        self._deaths = Deaths(orders.outside)
        acts = Acts(Effects(orders.outside), self._deaths, orders.counter, orders.sabotage)
        super().__init__(settings, tools=acts.tools())

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """A turn notices sooner that the worker is dead that had it in its cache."""
        config = super().configure_worker(config)
        config["sticky_queue_schedule_to_start_timeout"] = STICKY_TIMEOUT
        return config

    @cached_property
    def ledger(self) -> Ledger:
        """The file on the small disk."""
        return DeadlyLedger(self._orders.ledger, self._deaths)


@dataclass
class Watching(temporalio.client.Interceptor, temporalio.worker.Interceptor):
    """Stands around every execution of a call, on all task queues of the process."""

    effects: Effects
    deaths: Deaths

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Around each."""
        return _Around(next, self)


class _Around(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, by: Watching) -> None:
        super().__init__(next)
        self._by = by

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if info.activity_type != "holdfast.execute":
            return await super().execute_activity(input)
        label = f"{info.workflow_id}-{info.activity_id.partition('-')[0]}"
        deaths = self._by.deaths
        with self._by.effects.attempts.here(label, "worker"):
            if input.args[0].bound.tool.name in _BY_REPEATABLE:
                deaths.come_to(label, Point.BEFORE_INTENT)
            listening = asyncio.create_task(_listen(deaths, label))
            try:
                outcome = await super().execute_activity(input)
            finally:
                listening.cancel()
            if isinstance(outcome, Finished | Failed):
                deaths.come_to(label, Point.AFTER_RESULT)
            return outcome


async def _listen(deaths: Deaths, label: str) -> None:
    """Die in the middle of a command: it runs elsewhere, and says when."""
    while True:
        deaths.told_to(label)
        await asyncio.sleep(COMMAND_SECONDS)


def _servers(orders: Orders) -> McpSettings:
    local = McpServerSettings(command=sys.executable, args=("-S", str(LOCAL), str(orders.outside)))
    return McpSettings(servers={"local": local, "remote": McpServerSettings(url=orders.remote, effects=EFFECTS)})


async def serve(orders: Orders) -> None:
    """Work until a signal comes."""
    log_setup.configure_logging()
    for tool in (Shell, WriteFile, Edit, McpTool):
        tool.heartbeat_seconds = HEARTBEAT_SECONDS
    settings = Settings(
        data=orders.data, workspace=orders.workspace, task_queue=QUEUE, modes=tuple(Mode), mcp=_servers(orders)
    )
    watching = Watching(Effects(orders.outside), Deaths(orders.outside))
    client = await connect_to(orders.address, ChaosPlugin(settings, orders), interceptors=[watching])
    with suppress(asyncio.CancelledError):
        await run_worker(client, settings, say=lambda line: print(line, flush=True))
