"""What servers do to the wire and to each other: floods, bombs, silence, garbage; and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from holdfast import Result
from holdfast.activities.mcp.auth.bearer import LoginAuthorizer
from holdfast.activities.mcp.auth.login_store import LoginFiles
from holdfast.activities.mcp.server import server as looking_after
from holdfast.activities.mcp.server.lifecycle import ServerState
from holdfast.activities.mcp.servers import McpServers
from holdfast.activities.registry.registry import Registry
from holdfast.config.schema import McpOauthSettings, McpServerSettings
from holdfast.domain.approvals.approval import Confirmation, QuestionAnswer
from holdfast.domain.calls.tool import Effect, OutcomeUnknown, ToolFailure
from holdfast.testing import FakeRun, wait_until
from tests.support.engine import Engine
from tests.support.mcp.mcp_servers import free_port, http_server, ours, servers
from tests.support.processes import command_line_worker

HOSTILE = Path(__file__).parents[2] / "support" / "mcp" / "mcp_hostile.py"
READS = {"act": Effect.READ}
STALLED = 2.0
"""Seconds for which nothing else ran. What is measured takes many times that without its limit."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a server reads and writes."""
    made = tmp_path / "server"
    made.mkdir()
    return made


@asynccontextmanager
async def used(
    tmp_path: Path, seconds: float = 10, authorize: LoginAuthorizer | None = None, **by_name: McpServerSettings
) -> AsyncIterator[tuple[McpServers, Registry]]:
    """Servers and the catalogue that they fill."""
    found, catalogue = McpServers(servers(**by_name), tmp_path / "known", authorize=authorize), Registry()
    found.fill_registry(catalogue)
    async with found.keep_connected(seconds):
        yield found, catalogue


@asynccontextmanager
async def hostile(folder: Path, mode: str, **more: Any) -> AsyncIterator[McpServerSettings]:
    """A server at an address that behaves so."""
    port = free_port()
    async with http_server((sys.executable, str(HOSTILE), str(folder), str(port), mode), port):
        yield McpServerSettings(url=f"http://127.0.0.1:{port}/mcp", **more)


class Pensive(FakeRun):
    """A run whose questions nobody answers."""

    async def ask(self, question: Confirmation) -> QuestionAnswer:
        self.asked.append(question)
        await asyncio.Event().wait()
        raise AssertionError("nobody answers")


async def act(catalogue: Registry, name: str = "s__act", **arguments: Any) -> Result:
    """Call a tool, as a worker does."""
    entry = catalogue.get(name)
    assert entry is not None
    return await entry.tool.build(arguments, Path()).execute(Pensive())


def noted(folder: Path, file: str = "effects") -> list[str]:
    found = folder / file
    return found.read_text().splitlines() if found.exists() else []


async def when(condition: Callable[[], object], seconds: float = 30) -> None:
    await wait_until(lambda: asyncio.sleep(0, condition()), seconds)


@asynccontextmanager
async def stalls() -> AsyncIterator[list[float]]:
    """For how long at most nothing else ran during the block, once it has ended."""
    worst = [0.0]

    async def look() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            worst[0] = max(worst[0], time.monotonic() - began)

    looking = asyncio.create_task(look())
    try:
        yield worst
    finally:
        looking.cancel()


def left(folder: Path) -> list[int]:
    """Processes of servers of this test that live."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                words = Path(entry.path, "cmdline").read_bytes()
                state = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(folder).encode() in words and b"mcp_server.py" in words and state != "Z":
                found.append(int(entry.name))
    return found


# What must not run twice


async def test_S31_a_call_whose_error_speaks_of_a_session_is_made_once(tmp_path: Path, folder: Path) -> None:
    async with (
        hostile(folder, "session in its words") as settings,
        used(tmp_path, s=settings) as (_, catalogue),
    ):
        with pytest.raises(ToolFailure, match="the checkout session was not closed") as found:
            await act(catalogue)
    assert found.value.type == "mcp_error"
    assert noted(folder) == ["act"]


async def test_S31_what_a_gateway_says_is_not_the_end_of_a_call(tmp_path: Path, folder: Path) -> None:
    async with hostile(folder, "gateway") as settings, used(tmp_path, s=settings) as (_, catalogue):
        with pytest.raises(OutcomeUnknown):
            await act(catalogue)
    assert noted(folder) == ["act"]


async def test_S31_a_call_is_not_sent_to_where_it_is_redirected(tmp_path: Path, folder: Path) -> None:
    async with hostile(folder, "redirects calls") as settings, used(tmp_path, s=settings) as (_, catalogue):
        with pytest.raises(ToolFailure, match="it redirects to"):
            await act(catalogue)
    assert noted(folder) == ["act"]


async def test_S39_a_server_that_has_moved_is_found_and_calls_go_there_at_once(tmp_path: Path, folder: Path) -> None:
    async with hostile(folder, "moved") as settings, used(tmp_path, s=settings) as (_, catalogue):
        before = len(noted(folder, "requests"))
        assert (await act(catalogue)).parts[0].text == "did it"
        [made] = noted(folder, "requests")[before:]
    assert made.endswith("POST /mcp/")


# What is too much


@pytest.mark.alone
async def test_S39_a_bomb_beside_calls_is_not_unpacked(tmp_path: Path, folder: Path) -> None:
    async with (
        hostile(folder, "bomb beside calls") as settings,
        stalls() as worst,
        used(tmp_path, s=settings) as (_, catalogue),
    ):
        await when(lambda: "sent" in noted(folder, "requests"))
        for _ in range(20):
            assert (await act(catalogue)).parts[0].text == "did it"
    assert worst[0] < STALLED


async def test_S39_a_farewell_without_end_is_not_read(tmp_path: Path, folder: Path) -> None:
    async with hostile(folder, "endless farewell") as settings:
        async with used(tmp_path, s=settings):
            ended = time.monotonic()
        assert time.monotonic() - ended < 60
        assert len(noted(folder, "farewell")) < 100  # megabytes; it would go on for as long as anybody reads


@pytest.mark.alone
@pytest.mark.parametrize("way", ["lines", "many parts", "many parts as events"])
async def test_S39_an_answer_of_a_million_parts_is_not_read_and_stalls_nobody(
    tmp_path: Path, folder: Path, way: str
) -> None:
    async def fails(settings: McpServerSettings, **arguments: Any) -> None:
        async with stalls() as worst, used(tmp_path, s=settings) as (_, catalogue):
            with pytest.raises(ToolFailure, match="holds over 300,000 values") as found:
                await act(catalogue, **arguments)
        assert found.value.type == "bad_result"
        assert worst[0] < STALLED

    if way == "lines":
        await fails(ours(str(folder), effects=READS), then="many parts", n=1_000_000)
    else:
        async with hostile(folder, way, effects=READS) as settings:
            await fails(settings)
        assert noted(folder) == ["act"]


@pytest.mark.alone
async def test_S39_of_many_parts_a_thousand_are_kept_and_the_rest_costs_little(tmp_path: Path, folder: Path) -> None:
    async with stalls() as worst, used(tmp_path, s=ours(str(folder))) as (_, catalogue):
        result = await act(catalogue, then="many parts", n=90_000)
    assert [len(result.parts), result.parts[-1].text] == [1_000, "[89,001 further parts were left out]"]
    assert worst[0] < STALLED / 2


@pytest.mark.alone
@pytest.mark.parametrize("then", ["pings", "questions", "other answers"])
async def test_S39_a_flood_costs_the_server_that_sends_it_and_not_the_others(
    tmp_path: Path, folder: Path, then: str
) -> None:
    (tmp_path / "other").mkdir()
    form = {"message": "x", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    arguments = {"then": "ask", "value": [form] * 2_000} if then == "questions" else {"then": then}
    other = ours(str(tmp_path / "other"))
    async with stalls() as worst, used(tmp_path, s=ours(str(folder)), other=other) as (found, catalogue):
        flooding = asyncio.create_task(act(catalogue, **arguments))
        while noted(folder).count("sent") < (3 if then == "other answers" else 1) and not flooding.done():
            assert (await act(catalogue, "other__act")).parts[0].text == "did it"
        if then != "other answers":
            with pytest.raises(OutcomeUnknown, match="it has over 100 open requests"):
                await flooding
            (folder / "deaf").unlink(missing_ok=True)
            await when(lambda: found.statuses[0].state is ServerState.CONNECTED)
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
    assert worst[0] < 1


@pytest.mark.alone
async def test_S39_a_thousand_tools_are_taken_in_beside_everything_else(tmp_path: Path, folder: Path) -> None:
    fields = {f"p{number}": {"type": "string", "pattern": "^[a-z]{1,50}$"} for number in range(90)}
    schema = {"type": "object", "properties": fields}
    listed = [{"name": f"t{number}", "inputSchema": schema} for number in range(990)]
    (folder / "tools.json").write_text(json.dumps(listed))
    async with stalls() as worst, used(tmp_path, s=ours(str(folder))) as (_, catalogue):
        await when(lambda: len(catalogue.entries) == 990)
    assert worst[0] < 1


async def test_S39_a_stream_that_ends_at_once_is_listened_to_once_a_second(tmp_path: Path, folder: Path) -> None:
    def listened() -> list[float]:
        return [float(line.split()[0]) for line in noted(folder, "requests") if "GET" in line]

    async with hostile(folder, "ends its stream") as settings, used(tmp_path, s=settings):
        await when(lambda: len(listened()) >= 9)
    times = listened()
    assert times[8] - times[0] > 2  # five at once, and then one a second


# What cannot be read


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"cut \\ud83d"}]}}', "cut \ufffd"),
        ('{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"caf\xe9"}]}}', "caf\ufffd"),
    ],
)
async def test_S39_what_is_no_character_is_replaced(tmp_path: Path, folder: Path, line: str, text: str) -> None:
    async with used(tmp_path, s=ours(str(folder), timeout_seconds=60)) as (_, catalogue):
        assert (await act(catalogue, then="raw", value=line)).parts[0].text == text


@pytest.mark.parametrize(
    "value", ["[" * 300 + "]" * 300, "9" * 5_000, '"an end that is missing'], ids=["deep", "long number", "cut"]
)
async def test_S39_whoever_waits_for_an_answer_that_cannot_be_read_hears_of_it_at_once(
    tmp_path: Path, folder: Path, value: str
) -> None:
    line = f'{{"jsonrpc":"2.0","id":ID,"result":{{"content":[],"structuredContent":{{"a":{value}}}}}}}'
    async with used(tmp_path, s=ours(str(folder), timeout_seconds=120)) as (_, catalogue):
        async with asyncio.timeout(30):
            with pytest.raises(OutcomeUnknown, match="has answered, but the answer cannot be read"):
                await act(catalogue, then="raw", value=line)
        assert (await act(catalogue)).parts[0].text == "did it"


async def test_S39_a_list_that_cannot_be_read_is_told(tmp_path: Path, folder: Path) -> None:
    deep = '{"not":' * 300 + "{}" + "}" * 300
    (folder / "tools.json").write_text(f'[{{"name": "deep", "inputSchema": {{"type": "object", "a": {deep}}}}}]')
    async with used(tmp_path, s=ours(str(folder), start_seconds=60)) as (found, _):
        [status] = found.statuses
    assert status.state is ServerState.WAITING
    assert status.problem == "its message is not JSON-RPC"


async def test_S39_a_structured_result_that_is_no_json_costs_not_the_rest(tmp_path: Path, folder: Path) -> None:
    line = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":NaN}}}'
    async with used(tmp_path, s=ours(str(folder))) as (_, catalogue):
        with pytest.raises(ToolFailure, match="has run, but its structured result holds what JSON cannot say") as found:
            await act(catalogue, then="raw", value=line)
    assert (found.value.type, [part.text for part in found.value.parts]) == ("bad_result", ["x"])


async def test_S45_no_trace_tells_what_a_server_says(tmp_path: Path, folder: Path) -> None:
    code = """
        import asyncio, sys
        from pathlib import Path
        from opentelemetry import trace

        class Provider(trace.TracerProvider):
            def get_tracer(self, name, *arguments, **more):
                print("traced by", name, flush=True)
                return trace.NoOpTracer()

        from holdfast.activities.registry.registry import Registry
        from holdfast.activities.mcp.servers import McpServers
        from holdfast.config.schema import McpServerSettings, McpSettings
        from holdfast.testing import FakeRun
        from holdfast.domain.calls.tool import ToolFailure

        async def main():
            settings = McpServerSettings(command=sys.executable, args=(sys.argv[1], sys.argv[2]))
            known, catalogue = Path(sys.argv[2]) / "known", Registry()
            found = McpServers(McpSettings(servers={"s": settings}), known)
            found.fill_registry(catalogue)
            async with found.keep_connected():
                trace.set_tracer_provider(Provider())
                try:
                    await catalogue.get("s__act").tool.build({"then": "error"}, Path()).execute(FakeRun())
                except ToolFailure as error:
                    print("called", error.type)

        asyncio.run(main())
    """
    words = (sys.executable, "-c", dedent(code), str(HOSTILE.with_name("mcp_server.py")), str(folder))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert said.decode().splitlines() == ["called mcp_error"]


# What does not answer


async def test_S39_a_server_that_is_never_ready_is_told_left_and_reached_when_it_is(
    tmp_path: Path, folder: Path
) -> None:
    async with hostile(folder, "never ready", start_seconds=1) as settings:
        async with used(tmp_path, s=settings) as (found, catalogue):
            assert found.statuses[0].problem == "it was not ready within 1 seconds"
            (folder / "healed").touch()
            await when(lambda: found.statuses[0].state is ServerState.CONNECTED)
            assert (await act(catalogue)).parts[0].text == "did it"
            (folder / "healed").unlink()
            ended = time.monotonic()
        assert time.monotonic() - ended < 10  # its farewell is never answered


async def test_S39_what_is_told_and_not_answered_holds_up_nobody(tmp_path: Path, folder: Path) -> None:
    async with hostile(folder, "cancel hangs") as settings, used(tmp_path, s=settings) as (_, catalogue):
        hanging = asyncio.create_task(act(catalogue, hang=True))
        await when(lambda: noted(folder))
        hanging.cancel()
        with pytest.raises(OutcomeUnknown, match=r"was told to stop.* may have taken effect"):
            await hanging
        async with asyncio.timeout(60):
            assert (await act(catalogue)).parts[0].text == "did it"
    assert noted(folder) == ["act", "act"]


async def test_S39_a_server_that_answers_nothing_after_a_call_is_replaced(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking_after, "CHECK_SECONDS", 0.5)
    async with used(tmp_path, s=ours(str(folder), timeout_seconds=1)) as (_, catalogue):
        before = (folder / "pid").read_text()
        with pytest.raises(OutcomeUnknown, match="did not answer within 1 seconds"):
            await act(catalogue, then="deaf")
        await when(lambda: (folder / "pid").read_text() != before)
        assert (await act(catalogue)).parts[0].text == "did it"


async def test_S39_a_server_whose_child_holds_its_streams_is_gone_when_it_is(tmp_path: Path, folder: Path) -> None:
    async with used(tmp_path, s=ours(str(folder), timeout_seconds=120)) as (_, catalogue):
        async with asyncio.timeout(30):
            with pytest.raises(OutcomeUnknown, match="it exited with code 7"):
                await act(catalogue, then="leave")
            assert (await act(catalogue)).parts[0].text == "did it"  # it was started again


async def test_S39_an_authorization_server_that_hangs_keeps_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_SECRET", "clientsecret123")

    done = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    listening = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    oauth = McpOauthSettings(
        grant="client_credentials", client_id="x", client_secret="${THEIR_SECRET}", issuer=f"http://127.0.0.1:{port}"
    )
    threads = min(32, (os.cpu_count() or 1) + 4)
    several = {
        f"s{number}": McpServerSettings(url=f"http://127.0.0.1:{port}/{number}", start_seconds=60, oauth=oauth)
        for number in range(threads)
    }
    async with listening, used(tmp_path, 0.5, LoginAuthorizer(LoginFiles(tmp_path / "tokens")), **several):
        try:
            async with asyncio.timeout(30):
                await asyncio.to_thread(int)
        finally:
            done.set()


# What is left


async def test_S17_nothing_is_left_of_a_server_that_is_never_ready_and_ignores_its_end(
    tmp_path: Path, folder: Path
) -> None:
    async with used(tmp_path, 0.1, s=ours(str(folder), "--never-ready", start_seconds=1)):
        await when(lambda: len(left(folder)) == 2)
        await when(lambda: (folder / "ending").exists())
    assert left(folder) == []


async def test_S17_a_worker_that_is_told_to_end_leaves_nothing_of_such_a_server(engine: Engine, folder: Path) -> None:
    file = folder / "holdfast.toml"
    command = f"command = {sys.executable!r}\nargs = [{str(HOSTILE.with_name('mcp_server.py'))!r}, {str(folder)!r}"
    file.write_text(f'[mcp.servers.s]\n{command}, "--never-ready"]\nstart_seconds = 1\n')
    async with command_line_worker(engine, file) as worker:
        (folder / "ending").unlink(missing_ok=True)
        await when(lambda: (folder / "ending").exists())
        os.kill(worker.pid, signal.SIGTERM)
        await worker.died()
    assert left(folder) == []
