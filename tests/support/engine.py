"""A client and its workers on a task queue of their own: what an integration test starts from."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any
from uuid import uuid4

from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from holdfast import Holdfast, HoldfastPlugin, Session, Settings, Tool, Turn, TurnInput
from holdfast.domain.calls.verdicts import ExecutionOutcome
from holdfast.domain.turn.activity_io import ExecuteInput
from holdfast.names import TURN_WORKFLOW


class Engine:
    """A client and its workers on one task queue of their own."""

    def __init__(self, address: str, folder: Path, cached: int) -> None:
        self.address = address
        self.cached = cached
        self.queue = f"q-{uuid4().hex[:8]}"
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        self.settings = Settings(data=folder / "data", workspace=self.workspace, task_queue=self.queue)
        self.client: Client
        self.holdfast: Holdfast

    async def connect(self, *tools: Tool) -> Client:
        """A client whose plugin has these tools."""
        plugin = HoldfastPlugin(self.settings, tools=tools)
        return await Client.connect(self.address, plugins=[plugin], identity="engine")

    @asynccontextmanager
    async def worker(self, *tools: Tool) -> AsyncIterator[Worker]:
        """A worker with these tools beside the built-in ones."""
        worker = Worker(await self.connect(*tools), task_queue=self.queue, max_cached_workflows=self.cached)
        async with worker:
            yield worker

    def with_rules(self, rules: str, **more: Any) -> None:
        """Workers from now on have these rules, and these other settings."""
        file = self.workspace.parent / "policy.toml"
        file.write_text(dedent(rules))
        self.settings = replace(self.settings, policy=(file,), **more)

    async def executed(self, *, turn_id: str, **input: Any) -> ExecutionOutcome:
        """What this engine's executing activity answers to an input that somebody made up."""
        plugin = HoldfastPlugin(self.settings)
        found: list[Any] = [each for each in plugin.build_activities(self.client) if each.__name__ == "execute"]
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, workflow_id=turn_id, workflow_type=TURN_WORKFLOW)
        answer: ExecutionOutcome = await environment.run(found[0], ExecuteInput(**input))
        return answer

    async def raw_signal(self, turn_id: str, name: str, body: Payloads) -> None:
        """A signal as any program may send it, with whatever bytes."""
        await self.client.workflow_service.signal_workflow_execution(
            SignalWorkflowExecutionRequest(
                namespace=self.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=turn_id),
                signal_name=name,
                input=body,
            )
        )

    async def start(self, input: TurnInput) -> Turn:
        """A turn on this engine's queue."""
        return await self.holdfast.start(input)

    async def written(self, turn: Turn) -> str:
        """All that the turn's history holds, its payloads as they are: what must not be in it is looked for here."""
        text = (await self.client.get_workflow_handle(turn.id).fetch_history()).to_json()
        payloads = (base64.b64decode(data) for data in re.findall('"data": "([^"]*)"', text))
        return "\n".join([text, *(payload.decode("utf-8", "replace") for payload in payloads)])

    async def history(self, turn: Turn | Session, run_id: str | None = None) -> list[str]:
        """The types of the history events of a turn, or of a session: of its last run, or of the one that is named."""
        handle = self.client.get_workflow_handle(turn.id, run_id=run_id)
        return [EventType.Name(event.event_type)[11:] async for event in handle.fetch_history_events()]

    async def recorded(self, turn: Turn) -> list[str]:
        """The events but for workflow tasks: on a busy machine the server writes down a task that brought a refused
        update and took long, which it leaves out otherwise."""
        return [name for name in await self.history(turn) if "WORKFLOW_TASK" not in name]


@asynccontextmanager
async def new_engine(address: str, folder: Path, cached: int = 1000) -> AsyncIterator[Engine]:
    """An engine with its client connected and no worker yet."""
    engine = Engine(address, folder, cached)
    engine.client = await engine.connect()
    engine.holdfast = Holdfast(engine.client, task_queue=engine.queue)
    yield engine
