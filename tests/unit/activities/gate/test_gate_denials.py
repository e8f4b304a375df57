"""S22, S29: no rule set, no grants, no decisions, no mode and no order of them let a denied call run."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from holdfast.activities.builtin.shell import Shell
from holdfast.activities.builtin.write_file import WriteFile
from holdfast.activities.execution.effect_runner import EffectRunner
from holdfast.activities.execution.live_run import LiveRuns
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext
from holdfast.activities.ledger.sqlite import SqliteLedger
from holdfast.activities.policy.load_policy import build_policy
from holdfast.activities.policy.rules import Tier
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.registry import Registry
from holdfast.activities.tool_activities import ToolActivities
from holdfast.domain.approvals.approval import Decision, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Run, Tool
from holdfast.domain.calls.verdicts import Allow, Ask, Deny
from holdfast.domain.context import Context
from holdfast.domain.modes import Mode
from holdfast.domain.turn.activity_io import ExecuteInput
from holdfast.names import TURN_WORKFLOW
from tests.support.policies import load

TURN = "turn"
CALLS = [
    ("shell", {"command": "git push origin main"}),
    ("shell", {"command": "true && git push"}),
    ("shell", {"command": "env A=1 git push"}),
    ("shell", {"command": "echo hi"}),
    ("shell", {"command": "rm -rf build"}),
    ("write_file", {"path": "secret/a", "content": "x"}),
    ("write_file", {"path": "b", "content": "x"}),
]
CONDITIONS = [
    'tool = "shell"',
    'command = "git push"',
    'command = "git **"',
    'command = "echo **"',
    "destructive = true",
    'path = "secret/**"',
    'kind = "edit"',
    'effect = "once"',
    "anything = true",
]
RULE = st.tuples(
    st.sampled_from(["deny", "deny", "ask", "allow"]),
    st.sampled_from(CONDITIONS),
    st.integers(0, 3),
    st.sampled_from([Tier.USER, Tier.ADMIN]),
)
SCOPES = [Scope(tool="*"), Scope(tool="shell", server=""), Scope(command=("git **",)), Scope(path=("**",)), Scope()]


class _Ran(Exception):
    """A denied call ran."""


def _spied(tool: Tool) -> Tool:
    """The real tool, whose invocations tell when they run."""
    build = tool.build_in

    def spied(arguments: Any, workspace: Path, context: Context) -> Any:
        invocation = build(arguments, workspace, context)

        async def execute(run: Run) -> Any:
            raise _Ran

        invocation.execute = execute  # type: ignore[method-assign]
        return invocation

    tool.build_in = spied  # type: ignore[method-assign]
    return tool


@settings(max_examples=150, deadline=None)
@given(
    rules=st.lists(RULE, min_size=1, max_size=6),
    call=st.sampled_from(CALLS),
    mode=st.sampled_from(Mode),
    scope=st.sampled_from([*SCOPES, None]),
    outcomes=st.lists(st.sampled_from(["proceed_once", "proceed_always", "proceed_always_tool"]), max_size=3),
    expired=st.booleans(),
)
def test_S29_what_is_denied_never_runs(
    rules: list[Any],
    call: tuple[str, dict[str, Any]],
    mode: Mode,
    scope: Scope | None,
    outcomes: list[str],
    expired: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_try(Path(folder), rules, call, mode, scope, outcomes, expired))


async def _try(
    folder: Path,
    rules: list[Any],
    call: tuple[str, dict[str, Any]],
    mode: Mode,
    scope: Scope | None,
    outcomes: list[str],
    expired: bool,
) -> bool:
    files = [
        load(f'[[rule]]\ndecision = "{decision}"\n{condition}\npriority = {priority}\n', tier)
        for decision, condition, priority, tier in rules
    ]
    loaded = build_policy(file for file in files if not file.problems)
    outputs = OutputStore(folder / "outputs")
    registry = Registry([_spied(Shell(outputs)), _spied(WriteFile())])
    gate = Gate(registry, folder, loaded, tuple(Mode))
    free = Gate(registry, folder)  # what a person would have seen, had the rules not been there
    request = CallRequest(tool=call[0], arguments=call[1])
    shown = (await free.judge(request)).verdict
    assert isinstance(shown, Ask | Allow)
    digest, now = shown.bound.digest, datetime.now(UTC)
    decisions = tuple(
        Decision.model_validate({"approval_id": f"{TURN}/b1c1/1", "digest": digest, "outcome": outcome, "by": f"p{at}"})
        for at, outcome in enumerate(outcomes)
    )
    given_scope = scope or Scope(digest=digest)
    always = Decision.model_validate(
        {"approval_id": f"{TURN}/b1c9/1", "digest": digest, "outcome": "proceed_always", "scope": given_scope}
    )
    grant = Grant(id="g1", scope=given_scope, covers="", decision=always, given_at=now)
    of = CallContext(mode=mode, grants=(grant,), turn_id=TURN)
    plain = (await gate.judge(request, of.model_copy(update={"grants": ()}))).verdict
    with_grant = (await gate.judge(request, of)).verdict
    if isinstance(plain, Deny):
        assert isinstance(with_grant, Deny), "a grant lifted a denial"
    once = EffectRunner(SqliteLedger(folder / "ledger.db"))
    activities = ToolActivities(gate, outputs, LiveRuns("host"), once)
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_id=TURN, workflow_type=TURN_WORKFLOW)
    outcome = await environment.run(
        activities.execute,
        ExecuteInput(
            call_id="b1c1", bound=shown.bound, mode=mode, approvals=decisions, grants=(grant,), expired=expired
        ),
    )
    ran = outcome.kind == "failed" and outcome.error.type == "_Ran"
    if isinstance(plain, Deny):
        assert not ran, "a denied call ran"
        assert outcome.kind == "reconsider"
    if ran:
        assert isinstance(with_grant, Allow) or decisions or expired, "a call ran that nobody let"
    return ran


def test_what_is_not_denied_runs_by_a_decision_or_a_grant(tmp_path: Path) -> None:
    """So that the test above can fail."""
    rules = [("deny", 'command = "git push"', 1, Tier.USER)]
    for number, (scope, outcomes) in enumerate(((None, []), (SCOPES[3], ["proceed_once"]))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert asyncio.run(_try(folder, rules, CALLS[3], Mode.DEFAULT, scope, outcomes, False))
