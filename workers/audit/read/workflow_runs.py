"""The runs of a turn or a session: its own, one after another, and those of its child turns.

Fetched from a server as they are stored, without decoding payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import BadInput, ServerUnavailable, TurnNotFound
from holdfast.names import SESSION_WORKFLOW, TURN_WORKFLOW

_GONE_STATUSES = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)

ReportProgress = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """One run of a workflow, with its history."""

    workflow: str
    run: str
    type: str
    events: tuple[HistoryEvent, ...] = field(repr=False)
    parent: str | None = None
    """The parent workflow."""

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"{'session' if self.type == SESSION_WORKFLOW else 'turn'} {self.workflow}"

    @property
    def history(self) -> WorkflowHistory:
        """The history as Temporal's functions take it."""
        return WorkflowHistory(self.workflow, list(self.events))

    @property
    def next_run_id(self) -> str | None:
        """The run that it continued as, if any."""
        last = self.events[-1]
        return last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id or None


@dataclass(frozen=True)
class GatheredRuns:
    """All runs of one turn or session, the oldest of each workflow first."""

    id: str
    runs: tuple[Run, ...]
    lacking: tuple[str, ...] = ()
    """What the server does not have any more, in words."""

    @property
    def kind(self) -> Literal["turn", "session"]:
        """Whether it is a turn or a session."""
        return "session" if self.runs[0].type == SESSION_WORKFLOW else "turn"


def build_run(events: Sequence[HistoryEvent], workflow: str | None = None) -> Run:
    """Build a run from its history. BadInput when it is not one of a turn or session."""
    started = events[0].workflow_execution_started_event_attributes if events else None
    if not started or not started.workflow_type.name:
        raise BadInput("this is not the history of a turn or a session: it does not begin with the start of one")
    if started.workflow_type.name not in (TURN_WORKFLOW, SESSION_WORKFLOW):
        raise BadInput(
            f"{started.workflow_id!r} is not a turn or session but a workflow of type {started.workflow_type.name!r}"
        )
    return Run(
        workflow or started.workflow_id,
        started.original_execution_run_id,
        started.workflow_type.name,
        tuple(events),
        started.parent_workflow_execution.workflow_id or None,
    )


async def gather_runs(client: Client, workflow: str, tell: ReportProgress = lambda words: None) -> GatheredRuns:
    """Fetch every run of a turn or session and of its child turns. TurnNotFound for an unknown id."""
    gathering = _RunGatherer(client, tell)
    await gathering.fetch_runs(workflow, await gathering.find_first_run(workflow))
    return GatheredRuns(workflow, tuple(gathering.runs), tuple(gathering.lacking))


@dataclass
class _RunGatherer:
    """The runs fetched so far."""

    client: Client
    tell: ReportProgress
    runs: list[Run] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)

    async def find_first_run(self, workflow: str) -> str:
        """Find the first run of a workflow that may have continued as new."""
        try:
            described = await self.client.get_workflow_handle(workflow).describe()
        except RPCError as error:
            raise _translate_error(error, workflow) from error
        info = described.raw_description.workflow_execution_info
        if info.type.name not in (TURN_WORKFLOW, SESSION_WORKFLOW):
            raise BadInput(f"{workflow!r} is not a turn or session but a workflow of type {info.type.name!r}")
        if not await self._run_exists(workflow, info.first_run_id):
            self.lacking.append(f"the first runs of {workflow}: the server has deleted them")
            return described.run_id
        return info.first_run_id

    async def _run_exists(self, workflow: str, run: str) -> bool:
        try:
            await self.client.get_workflow_handle(workflow, run_id=run).describe()
        except RPCError as error:
            if error.status in _GONE_STATUSES:
                return False
            raise _translate_error(error, workflow) from error
        return True

    async def fetch_runs(self, workflow: str, run: str) -> None:
        """Fetch a run, those that it continued as, and their child turns."""
        following: str | None = run
        while following and (workflow, following) not in self.seen:
            self.seen.add((workflow, following))
            self.tell(f"{len(self.runs) + 1:,} runs, reading {workflow}")
            fetched = await self._fetch_run(workflow, following)
            if fetched is None:
                return
            self.runs.append(fetched)
            for child, child_run in _list_children(fetched.events):
                await self.fetch_runs(child, child_run)
            following = fetched.next_run_id

    async def _fetch_run(self, workflow: str, run: str) -> Run | None:
        try:
            history = await self.client.get_workflow_handle(workflow, run_id=run).fetch_history()
        except RPCError as error:
            if error.status not in _GONE_STATUSES:
                raise _translate_error(error, workflow) from error
            self.lacking.append(f"run {run} of {workflow}: the server has deleted it")
            return None
        return build_run(history.events, workflow)


def _list_children(events: Sequence[HistoryEvent]) -> list[tuple[str, str]]:
    """The child turns that a run started."""
    started = (
        event.child_workflow_execution_started_event_attributes
        for event in events
        if event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED
    )
    return [
        (one.workflow_execution.workflow_id, one.workflow_execution.run_id)
        for one in started
        if one.workflow_type.name == TURN_WORKFLOW
    ]


def _translate_error(error: RPCError, workflow: str) -> Exception:
    if error.status in _GONE_STATUSES:
        return TurnNotFound(f"no turn or session is called {workflow!r}: see `holdfast turn list`, `holdfast sessions`")
    return ServerUnavailable(f"the history of {workflow!r} cannot be fetched: {error.message}")
