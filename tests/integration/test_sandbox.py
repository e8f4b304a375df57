"""Workflow code loads in Temporal's sandbox, and asks for nothing there that it may not have."""

from __future__ import annotations

import dataclasses

from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from holdfast.workflows.turn import TurnWorkflow


async def test_the_workflow_module_is_sandboxed_and_its_imports_are_all_named() -> None:
    """Nothing outside the passed-through block may be imported from outside the sandbox."""
    policy = dataclasses.replace(
        SandboxRestrictions.default,
        import_notification_policy=workflow.SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH,
    )
    runner = SandboxedWorkflowRunner(restrictions=policy)
    definition = workflow._Definition.must_from_class(TurnWorkflow)
    runner.prepare_workflow(definition)
