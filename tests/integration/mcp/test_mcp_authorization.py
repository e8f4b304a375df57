"""Servers that want OAuth, in real turns: tokens are used, renewed, shared by workers, and never told (S39, S45)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import HoldfastPlugin, Response, TurnInput
from holdfast.activities.mcp.auth.login_store import LoginFile, LoginFiles, NotAuthorized, read_clock
from holdfast.activities.mcp.server.lifecycle import ServerState
from holdfast.config.schema import McpOauthSettings, McpServerSettings
from holdfast.domain.calls.tool import Effect
from holdfast.testing import build_request, decide_all, wait_until
from holdfast.workers.mcp.servers import find_login_status, log_out
from tests.support.engine import Engine
from tests.support.mcp.mcp_guarded import SECRET, Guarded, followed, guarded_server, somebody_logs_in
from tests.support.mcp.mcp_servers import servers

READS = {"whoami": Effect.READ}
CREDENTIALS = {"grant": "client_credentials", "client_id": "configured", "client_secret": "${CANARY_SECRET}"}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    """A server that wants OAuth."""
    async with guarded_server(tmp_path / "guarded") as made:
        yield made


def use(engine: Engine, server: McpServerSettings) -> None:
    """Workers from now on have this server."""
    engine.settings = replace(engine.settings, mcp=servers(g=server))


def file_of(engine: Engine) -> LoginFile:
    """Where its login is kept."""
    return LoginFile(engine.settings.mcp_logins_folder, "g")


async def called(engine: Engine, tool: str = "g__act", **arguments: Any) -> Response:
    """The response to one call, approved where it is asked about."""
    turn = await engine.start(TurnInput(batches=((build_request(tool, **arguments),),)))
    await decide_all(engine.holdfast, turn)
    [response] = (await turn.result()).responses
    return response


def refused(response: Response) -> str:
    """The words of a call that was not made for want of authorization."""
    assert response.error is not None
    assert response.error.type == "mcp_unauthorized", response.error
    return response.error.message


@asynccontextmanager
async def working(engine: Engine) -> AsyncIterator[HoldfastPlugin]:
    """A worker that has tried to connect."""
    plugin = HoldfastPlugin(engine.settings)
    client = await Client.connect(engine.address, plugins=[plugin])
    async with Worker(client, task_queue=engine.queue):
        await wait_until(lambda: asyncio.sleep(0, state(plugin) not in (ServerState.CONNECTING, ServerState.CLOSED)))
        yield plugin


def state(plugin: HoldfastPlugin) -> ServerState:
    """Of the server."""
    [status] = plugin.servers.statuses
    return status.state


async def test_S39_a_login_while_a_worker_runs_is_used_at_once_and_ends_at_once(
    engine: Engine, guarded: Guarded
) -> None:
    use(engine, guarded.settings())
    async with working(engine) as plugin:
        assert state(plugin) is ServerState.UNAUTHORIZED
        turn = await engine.start(TurnInput(batches=((build_request("g__act", n=1),),)))
        [response] = (await turn.result()).responses
        assert response.error is not None
        assert "log in with `holdfast mcp login g`" in response.error.message
        status = await somebody_logs_in(engine.settings, "g")
        assert (status.scope, status.renewable, status.problem) == ("read", True, None)
        await wait_until(lambda: asyncio.sleep(0, state(plugin) is ServerState.CONNECTED), 10)
        assert (await called(engine, n=2)).text == "did 2"
        assert await log_out(engine.settings, "g") == "its tokens were revoked"
        words = refused(await called(engine, n=3))
        assert "log in with `holdfast mcp login g`" in words
    assert guarded.effects == ["act 2"]
    assert guarded.log("revoke") == ["revoke refresh_token"]
    assert not file_of(engine).file.exists()


async def test_S39_a_token_that_ended_is_renewed_by_the_worker(engine: Engine, guarded: Guarded) -> None:
    use(engine, guarded.settings())
    await somebody_logs_in(engine.settings, "g")
    first = file_of(engine).read()
    assert first
    async with working(engine):
        assert (await called(engine, n=1)).text == "did 1"
        await guarded.expire()  # and nobody told us
        assert (await called(engine, n=2)).text == "did 2"
    second = file_of(engine).read()
    assert second
    assert second.access_token != first.access_token
    assert second.refresh_token != first.refresh_token
    _write(engine, expires=read_clock() - timedelta(seconds=1))  # as another day's worker finds it
    async with working(engine):
        assert (await called(engine, n=3)).text == "did 3"
    assert guarded.effects == ["act 1", "act 2", "act 3"]
    assert guarded.log("token refresh_token") == [f"token refresh_token given {guarded.url}"] * 2
    assert "rejected" not in guarded.log()


def _write(engine: Engine, **changes: Any) -> None:
    file = file_of(engine)
    login = file.read()
    assert login
    with file.hold_lock():
        file.write(login.model_copy(update=changes))


async def test_S39_a_login_that_is_not_renewed_says_what_to_do_and_is_not_tried_again(
    engine: Engine, guarded: Guarded
) -> None:
    use(engine, guarded.settings())
    await somebody_logs_in(engine.settings, "g")
    async with working(engine):
        assert (await called(engine, n=1)).text == "did 1"
        guarded.does(revoked=True)
        await guarded.expire()
        for number in (2, 3):
            words = refused(await called(engine, n=number))
            assert "invalid_grant" in words
            assert "log in with `holdfast mcp login g`" in words
            assert not any(secret in words for secret in guarded.secrets)
        assert guarded.log("token refresh_token") == ["token refresh_token invalid_grant"]
        status = await find_login_status(LoginFiles(engine.settings.mcp_logins_folder), "g")
        assert status
        assert "invalid_grant" in (status.problem or "")
        guarded.does()
        await somebody_logs_in(engine.settings, "g")
        assert (await called(engine, n=4)).text == "did 4"
    assert guarded.effects == ["act 1", "act 4"]


async def test_S39_an_authorization_server_that_is_away_costs_calls_and_not_the_login(
    engine: Engine, guarded: Guarded
) -> None:
    use(engine, guarded.settings())
    await somebody_logs_in(engine.settings, "g")
    async with working(engine):
        assert (await called(engine, n=1)).text == "did 1"
        for wrong in ({"token_status": 503}, {"token_status": 200, "token_body": "{"}):
            guarded.does(**wrong)
            await guarded.expire()
            assert "there is no token for it" in refused(await called(engine, n=2))
        guarded.does()
        assert (await called(engine, n=3)).text == "did 3"
    assert guarded.effects == ["act 1", "act 3"]


async def test_S39_a_token_that_the_server_never_takes_is_not_renewed_for_ever(
    engine: Engine, guarded: Guarded
) -> None:
    use(engine, guarded.settings())
    await somebody_logs_in(engine.settings, "g")
    async with working(engine):
        assert (await called(engine, n=1)).text == "did 1"
        guarded.does(rejects=True)
        for number in (2, 3, 4):
            refused(await called(engine, n=number))
    assert len(guarded.log("token refresh_token")) <= 2
    assert guarded.effects == ["act 1"]


RENEW = """
import asyncio, sys
from pathlib import Path
from holdfast.activities.mcp.auth.bearer import ServerTokens
from holdfast.activities.mcp.auth.login_store import LoginFiles
from holdfast.activities.mcp.resolve import ResolvedServer
from holdfast.config.schema import McpOauthSettings

async def main():
    tokens = ServerTokens(LoginFiles(Path(sys.argv[1])), "g", McpOauthSettings(), ResolvedServer(url=sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.readline()
    got = await asyncio.gather(*(tokens.get_token() for _ in range(8)))
    print(*set(got))

asyncio.run(main())
"""


async def test_S39_of_processes_that_renew_at_once_one_does_and_no_login_is_lost(
    engine: Engine, guarded: Guarded
) -> None:
    use(engine, guarded.settings())
    await somebody_logs_in(engine.settings, "g")
    _write(engine, expires=read_clock() - timedelta(seconds=1))
    guarded.does(delay=0.5)
    command = [sys.executable, "-c", RENEW, str(engine.settings.mcp_logins_folder), guarded.url]
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    several = [await asyncio.create_subprocess_exec(*command, **pipes) for _ in range(4)]  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        for process in several:
            assert process.stdout
            assert await process.stdout.readline() == b"ready\n"
        told = await asyncio.gather(*(process.communicate(b"\n") for process in several))
    login = file_of(engine).read()
    assert login
    assert {output.decode().strip() for output, _ in told} == {login.access_token}
    assert guarded.log("token refresh_token") == [f"token refresh_token given {guarded.url}"]
    assert login.refresh_token in guarded.secrets


async def test_S39_a_call_that_is_stopped_while_a_token_is_renewed_does_not_lose_the_login(
    engine: Engine, guarded: Guarded
) -> None:
    use(engine, guarded.settings(effects={"act": Effect.READ}))
    await somebody_logs_in(engine.settings, "g")
    before = file_of(engine).read()
    assert before
    async with working(engine):
        assert (await called(engine, n=1)).text == "did 1"
        guarded.does(delay=2)
        _write(engine, expires=read_clock() - timedelta(seconds=1))
        turn = await engine.start(TurnInput(batches=((build_request("g__act", n=2),),)))
        await wait_until(lambda: asyncio.sleep(0, not _free(file_of(engine))))
        await turn.cancel()
        [response] = (await turn.result()).responses
        assert response.status == "cancelled"
    await wait_until(lambda: asyncio.sleep(0, _free(file_of(engine))))
    after = file_of(engine).read()
    assert after
    assert after.refresh_token != before.refresh_token
    assert guarded.effects == ["act 1"]


def _free(file: LoginFile) -> bool:
    import fcntl

    with open(file.file.with_suffix(".lock"), "rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


async def test_S39_client_credentials_need_nobody(
    engine: Engine, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_SECRET", SECRET)
    oauth = McpOauthSettings.model_validate({**CREDENTIALS, "issuer": guarded.issuer, "scopes": ("read", "write")})
    use(engine, guarded.settings(oauth=oauth))
    async with working(engine) as plugin:
        assert state(plugin) is ServerState.CONNECTED
        assert (await called(engine, n=1)).text == "did 1"
        await guarded.expire()
        assert (await called(engine, n=2)).text == "did 2"
    login = file_of(engine).read()
    assert login
    assert (login.grant, login.scope, login.refresh_token) == ("client_credentials", "read write", None)
    assert SECRET not in file_of(engine).file.read_text()
    assert guarded.log("register") == guarded.log("authorize") == []
    assert len(guarded.log("token client_credentials")) == 2


@pytest.mark.parametrize(
    ("wrong", "value", "words"),
    [
        ("CANARY_SECRET", "canary-wrong-one", "invalid_client"),
        ("issuer", "https://elsewhere.example", "and the server leads to"),
    ],
)
async def test_S45_client_credentials_go_to_nobody_else(
    engine: Engine, guarded: Guarded, monkeypatch: pytest.MonkeyPatch, wrong: str, value: str, words: str
) -> None:
    monkeypatch.setenv("CANARY_SECRET", value if wrong == "CANARY_SECRET" else SECRET)
    issuer = value if wrong == "issuer" else guarded.issuer
    use(engine, guarded.settings(oauth=McpOauthSettings.model_validate({**CREDENTIALS, "issuer": issuer})))
    async with working(engine) as plugin:
        [status] = plugin.servers.statuses
    assert status.state is ServerState.UNAUTHORIZED
    assert words in (status.problem or "")
    assert "check `oauth` in its settings" in (status.problem or "")
    assert value not in (status.problem or "") or wrong == "issuer"
    assert SECRET not in (status.problem or "")
    assert bool(guarded.log("token")) is (wrong == "CANARY_SECRET")


async def test_S45_no_token_is_sent_to_another_address(engine: Engine, guarded: Guarded, tmp_path: Path) -> None:
    use(engine, guarded.settings())
    await somebody_logs_in(engine.settings, "g")
    async with guarded_server(tmp_path / "other") as other:
        other.does(open=True)
        use(engine, other.settings())
        async with working(engine) as plugin:
            [status] = plugin.servers.statuses
    assert status.state is ServerState.UNAUTHORIZED
    assert "the login is for another address" in (status.problem or "")


@pytest.mark.parametrize("harm", ["garbage", "readable", "link", "folder", "empty object"])
async def test_S45_a_login_that_cannot_be_gone_by_is_not_used(engine: Engine, guarded: Guarded, harm: str) -> None:
    use(engine, guarded.settings())
    await somebody_logs_in(engine.settings, "g")
    file = file_of(engine).file
    if harm == "garbage":
        file.write_bytes(b"\xff{canary")
    elif harm == "empty object":
        file.write_text("{}")
    elif harm == "readable":
        file.chmod(0o644)
    else:
        file.rename(file.with_suffix(".moved"))
        file.symlink_to(file.with_suffix(".moved")) if harm == "link" else file.mkdir()
    async with working(engine) as plugin:
        [status] = plugin.servers.statuses
    assert status.state is ServerState.UNAUTHORIZED
    assert "the login is not used" in (status.problem or "")
    assert "log in with `holdfast mcp login g`" in (status.problem or "")
    assert "canary" not in (status.problem or "")
    if harm == "folder":
        file.rmdir()
    await somebody_logs_in(engine.settings, "g")
    assert file.stat().st_mode & 0o777 == 0o600


async def test_S45_kept_for_its_owner_alone(engine: Engine, guarded: Guarded) -> None:
    use(engine, guarded.settings())
    before = os.umask(0)
    try:
        await somebody_logs_in(engine.settings, "g")
    finally:
        os.umask(before)
    folder = engine.settings.mcp_logins_folder
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {one.name: oct(one.stat().st_mode & 0o777) for one in folder.iterdir()} == {
        "g.json": "0o600",
        "g.lock": "0o600",
    }


async def test_S39_a_scope_that_is_lacking_is_asked_for_by_the_next_login(engine: Engine, guarded: Guarded) -> None:
    use(engine, guarded.settings())
    await somebody_logs_in(engine.settings, "g")
    async with working(engine):
        guarded.does(wants_scope="write")
        words = refused(await called(engine, n=1))
        assert "it requires the scope 'write' in a token" in words
        assert "log in with `holdfast mcp login g`" in words
        await somebody_logs_in(engine.settings, "g")
        assert (await called(engine, n=2)).text == "did 2"
    assert [line.split()[1:-1] for line in guarded.log("authorize")] == [["read"], ["read", "write"]]
    assert guarded.effects == ["act 2"]


async def test_S45_tokens_are_in_no_history_no_log_and_no_error(
    engine: Engine, guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    use(engine, guarded.settings(effects=READS))
    await somebody_logs_in(engine.settings, "g")
    told: list[str] = []
    async with working(engine):
        for wrong in ({}, {"revoked": True}):
            guarded.does(**wrong)
            turn = await engine.start(TurnInput(batches=((build_request("g__whoami"), build_request("g__act", n=1)),)))
            await decide_all(engine.holdfast, turn)
            result = await turn.result()
            told.append(result.model_dump_json())
            told.append(await engine.written(turn))
            await guarded.expire()
        first = json.loads(told[0])
    assert "Bearer [access token]" in json.dumps(first)
    assert "invalid_grant" in told[2]
    told += [path.read_text("utf-8", "replace") for path in _files(engine.settings.data, but="tokens")]
    told += [record.getMessage() + str(record.exc_info or "") for record in caplog.records]
    assert len(guarded.secrets) > 4
    for secret in guarded.secrets:
        assert not [text for text in told if secret in text], secret


def _files(folder: Path, but: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and but not in path.parts]


async def test_S45_a_token_in_a_header_is_used_and_not_told(
    engine: Engine, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(engine, guarded.settings())
    await somebody_logs_in(engine.settings, "g")
    login = file_of(engine).read()
    assert login
    file_of(engine).remove()
    monkeypatch.setenv("CANARY_TOKEN", login.access_token)
    use(engine, guarded.settings(headers={"Authorization": "Bearer ${CANARY_TOKEN}"}, effects=READS))
    async with working(engine):
        response = await called(engine, "g__whoami")
        assert "Bearer [CANARY_TOKEN]" in response.text
        assert login.access_token not in response.text
        await guarded.expire()
        words = refused(await called(engine, "g__whoami"))
        assert "check its Authorization header in the settings" in words
        assert login.access_token not in words


# Logging in


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "denied": ({"denies": True}, "access_denied: Not today"),
    "another resource": ({"resource": "https://elsewhere.example/mcp"}, "does not match expected"),
    "another issuer": ({"issuer": "https://elsewhere.example"}, "issuer mismatch"),
    "another issuer answers": ({"iss": "https://elsewhere.example"}, "iss mismatch"),
    "no issuer answers": ({"iss": ""}, "iss mismatch"),
    "unencrypted": ({"token_endpoint": "http://elsewhere.example/token"}, "unencrypted"),
    "an unencrypted page": ({"authorization_endpoint": "http://elsewhere.example/"}, "is not encrypted"),
    "unregistered": ({"no_registration": True}, "put the id of a registered client into `oauth.client_id`"),
    "no PKCE": ({"pkce": ["plain"]}, "lacks PKCE"),
    "no token": ({"token_status": 200, "token_body": '{"access_token": 5}'}, "is not a token"),
    "a token with a line": (
        {"token_status": 200, "token_body": '{"access_token": "a\\nb"}'},
        "not valid in a header",
    ),
    "broken": ({"token_status": 500}, "HTTP status 500"),
    "nothing is said": ({"undiscoverable": True}, "does not name an authorization server"),
    "nothing is wanted": ({"undiscoverable": True, "open": True}, "there is nothing to log in to"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_S39_a_login_that_is_not_right_is_none(engine: Engine, guarded: Guarded, case: str) -> None:
    options, words = WRONG[case]
    guarded.does(**options, **({"no_registration": True} if "undiscoverable" in options else {}))
    use(engine, guarded.settings())
    with pytest.raises(NotAuthorized, match="not logged in to 'g'") as caught:
        await somebody_logs_in(engine.settings, "g")
    assert words in str(caught.value)
    assert not any(secret in str(caught.value) for secret in guarded.secrets)
    assert not file_of(engine).file.exists()


async def test_S39_an_answer_with_another_state_does_not_count(engine: Engine, guarded: Guarded) -> None:
    use(engine, guarded.settings())
    seen: list[int] = []

    async def browse(url: str) -> None:
        guarded.does(state="somebody-elses")
        seen.append((await followed(url)).status_code)
        guarded.does()
        seen.append((await followed(url)).status_code)

    await somebody_logs_in(engine.settings, "g", browse)
    assert seen == [400, 200]
    assert len(guarded.log("token authorization_code")) == 1


async def test_S45_what_is_secret_in_an_address_stays_between_the_server_and_us(
    engine: Engine, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("URL_KEY", "canary-url-key")
    guarded.does(undiscoverable=True, scope="read")  # so that what is said of the resource is what we say
    use(engine, McpServerSettings(url=f"{guarded.url}?key=${{URL_KEY}}"))
    opened: list[str] = []

    async def browse(url: str) -> None:
        opened.append(url)
        await followed(url.replace("127.0.0.1", "localhost", 1))

    with suppress(NotAuthorized):
        await somebody_logs_in(engine.settings, "g", browse)
    assert "resource=" in opened[0]
    assert "canary" not in opened[0]
    assert "canary" not in "".join(guarded.log())


async def test_S39_nobody_who_comes_back_is_no_login(engine: Engine, guarded: Guarded) -> None:
    use(engine, guarded.settings())

    async def browse(url: str) -> None:
        return

    with pytest.raises(NotAuthorized, match="no answer came from the browser within 1 seconds"):
        await somebody_logs_in(engine.settings, "g", browse, seconds=1)


@pytest.mark.parametrize("secret", [None, "${CANARY_SECRET}"])
@pytest.mark.parametrize("methods", [["client_secret_basic", "none"], ["client_secret_post"]])
async def test_S39_a_client_that_is_known_is_not_registered(
    engine: Engine, guarded: Guarded, monkeypatch: pytest.MonkeyPatch, secret: str | None, methods: list[str]
) -> None:
    monkeypatch.setenv("CANARY_SECRET", SECRET)
    guarded.does(no_registration=True, methods=methods)
    oauth = McpOauthSettings(
        client_id="configured" if secret else "public", client_secret=secret, issuer=guarded.issuer
    )
    use(engine, guarded.settings(oauth=oauth))
    await somebody_logs_in(engine.settings, "g")
    await guarded.expire()
    async with working(engine):
        assert (await called(engine, n=1)).text == "did 1"
    assert len(guarded.log("token refresh_token")) == 1
    assert SECRET not in file_of(engine).file.read_text()
