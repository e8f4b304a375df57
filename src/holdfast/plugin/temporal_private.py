"""Private attributes of temporalio that Holdfast uses, each with the reason and the test that notices when it changes.

Nothing else in Holdfast touches a private name of the SDK. tests/integration/test_temporal_private.py fails when one of
them is gone, so a new version of temporalio is not taken without a look here.
"""

from __future__ import annotations

from temporalio.worker import Worker


def lift_deadlock_limit(worker: Worker) -> None:
    """Let a workflow activation of this worker take as long as it needs, instead of two seconds.

    The SDK's detector (TMPRL1101) takes a thread that got no processor for two seconds for a deadlock. It raises an
    exception into workflow code at an arbitrary place, which can leave a run that is never evicted and never taken up
    again; and from the second attempt on it reports nothing to the server, so that the task times out ever more slowly.
    Busy hosts, throttled containers and laptops that slept do that to every turn. Call it before the worker runs.
    """
    workflows = worker._workflow_worker
    if workflows is not None:
        workflows._deadlock_timeout_seconds = None
