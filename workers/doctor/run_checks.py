"""Run all checks concurrently, each with a timeout, and collect their findings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any, TypeVar

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError, ServerUnavailable
from holdfast.util.findings import Finding, Level, report_problem, report_warning
from holdfast.util.text import exception_text
from holdfast.workers.doctor.checks import CHECKS, SERVER, SERVER_CHECKS, Check, Findings, ServerCheck, read_clock
from holdfast.workers.runtime.connect import connect_client

T = TypeVar("T")

LEVELS: tuple[Level, ...] = ("ok", "warning", "problem")
_NOT_ALLOWED = {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED}
_SILENT = {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED}


@dataclass(frozen=True)
class Report:
    """The findings of one check."""

    check: str
    findings: tuple[Finding, ...]
    lost: bool = False
    """Whether the server did not answer."""

    @property
    def worst_level(self) -> Level:
        """The level of the worst finding."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="ok")


async def run_checks(
    settings: Settings,
    checks: Sequence[Check] = CHECKS,
    server_checks: Sequence[ServerCheck] = SERVER_CHECKS,
    *,
    offline: bool = False,
    address: str | None = None,
) -> tuple[Report, ...]:
    """The reports of all checks, in their order. `offline` skips the server."""
    here = asyncio.gather(*(_run_check(one, _look_at(one, settings)) for one in checks))
    there = () if offline else await _check_server(settings, server_checks, address)
    return (*there, *await here)


async def _check_server(settings: Settings, checks: Sequence[ServerCheck], address: str | None) -> Sequence[Report]:
    try:
        client = await connect_client(settings, address=address)
    except ServerUnavailable as error:
        return [Report(SERVER.name, (report_problem(str(error), _describe_start(settings)),), lost=True)]
    except HoldfastError as error:
        return [Report(SERVER.name, (report_problem(str(error), "correct it"),))]
    first = await run_server_check(SERVER, client, settings)
    if first.worst_level == "problem":
        return [first]
    return [first, *await asyncio.gather(*(run_server_check(one, client, settings) for one in checks))]


async def run_server_check(check: ServerCheck, client: Client, settings: Settings) -> Report:
    """Run one check of the server."""
    return await _run_check(check, check.look(client, settings, read_clock))


def _describe_start(settings: Settings) -> str:
    return (
        f"`holdfast up` starts one on the data folder {settings.data}; for another server set --address, "
        "TEMPORAL_ADDRESS or Temporal's configuration (docs/how-to/operating.md)"
    )


async def _look_at(check: Check, settings: Settings) -> Findings:
    """Run the check in a daemon thread, which may hang for ever: for example on a network disk whose server is gone."""

    def look() -> Findings | Awaitable[Findings]:
        found = check.look(settings)
        return found if isinstance(found, Awaitable) else list(found)

    found = await _run_in_thread(look)
    return await found if isinstance(found, Awaitable) else found


async def _run_in_thread(work: Callable[[], T]) -> T:
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # the caller may stop waiting; the thread goes on

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True, name="holdfast-doctor").start()
    return await asyncio.wrap_future(done)


async def _run_check(check: Check | ServerCheck, look: Awaitable[Findings]) -> Report:
    try:
        async with asyncio.timeout(check.seconds):
            return Report(check.name, tuple(await look))
    except TimeoutError:
        found = report_problem(
            f"the check took over {check.seconds:g} seconds", "find out what hangs: a disk, a program"
        )
    except RPCError as error:
        return Report(check.name, (_report_unanswered(error),), lost=error.status in _SILENT)
    except HoldfastError as error:
        return Report(
            check.name, (report_problem(str(error), check.correct),), lost=isinstance(error, ServerUnavailable)
        )
    except OSError as error:
        found = report_problem(
            f"{error.filename} cannot be used: {error.strerror}", "check that it exists, and its permissions"
        )
    except Exception as error:
        found = report_problem(f"the check itself failed: {exception_text(error)}", "report it")
    return Report(check.name, (found,))


def _report_unanswered(error: RPCError) -> Finding:
    """The finding for a refused request. A missing permission is a warning."""
    says = f"this cannot be checked: {error.message}"
    if error.status in _NOT_ALLOWED:
        return report_warning(says, "run the doctor as somebody with the permission, or grant it to this user")
    return report_problem(says, "check the server and its log")


def count_findings(reports: Iterable[Report], level: Level) -> int:
    """How many findings have this level."""
    return sum(finding.level == level for report in reports for finding in report.findings)


def reports_as_json(reports: Sequence[Report]) -> dict[str, Any]:
    """The reports as JSON."""
    checks = [
        {"check": report.check, "level": finding.level, "says": finding.says, "do": finding.do}
        for report in reports
        for finding in report.findings
    ]
    problems, warnings = count_findings(reports, "problem"), count_findings(reports, "warning")
    return {"ok": not problems, "problems": problems, "warnings": warnings, "checks": checks}
