"""What payloads are encrypted with, and where large ones are kept: can all of it be had? Nothing is written."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.util.findings import Finding, ok, problem
from holdfast.workers.doctor.check import Check, CheckContext, run_in_thread


async def _examine_keys(around: CheckContext) -> list[Finding]:
    from holdfast.payloads.keyring import check_keys

    settings = around.settings
    if not settings.encryption.keys:
        return [ok("nothing is encrypted: the settings have no [[encryption.keys]]")]
    found = await run_in_thread(lambda: check_keys(settings))
    do = "put it where the settings say: without it no worker starts, and what it encrypted cannot be read"
    wrong = [problem(one.problem, do) for one in found if one.problem]
    return wrong or [ok(f"{len(found)} keys; {found[0].id!r} is written with")]


async def _examine_stores(around: CheckContext) -> list[Finding]:
    from holdfast.payloads.bucket_store import BucketStorage, build_drivers

    try:
        drivers = [driver for driver in build_drivers(around.settings) if isinstance(driver, BucketStorage)]
        for driver in drivers:
            await driver.check_reachable()
    except HoldfastError as error:
        return [problem(str(error), "look at [storage] and at the credentials; `holdfast storage check` tries it all")]
    if not drivers:
        return [ok(f"large payloads are files in {around.settings.payloads_folder}")]
    return [ok(f"{driver.name()} answers") for driver in drivers]


CHECKS = (Check("encryption", _examine_keys, seconds=30), Check("stores", _examine_stores, seconds=30))
