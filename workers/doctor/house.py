"""The settings file, Temporal's own configuration, and the name of this host."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.workers.connecting import environment_address
from holdfast.workers.doctor.checks import Check, Surroundings, aside
from holdfast.workers.doctor.findings import Finding, ok, problem


async def _temporal(around: Surroundings) -> list[Finding]:
    try:
        address = environment_address()
    except HoldfastError as error:
        return [problem(str(error), "correct TEMPORAL_… variables, or the file that TEMPORAL_CONFIG_FILE names")]
    if address:
        return [ok(f"Temporal's own configuration names {address}")]
    return [ok("Temporal's own configuration names no server: the data folder's embedded one is used")]


async def _host(around: Surroundings) -> list[Finding]:
    from holdfast.hosts import host_name_of

    file = around.settings.host_file
    try:
        name = await aside(lambda: host_name_of(file) if file.exists() else None)
    except HoldfastError as error:
        return [problem(str(error), f"remove {file}, once no command runs here")]
    except OSError as error:
        return [problem(f"{file} cannot be read: {error.strerror}", "make it readable for whoever runs workers")]
    return [ok(f"workers with this data folder are host {name}" if name else "no worker has run here yet")]


CHECKS = (Check("temporal configuration", _temporal), Check("host", _host))
