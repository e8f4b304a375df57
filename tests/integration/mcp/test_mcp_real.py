"""MCP servers that nobody here wrote, in both protocols and over both transports, in real turns (S39)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import BlobPart, DataPart, HoldfastPlugin, Response, Turn, TurnInput
from holdfast.activities.mcp.server.lifecycle import ServerState
from holdfast.config.schema import McpServerSettings
from holdfast.domain.calls.tool import Effect
from holdfast.testing import build_request, decide_all, wait_until
from tests.support.engine import Engine
from tests.support.mcp.mcp_servers import (
    HttpServer,
    conformance,
    free_port,
    http_server,
    node_server,
    python_server,
    servers,
)
from tests.support.programs import require_program
from tests.support.waiting import asked, speaking

SUPPORT = Path(__file__).parents[2] / "support" / "mcp"
MODERN, CLIENT = SUPPORT / "mcp_modern.py", SUPPORT / "mcp_conformance.py"


@asynccontextmanager
async def working(engine: Engine, **by_name: McpServerSettings) -> AsyncIterator[HoldfastPlugin]:
    """A worker with these servers, connected."""
    engine.settings = replace(engine.settings, mcp=servers(**by_name))
    plugin = HoldfastPlugin(engine.settings)
    client = await Client.connect(engine.address, plugins=[plugin])
    async with Worker(client, task_queue=engine.queue):
        await wait_until(
            lambda: asyncio.sleep(0, all(one.state is ServerState.CONNECTED for one in plugin.servers.statuses))
        )
        yield plugin


async def unasked(engine: Engine, tool: str, **arguments: Any) -> Response:
    """The response to a call that nobody is asked about."""
    turn = await engine.start(TurnInput(batches=((build_request(tool, **arguments),),), interactive=False))
    [response] = (await turn.result()).responses
    return response


async def approved(engine: Engine, tool: str, **arguments: Any) -> Response:
    """The response to a call that somebody is asked about, and approves."""
    turn = await engine.start(TurnInput(batches=((build_request(tool, **arguments),),)))
    assert len(await decide_all(engine.holdfast, turn)) == 1
    [response] = (await turn.result()).responses
    return response


async def begun(engine: Engine, tool: str, **arguments: Any) -> Turn:
    """A turn whose call was approved, if that was asked for, and says something by now."""
    turn = await engine.start(TurnInput(batches=((build_request(tool, **arguments),),)))
    view = await wait_until(lambda: _waits_or_runs(turn))
    for one in view.approvals:
        await engine.holdfast.approve(one.approval_id, digest=one.digest)
    await wait_until(lambda: speaking(turn, "1 of"))
    return turn


async def _waits_or_runs(turn: Turn) -> Any:
    view = await turn.fetch_view(live=False)
    return view if view.approvals or view.counts.get("executing") else None


# mcp-server-git, mcp-server-time, mcp-server-fetch: 2026-07-28, stdio


async def test_S39_git_reads_unasked_where_trusted_and_commits_once(engine: Engine) -> None:
    repository = engine.workspace
    for words in (["init", "-q"], ["config", "user.email", "a@example.com"], ["config", "user.name", "A"]):
        await _git(repository, *words)
    (repository / "a.txt").write_text("one\n")
    git = McpServerSettings(command=python_server("mcp-server-git"), trust=True)
    async with working(engine, git=git) as plugin:
        [status] = plugin.servers.statuses
        assert (status.protocol, status.tools) == ("2026-07-28", 12)
        effects = {entry.declaration.name: entry.declaration.effect for entry in plugin.registry.entries}
        assert effects["git__git_status"] is Effect.READ
        assert effects["git__git_add"] is Effect.IDEMPOTENT
        assert effects["git__git_commit"] is Effect.ONCE
        place = str(repository)
        assert "a.txt" in (await unasked(engine, "git__git_status", repo_path=place)).text
        assert (await approved(engine, "git__git_add", repo_path=place, files=["a.txt"])).status == "success"
        committed = await approved(engine, "git__git_commit", repo_path=place, message="First")
        assert committed.status == "success"
        wrong = await unasked(engine, "git__git_status", repo_path="/nonexistent")
    assert wrong.error is not None
    assert wrong.error.type == "tool_error"
    assert await _git(repository, "log", "--format=%s") == "First\n"


async def _git(folder: Path, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        require_program("git"), *words, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def test_S39_time_is_asked_about_where_nobody_trusts_it(engine: Engine) -> None:
    async with working(engine, time=McpServerSettings(command=python_server("mcp-server-time"))) as plugin:
        entry = plugin.registry.get("time__get_current_time")
        assert entry is not None
        assert entry.declaration.effect is Effect.ONCE  # whatever it says itself
        refused = await unasked(engine, "time__get_current_time", timezone="Europe/Berlin")
        response = await approved(engine, "time__get_current_time", timezone="Europe/Berlin")
        wrong = await approved(engine, "time__get_current_time", timezone="Nowhere/Else")
    assert refused.error is not None
    assert refused.error.type == "denied"
    assert "Europe/Berlin" in response.text
    assert wrong.error is not None
    assert (wrong.status, wrong.error.type) == ("error", "tool_error")
    assert "Nowhere/Else" in wrong.error.message


class Page(BaseHTTPRequestHandler):
    """A page of this test's own."""

    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        if self.path != "/robots.txt":
            self.wfile.write(
                b"<html><body><article><h1>Weather</h1><p>It rains in Trondheim.</p></article></body></html>"
            )

    def log_message(self, format: str, *arguments: Any) -> None:
        return


async def test_S39_fetch_fetches(engine: Engine) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as pages:
        Thread(target=pages.serve_forever, daemon=True).start()
        try:
            fetch = McpServerSettings(command=python_server("mcp-server-fetch"), args=("--allow-private-ips",))
            async with working(engine, web=fetch):
                response = await approved(engine, "web__fetch", url=f"http://127.0.0.1:{pages.server_port}/page")
        finally:
            pages.shutdown()
    assert "It rains in Trondheim." in response.text


# server-filesystem, server-memory: 2025-11-25, stdio


async def test_S39_filesystem_stays_where_it_may(engine: Engine) -> None:
    files = McpServerSettings(
        command=node_server("mcp-server-filesystem"), args=(str(engine.workspace),), trust=True, exclude=("read_file",)
    )
    async with working(engine, files=files) as plugin:
        assert plugin.servers.statuses[0].protocol == "2025-11-25"
        assert plugin.registry.get("files__read_file") is None
        path = str(engine.workspace / "note.txt")
        written = await approved(engine, "files__write_file", path=path, content="words")
        read = await unasked(engine, "files__read_text_file", path=path)
        outside = await unasked(engine, "files__read_text_file", path="/etc/passwd")
    assert written.status == "success"
    assert read.text == "words"
    assert outside.error is not None
    assert "Access denied" in outside.error.message


async def test_S31_memory_that_is_killed_comes_back_and_holds_what_it_was_told_once(engine: Engine) -> None:
    file = engine.workspace / "memory.jsonl"
    memory = McpServerSettings(
        command=node_server("mcp-server-memory"), env={"MEMORY_FILE_PATH": str(file)}, trust=True
    )
    async with working(engine, memory=memory):
        fjord: Any = [{"name": "Fjord", "entityType": "place", "observations": ["It is deep."]}]
        made = await approved(engine, "memory__create_entities", entities=fjord)
        assert made.parts == (DataPart(value={"entities": fjord}),), "the server says it as text too"
        [pid] = await asyncio.to_thread(_of_process, "mcp-server-memory")
        os.kill(pid, signal.SIGKILL)
        found = await unasked(engine, "memory__search_nodes", query="fjord")
    assert "It is deep." in found.text
    assert file.read_text().count("Fjord") == 1


def _of_process(program: str) -> list[int]:
    """The children of this very process that run a program."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                parent = int(Path(f"/proc/{entry.name}/stat").read_bytes().rpartition(b")")[2].split()[1])
                words = Path(f"/proc/{entry.name}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == os.getpid() and program.encode() in words:
                found.append(int(entry.name))
    return found


# server-everything: 2025-11-25, stdio and HTTP


@asynccontextmanager
async def everything(
    engine: Engine, transport: str, **more: Any
) -> AsyncIterator[tuple[HoldfastPlugin, HttpServer | None]]:
    program = node_server("mcp-server-everything")
    if transport == "stdio":
        async with working(engine, all=McpServerSettings(command=program, args=("stdio",), **more)) as plugin:
            yield plugin, None
        return
    port = free_port()
    async with http_server([program, "streamableHttp"], port, PORT=str(port)) as server:
        url = f"http://127.0.0.1:{port}/mcp"
        async with working(engine, all=McpServerSettings(url=url, **more)) as plugin:
            yield plugin, server


both_ways = pytest.mark.parametrize("transport", ["stdio", "http"])


@both_ways
async def test_S39_everything_gives_all_kinds_of_content(engine: Engine, transport: str) -> None:
    async with everything(engine, transport, trust=True) as (plugin, _):
        assert plugin.registry.get("all__simulate-research-query") is None  # only as a task
        data = await unasked(engine, "all__get-structured-content", location="Chicago")
        image = await unasked(engine, "all__get-tiny-image")
        links = await unasked(engine, "all__get-resource-links", count=2)
        resource = await unasked(engine, "all__get-resource-reference", resourceType="Blob", resourceId=1)
        message = await unasked(engine, "all__get-annotated-message", messageType="debug", includeImage=True)
        invalid = await unasked(engine, "all__get-sum", a="x")
    [part] = data.parts
    assert isinstance(part, DataPart)
    assert isinstance(part.value, dict)
    assert {"temperature", "conditions", "humidity"} <= set(part.value)
    [picture] = [part for part in image.parts if isinstance(part, BlobPart)]
    assert picture.media_type == "image/png"
    assert picture.whole
    assert (await asyncio.to_thread(Path(picture.whole).read_bytes)).startswith(b"\x89PNG")
    assert links.text.count("[link to ") == 2
    assert any(isinstance(part, BlobPart) and part.name for part in resource.parts)
    text_in_bytes = [part.whole for part in resource.parts if isinstance(part, BlobPart)]
    assert [Path(whole or "").suffix for whole in text_in_bytes] == [".txt"]
    assert "Debug:" in message.text
    assert "image/png" not in message.text
    kept = re.search(r"\[image/png, [0-9,]+ bytes, kept in (.+)\]", message.display or "")
    assert kept, message.display
    assert (await asyncio.to_thread(Path(kept[1]).read_bytes)).startswith(b"\x89PNG")
    assert invalid.error is not None
    assert invalid.error.type == "invalid_tool_params"


@both_ways
async def test_S39_everything_tells_its_progress_and_hears_of_a_stop(engine: Engine, transport: str) -> None:
    async with everything(engine, transport, trust=True):
        turn = await begun(engine, "all__trigger-long-running-operation", duration=60, steps=120)
        await turn.cancel()
        [response] = (await turn.result()).responses
        echoed = await unasked(engine, "all__echo", message="still here")
    assert response.status == "cancelled"
    assert "1 of 120" in response.text
    assert echoed.text == "Echo: still here"


@both_ways
async def test_S31_everything_killed_in_a_call_is_asked_about_or_repeated(engine: Engine, transport: str) -> None:
    operation = "all__trigger-long-running-operation"
    async with everything(engine, transport, effects={"echo": Effect.READ}) as (_, server):
        turn = await begun(engine, operation, duration=30, steps=60)
        await _kill(server)
        [unknown] = (await wait_until(lambda: asked(turn, "b1c1", 2))).approvals
        assert unknown.kind == "outcome_unknown"
        await engine.holdfast.deny(unknown.approval_id, digest=unknown.digest)
        await turn.result()
        if server:
            await server.start()
        assert (await unasked(engine, "all__echo", message="again")).text == "Echo: again"
    async with everything(engine, transport, trust=True) as (_, server):
        turn = await begun(engine, operation, duration=2, steps=8)
        await _kill(server)
        if server:
            await server.start()
        [response] = (await turn.result()).responses
    assert response.status == "success"


async def _kill(server: HttpServer | None) -> None:
    if server:
        await server.kill()
    else:
        [pid] = await asyncio.to_thread(_of_process, "mcp-server-everything")
        os.kill(pid, signal.SIGKILL)


async def test_S45_everything_tells_its_environment_and_not_our_secrets(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "canary-0123456789")
    monkeypatch.setenv("HOLDFAST_SECRET", "ours-alone-0123456789")
    async with everything(engine, "stdio", trust=True, env={"THEIR_CANARY": "${CANARY}"}):
        turn = await engine.start(TurnInput(batches=((build_request("all__get-env"),),)))
        [response] = (await turn.result()).responses
        history = await engine.written(turn)
    assert '"THEIR_CANARY": "[CANARY]"' in response.text
    for secret in ("canary-0123456789", "ours-alone-0123456789"):
        assert secret not in response.text + history


@pytest.mark.parametrize("scenario", ["initialize", "tools_call", "sse-retry"])
async def test_S39_the_official_suite_finds_nothing_wrong(scenario: str, tmp_path: Path) -> None:
    """S39: those of its scenarios for clients that are about connecting, listing and calling."""
    process = await asyncio.create_subprocess_exec(
        *conformance(scenario, [sys.executable, str(CLIENT)]),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(90):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()[-2_000:]
    assert "0 failed, 0 warnings" in output.decode()


# The newer protocol over both transports


@asynccontextmanager
async def modern(engine: Engine, transport: str, folder: Path, **more: Any) -> AsyncIterator[HoldfastPlugin]:
    command = [sys.executable, str(MODERN), str(folder)]
    if transport == "stdio":
        async with working(engine, m=McpServerSettings(command=command[0], args=tuple(command[1:]), **more)) as plugin:
            yield plugin
        return
    port = free_port()
    async with (
        http_server([*command, str(port)], port),
        working(engine, m=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp", **more)) as plugin,
    ):
        yield plugin


@both_ways
async def test_S39_newer_servers_call_stop_and_change(engine: Engine, tmp_path: Path, transport: str) -> None:
    async with modern(engine, transport, tmp_path, effects={"grow": Effect.READ}) as plugin:
        assert plugin.servers.statuses[0].protocol == "2026-07-28"
        assert (await approved(engine, "m__act", n=1)).text == "did 1"
        turn = await begun(engine, "m__hang")
        await turn.cancel()
        [stopped] = (await turn.result()).responses
        assert stopped.status == "cancelled"
        effects = tmp_path / "effects"
        await wait_until(
            lambda: asyncio.sleep(0, effects.read_text().splitlines() == ["act 1", "hang", "told to stop"])
        )
        assert (await unasked(engine, "m__grow")).status == "success"
        await wait_until(lambda: asyncio.sleep(0, plugin.registry.get("m__grown")))
        assert (await approved(engine, "m__grown")).status == "success"


async def test_S31_a_result_without_a_type_is_complete(engine: Engine, tmp_path: Path) -> None:
    settings = McpServerSettings(command=sys.executable, args=(str(MODERN.with_name("mcp_untyped.py")), str(tmp_path)))
    async with working(engine, m=settings) as plugin:
        assert plugin.servers.statuses[0].protocol == "2026-07-28"
        assert (await approved(engine, "m__act", n=1)).text == "did 1"
    assert (tmp_path / "effects").read_text().splitlines() == ["act 1"]
