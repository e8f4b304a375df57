"""What a worker with a version says when it has begun: who gets new turns, and what to do when it does not."""

from __future__ import annotations

from collections.abc import Callable

from temporalio.client import Client

from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError
from holdfast.workers.versions.deployments import claim_current, fetch_fleet, has_unversioned_workers, is_known
from holdfast.workers.versions.fleet import list_advice

APPEAR_SECONDS = 60.0
"""How long a new version may take to be known to the server."""


async def announce_version(client: Client, settings: Settings, note: Callable[[str], None], *, claims: bool) -> None:
    """Say what stands between this worker's version and new turns; with `claims` make it current where none is.

    Not where workers without a version take new turns, or did a few minutes ago: somebody is to choose when these end.
    """
    deployment, build = settings.deployment.name, settings.deployment.build
    if build is None:
        return
    try:
        if not await is_known(client, deployment, build, wait=APPEAR_SECONDS):
            note(f"the server does not know version {build!r} of {deployment!r}: does it support worker deployments?")
            return
        fleet = await fetch_fleet(client, deployment, settings.task_queue)
        lately = claims and fleet.current is None and await has_unversioned_workers(client, settings.task_queue)
        if lately and not fleet.unversioned_workers:
            note(f"a worker without a version polled a few minutes ago, so {build!r} does not make itself current")
        elif claims and fleet.current is None and not lately:
            current = await claim_current(client, deployment, build)
            note(f"version {current!r} of {deployment!r} is current: it gets new turns")
            fleet = await fetch_fleet(client, deployment, settings.task_queue)
        for sentence in list_advice(fleet, build):
            note(sentence)
    except HoldfastError as error:
        note(f"which version is current could not be found out: {error}")
