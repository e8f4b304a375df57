"""What MCP servers were given by reference is told nowhere, whatever they say and however they write it (S45)."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import DataPart, Turn, TurnInput
from holdfast.activities.mcp.server.definition_pins import PinnedDefinitions
from holdfast.config.schema import McpServerSettings
from holdfast.domain.calls.tool import Effect
from holdfast.testing import build_request, decide_all, wait_until
from tests.support.engine import Engine
from tests.support.mcp.mcp_servers import servers
from tests.support.secrets.canaries import GIVEN, ROOT, TOLD, leaky
from tests.support.secrets.writings import tells
from tests.support.waiting import asked, waiting

MODERN = ROOT / "tests" / "support" / "mcp" / "mcp_modern.py"
READS = dict.fromkeys(("tell", "form", "chosen"), Effect.READ)
PLACES = (
    "text", "text for a person", "structured", "structured and as text", "a key", "kind of an image", "kind of a sound",
    "kind of what is no image", "address of a resource", "address of bytes", "kind of a resource", "kind of bytes",
    "a resource", "a link", "an error of the tool", "a long error of the tool", "an error",
    "an address to open first, and none",
)  # fmt: skip
"""Where it is seen in the response that something was hidden."""
OTHERS = (
    "a number",
    "an image",
    "an image that is no text",
    "bytes",
    "a result that is none",
    "progress",
    "log",
    "beside",
)
LONG = 42
"""How many long errors there are."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the server looks."""
    made = tmp_path / "server"
    made.mkdir()
    return made


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is referred to."""
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)


def use(engine: Engine, folder: Path, **more: Any) -> None:
    """Workers from now on have the server."""
    engine.settings = replace(engine.settings, mcp=servers(s=leaky(folder, **more)))


def kept(engine: Engine) -> Iterator[str]:
    """All that is in files of the data folder: what is known of tools, logs, outputs, payloads, the ledger."""
    for path in engine.settings.data.rglob("*"):
        if path.is_file():
            yield f"{path.name}: {path.read_bytes().decode('utf-8', 'replace')}"


async def told(engine: Engine, turn: Turn, log: pytest.LogCaptureFixture) -> str:
    """All that is left of a turn, wherever."""
    view = await turn.fetch_view()
    inbox = [one.model_dump_json() for one in await engine.holdfast.list_approvals()]
    logged = [f"{record.name} {record.getMessage()} {record.exc_info or ''}" for record in log.records]
    return "\n".join([await engine.written(turn), view.model_dump_json(), *inbox, *logged, *kept(engine)])


async def test_S45_whatever_a_server_answers_tells_no_secret(
    engine: Engine, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    use(engine, folder, effects=READS)
    calls = [build_request("s__tell", place=place) for place in (*PLACES, *OTHERS)]
    calls += [build_request("s__tell", place="a long error", number=number) for number in range(LONG)]
    calls += [build_request("s__form", place="a key"), build_request("s__form", place="structured and as text")]
    calls += [build_request("s__chosen", place="chosen")]
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(tuple(calls),)))
        responses = (await turn.result()).responses
        everything = await told(engine, turn, caplog)
    assert responses[-1].parts == (DataPart(value={"a": "[CANARY]"}),)
    for place, response in zip(PLACES, responses, strict=False):
        assert "[CANARY]" in response.model_dump_json(), place
        assert not tells(response.model_dump_json(), *TOLD), place
    assert "[CANARY_NUMBER]" in everything
    assert "(standard output, no message) [CANARY]" in everything
    assert "(info) [CANARY" in everything
    assert tells(everything, *TOLD) == []


async def test_S45_the_last_words_of_a_server_tell_no_secret(
    engine: Engine, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    use(engine, folder)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("s__tell", place="death"),),)))
        first = (await wait_until(lambda: waiting(turn))).approvals[0]
        waits = await told(engine, turn, caplog)
        await engine.holdfast.approve(first.approval_id, digest=first.digest)
        await wait_until(lambda: asked(turn, "b1c1", 2))
        everything = await told(engine, turn, caplog)
        await turn.cancel()
        await turn.result()
    assert "cannot go on with [CANARY]" in everything
    assert tells(waits + everything, *TOLD) == []


QUESTIONS = {"question": "is [CANARY]", "an address to open first": "https://x/[CANARY]"}


@pytest.mark.parametrize("place", QUESTIONS)
async def test_S45_a_question_tells_no_secret(
    engine: Engine, folder: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    caplog.set_level(logging.DEBUG)
    use(engine, folder, effects=READS)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("s__tell", place=place),),)))
        view = await wait_until(lambda: waiting(turn))
        waits = await told(engine, turn, caplog)
        assert QUESTIONS[place] in view.model_dump_json()
        await engine.holdfast.deny(view.approvals[0].approval_id, digest=view.approvals[0].digest)
        await turn.result()
        everything = await told(engine, turn, caplog)
    assert tells(waits + everything, *TOLD) == []


async def test_S45_a_tool_that_is_described_by_a_secret_does_not_tell_it(
    engine: Engine, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    use(engine, folder)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("s__told"),),)))
        await decide_all(engine.holdfast, turn)
        await turn.result()
    (folder / "changed").touch()
    async with engine.worker():
        wrong = build_request("s__told", place=5, choice="none of these")
        turn = await engine.start(TurnInput(batches=((build_request("s__told"), wrong),)))
        view = await wait_until(lambda: waiting(turn))
        [approval] = view.approvals
        assert "+title: [CANARY_URL]\n" in (approval.diff or "")
        assert "The server has changed this tool" in (approval.reason or "")
        waits = await told(engine, turn, caplog)
        await decide_all(engine.holdfast, turn)
        _, refused = (await turn.result()).responses
        everything = await told(engine, turn, caplog)
    assert refused.error is not None
    assert refused.error.type == "invalid_tool_params"
    assert tells(waits + everything, *TOLD) == []
    [kept_now] = [
        one for one in PinnedDefinitions(engine.settings.mcp_tools_folder, "s").definitions if one.name == "told"
    ]
    assert kept_now.description.startswith("[CANARY")


async def test_S45_a_definition_is_the_same_when_the_secret_in_it_is_another(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "changed").write_text("plainly")
    use(engine, folder, effects={"told": Effect.READ})
    for canary in (GIVEN["CANARY"], "another-one-1234567890/x"):
        monkeypatch.setenv("CANARY", canary)
        async with engine.worker():
            turn = await engine.start(TurnInput(batches=((build_request("s__told"),),)))
            async with asyncio.timeout(30):
                [response] = (await turn.result()).responses
        assert response.status == "success"


async def test_S45_what_was_kept_before_it_was_a_secret_is_not_told(engine: Engine, folder: Path) -> None:
    known = engine.settings.mcp_tools_folder
    old = {"name": "told", "description": f"Was {GIVEN['CANARY']}."}
    known.mkdir(parents=True)
    kept_then = {"tools": {"told": {"definition": old, "since": "2026-01-01T00:00:00Z"}}}
    (known / "s.json").write_text(json.dumps(kept_then))
    use(engine, folder)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("s__told"),),)))
        view = await wait_until(lambda: waiting(turn))
        assert "-description: Was [CANARY]." in (view.approvals[0].diff or "")
        await decide_all(engine.holdfast, turn)
        await turn.result()
        assert not tells(await engine.written(turn), GIVEN["CANARY"])
    assert GIVEN["CANARY"] not in (known / "s.json").read_text()


async def test_S45_what_is_read_of_a_server_tells_no_secret(
    engine: Engine, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    use(engine, folder, trust=True)
    reads = (
        build_request("s__list_resources"),
        build_request("s__read_resource", uri="x://y"),
        build_request("s__list_prompts"),
        build_request("s__get_prompt", name="n"),
    )
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(reads,)))
        responses = (await turn.result()).responses
        everything = await told(engine, turn, caplog)
    for response in responses:
        assert (response.status, "[CANARY]" in response.text) == ("success", True), response
    assert tells(everything, *TOLD) == []


async def test_S45_a_call_does_not_go_on_from_a_name_that_is_a_secret(engine: Engine, folder: Path) -> None:
    form = {"message": "Well?", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    wanted: Any = {"inputRequests": {"is $THEIRS": {"method": "elicitation/create", "params": form}}}
    words, variables = (str(MODERN), str(folder)), {"THEIRS": "${CANARY}"}
    modern = McpServerSettings(command=sys.executable, args=words, env=variables, effects={"want": Effect.READ})
    engine.settings = replace(engine.settings, mcp=servers(m=modern))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("m__want", result=wanted),),)))
        [response] = (await turn.result()).responses
        history = await engine.written(turn)
    assert response.error is not None
    assert response.error.type == "bad_question"
    assert tells(history, *TOLD) == []
