"""Every check, in the order in which they are told. Another group is another file with `CHECKS`, and a line here."""

from __future__ import annotations

from holdfast.workers.doctor import (
    commands,
    deployments,
    disk,
    gateway,
    house,
    ledger,
    mcp,
    models,
    payloads,
    queues,
    server,
    telemetry,
    tools,
)
from holdfast.workers.doctor.checks import Check

GROUPS = (
    server, queues, deployments, house, disk, payloads, ledger, commands, tools, mcp, models, gateway, telemetry,
)  # fmt: skip
CHECKS: tuple[Check, ...] = tuple(check for group in GROUPS for check in group.CHECKS)
