"""The page of an audit in a real browser: it loads nothing, runs nothing, and shows what happened (S43)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright
from temporalio.client import WorkflowHistory

from holdfast.payloads.converter import build_data_converter
from holdfast.workers.audit.read.stored_payloads import build_read_only_converter, build_storage_fetch
from holdfast.workers.audit.read.workflow_runs import GatheredRuns, build_run
from holdfast.workers.audit.render.html import render_page as written
from holdfast.workers.audit.timeline.build import build_timeline
from holdfast.workers.audit.timeline.timeline import Timeline
from tests.support.programs import require_program

HISTORIES = Path(__file__).parents[1] / "replay" / "histories"
EVIL = '<script>document.title = "owned"</script><img src="https://example.invalid/x.png">'


async def _timeline() -> Timeline:
    stored = json.loads((HISTORIES / "changed_arguments.json").read_text())
    run = build_run(WorkflowHistory.from_json("changed", stored).events)
    base = build_data_converter(None, HISTORIES / "payloads")
    return await build_timeline(
        GatheredRuns(run.workflow, (run,)), build_read_only_converter(base, build_storage_fetch(base))
    )


async def _looked_at(file: Path) -> tuple[dict[str, object], list[str], list[str]]:
    """What the browser shows of a page, what it asked for, and what it complained about."""
    chromium = require_program("chromium")
    asked: list[str] = []
    complaints: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page: Page = await browser.new_page(viewport={"width": 1000, "height": 800})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto(file.as_uri())
        shown: dict[str, object] = {
            "title": await page.title(),
            "heading": await page.locator("h1").inner_text(),
            "bars": await page.locator("svg rect").count(),
            "decisions": await page.locator("svg path").count(),
            "rows": await page.locator("table.entries tbody tr").count(),
            "width": await page.evaluate("document.documentElement.scrollWidth"),
        }
        await page.locator("table.entries a").first.click()
        shown["after"] = page.url.partition("#")[2]
        shown["target"] = await page.evaluate("document.querySelector(':target') !== null")
        await browser.close()
    return shown, asked, complaints


async def test_S43_the_page_shows_what_happened_and_asks_for_nothing(tmp_path: Path) -> None:
    timeline = await _timeline()
    file = tmp_path / "audit.html"
    file.write_text(written(timeline))
    shown, asked, complaints = await _looked_at(file)
    assert shown["title"] == f"turn {timeline.id}"
    assert str(shown["heading"]).startswith(f"turn {timeline.id}")
    assert shown["rows"] == len(timeline.entries)
    assert shown["decisions"] == sum(len(call.decisions) for call in timeline.calls)
    assert int(str(shown["bars"])) >= 5
    assert int(str(shown["width"])) <= 1000
    assert shown["target"], "a call's name in the table leads to the call"
    assert asked == [file.as_uri()]
    assert complaints == []


@pytest.mark.parametrize("where", ["prompt", "answer", "id"])
async def test_S43_what_a_model_wrote_is_text_and_nothing_else(tmp_path: Path, where: str) -> None:
    timeline = await _timeline()
    calls = tuple(
        call.model_copy(update={"title": EVIL, "tool": EVIL, "result": EVIL, "arguments": {"a": EVIL}})
        for call in timeline.calls
    )
    file = tmp_path / "audit.html"
    file.write_text(written(timeline.model_copy(update={"calls": calls, where: EVIL})))
    shown, asked, _ = await _looked_at(file)
    assert shown["title"] != "owned"
    assert asked == [file.as_uri()]
