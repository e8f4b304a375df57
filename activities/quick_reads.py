"""Reads that run together with their validation, in the same local activity.

Where every call of a batch is a read that the rules allow, the batch is ready the moment it is judged. Scheduling an
activity for each call would cost six events and a trip to the server and back; running them here costs nothing more. A
local activity holds the workflow task open, so it waits a fifth of a second: a call that needs longer runs on, and its
regular activity finds it. Nothing that writes, asks, leaves this host or speaks with the world outside comes here.
Why: docs/decisions/0038-reads-run-with-their-validation.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from holdfast.activities.execution.finish_call import needs_sharing, resolve_context_change
from holdfast.activities.execution.live_run import LiveRuns
from holdfast.activities.execution.run_tool import build_tool_outcome, start_tool
from holdfast.activities.gate.gate import Judgement
from holdfast.activities.ledger.ledger import EffectKey
from holdfast.activities.process.output_store import OutputStore
from holdfast.domain.calls.tool import Effect
from holdfast.domain.calls.verdicts import Allow, BoundCall, ExecutionOutcome
from holdfast.domain.context import Context
from holdfast.telemetry.activity import name_call

QUICK_SECONDS = 0.2
"""Seconds that the reads of a batch may hold up the workflow task: signals, updates and queries wait meanwhile."""
QUICK_CHARACTERS = 200_000
"""Bytes of all their results as JSON: a marker in the history holds them."""


class QuickReads:
    """Runs the reads of a batch on this worker, and remembers which tools are not quick."""

    def __init__(self, outputs: OutputStore, live: LiveRuns, workspace: Path) -> None:
        self._outputs = outputs
        self._live = live
        self._workspace = workspace
        self._slow: set[str] = set()

    async def run(
        self, turn_id: str, judgements: Mapping[str, Judgement], context: Context
    ) -> dict[str, ExecutionOutcome]:
        """Run the calls if all of them are reads that may run here now; the outcomes of those that ended in time.

        Running them again gives another answer and changes nothing.
        """
        if not all(map(self._may_run, judgements.values())):
            return {}
        tasks = {id: asyncio.create_task(self._run_call(turn_id, id, one)) for id, one in judgements.items()}
        await asyncio.wait(tasks.values(), timeout=QUICK_SECONDS)
        outcomes: dict[str, ExecutionOutcome] = {}
        left = QUICK_CHARACTERS
        for id, task in tasks.items():
            bound = _find_bound(judgements[id])
            if not task.done():
                task.cancel()  # not its tool, which goes on for the regular attempt
                self._slow.add(bound.tool.definition)
            elif not needs_sharing(self._outputs, outcome := task.result()):
                outcome = resolve_context_change(outcome, bound, context, self._workspace)
                left -= len(outcome.model_dump_json())
                outcomes |= {id: outcome} if left >= 0 else {}
        return outcomes

    def _may_run(self, judgement: Judgement) -> bool:
        verdict = judgement.verdict
        if not isinstance(verdict, Allow) or judgement.invocation is None:
            return False
        tool, traits = verdict.bound.tool, verdict.bound.tool.traits
        elsewhere = tool.server or traits.task_queue or traits.on_host or traits.delegates or traits.open_world
        reads = tool.effect is Effect.READ and verdict.bound.concurrency_safe and not traits.aborts_siblings
        return reads and not elsewhere and not traits.asks and tool.definition not in self._slow

    async def _run_call(self, turn_id: str, call_id: str, judgement: Judgement) -> ExecutionOutcome:
        bound, invocation = _find_bound(judgement), judgement.invocation
        assert invocation, "it was just there"
        key = EffectKey(turn=turn_id, call=call_id, digest=bound.digest)
        with (
            name_call(call_id, bound.tool.name),
            self._live.track_run(
                turn_id, call_id, workspace=self._workspace, effect_key=key.id, is_unasked=True
            ) as run,
        ):
            tool = start_tool(invocation, run, bound.timeout_seconds, judgement.retries)
            await asyncio.wait({tool})
            return build_tool_outcome(tool, run, None, self._outputs)


def _find_bound(judgement: Judgement) -> BoundCall:
    assert isinstance(judgement.verdict, Allow), "only what is allowed runs here"
    return judgement.verdict.bound
