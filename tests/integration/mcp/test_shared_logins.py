"""Logins at MCP servers in a shared ledger, on a real PostgreSQL: of one host, used and renewed by all (S39, S45)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'holdfast[postgres]'")

from holdfast import HoldfastPlugin, Response, Settings, TurnInput
from holdfast.activities.mcp.auth import shared_logins
from holdfast.activities.mcp.auth.login_store import Login, LoginFile, NotAuthorized, read_clock
from holdfast.activities.mcp.auth.shared_logins import SharedLogins, open_login_store
from holdfast.activities.mcp.server.lifecycle import ServerState
from holdfast.config.sections import EncryptionSettings, KeySettings
from holdfast.domain.calls.tool import Effect
from holdfast.errors import HoldfastError
from holdfast.payloads.keyring import generate_key
from holdfast.testing import build_request, decide_all, wait_until
from holdfast.workers.mcp.servers import find_login_status, log_out, look_at_servers
from tests.support.engine import Engine, new_engine
from tests.support.mcp.mcp_guarded import Guarded, guarded_server, somebody_logs_in
from tests.support.mcp.mcp_servers import servers
from tests.support.services.postgres import PostgresServer, postgres_server
from tests.support.shared import VARIABLE, query

pytestmark = pytest.mark.needs("postgres")
READS = {"act": Effect.READ}
"""Where the ledger is away, only what needs no entry in it can tell anything of logins."""


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with postgres_server("fsync=off", "synchronous_commit=off") as made:
        yield made


@pytest.fixture
async def address(running: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new database, which the variable of the settings names."""
    name = f"shared_{uuid4().hex}"
    monkeypatch.setenv(VARIABLE, running.address())
    await query(f"CREATE DATABASE {name}")
    monkeypatch.setenv(VARIABLE, running.address(database=name))
    return running.address(database=name)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    """A server that wants OAuth."""
    async with guarded_server(tmp_path / "guarded") as made:
        yield made


@pytest.fixture
async def hosts(
    server_address: str, tmp_path: Path, address: str, guarded: Guarded
) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two data folders, on queues of their own, with one ledger and this server."""
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(new_engine(server_address, tmp_path / name)) for name in ("one", "two")]
        for engine in made:
            known = servers(g=guarded.settings(effects=READS))
            engine.settings = replace(engine.settings, ledger=f"env:{VARIABLE}", mcp=known)
        yield made[0], made[1]


@asynccontextmanager
async def working(engine: Engine) -> AsyncIterator[HoldfastPlugin]:
    """A worker that has tried to connect."""
    plugin = HoldfastPlugin(engine.settings)
    client = await Client.connect(engine.address, plugins=[plugin])
    async with Worker(client, task_queue=engine.queue):
        await wait_until(lambda: asyncio.sleep(0, state(plugin) not in (ServerState.CONNECTING, ServerState.CLOSED)))
        yield plugin


def state(plugin: HoldfastPlugin) -> ServerState:
    [status] = plugin.servers.statuses
    return status.state


async def called(engine: Engine, number: int) -> Response:
    turn = await engine.start(TurnInput(batches=((build_request("g__act", n=number),),)))
    await decide_all(engine.holdfast, turn)
    [response] = (await turn.result()).responses
    return response


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[SharedLogins]:
    logins = open_login_store(settings)
    assert isinstance(logins, SharedLogins)
    try:
        yield logins
    finally:
        await logins.disconnect()


async def kept(settings: Settings) -> Login:
    """The login as it is in the ledger now."""
    async with opened(settings) as logins:
        found = await logins.read("g")
        assert found
        return found


async def change(settings: Settings, **changes: Any) -> None:
    """Another login in the place of this one."""
    async with opened(settings) as logins, logins.open_change("g") as held:
        login = await held.read()
        assert login
        await held.write(login.model_copy(update=changes))


async def test_S39_a_login_made_on_one_host_is_used_and_renewed_and_ended_on_another(
    hosts: tuple[Engine, Engine], guarded: Guarded
) -> None:
    one, two = hosts
    async with working(two) as plugin:
        assert state(plugin) is ServerState.UNAUTHORIZED
        await somebody_logs_in(one.settings, "g")
        await wait_until(lambda: asyncio.sleep(0, state(plugin) is ServerState.CONNECTED))
        assert (await called(two, 1)).text == "did 1"
        first = await kept(one.settings)
        await guarded.expire()
        assert (await called(two, 2)).text == "did 2"
        second = await kept(one.settings)
        assert second.refresh_token != first.refresh_token
        [seen] = (await look_at_servers(one.settings)).servers
        assert (seen.status.state, seen.login and seen.login.problem) == (ServerState.CONNECTED, None)
        assert await log_out(one.settings, "g") == "its tokens were revoked"

        async def ended() -> bool:
            response = await called(two, 3)
            return bool(response.error and "log in with `holdfast mcp login g`" in response.error.message)

        await wait_until(ended)
    assert guarded.log("token refresh_token") == [f"token refresh_token given {guarded.url}"]
    assert await query("SELECT count(*) FROM holdfast_logins") == 0
    assert not one.settings.mcp_logins_folder.exists()
    assert not two.settings.mcp_logins_folder.exists()


RENEW = """
import asyncio, sys
from pathlib import Path
from holdfast import Settings
from holdfast.activities.mcp.auth.bearer import ServerTokens
from holdfast.activities.mcp.resolve import ResolvedServer
from holdfast.activities.mcp.auth.shared_logins import open_login_store
from holdfast.config.schema import McpOauthSettings

async def main():
    logins = open_login_store(Settings(data=Path(sys.argv[1]), ledger="env:HOLDFAST_LEDGER"))
    tokens = ServerTokens(logins, "g", McpOauthSettings(), ResolvedServer(url=sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.readline()
    got = await asyncio.gather(*(tokens.get_token() for _ in range(8)))
    await logins.disconnect()
    print(*set(got))

asyncio.run(main())
"""


async def renewing(settings: Settings, guarded: Guarded, count: int) -> list[asyncio.subprocess.Process]:
    """Workers that are about to need a token, each with a data folder of its own."""
    pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    several = []
    for number in range(count):
        command = [sys.executable, "-c", RENEW, str(settings.data / str(number)), guarded.url]
        several.append(await asyncio.create_subprocess_exec(*command, **pipes))
    async with asyncio.timeout(60):
        for process in several:
            assert process.stdout
            assert await process.stdout.readline() == b"ready\n"
    return several


async def test_S39_of_hosts_that_renew_one_token_at_once_one_does_and_all_use_it(
    hosts: tuple[Engine, Engine], guarded: Guarded
) -> None:
    settings = hosts[0].settings
    await somebody_logs_in(settings, "g")
    await change(settings, expires=read_clock() - timedelta(seconds=1))
    guarded.does(delay=0.5)
    several = await renewing(settings, guarded, 4)
    async with asyncio.timeout(60):
        told = await asyncio.gather(*(process.communicate(b"\n") for process in several))
    login = await kept(settings)
    assert {output.decode().strip() for output, _ in told} == {login.access_token}
    assert guarded.log("token refresh_token") == [f"token refresh_token given {guarded.url}"]
    assert login.refresh_token in guarded.secrets


async def test_S39_a_database_that_crashes_while_a_token_is_renewed_loses_no_login(
    hosts: tuple[Engine, Engine], guarded: Guarded, running: PostgresServer
) -> None:
    settings = hosts[0].settings
    await somebody_logs_in(settings, "g")
    await change(settings, expires=read_clock() - timedelta(seconds=1))
    guarded.does(delay=1.5)
    [first] = await renewing(settings, guarded, 1)
    others = await renewing(settings, guarded, 2)
    assert first.stdin
    first.stdin.write(b"\n")
    await first.stdin.drain()
    held = "SELECT count(*) FROM holdfast_logins WHERE holder IS NOT NULL"
    await wait_until(lambda: query(held))
    await asyncio.to_thread(running.restart)
    async with asyncio.timeout(90):
        told = await asyncio.gather(*(process.communicate(b"\n") for process in [*others]), first.communicate())
    login = await kept(settings)
    assert {output.decode().strip() for output, _ in told} == {login.access_token}
    assert guarded.log("token refresh_token") == [f"token refresh_token given {guarded.url}"]


async def test_S39_a_login_is_held_by_one_and_by_the_next_when_that_one_is_gone(
    hosts: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = hosts[0].settings
    await somebody_logs_in(settings, "g")
    monkeypatch.setattr(shared_logins, "LOCK_SECONDS", 0.2)
    async with opened(settings) as one, opened(settings) as two:
        async with one.open_change("g") as held:
            login = await held.read()
            assert login
            with pytest.raises(HoldfastError, match="another process is changing the login at 'g'"):
                async with two.open_change("g"):
                    pass
            await query("UPDATE holdfast_logins SET held_until = clock_timestamp() - interval '1 second'")
            async with two.open_change("g") as other:
                assert await other.read() == login
                with pytest.raises(HoldfastError, match="by another process"):
                    await held.write(login)
        assert await query("SELECT holder FROM holdfast_logins") is None


async def test_S39_with_its_database_down_a_call_says_so_and_goes_on_when_it_is_back(
    hosts: tuple[Engine, Engine], guarded: Guarded, running: PostgresServer
) -> None:
    one, two = hosts
    await somebody_logs_in(one.settings, "g")
    two.with_rules('[[rule]]\nname = "mine"\ndecision = "allow"\ntool = "g__act"\n')
    async with working(two) as plugin:
        assert (await called(two, 1)).text == "did 1"
        await asyncio.to_thread(running.stop)
        try:
            began = time.monotonic()
            logins = plugin.authorizing._logins
            assert isinstance(logins, SharedLogins)
            logins._seen.clear()
            with pytest.raises(HoldfastError, match=r"the ledger '.*' cannot be used: no answer within 5 seconds"):
                await logins.read("g")
            with pytest.raises(HoldfastError, match="cannot be used"):
                await somebody_logs_in(one.settings, "g")
            assert time.monotonic() - began < 30
        finally:
            await asyncio.to_thread(running.start)

        async def works() -> bool:
            return (await called(two, 2)).text == "did 2"

        await wait_until(works, 30)


async def test_S39_a_worker_that_starts_without_its_database_connects_when_that_is_there(
    hosts: tuple[Engine, Engine], running: PostgresServer
) -> None:
    one, two = hosts
    await somebody_logs_in(one.settings, "g")
    await asyncio.to_thread(running.stop)
    try:
        async with working(two) as plugin:
            [status] = plugin.servers.statuses
            assert status.state is ServerState.WAITING, "nobody has to log in"
            assert "cannot be used: no answer within 5 seconds" in (status.problem or "")
            assert "s3cret" not in (status.problem or "")
            await asyncio.to_thread(running.start)
            await wait_until(lambda: asyncio.sleep(0, state(plugin) is ServerState.CONNECTED), 30)
    finally:
        if running.is_down:
            await asyncio.to_thread(running.start)


HOSTILE = ["\x01\x1b[31m canary", "{}", "[]", "null", "[" * 50_000, "holdfast-sealed-1:\x7f:AAAA", "x" * 1_100_000]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
async def test_S45_a_row_that_cannot_be_gone_by_is_not_used_and_another_login_takes_its_place(
    hosts: tuple[Engine, Engine], number: int
) -> None:
    one, two = hosts
    await somebody_logs_in(one.settings, "g")
    await query("UPDATE holdfast_logins SET login = $1", HOSTILE[number])
    async with opened(two.settings) as logins:
        with pytest.raises(NotAuthorized, match="the login is not used: of its row 'g'"):
            await logins.read("g")
        status = await find_login_status(logins, "g")
        assert status
        assert "canary" not in (status.problem or "")
        assert "\x1b" not in (status.problem or "")
    async with working(two) as plugin:
        [seen] = plugin.servers.statuses
        assert seen.state is ServerState.UNAUTHORIZED
        assert "log in with `holdfast mcp login g`" in (seen.problem or "")
        await somebody_logs_in(one.settings, "g")
        await wait_until(lambda: asyncio.sleep(0, state(plugin) is ServerState.CONNECTED))


async def test_S45_with_keys_tokens_are_encrypted_in_the_database_and_cannot_be_moved_to_another_server(
    hosts: tuple[Engine, Engine], guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = hosts
    monkeypatch.setenv("HOLDFAST_KEY", generate_key())
    keyed = replace(one.settings, encryption=EncryptionSettings(keys=(KeySettings(id="a", env="HOLDFAST_KEY"),)))
    await somebody_logs_in(keyed, "g")
    row = await query("SELECT login FROM holdfast_logins")
    assert row.startswith("holdfast-sealed-1:a:")
    login = await kept(keyed)
    assert login.access_token in guarded.secrets
    await query("INSERT INTO holdfast_logins (name, login) SELECT 'h', login FROM holdfast_logins")
    async with opened(keyed) as logins:
        assert await logins.list_names() == ["g", "h"]
        with pytest.raises(NotAuthorized, match="it was changed, or moved"):
            await logins.read("h")
    async with opened(one.settings) as without:
        with pytest.raises(NotAuthorized, match="with the key 'a', which this process does not have"):
            await without.read("g")


async def test_S39_files_of_a_host_that_now_shares_a_ledger_are_not_used(hosts: tuple[Engine, Engine]) -> None:
    one, _ = hosts
    alone = replace(one.settings, ledger=None)
    await somebody_logs_in(alone, "g")
    assert LoginFile(one.settings.mcp_logins_folder, "g").read()
    async with opened(one.settings) as logins:
        assert await logins.read("g") is None
    async with working(one) as plugin:
        assert state(plugin) is ServerState.UNAUTHORIZED
