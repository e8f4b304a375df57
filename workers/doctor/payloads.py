"""What payloads are encrypted with, and where large ones are kept: can all of it be had? Nothing is written."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.workers.doctor.checks import Check, Surroundings, aside
from holdfast.workers.doctor.findings import Finding, ok, problem


async def _keys(around: Surroundings) -> list[Finding]:
    from holdfast.keyring import look_at

    settings = around.settings
    if not settings.encryption.keys:
        return [ok("nothing is encrypted: the settings have no [[encryption.keys]]")]
    found = await aside(lambda: look_at(settings))
    do = "put it where the settings say: without it no worker starts, and what it encrypted cannot be read"
    wrong = [problem(one.problem, do) for one in found if one.problem]
    return wrong or [ok(f"{len(found)} keys; {found[0].id!r} is written with")]


async def _stores(around: Surroundings) -> list[Finding]:
    from holdfast.stores import BucketStorage, drivers_of

    try:
        drivers = [driver for driver in drivers_of(around.settings) if isinstance(driver, BucketStorage)]
        for driver in drivers:
            await driver.reach()
    except HoldfastError as error:
        return [problem(str(error), "look at [storage] and at the credentials; `holdfast storage check` tries it all")]
    if not drivers:
        return [ok(f"large payloads are files in {around.settings.payloads}")]
    return [ok(f"{driver.name()} answers") for driver in drivers]


CHECKS = (Check("encryption", _keys, seconds=30), Check("stores", _stores, seconds=30))
