"""The settings file, Temporal's own configuration, and the name of this host."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.util.findings import Finding, ok, problem
from holdfast.workers.doctor.check import Check, CheckContext, run_in_thread
from holdfast.workers.runtime.connect import find_environment_address


async def _examine_temporal(around: CheckContext) -> list[Finding]:
    try:
        address = find_environment_address()
    except HoldfastError as error:
        return [problem(str(error), "correct TEMPORAL_… variables, or the file that TEMPORAL_CONFIG_FILE names")]
    if address:
        return [ok(f"Temporal's own configuration names {address}")]
    return [ok("Temporal's own configuration names no server: the data folder's embedded one is used")]


async def _examine_host(around: CheckContext) -> list[Finding]:
    from holdfast.plugin.host_worker import read_host_name

    file = around.settings.host_file
    try:
        name = await run_in_thread(lambda: read_host_name(file) if file.exists() else None)
    except HoldfastError as error:
        return [problem(str(error), f"remove {file}, once no command runs here")]
    except OSError as error:
        return [problem(f"{file} cannot be read: {error.strerror}", "make it readable for whoever runs workers")]
    return [ok(f"workers with this data folder are host {name}" if name else "no worker has run here yet")]


CHECKS = (Check("temporal configuration", _examine_temporal), Check("host", _examine_host))
