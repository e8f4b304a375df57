"""What `holdfast doctor` sees of a real server that is not as it should be, and how long it looks (S36, S42)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Run, Settings, TurnInput
from holdfast.testing import FakeTool, build_request, wait_until
from holdfast.util.findings import Finding, report_ok
from holdfast.workers.doctor.checks import Check
from holdfast.workers.doctor.report_text import format_summary
from holdfast.workers.doctor.run_checks import Report, count_findings, run_checks
from holdfast.workers.lookup.check_queues import check_hosts, check_workers
from holdfast.workers.lookup.check_server import check_clock
from holdfast.workers.runtime.connect import connect_to
from holdfast.workers.storage.check_payloads import check_payloads
from holdfast.workers.versions.check_versions import judge_deployment
from holdfast.workers.versions.deployments import Deployment, Version
from tests.support.engine import Engine
from tests.support.waiting import waiting


def later() -> datetime:
    """When a worker that is gone is known to be."""
    return datetime.now(UTC) + timedelta(minutes=2)


@pytest.mark.parametrize(
    ("ahead", "level", "words"),
    [
        (timedelta(0), "ok", "agree"),
        (timedelta(seconds=20), "warning", "s ahead of the server's"),
        (timedelta(hours=-1), "problem", "behind the server's"),
    ],
)
async def test_a_clock_that_is_wrong_is_told(engine: Engine, ahead: timedelta, level: str, words: str) -> None:
    [found] = await check_clock(engine.client, lambda: datetime.now(UTC) + ahead)
    assert (found.level, words in found.says) == (level, True)
    assert level == "ok" or "NTP" in (found.do or "")


async def test_S36_a_call_that_waits_for_a_host_without_workers_is_told(engine: Engine, tmp_path: Path) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="true"),),)))
        view = await wait_until(lambda: waiting(turn))
        assert [one.level for one in await check_hosts(engine.client, engine.queue, datetime.now(UTC))] == ["ok"]
    engine.settings = replace(engine.settings, data=tmp_path / "another-host")
    async with engine.worker():
        await engine.holdfast.approve(view.approvals[0].approval_id)

        async def offered() -> list[Finding]:
            found = await check_hosts(engine.client, engine.queue, later())
            return [one for one in found if one.level == "problem"]

        [found] = await wait_until(offered)
        assert "1 call waits for the host" in found.says
        assert "that host's data folder" in (found.do or "")
        await turn.cancel()
        async with asyncio.timeout(60):
            await turn.result()


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return "done"


async def test_S42_payloads_that_a_client_does_not_see_are_told(engine: Engine, tmp_path: Path) -> None:
    async with engine.worker(FakeTool("echo", _echo)):
        turn = await engine.start(TurnInput(batches=((build_request("echo", say="x" * 50_000),),)))
        await turn.result()
        assert [one.level for one in await check_payloads(engine.client, engine.queue)] == ["ok"]
        settings = replace(engine.settings, data=tmp_path / "elsewhere")
        reports = await run_checks(settings, (), address=engine.address)
    [report] = [report for report in reports if report.check == "payloads"]
    assert report.worst_level == "problem"
    assert "1 of 1 payloads" in report.findings[0].says
    assert "payloads/" in (report.findings[0].do or "")


async def test_workers_that_are_gone_are_told_with_when_they_were_seen(engine: Engine) -> None:
    async with engine.worker():

        async def polled() -> bool:
            return [one.level for one in await check_workers(engine.client, engine.queue, datetime.now(UTC))] == ["ok"]

        await wait_until(polled)
    [found] = await check_workers(engine.client, engine.queue, later())
    assert "(the last was seen at " in found.says


async def test_a_server_that_goes_away_meanwhile_is_no_traceback(engine: Engine) -> None:
    reports = await run_checks(engine.settings, (), address="127.0.0.1:1")
    assert [(report.check, report.lost) for report in reports] == [("server", True)]


async def test_every_check_has_its_time_and_one_that_breaks_costs_only_itself() -> None:
    async def hangs(settings: Settings) -> list[Finding]:
        await asyncio.Event().wait()
        return []

    def blocks(settings: Settings) -> Iterator[Finding]:
        going_on.wait(60)
        yield report_ok("at last")

    async def breaks(settings: Settings) -> list[Finding]:
        raise RuntimeError("what now?")

    def works(settings: Settings) -> Iterator[Finding]:
        yield report_ok("well")

    going_on = threading.Event()
    checks = [Check("hangs", hangs, seconds=0.05), Check("blocks", blocks, seconds=0.05)]
    checks += [Check("breaks", breaks), Check("works", works)]
    async with asyncio.timeout(10):
        reports = await run_checks(Settings(), checks, offline=True)
    going_on.set()
    assert [report.worst_level for report in reports] == ["problem", "problem", "problem", "ok"]
    assert "0.05 seconds" in reports[0].findings[0].says
    assert "0.05 seconds" in reports[1].findings[0].says
    assert "what now?" in reports[2].findings[0].says
    assert format_summary(reports) == "3 problems, 0 warnings."


# Versions


def deployed(*versions: Version, current: str | None = None, **more: int) -> Deployment:
    return Deployment("agents", versions, current, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "build", "level", "words"),
    [
        (deployed(), None, "ok", "no versions"),
        (deployed(), "v1", "problem", "no worker of version 'v1' has polled"),
        (deployed(Version("v1")), None, "problem", "new turns cannot start"),
        (deployed(Version("v1"), unversioned_workers=1), None, "warning", "without a version get new turns"),
        (deployed(Version("v1", 3, 0), current="v1"), None, "problem", "no worker of it polls"),
        (deployed(Version("v1", 3, 2), current="v1"), "v1", "ok", "gets new turns"),
        (deployed(Version("v1", 3, 2), current="v1"), "v2", "warning", "'v2' gets no new turns, 'v1' does"),
        (
            deployed(Version("v2", 0, 1), Version("v1", 3, 0), current="v2"),
            "v2",
            "problem",
            "3 open workflows need a worker of version 'v1'",
        ),
        (deployed(Version("v1", 0, 1), current="v1", unversioned_workers=3), None, "warning", "3 workers"),
    ],
)
def test_versions_are_judged(seen: Deployment, build: str | None, level: str, words: str) -> None:
    report = Report("versions", tuple(judge_deployment(seen, build)))
    assert report.worst_level == level
    worst = next(one for one in report.findings if one.level == level and words in one.says)
    assert level == "ok" or worst.do
    assert count_findings([report], "problem") == (level == "problem")


async def test_looking_leaves_no_task_queue_or_turn_behind(engine: Engine) -> None:
    client = await connect_to(engine.address)
    await check_clock(engine.client, later)
    assert [one.id async for one in client.list_workflows('TaskQueue STARTS_WITH "holdfast-doctor"')] == []
