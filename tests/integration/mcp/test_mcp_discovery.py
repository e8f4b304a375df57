"""Which tools of MCP servers there are: every page, as they change, and never one in the place of another."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import HoldfastPlugin, TextPart, Turn, TurnInput
from holdfast.activities.mcp.server.lifecycle import ServerState
from holdfast.activities.mcp.servers import McpServers
from holdfast.activities.registry.registry import Registry
from holdfast.config.schema import McpServerSettings, McpSettings
from holdfast.domain.calls.tool import Effect, Run, ToolFailure
from holdfast.testing import FakeRun, FakeTool, build_request, decide_all, wait_until
from tests.support.engine import Engine
from tests.support.mcp.mcp_servers import free_port, http_server, ours, servers
from tests.support.waiting import asked, waiting


def tool(name: str, description: str = "Does.", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "server"
    made.mkdir()
    return made


def lists(folder: Path, given: Any) -> None:
    """What the server lists from now on."""
    draft = folder / "tools.draft"
    draft.write_text(json.dumps(given))
    draft.rename(folder / "tools.json")


def say_changed(folder: Path) -> None:
    os.kill(int((folder / "pid").read_text()), signal.SIGUSR1)


def of_servers(registry: Registry) -> dict[str, str]:
    """The tools of servers in a catalogue, with their descriptions."""
    return {
        entry.declaration.name: entry.declaration.description
        for entry in registry.entries
        if entry.source.startswith("MCP server")
    }


@asynccontextmanager
async def connected(
    tmp_path: Path, settings: McpSettings, registry: Registry | None = None
) -> AsyncIterator[tuple[McpServers, Registry]]:
    """Servers and the catalogue that they fill."""
    found = McpServers(settings, tmp_path / "known")
    catalogue = registry or Registry()
    found.fill_registry(catalogue)
    async with found.keep_connected():
        yield found, catalogue


async def when(condition: Callable[[], object]) -> None:
    await wait_until(lambda: asyncio.sleep(0, condition()))


async def test_S39_every_page_is_read(tmp_path: Path, folder: Path) -> None:
    pages = [[tool(f"t{page}_{number}") for number in range(20)] for page in range(15)]
    lists(folder, {"pages": pages})
    async with connected(tmp_path, servers(s=ours(str(folder)))) as (found, registry):
        assert len(of_servers(registry)) == 300
        [status] = found.statuses
    assert (status.state, status.protocol, status.server, status.tools) == (
        ServerState.CONNECTED, "2025-06-18", "hostile 1", 300,
    )  # fmt: skip


ENDLESS: dict[str, tuple[Any, str]] = {
    "a list that does not end": ({"pages": [[tool("a")]], "cursors": [0]}, "its list of tools does not end"),
    "too many tools": ([tool(f"t{number}") for number in range(1_001)], "it lists over 1,000 tools"),
    "no list": ({"pages": [{"a": 1}]}, "its list of tools does not fit the protocol"),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_S39_a_list_that_makes_no_sense_costs_its_server_alone(tmp_path: Path, folder: Path, name: str) -> None:
    given, words = ENDLESS[name]
    lists(folder, given)
    other = tmp_path / "other"
    other.mkdir()
    async with connected(tmp_path, servers(s=ours(str(folder)), other=ours(str(other)))) as (_, registry):
        assert list(of_servers(registry)) == ["other__act"]
        [problem] = registry.problems
    assert problem.source == "MCP server s"
    assert words in problem.reason


async def test_S39_one_tool_that_makes_no_sense_does_not_cost_the_others(tmp_path: Path, folder: Path) -> None:
    lists(
        folder,
        [
            tool("good"),
            {"name": "bare"},
            tool("yes", inputSchema=True),
            tool("rows", inputSchema={"type": "array"}),
            "a",
        ],
    )
    async with connected(tmp_path, servers(s=ours(str(folder)))) as (found, registry):
        assert list(of_servers(registry)) == ["s__good"]
        told = "\n".join(problem.reason for problem in registry.problems)
        [status] = found.statuses
    assert status.state is ServerState.CONNECTED
    for name in ("'bare'", "'yes'", "'rows'", "the tool at place 5"):
        assert f"{name} does not fit the protocol: " in told


async def test_S39_tools_that_cannot_be_used_are_left_out_with_the_reason(tmp_path: Path, folder: Path) -> None:
    lists(
        folder,
        [
            tool("good"),
            tool("twice", "One."),
            tool("twice", "Another."),
            tool("remote", inputSchema={"type": "object", "$ref": "https://example.com/schema"}),
            tool("wordy", "x" * 60_000),
            tool("as-task", execution={"taskSupport": "required"}),
            tool(""),
        ],
    )
    async with connected(tmp_path, servers(s=ours(str(folder)))) as (_, registry):
        assert list(of_servers(registry)) == ["s__good"]
        reasons = " / ".join(problem.reason for problem in registry.problems)
    for words in ("'twice' twice, so neither", "schema", "over 50,000", "as an MCP task", "without a name"):
        assert words in reasons


async def test_S39_names_are_kept_apart_or_refused(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("a", "a_b", "a__b")}
    for path in folders.values():
        path.mkdir()
    lists(folders["a"], [tool("b_c"), tool("c"), tool("b__c"), tool("x" * 100), tool("dots.and/more")])
    lists(folders["a_b"], [tool("c")])
    lists(folders["a__b"], [tool("c")])

    async def nothing(arguments: dict[str, Any], run: Run) -> str:
        return ""

    registry = Registry([FakeTool("a__c", nothing)])
    settings = servers(**{name: ours(str(path)) for name, path in folders.items()})
    async with connected(tmp_path, settings, registry):
        names = list(of_servers(registry))
        assert len(names) == 6
        assert {"a__b_c", "a_b__c", "a__b__c"} <= set(names)
        assert all(len(name) <= 64 for name in names)
        [problem] = registry.problems
        entry = registry.get("a__c")
    assert "two tools are called 'a__c', one from this program and one from MCP server a" in problem.reason
    assert entry is not None
    assert entry.source == "this program"


async def test_S39_what_is_included_excluded_and_disabled_is_up_to_the_settings(tmp_path: Path, folder: Path) -> None:
    lists(folder, [tool("read_a"), tool("read_b"), tool("write_a"), tool("other")])
    registry = Registry()
    registry.disabled = frozenset(["s__other"])
    settings = ours(str(folder), include=("read_*", "other"), exclude=("*_b",))
    async with connected(tmp_path, servers(s=settings), registry):
        assert list(of_servers(registry)) == ["s__read_a"]
        assert registry.problems == []


async def test_S39_the_catalogue_follows_a_list_that_changes(tmp_path: Path, folder: Path) -> None:
    lists(folder, [tool("a"), tool("b")])
    async with connected(tmp_path, servers(s=ours(str(folder)))) as (_, registry):
        before, kept = registry.digest, registry.get("s__b")
        lists(folder, [tool("b", "Does something else."), tool("c")])
        say_changed(folder)
        await when(lambda: "s__c" in of_servers(registry))
        assert of_servers(registry) == {"s__b": "Does something else.", "s__c": "Does."}
        assert registry.digest != before
        assert kept is not None
        assert kept.declaration.description == "Does."  # whoever judges by it goes on with what it saw


async def test_S39_a_server_that_comes_later_brings_its_tools_then(tmp_path: Path, folder: Path) -> None:
    port = free_port()
    url = McpServerSettings(url=f"http://127.0.0.1:{port}/mcp")
    async with connected(tmp_path, servers(s=url)) as (found, registry):
        assert of_servers(registry) == {}
        [problem] = registry.problems
        assert "it cannot be reached" in problem.reason
        own = ours(str(folder))
        assert own.command
        async with http_server([own.command, *own.args, "--http", str(port)], port):
            await when(lambda: "s__act" in of_servers(registry))
            await when(lambda: registry.problems == [])
            assert found.statuses[0].state == ServerState.CONNECTED


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (McpServerSettings(command="x", env={"A": "${NOT_SET_ANYWHERE}"}), "environment variable 'NOT_SET_ANYWHERE'"),
        (McpServerSettings(url="${NOT_SET_ANYWHERE}"), "environment variable 'NOT_SET_ANYWHERE'"),
        (McpServerSettings(url="${EMPTY:-nowhere}"), "is not one of http:// or https://"),
        (McpServerSettings(command="true"), "it exited with code 0"),
        (
            McpServerSettings(command="sh", args=("-c", "echo no >&2; exit 3")),
            "it exited with code 3; its last lines: no",
        ),
        (McpServerSettings(command="/etc/passwd"), "its command is not executable: '/etc/passwd'"),
        (McpServerSettings(command="npx -y server"), "'npx -y server'; put its arguments into `args`"),
        (McpServerSettings(command="sh", cwd=Path("/nowhere")), "its folder (`cwd`) does not exist: '/nowhere'"),
        (
            McpServerSettings(command="sh", args=("-c", "echo hello world; sleep 60"), start_seconds=1),
            "it printed on standard output, where only protocol messages belong: hello world",
        ),
        (McpServerSettings(command="sleep", args=("60",), start_seconds=1), "it was not ready within 1 seconds"),
    ],
)
async def test_S39_a_server_that_cannot_be_had_is_told(tmp_path: Path, settings: McpServerSettings, words: str) -> None:
    async with connected(tmp_path, servers(s=settings)) as (_, registry):
        [problem] = registry.problems
        assert words in problem.reason


async def test_S39_what_the_settings_say_of_tools_that_are_not_there_is_told(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists(folder, [tool("delete_all"), tool("look")])
    own = ours(str(folder), exclude=("delet_*",), include=("look", "del*"), effects={"lok": Effect.READ})
    async with connected(tmp_path, servers(s=own)) as (found, registry):
        assert set(of_servers(registry)) == {"s__delete_all", "s__look"}
        told = [
            "`exclude` has 'delet_*', which matches none of its tools. Did you mean \"delete_all\"?",
            "`effects` has 'lok', which matches none of its tools. Did you mean \"look\"?",
        ]
        assert [problem.reason for problem in registry.problems] == told
        assert found.statuses[0].remarks == tuple(told)
    assert [record.message for record in caplog.records] == [f"MCP server s: {words}" for words in told]


async def test_S39_a_server_that_is_not_there_yet_is_tried_at_once_when_a_tool_of_it_is_called(
    engine: Engine, folder: Path
) -> None:
    port = free_port()
    engine.settings = replace(engine.settings, mcp=servers(s=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp")))
    own = ours(str(folder))
    assert own.command
    async with working(engine) as registry:
        for _ in range(4):  # so that it waits for some seconds before it tries again by itself
            turn = await engine.start(TurnInput(batches=((build_request("s__act"),),)))
            [response] = (await turn.result()).responses
            assert response.error is not None
            assert response.error.type == "mcp_unavailable"
        async with http_server([own.command, *own.args, "--http", str(port)], port):
            assert registry.get("s__act") is None
            turn = await engine.start(TurnInput(batches=((build_request("s__act"),),)))
            await decide_all(engine.holdfast, turn)
            assert [response.status for response in (await turn.result()).responses] == ["success"]


async def test_S45_what_a_server_says_beside_the_protocol_is_kept_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_TOKEN", "canary-12345678")
    program = "echo begins >&2; printf 'has canary-' >&2; sleep 0.1; printf '12345678\\n' >&2; echo stray $T; exit 4"
    noisy = McpServerSettings(command="sh", args=("-c", program), env={"T": "${THEIR_TOKEN}"})
    async with connected(tmp_path, servers(s=noisy)) as (_, registry):
        [problem] = registry.problems
    assert "it exited with code 4" in problem.reason
    assert "its last lines: begins\nhas [THEIR_TOKEN]" in problem.reason
    file = tmp_path / "known" / "logs" / "s.log"
    text = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    said = ("begins", "has [THEIR_TOKEN]", "(standard output, no message) stray [THEIR_TOKEN]")
    for words in (*said, "-- it exited with code 4"):
        assert words in text
    assert "canary" not in text


async def test_S39_schemas_that_take_for_ever_cost_their_own_tools(tmp_path: Path, folder: Path) -> None:
    steps: Any = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    bomb = {"type": "object", "unevaluatedProperties": False, "$ref": "#/$defs/a0", "$defs": {**steps, "a40": {}}}
    lists(folder, [tool("good"), *({**tool(f"bomb{n}"), "inputSchema": bomb} for n in range(9)), tool("late")])
    async with connected(tmp_path, servers(s=ours(str(folder)))) as (_, registry):
        await when(lambda: "s__good" in of_servers(registry))
        reasons = [problem.reason for problem in registry.problems]
    assert set(of_servers(registry)) == {"s__good"}
    assert len(reasons) == 10
    assert reasons[0].startswith("'bomb0' cannot be used: the schema of its parameters cannot be used: it takes too")
    assert reasons[-1] == "'late' cannot be used: its schema was not checked: 3 others take too long to check"


# Definitions


CHANGED = tool("act", "Does something else.", annotations={"readOnlyHint": False, "destructiveHint": True})


async def ask(turn: Turn, number: int) -> Any:
    """The approval that waits for the call of this batch."""
    view = await wait_until(lambda: _waits(turn, f"b{number}c1"))
    return view.approvals[0]


async def _waits(turn: Turn, call: str) -> Any:
    view = await waiting(turn)
    return view if view and f"/{call}/" in view.approvals[0].approval_id else None


@asynccontextmanager
async def working(engine: Engine) -> AsyncIterator[Registry]:
    """A worker, and the catalogue that it has."""
    plugin = HoldfastPlugin(engine.settings)
    client = await Client.connect(engine.address, plugins=[plugin])
    async with Worker(client, task_queue=engine.queue):
        yield plugin.registry


async def change(folder: Path, registry: Registry, given: dict[str, Any]) -> None:
    """The server has another definition of its tool from now on, and the worker knows."""
    before = registry.digest
    lists(folder, [given])
    say_changed(folder)
    await when(lambda: registry.digest != before)


async def test_S39_a_tool_that_changed_is_asked_about_again_whatever_was_granted(engine: Engine, folder: Path) -> None:
    lists(folder, [tool("act", annotations={"readOnlyHint": True})])
    engine.settings = replace(engine.settings, mcp=servers(s=ours(str(folder), trust=True)))
    async with working(engine) as registry:
        turn = await engine.start(TurnInput(batches=((build_request("s__act"),),), keep_open=True))
        await wait_until(lambda: _ended(turn, 1))  # it merely reads, says a server that is trusted
        await change(folder, registry, CHANGED)
        await turn.submit((build_request("s__act"),))
        first = await ask(turn, 2)
        assert "The server has changed this tool since it was last approved" in first.reason
        assert "its description, destructiveHint from silence to yes, readOnlyHint from yes to no" in first.reason
        assert "-description: Does.\n+description: Does something else." in first.diff
        assert first.offers == ()
        await engine.holdfast.approve(first.approval_id, digest=first.digest)
        await turn.submit((build_request("s__act"),))
        second = await ask(turn, 3)
        assert (second.reason or "").startswith("It destroys something"), "its server says so"
        assert second.diff is None
        await engine.holdfast.decide(second.approval_id, "proceed_always_tool", digest=second.digest)
        await turn.submit((build_request("s__act"),))
        await wait_until(lambda: _ended(turn, 4))  # by the grant
        await change(folder, registry, {**CHANGED, "title": "Act"})
        await turn.submit((build_request("s__act"),))
        third = await ask(turn, 5)
        assert "since it was last approved" in third.reason
        assert "its title" in third.reason
        await turn.cancel()
        await turn.result()


async def _ended(turn: Turn, number: int) -> bool:
    return (await turn.fetch_batch(f"b{number}")).status == "done"


async def test_S39_what_changes_between_approval_and_execution_is_asked_about_again(
    engine: Engine, folder: Path
) -> None:
    lists(folder, [tool("act")])
    engine.settings = replace(engine.settings, mcp=servers(s=ours(str(folder))))
    async with working(engine) as registry:
        asking = build_request("ask_user", question="Is it time?")
        turn = await engine.start(TurnInput(batches=((build_request("s__act"), asking),)))
        act, question = (await wait_until(lambda: waiting(turn, 2))).approvals
        await engine.holdfast.approve(act.approval_id, digest=act.digest)
        await change(folder, registry, CHANGED)
        await engine.holdfast.decide(question.approval_id, "respond", digest=question.digest, content="yes")
        [again] = (await wait_until(lambda: asked(turn, "b1c1", 2))).approvals
        assert "The server has changed this tool since it was first seen" in again.reason
        assert again.digest != act.digest
        assert not (folder / "effects").exists()
        await engine.holdfast.approve(again.approval_id, digest=again.digest)
        first, second = (await turn.result()).responses
    assert (first.status, second.status) == ("success", "success")


async def test_S39_a_rule_that_allows_a_tool_does_not_allow_what_became_of_it(engine: Engine, folder: Path) -> None:
    lists(folder, [tool("act")])
    engine.with_rules('[[rule]]\ndecision = "allow"\nserver = "s"\n', mcp=servers(s=ours(str(folder))))
    for description, asks in (("Does.", False), ("Does more.", True), ("Does more.", False)):
        lists(folder, [tool("act", description)])
        async with engine.worker():  # a worker that starts anew remembers
            turn = await engine.start(TurnInput(batches=((build_request("s__act"),),)))
            decided = await decide_all(engine.holdfast, turn)
            [response] = (await turn.result()).responses
        assert (response.status, bool(decided)) == ("success", asks)


async def test_S39_annotations_count_only_where_the_user_trusts_the_server(tmp_path: Path, folder: Path) -> None:
    hints = {
        "reads": {"readOnlyHint": True, "openWorldHint": False},
        "repeats": {"idempotentHint": True},
        "silent": {},
    }
    lists(folder, [tool(name, annotations=given) for name, given in hints.items()])
    (other := tmp_path / "other").mkdir()
    lists(other, [tool(name, annotations=given) for name, given in hints.items()])
    trusted = ours(str(folder), trust=True, effects={"silent": Effect.READ})
    async with connected(tmp_path, servers(t=trusted, u=ours(str(other)))) as (_, registry):
        found = {
            entry.declaration.name: (entry.declaration.effect, entry.declaration.traits.open_world)
            for entry in registry.entries
        }
    assert found == {
        "t__reads": (Effect.READ, False),
        "t__repeats": (Effect.IDEMPOTENT, True),
        "t__silent": (Effect.READ, True),
        "u__reads": (Effect.ONCE, True),
        "u__repeats": (Effect.ONCE, True),
        "u__silent": (Effect.ONCE, True),
    }


async def test_S39_a_file_that_other_programs_read_is_read_as_it_is(tmp_path: Path, folder: Path) -> None:
    own = ours(str(folder))
    file = tmp_path / ".mcp.json"
    entries = {
        "my server": {"type": "stdio", "command": own.command, "args": list(own.args), "env": {"A": "b"}},
        "off": {"command": "x", "disabled": True},
        "old": {"type": "sse", "url": "http://127.0.0.1:1/sse"},
    }
    file.write_text(json.dumps({"mcpServers": entries}))
    async with connected(tmp_path, McpSettings(files=(file,))) as (_, registry):
        assert list(of_servers(registry)) == ["my-server__act"]
        [problem] = registry.problems
    assert problem.source == f"MCP server old of {file}"
    assert "which MCP has removed" in problem.reason


async def test_S39_what_was_judged_under_another_definition_is_not_called(tmp_path: Path, folder: Path) -> None:
    lists(folder, [tool("act")])
    async with connected(tmp_path, servers(s=ours(str(folder)))) as (_, registry):
        kept = registry.get("s__act")
        assert kept is not None
        invocation = kept.tool.build({}, tmp_path)
        await change(folder, registry, CHANGED)
        with pytest.raises(ToolFailure, match="has just changed 'act' of the MCP server 's'") as failure:
            await invocation.execute(FakeRun(tmp_path))
    assert failure.value.type == "tool_changed"
    assert not (folder / "effects").exists()


async def test_S39_servers_can_be_used_again_after_they_were_closed(tmp_path: Path, folder: Path) -> None:
    async with connected(tmp_path, servers(s=ours(str(folder)))) as (found, registry):
        first = int((folder / "pid").read_text())
    assert [one.state for one in found.statuses] == [ServerState.CLOSED]
    async with found.keep_connected(), found.keep_connected():
        assert [one.state for one in found.statuses] == [ServerState.CONNECTED]
        assert int((folder / "pid").read_text()) != first
        entry = registry.get("s__act")
        assert entry is not None
        assert (await entry.tool.build({"n": 1}, tmp_path).execute(FakeRun(tmp_path))).parts == (
            TextPart(text="did 1"),
        )
