"""Workflow code loads in Temporal's sandbox, and asks for nothing there that it may not have."""

from __future__ import annotations

import dataclasses

import pytest
from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from holdfast.workflows.session import SessionWorkflow
from holdfast.workflows.turn import TurnWorkflow

WORKFLOWS = [TurnWorkflow, SessionWorkflow]


@pytest.mark.parametrize("workflow_class", WORKFLOWS)
def test_workers_run_workflows_without_the_sandbox(workflow_class: type) -> None:
    """It takes a third of a turn's processor time. Stored histories replay inside it, in tests/replay."""
    assert not workflow._Definition.must_from_class(workflow_class).sandboxed


@pytest.mark.parametrize("workflow_class", WORKFLOWS)
async def test_the_workflow_module_is_sandboxed_and_its_imports_are_all_named(workflow_class: type) -> None:
    """Nothing outside the passed-through block may be imported from outside the sandbox."""
    policy = dataclasses.replace(
        SandboxRestrictions.default.with_passthrough_modules("cryptography", "lazy_loader"),
        import_notification_policy=workflow.SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH,
    )
    SandboxedWorkflowRunner(restrictions=policy).prepare_workflow(workflow._Definition.must_from_class(workflow_class))
