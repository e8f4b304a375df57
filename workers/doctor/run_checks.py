"""Looking at everything, side by side, each for as long as it may take and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from temporalio.service import RPCError

from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError, ServerUnavailable
from holdfast.util.findings import Finding, problem
from holdfast.util.text import exception_text
from holdfast.workers.doctor.check import Check, CheckContext, report_unanswered
from holdfast.workers.doctor.checks.temporal_server import examine_namespace
from holdfast.workers.doctor.report import Report
from holdfast.workers.runtime.connect import connect

SERVER_CHECK = "server"


async def run_checks(
    around: CheckContext, checks: Sequence[Check], *, offline: bool = False, address: str | None = None
) -> tuple[Report, ...]:
    """Everything that the checks find, in their order. `offline` asks no server."""
    here = asyncio.gather(*(_run_check(check, around) for check in checks if not check.remote))
    there: tuple[Report, ...] = () if offline else await _examine_server(around, checks, address)
    found = {report.check: report for report in (*await here, *there)}
    order = [SERVER_CHECK, *(check.name for check in checks)]
    return tuple(found[name] for name in dict.fromkeys(order) if name in found)


async def _examine_server(around: CheckContext, checks: Sequence[Check], address: str | None) -> tuple[Report, ...]:
    reached, findings = await _reach_server(around, address)
    if reached.server is None or any(one.level == "problem" for one in findings):
        return (Report(SERVER_CHECK, findings),)
    remote = await asyncio.gather(*(_run_check(check, reached) for check in checks if check.remote))
    return (Report(SERVER_CHECK, findings), *remote)


async def _reach_server(around: CheckContext, address: str | None) -> tuple[CheckContext, tuple[Finding, ...]]:
    """The surroundings with a server whose namespace is there, and what was seen on the way."""
    try:
        client = await connect(around.settings, address=address)
    except HoldfastError as error:
        lost = isinstance(error, ServerUnavailable)
        return around, (problem(f"{error}", _describe_start(around.settings) if lost else "correct it", lost=lost),)
    try:
        return replace(around, server=client), tuple(await examine_namespace(client))
    except RPCError as error:
        return around, (report_unanswered(error, f"namespace {client.namespace!r}"),)


def _describe_start(settings: Settings) -> str:
    return (
        f"`holdfast up` starts one on the data folder {settings.data}; where another one is say --address, "
        "TEMPORAL_ADDRESS or Temporal's own configuration (docs/how-to/operating.md)"
    )


async def _run_check(check: Check, around: CheckContext) -> Report:
    return Report(check.name, tuple(await _collect_findings(check, around)))


async def _collect_findings(check: Check, around: CheckContext) -> list[Finding]:
    try:
        async with asyncio.timeout(check.seconds):
            return await check.look(around)
    except TimeoutError:
        return [problem(f"it took over {check.seconds:g} seconds to look", "find out what hangs: a disk, a program")]
    except RPCError as error:
        return [report_unanswered(error, "this")]
    except HoldfastError as error:
        return [problem(str(error), "correct it", lost=isinstance(error, ServerUnavailable))]
    except Exception as error:
        return [problem(f"the check itself failed: {exception_text(error)}", "HOLDFAST_TRACEBACK=1 helps to report it")]
