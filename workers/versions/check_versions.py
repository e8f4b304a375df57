"""The doctor's check of worker versions: which one gets new turns, and which have open turns but no worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.config.settings import Settings
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning
from holdfast.workers.versions.deployments import Deployment, claim_current, fetch_deployment, is_known

APPEAR_SECONDS = 60.0
"""How long a new version may take to be known to the server."""


async def check_versions(client: Client, settings: Settings, now: datetime) -> list[Finding]:
    """Check the deployment of the settings; RPCError."""
    build = settings.deployment.build
    try:
        found = await fetch_deployment(client, settings.deployment.name, settings.task_queue, now)
    except RPCError as error:
        if error.status is not RPCStatusCode.UNIMPLEMENTED:
            raise
        if build is None:
            return [report_ok("this server does not support worker versions, and the settings have none")]
        says = "this server does not support worker deployments"
        return [report_problem(says, "unset HOLDFAST_BUILD, or update the server")]
    return judge_deployment(found, build)


async def announce_version(client: Client, settings: Settings, note: Callable[[str], None], *, claims: bool) -> None:
    """Note why this worker's version gets no new turns; with `claims` make it current if none is.

    Not while workers without a version take new turns, or did in the last minutes: a person chooses when these end.
    """
    name, build = settings.deployment.name, settings.deployment.build
    if build is None:
        return
    try:
        if not await is_known(client, name, build, wait=APPEAR_SECONDS):
            note(f"the server does not list version {build!r} of {name!r}: does it support worker deployments?")
            return
        found = await fetch_deployment(client, name, settings.task_queue)
        if claims and found.current is None:
            if not found.unversioned_lately:
                found = replace(found, current=await claim_current(client, name, build))
                note(f"version {found.current!r} of {name!r} is current: it gets new turns")
            elif not found.unversioned_workers:
                note(f"a worker without a version polled a few minutes ago, so {build!r} does not make itself current")
    except RPCError as error:
        note(f"the current version could not be read: {error.message}")
        return
    versions = tuple(replace(one, workers=max(one.workers, one.build == build)) for one in found.versions)
    for finding in judge_deployment(replace(found, versions=versions), build):
        if finding.do:
            note(f"{finding.says}: {finding.do}")


def judge_deployment(found: Deployment, build: str | None) -> list[Finding]:
    """The findings about a deployment, and about the version `build`."""
    if not found.versions:
        if build:
            return [report_problem(f"no worker of version {build!r} has polled", f"start one: HOLDFAST_BUILD={build}")]
        return [report_ok("workers have no versions: each takes any turn")]
    stuck = [
        report_problem(
            f"{one.open:,} open workflows need a worker of version {one.build!r}, and none polls",
            f"start one with HOLDFAST_BUILD={one.build}, or move them (docs/how-to/upgrading.md)",
        )
        for one in found.versions
        if one.open and not one.workers and one.build != found.current
    ]
    return [*_judge_routing(found, build), *stuck]


def _judge_routing(found: Deployment, build: str | None) -> list[Finding]:
    current = found.find_version(found.current)
    if current is None:
        do = f"set one: {_format_command(found, build or found.versions[0].build)}"
        says = f"no version of {found.name!r} is current"
        if found.unversioned_workers:
            return [report_warning(f"{says}: workers without a version get new turns", do)]
        return [report_problem(f"{says}: new turns cannot start", do)]
    if not current.workers:
        do = f"start a worker with HOLDFAST_BUILD={current.build}, or make another version current"
        return [
            report_problem(
                f"version {current.build!r} is current, and no worker of it polls: new turns cannot start", do
            )
        ]
    findings = [
        report_ok(f"version {current.build!r} of {found.name!r} gets new turns, from {current.workers} workers")
    ]
    if build and build not in (found.current, found.ramping):
        do = f"to make it current: {_format_command(found, build)}"
        findings.append(report_warning(f"version {build!r} gets no new turns, {found.current!r} does", do))
    if found.unversioned_workers:
        says = f"{found.unversioned_workers} workers without a version get no turns, since a version is current"
        findings.append(report_warning(says, "stop them, or set HOLDFAST_BUILD for them"))
    return findings


def _format_command(found: Deployment, build: str) -> str:
    return f"temporal worker deployment set-current-version --deployment-name {found.name} --build-id {build}"
