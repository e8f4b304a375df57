"""Calls of MCP servers in real turns: what each of their endings means, and effects counted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import BlobPart, DataPart, Response, TextPart, Turn, TurnInput
from holdfast.config.schema import McpServerSettings
from holdfast.domain.calls.tool import Effect
from holdfast.testing import build_request, decide_all, wait_until
from tests.support.engine import Engine
from tests.support.mcp.mcp_servers import free_port, http_server, ours, servers
from tests.support.processes import hurried_worker
from tests.support.waiting import executing, speaking, waiting

ACT = "s__act"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where our server reads and writes."""
    made = tmp_path / "server"
    made.mkdir()
    return made


def effects(folder: Path) -> list[str]:
    """What our server did, call by call."""
    file = folder / "effects"
    return file.read_text().splitlines() if file.exists() else []


def use(engine: Engine, **by_name: McpServerSettings) -> None:
    """Workers from now on have these servers."""
    engine.settings = replace(engine.settings, mcp=servers(**by_name))


async def called(engine: Engine, then: str = "answer", **arguments: Any) -> Response:
    """The response to one call, approved."""
    turn = await engine.start(TurnInput(batches=((build_request(ACT, then=then, **arguments),),)))
    await decide_all(engine.holdfast, turn)
    [response] = (await turn.result()).responses
    return response


async def unknown(engine: Engine, then: str) -> str:
    """What is asked about a call that was approved, and that must not run twice, when nobody knows."""
    turn = await engine.start(TurnInput(batches=((build_request(ACT, then=then),),)))
    [asked] = (await wait_until(lambda: waiting(turn))).approvals
    await engine.holdfast.approve(asked.approval_id, digest=asked.digest)
    found = await wait_until(lambda: _asked_again(turn, asked.approval_id))
    [again] = found.approvals
    assert again.kind == "outcome_unknown"
    await engine.holdfast.deny(again.approval_id, digest=again.digest)
    [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type == "outcome_unknown"
    return again.question or ""


async def _asked_again(turn: Turn, before: str) -> Any:
    view = await waiting(turn)
    return view if view and view.approvals[0].approval_id != before else None


async def test_S39_a_call_is_asked_about_runs_once_and_carries_its_key(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request(ACT, n=7),),)))
        [asked] = (await wait_until(lambda: waiting(turn))).approvals
        assert (asked.kind, asked.server, asked.tool) == ("mcp", "s", ACT)
        assert [offer.outcome for offer in asked.offers] == [
            "proceed_always", "proceed_always_tool", "proceed_always_server",
        ]  # fmt: skip
        assert effects(folder) == []
        await engine.holdfast.approve(asked.approval_id, digest=asked.digest)
        [response] = (await turn.result()).responses
    assert (response.status, response.text) == ("success", "did 7")
    [effect] = effects(folder)
    name, number, key = effect.split(" ", 2)
    assert (name, number, len(key) > 20) == ("act", "7", True)


async def test_S39_arguments_are_checked_by_us_before_anybody_is_asked(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request(ACT, n="seven"),),)))
        [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type == "invalid_tool_params"
    assert "n: must be a whole number" in response.error.message
    assert effects(folder) == []


async def test_S31_a_server_that_dies_in_a_call_leaves_a_question_and_no_second_effect(
    engine: Engine, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        question = await unknown(engine, "die")
        assert "it was ended by signal 9" in question
        assert "was lost while 'act' of the MCP server 's' ran" in question
        assert len(effects(folder)) == 1
        assert (await called(engine, n=2)).text == "did 2"  # it was started again
    assert len(effects(folder)) == 2
    assert any("MCP server s: it was ended by signal 9" in record.message for record in caplog.records)


async def test_S31_what_may_be_repeated_is_repeated_when_its_server_dies(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder), effects={"act": Effect.IDEMPOTENT}))
    async with engine.worker():
        response = await called(engine, "die once", n=3)
    assert response.text == "did 3"
    first, second = effects(folder)
    assert first == second  # with the same key


async def stopped(engine: Engine, folder: Path, then: str) -> Response:
    """The response to a call that was stopped in the middle."""
    turn = await engine.start(TurnInput(batches=((build_request(ACT, then=then),),)))
    [asked] = (await wait_until(lambda: waiting(turn))).approvals
    await engine.holdfast.approve(asked.approval_id, digest=asked.digest)
    await wait_until(lambda: executing(turn, "b1c1"))
    await wait_until(lambda: asyncio.sleep(0, effects(folder)))
    await turn.cancel()
    [response] = (await turn.result()).responses
    return response


async def test_S7_a_call_that_is_stopped_says_that_it_may_have_taken_effect(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        response = await stopped(engine, folder, "hang")
    assert response.status == "cancelled"
    assert response.error is not None
    assert "'act' of the MCP server 's' was told to stop. It may have taken effect" in response.error.message


async def test_S7_a_stop_that_comes_too_late_leaves_the_result(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        response = await stopped(engine, folder, "finish when told")
    assert (response.status, response.text) == ("success", "did it")


async def test_S39_a_stop_is_told_to_the_server_which_goes_on(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        response = await stopped(engine, folder, "hang")
        pid = (folder / "pid").read_text()
        assert response.status == "cancelled"
        await wait_until(lambda: asyncio.sleep(0, effects(folder)[1:] == ["told to stop"]))
        assert (await called(engine, n=5)).text == "did 5"
        assert (folder / "pid").read_text() == pid


@pytest.mark.parametrize(("effect", "kind"), [(Effect.READ, "timeout"), (Effect.ONCE, "outcome_unknown")])
async def test_S39_a_call_that_takes_too_long_is_stopped(
    engine: Engine, folder: Path, effect: Effect, kind: str
) -> None:
    use(engine, s=ours(str(folder), timeout_seconds=1, effects={"act": effect}))
    async with engine.worker():
        if kind == "outcome_unknown":
            assert "did not answer within 1 seconds, and was told to stop" in await unknown(engine, "hang")
        else:
            response = await called(engine, "hang")
            assert response.error is not None
            assert response.error.type == kind
        await wait_until(lambda: asyncio.sleep(0, effects(folder)[1:] == ["told to stop"]))


async def test_S32_progress_is_live_output(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder), effects={"act": Effect.READ}))
    async with engine.worker():
        turn = await engine.start(
            TurnInput(batches=((build_request(ACT, then="progress", value="\x1b[31mhalf\x1b[0m way"),),))
        )
        await wait_until(lambda: speaking(turn, "1 of 4: half way"))
        (folder / "go on").touch()
        [response] = (await turn.result()).responses
    assert response.text == "did it"


ANSWERS: dict[str, tuple[str, str]] = {
    "fail": ("tool_error", "it went wrong"),
    "error": ("mcp_error", "'act' of the MCP server 's' answered with an error: no such thing (code -32000)"),
}


@pytest.mark.parametrize("then", ANSWERS)
async def test_S39_an_error_of_the_server_is_the_calls(engine: Engine, folder: Path, then: str) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        response = await called(engine, then)
    kind, words = ANSWERS[then]
    assert response.error is not None
    assert (response.error.type, response.error.message) == (kind, words)


@pytest.mark.parametrize("then", ["nonsense", "giant", "giant garbage"])
async def test_S39_an_answer_that_cannot_be_read_leaves_a_question(engine: Engine, folder: Path, then: str) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        question = await unknown(engine, then)
        assert "It may have taken effect" in question
        assert len(question) < 1_000
        assert (await called(engine, n=4)).text == "did 4"
    assert len(effects(folder)) == 2


async def test_S39_what_is_no_message_costs_nothing(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        assert (await called(engine, "garbage", n=1)).text == "did 1"
        assert (await called(engine, "flood", n=2)).text == "did 2"


async def test_S39_a_server_that_is_down_fails_its_own_calls_and_nothing_else(engine: Engine, folder: Path) -> None:
    down = McpServerSettings(command="/nonexistent/server")
    use(engine, s=ours(str(folder)), down=down)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("down__act"), build_request("list_directory")),)))
        absent, listed = (await turn.result()).responses
        assert (await called(engine, n=1)).text == "did 1"
    assert absent.error is not None
    assert absent.error.type == "mcp_unavailable"
    assert "MCP server down: " in absent.error.message
    assert "'/nonexistent/server'" in absent.error.message
    assert listed.status == "success"


async def test_S39_http_server_that_dies_in_a_call_leaves_a_question_and_is_reached_again(
    engine: Engine, folder: Path
) -> None:
    port = free_port()
    async with http_server([*_ours(folder), "--http", str(port)], port) as server:
        use(engine, s=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp"))
        async with engine.worker():
            question = await unknown(engine, "die")
            assert "was lost while" in question
            assert len(effects(folder)) == 1
            await server.start()
            assert (await called(engine, n=2)).text == "did 2"
            await server.kill()
            await server.start()  # its sessions are gone with it, and nobody told us
            assert (await called(engine, n=3)).text == "did 3"
    assert [line.split()[1] for line in effects(folder)[1:]] == ["2", "3"]


async def test_S39_what_befalls_one_call_over_http_leaves_the_others_alone(engine: Engine, folder: Path) -> None:
    port = free_port()
    async with http_server([*_ours(folder), "--http", str(port)], port):
        use(engine, s=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp", effects={"act": Effect.READ}))
        async with engine.worker():
            calls = (
                build_request(ACT, then="slow", seconds=4, n=1),
                build_request(ACT, then="cut", n=2),
                build_request(ACT, n=3),
            )
            turn = await engine.start(TurnInput(batches=(calls,)))
            slow, cut, plain = (await turn.result()).responses
    assert (slow.text, plain.text) == ("did 1", "did 3")
    assert cut.error is not None
    assert cut.error.type == "mcp_lost"
    assert sorted(line.split()[1] for line in effects(folder)) == ["1", "2", "2", "2", "3"]


async def test_S39_a_server_that_stays_away_fails_its_calls_in_time(engine: Engine, folder: Path) -> None:
    port = free_port()
    async with http_server([*_ours(folder), "--http", str(port)], port) as server:
        use(engine, s=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp"))
        async with engine.worker():
            assert (await called(engine, n=1)).text == "did 1"
            await server.kill()
            response = await called(engine, n=2)
    assert response.error is not None
    assert response.error.type == "mcp_unavailable"
    assert "The MCP server 's' is not connected: it cannot be reached" in response.error.message
    assert "The call was not made" in response.error.message


async def test_S39_tools_of_a_server_that_is_away_when_the_worker_starts_are_known_and_wait_for_it(
    engine: Engine, folder: Path
) -> None:
    port = free_port()
    use(engine, s=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp"))
    async with http_server([*_ours(folder), "--http", str(port)], port) as server:
        async with engine.worker():
            assert (await called(engine, n=1)).text == "did 1"
        await server.kill()
        async with engine.worker():
            away = await called(engine, n=2)
            assert away.error is not None
            assert away.error.type == "mcp_unavailable"
            turn = await engine.start(TurnInput(batches=((build_request(ACT, n=3),),)))
            [asked] = (await wait_until(lambda: waiting(turn))).approvals
            await server.start()
            await engine.holdfast.approve(asked.approval_id, digest=asked.digest)
            assert [response.text for response in (await turn.result()).responses] == ["did 3"]
    assert [line.split()[1] for line in effects(folder)] == ["1", "3"]


async def test_S39_what_a_server_has_no_more_when_it_is_back_is_not_called(engine: Engine, folder: Path) -> None:
    port = free_port()
    use(engine, s=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp"))
    async with http_server([*_ours(folder), "--http", str(port)], port) as server:
        async with engine.worker():
            assert (await called(engine, n=1)).text == "did 1"
        await server.kill()
        (folder / "tools.json").write_text(json.dumps([{"name": "other", "inputSchema": {"type": "object"}}]))
        async with engine.worker():
            turn = await engine.start(TurnInput(batches=((build_request(ACT, n=2),),)))
            [asked] = (await wait_until(lambda: waiting(turn))).approvals
            await server.start()
            await engine.holdfast.approve(asked.approval_id, digest=asked.digest)
            [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type in ("tool_changed", "tool_not_registered")  # noticed as it was called, or before
    assert len(effects(folder)) == 1


STATUSES: dict[str, tuple[str, str]] = {
    "400": ("mcp_unavailable", "did not take the call: it answered with HTTP status 400. It was not made"),
    "403": ("mcp_unauthorized", "it requires authorization"),
}


@pytest.mark.parametrize("then", STATUSES)
async def test_S39_an_http_error_is_told_as_it_is(engine: Engine, folder: Path, then: str) -> None:
    port = free_port()
    async with http_server([*_ours(folder), "--http", str(port)], port):
        use(engine, s=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp"))
        async with engine.worker():
            response = await called(engine, then)
    kind, words = STATUSES[then]
    assert response.error is not None
    assert response.error.type == kind
    assert words in response.error.message


@pytest.mark.parametrize("then", ["502", "202", "cut", "giant", "page"])
async def test_S31_an_http_answer_that_is_none_leaves_a_question(engine: Engine, folder: Path, then: str) -> None:
    port = free_port()
    async with http_server([*_ours(folder), "--http", str(port)], port):
        use(engine, s=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp"))
        async with engine.worker():
            await unknown(engine, then)
            assert (await called(engine, n=2)).text == "did 2"
    assert len(effects(folder)) == 2


def _ours(folder: Path) -> list[str]:
    settings = ours(str(folder))
    assert settings.command
    return [settings.command, *settings.args]


PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "words"},
    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    {"type": "audio", "data": "not valid base64!", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain", "description": "A file"},
    {"type": "resource", "resource": {"uri": "memo://1", "text": "remember"}},
    {"type": "resource", "resource": {"uri": "memo://2", "blob": "AAEC", "mimeType": "application/zip"}},
]


async def test_S34_all_kinds_of_content_are_parts(engine: Engine, folder: Path) -> None:
    schema = {"type": "object"}
    output = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"name": "act", "inputSchema": schema, "outputSchema": output}
    (folder / "tools.json").write_text(json.dumps([{"name": "act", "inputSchema": schema}, {**tool, "name": "out"}]))
    use(engine, s=ours(str(folder), effects={"act": Effect.READ, "out": Effect.READ}))
    async with engine.worker():
        calls = (
            build_request(ACT, then="parts", value=PARTS),  # type: ignore[arg-type]
            build_request("s__out", then="structured", value={"n": 1}),
            build_request("s__out", then="structured", value={"n": "one"}),
        )
        turn = await engine.start(TurnInput(batches=(calls,)))
        many, data, wrong = (await turn.result()).responses
    text, image, sound, link, memo, archive = many.parts
    assert isinstance(text, TextPart)
    assert isinstance(image, BlobPart)
    assert (image.media_type, image.size) == ("image/png", 8)
    assert image.whole
    assert "not valid base64" in sound.text
    assert link.text == "[link to a, file:///a, text/plain: A file]"
    assert memo.text == "[resource memo://1]\nremember"
    assert isinstance(archive, BlobPart)
    assert (archive.name, archive.size) == ("memo://2", 3)
    assert data.parts == (DataPart(value={"n": 1}),)
    assert wrong.error is not None
    assert wrong.error.type == "bad_result"
    assert "has run, but its result does not fit" in wrong.error.message


async def test_S45_what_a_reference_gave_is_in_no_history(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary-c0ffee-5ecret")
    monkeypatch.setenv("TEMPORAL_API_KEY", "ours-alone-1234567")
    use(engine, s=ours(str(folder), env={"THEIRS": "${CANARY_TOKEN}"}, effects={"act": Effect.READ}))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request(ACT, then="environment"),),)))
        [response] = (await turn.result()).responses
        history = await engine.written(turn)
    assert '"THEIRS": "[CANARY_TOKEN]"' in response.text
    for secret in ("canary-c0ffee-5ecret", "ours-alone-1234567"):
        assert secret not in response.text
        assert secret not in history
    assert "[CANARY_TOKEN]" in history


async def test_S39_nothing_of_a_server_is_left_behind(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder), "--ignore-end", effects={"act": Effect.READ}))
    async with engine.worker():
        child = int((await called(engine, "child")).text)
        server = int((folder / "pid").read_text())
        assert all(map(_alive, (child, server)))
    assert not any(map(_alive, (child, server)))


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != b"Z"


async def test_S39_a_server_killed_while_idle_is_started_again(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        assert (await called(engine, n=1)).text == "did 1"
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
        assert (await called(engine, n=2)).text == "did 2"


# Workers that die


def _file(folder: Path, *more: str) -> Path:
    """A settings file with our server."""
    own = ours(str(folder), *more)
    file = folder / "holdfast.toml"
    file.write_text(f"[mcp.servers.s]\ncommand = {json.dumps(own.command)}\nargs = {json.dumps(list(own.args))}\n")
    return file


async def test_S31_a_worker_killed_in_a_call_leaves_a_question_and_the_next_one_ends_its_server(
    engine: Engine, folder: Path
) -> None:
    file = _file(folder, "--ignore-end")
    async with hurried_worker(engine, file) as first:
        turn = await engine.start(TurnInput(batches=((build_request(ACT, then="hang"),),)))
        [asked] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.approve(asked.approval_id, digest=asked.digest)
        await wait_until(lambda: asyncio.sleep(0, effects(folder)))
        server = int((folder / "pid").read_text())
        await first.kill()
        assert _alive(server)  # it does not care whether anybody speaks to it
    async with hurried_worker(engine, file):
        [again] = (await wait_until(lambda: _asked_again(turn, asked.approval_id), 60)).approvals
        assert not _alive(server)
        assert again.kind == "outcome_unknown"
        await engine.holdfast.deny(again.approval_id, digest=again.digest)
        [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type == "outcome_unknown"
    assert len(effects(folder)) == 1


async def test_S31_a_worker_that_ends_in_a_call_leaves_a_question(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request(ACT, then="hang"),),)))
        [asked] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.approve(asked.approval_id, digest=asked.digest)
        await wait_until(lambda: asyncio.sleep(0, effects(folder)))
    async with engine.worker():
        [again] = (await wait_until(lambda: _asked_again(turn, asked.approval_id))).approvals
        assert again.kind == "outcome_unknown"
        assert "The worker ended while 'act' of the MCP server 's' ran" in (again.question or "")
        await engine.holdfast.deny(again.approval_id, digest=again.digest)
        await turn.result()
    assert effects(folder)[1:] == ["told to stop"]


async def test_S29_a_rule_on_a_server_names_its_tools_as_the_server_does(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)), other=ours(str(folder)))
    engine.with_rules(
        '[[rule]]\ndecision = "deny"\nserver = "s"\ntool = "a*"\nmatch = [{ tool = "act", server = "s" }]\n'
    )
    async with engine.worker():
        denied = await called(engine, n=1)
        turn = await engine.start(TurnInput(batches=((build_request("other__act", n=2),),)))
        await decide_all(engine.holdfast, turn)
        [allowed] = (await turn.result()).responses
    assert denied.error is not None
    assert denied.error.type == "denied"
    assert allowed.text == "did 2"
    assert [line.split()[1] for line in effects(folder)] == ["2"]
