"""Versions of the workers: does the current one have workers, and is none missing that something waits for."""

from __future__ import annotations

from holdfast.util.findings import Finding
from holdfast.workers.doctor.check import Check, CheckContext
from holdfast.workers.versions.check_versions import check_versions


async def _examine_versions(around: CheckContext) -> list[Finding]:
    return await check_versions(around.client, around.settings, around.now())


CHECKS = (Check("versions", _examine_versions, seconds=20, remote=True),)
