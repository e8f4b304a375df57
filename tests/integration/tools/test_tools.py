"""Tools from every source in real turns: built in, discovered, in code; their traits, and what they give."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BlobPart,
    Confirmation,
    DataPart,
    Effect,
    Invocation,
    Result,
    Run,
    TextPart,
    Tool,
    TurnInput,
    tool,
)
from holdfast.config.schema import DiscoverySettings
from holdfast.testing import build_request, decide_all, wait_until
from holdfast.workflows import call_activities
from tests.support.engine import Engine
from tests.support.marks import PATIENCE
from tests.support.waiting import asked, done, executing, waiting

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 200


async def test_S37_an_edit_fails_when_the_file_changed_since_the_turn_read_it(engine: Engine) -> None:
    file = engine.workspace / "notes.txt"
    file.write_bytes(b"one\r\ntwo\r\n")
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("read_file", path="notes.txt"),),), keep_open=True))
        deciding = asyncio.create_task(decide_all(engine.holdfast, turn))
        edit = build_request("edit", path="notes.txt", old_text="two\n", new_text="2\n")
        await wait_until(lambda: done(turn, "b1"))
        await asyncio.to_thread(file.write_bytes, b"zero\r\none\r\ntwo\r\n")
        await turn.submit((edit,))
        await wait_until(lambda: done(turn, "b2"))
        await turn.submit((build_request("read_file", path="notes.txt"),))
        await turn.submit((edit, build_request("edit", path="notes.txt", old_text="one", new_text="1")))
        await turn.finish()
        await deciding
        _, stale, _, fresh, again = (await turn.result()).responses
    assert stale.error is not None
    assert stale.error.type == "file_changed"
    assert (fresh.status, again.status) == ("success", "success")
    assert file.read_bytes() == b"zero\r\n1\r\n2\r\n"


async def test_S22_what_changed_under_an_approved_diff_is_asked_about_again(both: Engine) -> None:
    file = both.workspace / "new.txt"
    async with both.worker():
        turn = await both.start(TurnInput(batches=((build_request("write_file", path="new.txt", content="mine"),),)))
        [first] = (await wait_until(lambda: waiting(turn, 1))).approvals
        await asyncio.to_thread(file.write_text, "IMPORTANT")
        await both.holdfast.approve(first.approval_id, digest=first.digest)
        [second] = (await wait_until(lambda: asked(turn, "b1c1", 2))).approvals
        assert await asyncio.to_thread(file.read_text) == "IMPORTANT"
        assert "-IMPORTANT" in (second.diff or "")
        await both.holdfast.approve(second.approval_id, digest=second.digest)
        assert (await turn.result()).responses[0].status == "success"
    assert file.read_text() == "mine"


async def test_S34_bytes_are_kept_in_a_file_and_travel_by_reference(engine: Engine) -> None:
    (engine.workspace / "picture.png").write_bytes(PNG)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("read_file", path="picture.png"),),)))
        [response] = (await turn.result()).responses
    [part] = response.parts
    assert isinstance(part, BlobPart)
    assert (part.media_type, part.size, part.name) == ("image/png", len(PNG), "picture.png")
    assert part.whole is not None
    _check_kept(Path(part.whole), part.digest)
    history = await engine.client.get_workflow_handle(turn.id).fetch_history()
    assert len(history.to_json()) < len(PNG)


def _check_kept(file: Path, digest: str) -> None:
    assert file.read_bytes() == PNG
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stem == digest


async def test_S34_a_function_is_a_tool_and_what_it_gives_is_data(engine: Engine) -> None:
    @tool(effect=Effect.READ)
    def measure(text: str) -> dict[str, int]:
        """Measure a text."""
        return {"characters": len(text), "words": len(text.split())}

    @tool
    async def rename(old: str, *, run: Run) -> str:
        """Rename something."""
        return f"{old} is now {run.call_id}"

    async with engine.worker(measure, rename):
        calls = (
            build_request("measure", text="a b"),
            build_request("rename", old="x"),
            build_request("measure", txt="a"),
        )
        turn = await engine.start(TurnInput(batches=(calls,)))
        [approval] = (await wait_until(lambda: waiting(turn, 1))).approvals
        assert approval.title == "rename(old='x')"
        await engine.holdfast.approve(approval.approval_id, digest=approval.digest)
        measured, renamed, wrong = (await turn.result()).responses
    assert measured.parts == (DataPart(value={"characters": 3, "words": 2}),)
    assert renamed.text == "x is now b1c2"
    assert wrong.error is not None
    assert 'txt: is not a parameter. Did you mean "text"?' in wrong.error.message


class _SlowToCheck(Tool):
    """A tool that does not promise a quick check, and whose check waits until it is released where it validates."""

    name = "slow"
    description = "Take a while to say whether to ask."
    effect = Effect.READ
    Parameters: Mapping[str, Any] = {"type": "object"}

    def __init__(self) -> None:
        self.checked = 0
        self.checking = asyncio.Event()
        self.released = asyncio.Event()

    def build(self, arguments: dict[str, Any], workspace: Path) -> Invocation:
        return _SlowCheck(self)


class _SlowCheck(Invocation):
    def __init__(self, tool: _SlowToCheck) -> None:
        self._tool = tool

    def describe(self) -> str:
        return "Take a while"

    async def should_confirm(self) -> Confirmation | None:
        self._tool.checked += 1
        self._tool.checking.set()
        await self._tool.released.wait()
        return None

    async def execute(self, run: Run) -> Result:
        return Result.from_text("done")


async def test_S20_a_turn_answers_while_a_tool_takes_long_to_check_a_call_and_it_is_asked_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_activities, "LOCAL_LIMIT", timedelta(seconds=1))
    slow = _SlowToCheck()
    async with engine.worker(slow), asyncio.timeout(PATIENCE):
        turn = await engine.start(TurnInput(batches=((build_request("slow"),),)))
        await slow.checking.wait()
        asked = time.monotonic()
        while time.monotonic() < asked + 1.5:  # longer than a local activity may take
            assert (await turn.fetch_view()).counts == {"validating": 1}
        assert slow.checked == 1, "no attempt within the workflow task was given up"
        slow.released.set()
        assert [response.text for response in (await turn.result()).responses] == ["done"]
    assert slow.checked == 2, "when it is validated, and where it executes"


async def test_S36_a_call_runs_on_the_task_queue_that_its_tool_names(engine: Engine) -> None:
    queue = f"{engine.queue}-elsewhere"

    @tool(effect=Effect.READ, task_queue=queue)
    async def where(run: Run) -> str:
        """Say where."""
        return str(run.workspace)

    far = Engine(engine.address, engine.workspace.parent / "far", 1000)
    far.queue = queue
    far.settings = replace(far.settings, task_queue=queue)
    async with engine.worker(where), far.worker(where):
        turn = await engine.start(TurnInput(batches=((build_request("where"),),)))
        [response] = (await turn.result()).responses
    assert response.text == str(far.workspace)


async def test_S36_a_call_whose_task_queue_nobody_polls_does_not_wait_for_ever(engine: Engine) -> None:
    @tool(effect=Effect.READ, task_queue=f"{engine.queue}-nobody")
    async def nowhere() -> str:
        """Never run."""
        return ""

    async with engine.worker(nowhere):
        turn = await engine.start(TurnInput(batches=((build_request("nowhere"),),)))
        await wait_until(lambda: executing(turn, "b1c1"))
        handle = engine.client.get_workflow_handle(turn.id)
        [limit] = [
            event.activity_task_scheduled_event_attributes.schedule_to_start_timeout.seconds
            async for event in handle.fetch_history_events()
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        assert 0 < limit <= 600
        await turn.cancel()
        assert (await turn.result()).responses[0].status == "cancelled"


SCRIPT = """
import json, sys, time
if sys.argv[1] == "list":
    print(json.dumps([{"functionDeclarations": [
        {"name": "upper", "description": "Upper case.", "effect": "read",
         "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
                        "additionalProperties": False}},
        {"name": "shell", "description": "A second shell."},
        {"name": "count", "description": "Count for a while.", "effect": "once"},
    ]}]))
else:
    arguments = json.load(sys.stdin)
    if sys.argv[2] == "upper":
        print(arguments["text"].upper())
    else:
        print("counting", flush=True)
        open("begun", "w").close()
        time.sleep(60)
"""


def _with_discovery(engine: Engine) -> None:
    script = engine.workspace.parent / "tools.py"
    script.write_text(SCRIPT)
    command = (sys.executable, str(script))
    found = DiscoverySettings(
        name="project",
        discovery_command=(*command, "list"),
        call_command=(*command, "call"),
        folder=engine.workspace,
    )
    engine.settings = replace(engine.settings, discovery=(found,))


async def test_S38_a_discovered_tool_is_validated_run_and_stopped_like_any_other(engine: Engine) -> None:
    _with_discovery(engine)
    async with engine.worker():
        calls = (build_request("upper", text="loud"), build_request("upper", txt="x"), build_request("count"))
        turn = await engine.start(TurnInput(batches=(calls,)))
        [approval] = (await wait_until(lambda: waiting(turn, 1))).approvals
        await engine.holdfast.approve(approval.approval_id, digest=approval.digest)
        await wait_until(lambda: asyncio.to_thread((engine.workspace / "begun").exists))
        await turn.cancel_call("b1c3", "long enough")
        upper, wrong, count = (await turn.result()).responses
    assert (upper.status, upper.text.strip()) == ("success", "LOUD")
    assert wrong.error is not None
    assert wrong.error.type == "invalid_tool_params"
    assert 'txt: is not a parameter. Did you mean "text"?' in wrong.error.message
    assert "text: is required" in wrong.error.message
    assert count.status == "cancelled"
    assert "counting" in count.text


async def test_S34_large_results_of_many_parts_are_one_ordinary_batch(engine: Engine) -> None:
    """At size: 200 calls, each with text, data and bytes of 40,000 characters and more."""

    @tool(effect=Effect.READ)
    async def much(number: int) -> Result:
        """Much of everything."""
        big = str(number) * 30_000
        return Result(parts=(TextPart(text=big), DataPart(value=[big]), BlobPart.from_bytes(big.encode(), "image/png")))

    async with engine.worker(much):
        calls = tuple(build_request("much", number=number) for number in range(200))
        result = await (await engine.start(TurnInput(batches=(calls,)))).result()
    assert len(result.responses) == 200
    for number, response in enumerate(result.responses):
        text, blob = response.parts
        assert "left out; read_output reads the whole, by the name" in text.text
        assert len(text.text) < 41_000
        assert text.text.startswith(str(number))
        assert isinstance(blob, BlobPart)
        assert blob.data is None
    assert len(json.dumps(result.model_dump(mode="json"))) < 9_500_000
