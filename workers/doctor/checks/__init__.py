"""The checks of the doctor, one module for each group; a new module is listed here in `GROUPS`."""

from __future__ import annotations

from holdfast.workers.doctor.check import Check
from holdfast.workers.doctor.checks import (
    commands,
    configuration,
    deployments,
    disk,
    gateway,
    ledger,
    mcp,
    models,
    payloads,
    task_queues,
    telemetry,
    temporal_server,
    tools,
)

GROUPS = (
    temporal_server, task_queues, deployments, configuration, disk, payloads, ledger, commands, tools, mcp, models,
    gateway, telemetry,
)  # fmt: skip
CHECKS: tuple[Check, ...] = tuple(check for group in GROUPS for check in group.CHECKS)
