"""Moving what is open from one version to another: sessions by a word to them, which is safe, and anything by force."""

from __future__ import annotations

from datetime import timedelta

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest
from temporalio.client import Client
from temporalio.common import OneTimeVersioningOverride, PinnedVersioningOverride, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.session.session_io import MOVE_SIGNAL, SESSION_WORKFLOW
from holdfast.errors import HoldfastError, RequestRefused, ServerUnavailable, TurnNotFound
from holdfast.workers.versions.deployments import build_version_query, translate_error

RPC_LIMIT = timedelta(seconds=5)


async def wake_sessions(client: Client, deployment: str, build: str) -> int:
    """Tell every session on a version to go on with the current one, as soon as no turn of it runs; how many.

    Each needs a worker of its version once more, for the step itself.
    """
    woken = 0
    query = f'{build_version_query(deployment, build)} AND WorkflowType = "{SESSION_WORKFLOW}"'
    try:
        async for session in client.list_workflows(query):
            try:
                await client.get_workflow_handle(session.id).signal(MOVE_SIGNAL)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended meanwhile
                    raise
            else:
                woken += 1
    except RPCError as error:
        raise translate_error(error) from error
    return woken


async def move_workflow(client: Client, id: str, deployment: str, build: str) -> bool:
    """Have a turn or a session taken up by another version from its next task on; True when it is also held there.

    Its history is then replayed on other code than made it: where that takes other steps, its tasks fail until it is
    moved back. A server that knows no single move (before 1.32) holds it there for ever.
    """
    version = WorkerDeploymentVersion(deployment, build)
    try:
        await _update_options(client, id, OneTimeVersioningOverride(version)._to_proto())
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise _translate_error(id, error) from error
    else:
        return False
    try:
        await _update_options(client, id, PinnedVersioningOverride(version)._to_proto())
    except RPCError as error:
        raise _translate_error(id, error) from error
    return True


async def _update_options(client: Client, id: str, override: VersioningOverride) -> None:
    await client.workflow_service.update_workflow_execution_options(
        UpdateWorkflowExecutionOptionsRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=id),
            workflow_execution_options=WorkflowExecutionOptions(versioning_override=override),
            update_mask=FieldMask(paths=["versioning_override"]),
            identity=client.identity,
        ),
        timeout=RPC_LIMIT,
    )


def _translate_error(id: str, error: RPCError) -> HoldfastError:
    if error.status is RPCStatusCode.NOT_FOUND:
        if "already completed" in error.message:
            return RequestRefused("ended", f"{id!r} has ended: nothing in it waits for a worker")
        return TurnNotFound(f"no turn or session is called {id!r}: `holdfast turn list` names them")
    if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED):
        return ServerUnavailable(f"the Temporal server does not answer: {error.message}")
    return HoldfastError(f"{id!r} was not moved: {error.message}")
