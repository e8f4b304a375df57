"""One Temporal plugin for client, worker and replayer: the same converter, workflows and options everywhere.

client = await Client.connect("localhost:7233", plugins=[HoldfastPlugin()])
worker = Worker(client, task_queue="holdfast")          # the client's plugin configures the worker too
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkerConfig

from holdfast.activities.builtin import builtin_tools
from holdfast.activities.gate import Gate
from holdfast.activities.model import ModelActivities
from holdfast.activities.outputs import OutputStore
from holdfast.activities.registry import Registry
from holdfast.activities.tools import ToolActivities
from holdfast.conversion import data_converter
from holdfast.settings import Settings
from holdfast.tools import Tool
from holdfast.workflows.turn import TurnWorkflow

HEARTBEAT_THROTTLE = timedelta(milliseconds=200)
"""Temporal's own default lets a stop take half a minute to reach a running tool."""
STICKY_TIMEOUT = timedelta(seconds=3)
"""How long a turn waits for a dead worker that had it in its cache."""
CONCURRENT_CALLS = 100


class HoldfastPlugin(SimplePlugin):
    """Everything Temporal needs to know of Holdfast. `tools` are added to the built-in ones."""

    def __init__(self, settings: Settings | None = None, *, tools: Iterable[Tool] = ()) -> None:
        self.settings = settings or Settings()
        self.outputs = OutputStore(self.settings.outputs)
        self.registry = Registry([*builtin_tools(self.outputs), *tools])
        super().__init__(
            "holdfast.Plugin",
            data_converter=lambda existing: data_converter(existing, self.settings.payloads),
            workflows=[TurnWorkflow],
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add workflows, activities and the options that make stopping quick and recovery fast."""
        config = super().configure_worker(config)
        config["activities"] = [*config.get("activities", []), *self._activities(config["client"])]
        config["max_heartbeat_throttle_interval"] = HEARTBEAT_THROTTLE
        config["default_heartbeat_throttle_interval"] = HEARTBEAT_THROTTLE
        config["sticky_queue_schedule_to_start_timeout"] = STICKY_TIMEOUT
        config["max_concurrent_activities"] = config.get("max_concurrent_activities") or CONCURRENT_CALLS
        return config

    def _activities(self, client: Client) -> list[Callable[..., object]]:
        tools = ToolActivities(Gate(self.registry, self.settings.workspace), self.outputs)
        return [tools.validate, tools.execute, ModelActivities(client).step]
