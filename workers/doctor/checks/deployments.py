"""Versions of the workers: does the current one have workers, and is none missing that something waits for."""

from __future__ import annotations

from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import HoldfastError
from holdfast.workers.doctor.check import Check, CheckContext
from holdfast.workers.doctor.report import Finding, ok, problem, warning
from holdfast.workers.versions.deployments import fetch_fleet
from holdfast.workers.versions.fleet import Fleet

_LIST_HINT = "see `holdfast versions list` and docs/how-to/upgrading.md"


async def _examine_versions(around: CheckContext) -> list[Finding]:
    deployment = around.settings.deployment
    try:
        fleet = await fetch_fleet(around.client, deployment.name, around.settings.task_queue, around.now())
    except HoldfastError as error:
        if not isinstance(error.__cause__, RPCError) or error.__cause__.status is not RPCStatusCode.UNIMPLEMENTED:
            raise
        if deployment.build is None:
            return [ok("this server knows no versions of workers, and none is asked for")]
        return [problem("this server knows no worker deployments", "leave out HOLDFAST_BUILD, or update the server")]
    return judge_fleet(fleet, deployment.build)


def judge_fleet(fleet: Fleet, build: str | None) -> list[Finding]:
    """What is to be said of a deployment; of the version of the settings here, too."""
    if not fleet.versions:
        if build:
            return [problem(f"no worker of version {build!r} has polled", f"start one: HOLDFAST_BUILD={build}")]
        return [ok("workers have no versions: each takes up whatever there is")]
    return [*_judge_routing(fleet, build), *_judge_stuck(fleet)]


def _judge_routing(fleet: Fleet, build: str | None) -> list[Finding]:
    current = fleet.find_version(fleet.current) if fleet.current else None
    if current is None:
        do = f"choose one: holdfast versions set-current {fleet.versions[0].build}"
        says = f"no version of {fleet.deployment!r} is current"
        if fleet.unversioned_workers:
            return [warning(f"{says}: workers without a version get new turns", do)]
        return [problem(f"{says}: new turns wait", do)]
    if not current.workers:
        do = f"start a worker with HOLDFAST_BUILD={current.build}, or make another version current: {_LIST_HINT}"
        return [problem(f"version {current.build!r} is current, and no worker of it polls: new turns wait", do)]
    found = [ok(f"version {current.build!r} of {fleet.deployment!r} gets new turns, from {current.workers} workers")]
    if build and build not in (fleet.current, fleet.ramping):
        do = f"holdfast versions set-current {build}, when its workers are to get them"
        found.append(warning(f"version {build!r} of the settings here gets no new turns", do))
    if fleet.unversioned_workers:
        says = f"{fleet.unversioned_workers} workers without a version get nothing, since a version is current"
        found.append(warning(says, "stop them, or give them a build (HOLDFAST_BUILD)"))
    return found


def _judge_stuck(fleet: Fleet) -> list[Finding]:
    return [
        problem(
            f"{version.open} wait for a worker of version {version.build!r}, and none polls",
            f"start one with HOLDFAST_BUILD={version.build}, or move them: holdfast versions move ID BUILD",
        )
        for version in fleet.versions
        if version.is_stuck and version.build != fleet.current
    ]


CHECKS = (Check("versions", _examine_versions, seconds=20, remote=True),)
