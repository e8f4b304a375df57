"""Resources and prompts of servers, read through tools in real turns (S39)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import BlobPart, HoldfastPlugin, Response, TurnInput
from holdfast.activities.mcp.server.lifecycle import ServerState
from holdfast.config.schema import McpServerSettings
from holdfast.domain.calls.tool import Effect
from holdfast.testing import build_request, decide_all, wait_until
from tests.support.engine import Engine
from tests.support.mcp.mcp_servers import node_server, servers
from tests.support.waiting import waiting

PROGRAM = Path(__file__).parents[2] / "support" / "mcp" / "mcp_library.py"
ALL = ["l__get_prompt", "l__list_prompts", "l__list_resources", "l__read_resource"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the library reads and writes."""
    made = tmp_path / "library"
    made.mkdir()
    return made


def library(folder: Path, **more: Any) -> McpServerSettings:
    """The server."""
    return McpServerSettings(command=sys.executable, args=(str(PROGRAM), str(folder)), **more)


@asynccontextmanager
async def working(engine: Engine, server: McpServerSettings) -> AsyncIterator[HoldfastPlugin]:
    """A worker with this server, connected."""
    engine.settings = replace(engine.settings, mcp=servers(l=server))
    plugin = HoldfastPlugin(engine.settings)
    client = await Client.connect(engine.address, plugins=[plugin])
    async with Worker(client, task_queue=engine.queue):
        await wait_until(lambda: asyncio.sleep(0, plugin.servers.statuses[0].state is ServerState.CONNECTED))
        yield plugin


def names(plugin: HoldfastPlugin) -> list[str]:
    """Of the tools that the server brings."""
    return [entry.declaration.name for entry in plugin.registry.entries if entry.declaration.server == "l"]


async def read(engine: Engine, tool: str, **arguments: Any) -> Response:
    """The response to a call that nobody is asked about."""
    turn = await engine.start(TurnInput(batches=((build_request(f"l__{tool}", **arguments),),), interactive=False))
    [response] = (await turn.result()).responses
    return response


async def test_S39_resources_and_prompts_are_read_through_tools(engine: Engine, folder: Path) -> None:
    async with working(engine, library(folder, trust=True)) as plugin:
        assert names(plugin) == ALL
        listed = await read(engine, "list_resources")
        assert [line.partition(" ")[0] for line in listed.text.splitlines()] == [
            "book://0", "book://secret", "book://1", "book://2", "book://{title}",
        ]  # fmt: skip
        assert "\x1b" not in listed.text
        assert "(Secret, 1,234 bytes)" in listed.text
        assert (await read(engine, "read_resource", uri="book://0")).text == "[resource book://0]\nonce upon a time"
        [picture] = (await read(engine, "read_resource", uri="book://picture")).parts
        assert isinstance(picture, BlobPart)
        prompts = await read(engine, "list_prompts")
        assert prompts.text == "greet (arguments: who, how (optional)): Say hello"
        prompt = await read(engine, "get_prompt", name="greet", arguments={"who": "Ada"})
        assert prompt.parts[0].text == "user: Greet Ada"
        assert isinstance(prompt.parts[2], BlobPart)


async def test_S39_of_a_server_that_is_not_trusted_they_are_asked_about(engine: Engine, folder: Path) -> None:
    async with working(engine, library(folder)):
        turn = await engine.start(TurnInput(batches=((build_request("l__read_resource", uri="book://0"),),)))
        [asked] = (await wait_until(lambda: waiting(turn))).approvals
        assert (asked.kind, asked.server) == ("mcp", "l")
        assert (asked.title, asked.others) == ("l/read_resource", '{"uri": "book://0"}')
        assert asked.about
        assert asked.about.description == "Read a resource of the server l, by its address."
        assert asked.about.because.startswith("it only reads; it is asked about, since the server is not trusted")
        await engine.holdfast.approve(asked.approval_id, digest=asked.digest)
        [response] = (await turn.result()).responses
        assert response.status == "success"
    async with working(engine, library(folder, effects={"read_resource": Effect.READ})):
        assert (await read(engine, "read_resource", uri="book://0")).status == "success"


WRONG: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "unknown": ("read_resource", {"uri": "book://none"}, "mcp_error", "nothing is called book://none"),
    "nonsense": ("read_resource", {"uri": "book://nonsense"}, "bad_result", "cannot be read"),
    "no address": ("read_resource", {}, "invalid_tool_params", "uri"),
    "no text": ("get_prompt", {"name": "greet", "arguments": {"who": 5}}, "invalid_tool_params", "who"),
    "left out": ("get_prompt", {"name": "greet", "more": 1}, "invalid_tool_params", "more"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_S39_what_cannot_be_read_says_why(engine: Engine, folder: Path, case: str) -> None:
    tool, arguments, kind, words = WRONG[case]
    async with working(engine, library(folder, trust=True)):
        response = await read(engine, tool, **arguments)
    assert response.error is not None
    assert (response.error.type, words in response.error.message) == (kind, True), response.error


async def test_S33_S45_what_is_read_is_bounded_and_without_secrets(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_KEY", "canary-library-key")
    async with working(engine, library(folder, trust=True, env={"SECRET": "${CANARY_KEY}"})):
        giant = await read(engine, "read_resource", uri="book://giant")
        assert 30_000 < len(giant.text) < 41_000
        told = [await read(engine, "list_resources"), await read(engine, "read_resource", uri="book://secret")]
    assert all("[CANARY_KEY]" in one.text and "canary-library-key" not in one.text for one in told)


async def test_S31_a_server_that_dies_while_it_is_read_is_read_again(engine: Engine, folder: Path) -> None:
    async with working(engine, library(folder, trust=True)):
        assert "alive" in (await read(engine, "read_resource", uri="book://die")).text


async def test_S39_the_servers_own_tools_keep_their_names_and_a_name_that_changes_hands_is_asked_about(
    engine: Engine, folder: Path
) -> None:
    async with working(engine, library(folder, effects={"read_resource": Effect.READ})) as plugin:
        assert names(plugin) == ALL
    (folder / "more").write_text("read_resource mcp_list_prompts")
    async with working(engine, library(folder, effects={"read_resource": Effect.READ}, trust=True)) as plugin:
        assert "l__mcp_read_resource" in names(plugin)
        assert (await read(engine, "mcp_read_resource", uri="book://0")).status == "success"
        turn = await engine.start(TurnInput(batches=((build_request("l__read_resource"),),)))
        [asked] = (await wait_until(lambda: waiting(turn))).approvals
        assert "The server has changed this tool since it was first seen" in (asked.reason or "")
        await decide_all(engine.holdfast, turn)
        [response] = (await turn.result()).responses
        assert response.text == "the server's own read_resource"


async def test_S39_what_there_is_none_of_has_no_tools_and_what_is_left_out_neither(
    engine: Engine, folder: Path
) -> None:
    (folder / "bare").touch()
    async with working(engine, library(folder, exclude=("get_prompt",))) as plugin:
        assert names(plugin) == ["l__list_prompts"]


async def test_S39_a_real_server_is_read(engine: Engine) -> None:
    """S39: server-everything, which nobody here wrote."""
    server = McpServerSettings(command=node_server("mcp-server-everything"), args=("stdio",), trust=True)
    async with working(engine, server) as plugin:
        assert set(ALL) <= set(names(plugin))
        listed = await read(engine, "list_resources")
        first = listed.text.split()[0]
        assert (await read(engine, "read_resource", uri=first)).text.startswith(f"[resource {first}")
        prompts = await read(engine, "list_prompts")
        assert "simple" in prompts.text
        name = next(line.split()[0] for line in prompts.text.splitlines() if line.startswith("simple"))
        assert (await read(engine, "get_prompt", name=name)).parts[0].text.startswith("user: ")
