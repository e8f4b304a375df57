"""Logins as they are kept, what is taken for one, and what is told when there is none."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from pydantic import ValidationError

from holdfast.activities.mcp.auth.bearer import describe_remedy, find_missing_scope
from holdfast.activities.mcp.auth.endpoints import (
    AuthorizationTransport,
    Unreachable,
    format_address,
    is_allowed_address,
    is_inside_address,
)
from holdfast.activities.mcp.auth.login_errors import Denied, build_denied, check_token_response, explain_refusal
from holdfast.activities.mcp.auth.login_store import Login, LoginFile, NotAuthorized, list_logins
from holdfast.activities.mcp.resolve import resolve_server
from holdfast.config.schema import McpOauthSettings, McpServerSettings, parse_configuration
from holdfast.config.toml_document import FileContent
from holdfast.errors import BadInput, HoldfastError
from holdfast.util.secrets import ADDED_LIMIT, Secret, Secrets

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def login(**more: Any) -> Login:
    """A login as it is given."""
    known = {"url": "https://a/mcp", "grant": "authorization_code", "client": {"client_id": "c"}}
    return Login.model_validate({**known, "access_token": "canary-access", "since": MOMENT, **more})


# The file


def kept(folder: Path, made: Login) -> LoginFile:
    file = LoginFile(folder / "tokens", "s")
    with file.hold_lock():
        file.write(made)
    return file


def test_S45_what_is_written_is_read_and_for_its_owner_alone(tmp_path: Path) -> None:
    made = login(refresh_token="canary-refresh", expires=MOMENT, client={"client_id": "c", "client_secret": "x"})
    file = kept(tmp_path, made)
    assert file.read() == made
    assert file.file.stat().st_mode & 0o777 == 0o600
    assert file.file.parent.stat().st_mode & 0o777 == 0o700
    assert list_logins(file.file.parent) == ["s"]
    assert file.remove()
    assert file.read() is None
    assert not file.remove()


def test_a_folder_that_others_may_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir(mode=0o755)
    kept(tmp_path, login())
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b"x" * 1_100_000, b"[" * 100_000])
def test_S45_garbage_is_no_login_and_is_not_told(tmp_path: Path, content: bytes) -> None:
    file = kept(tmp_path, login())
    file.file.write_bytes(content)
    with pytest.raises(NotAuthorized, match=r"is (damaged|over 1,000,000 bytes)"):
        file.read()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o777])
def test_S45_what_others_may_read_or_write_is_not_used(tmp_path: Path, mode: int) -> None:
    file = kept(tmp_path, login())
    file.file.chmod(mode)
    with pytest.raises(NotAuthorized, match="may be read or written by other users"):
        file.read()


def test_S45_what_is_no_file_of_ours_is_not_used(tmp_path: Path) -> None:
    file = kept(tmp_path, login())
    file.file.rename(tmp_path / "elsewhere")
    file.file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotAuthorized, match="cannot be read"):
        file.read()
    file.file.unlink()
    os.mkfifo(file.file, 0o600)
    with pytest.raises(NotAuthorized, match="not a regular file"):
        file.read()


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "x" * 41, "ä", "a\0", "a\n"])
def test_no_name_leads_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput):
        LoginFile(tmp_path, name)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("a file")
    file = LoginFile(tmp_path / "tokens", "s")
    with pytest.raises(HoldfastError, match="cannot be written"), file.hold_lock():
        pass


def test_a_stamp_is_another_with_every_change(tmp_path: Path) -> None:
    file = kept(tmp_path, login())
    first = file.read_stamp()
    with file.hold_lock():
        file.write(login())
    second = file.read_stamp()
    file.file.chmod(0o644)
    assert len({first, second, file.read_stamp(), LoginFile(tmp_path, "none").read_stamp()}) == 4


def test_S45_neither_a_login_nor_what_is_resolved_tells_its_secrets_when_it_is_shown() -> None:
    shown = repr(login(refresh_token="canary-refresh", client={"client_id": "c", "client_secret": "canary-client"}))
    assert "canary" not in shown
    server = McpServerSettings(
        url="https://a/mcp",
        oauth=McpOauthSettings(client_id="c", client_secret="${SOME_SECRET}", issuer="https://i"),
    )
    assert "canary" not in repr(resolve_server(server, {"SOME_SECRET": "canary-secret"}))


@given(lasts=st.integers(0, 10**7), passed=st.integers(0, 10**7))
def test_a_token_is_used_until_shortly_before_its_end(lasts: int, passed: int) -> None:
    made = login(expires=MOMENT + timedelta(seconds=lasts))
    fresh = made.is_fresh(MOMENT + timedelta(seconds=passed))
    assert not (fresh and passed >= lasts)
    assert fresh or passed >= lasts * 0.9 or lasts - passed <= 60


def test_a_token_without_an_end_is_used_until_it_is_refused() -> None:
    far = MOMENT + timedelta(days=10_000)
    assert login().is_fresh(far)
    assert not login(refused="invalid_grant").is_fresh(MOMENT)


# What is secret


def test_S45_secrets_that_come_later_are_hidden_and_old_ones_stay() -> None:
    secrets = Secrets([Secret("KEY", "given-secret")])
    secrets.add([Secret("access token", "token-number-0"), Secret("short", "abc")])
    for number in range(1, ADDED_LIMIT):
        secrets.add([Secret("access token", f"token-number-{number}")])
    assert secrets.hide("given-secret token-number-0 token-number-15 abc") == (
        "[KEY] [access token] [access token] abc"
    )
    secrets.add([Secret("access token", "one-too-many")])
    assert secrets.hide("given-secret token-number-0 one-too-many") == "[KEY] token-number-0 [access token]"


# Where tokens come from


@pytest.mark.parametrize(
    ("url", "server", "fits"),
    [
        ("https://login.example", "https://a.example/mcp", True),
        ("https://login.example", "http://127.0.0.1/mcp", True),
        ("http://login.example", "https://a.example/mcp", False),
        ("http://127.0.0.1/token", "https://a.example/mcp", False),
        ("http://169.254.169.254/", "http://a.example/mcp", False),
        ("http://a.example:99/token", "http://a.example/mcp", True),
        ("http://localhost:99/token", "http://127.0.0.1/mcp", True),
        ("http://[::1]:99/token", "http://localhost/mcp", True),
        ("http://b.example/token", "http://a.example/mcp", False),
        ("ftp://a.example/token", "http://a.example/mcp", False),
    ],
)
def test_S45_tokens_come_from_nowhere_in_the_clear(url: str, server: str, fits: bool) -> None:
    assert is_allowed_address(httpx2.URL(url), httpx2.URL(server)) is fits


@pytest.mark.parametrize(
    ("url", "server", "inside"),
    [
        ("https://8.8.4.4/token", "https://8.8.8.8/mcp", False),
        ("https://169.254.169.254/latest", "https://8.8.8.8/mcp", True),
        ("https://localhost:8443/", "https://8.8.8.8/mcp", True),
        ("https://10.0.0.1/token", "https://8.8.8.8/mcp", True),
        ("https://[::ffff:127.0.0.1]/", "https://8.8.8.8/mcp", True),
        ("https://10.0.0.1/token", "https://10.0.0.2/mcp", False),
        ("https://8.8.8.8/token", "http://127.0.0.1/mcp", False),
    ],
)
async def test_S45_a_server_out_there_sends_us_to_nothing_in_here(url: str, server: str, inside: bool) -> None:
    assert await is_inside_address(httpx2.URL(url), httpx2.URL(server)) is inside


async def test_S45_what_is_in_here_is_asked_for_tokens_only_if_the_user_has_named_it() -> None:
    for issuer, words in ((None, "is not public, and the server that names it is"), ("https://127.0.0.1:9", "reached")):
        async with httpx2.AsyncClient(transport=AuthorizationTransport("https://8.8.8.8/mcp", issuer)) as client:
            with pytest.raises(NotAuthorized, match=words):
                await client.get("https://127.0.0.1:9/token")


def test_S45_an_address_is_told_without_what_is_secret_in_it() -> None:
    assert (
        format_address(httpx2.URL("https://me:canary@a.example:8443/x?key=canary#canary")) == "https://a.example:8443/x"
    )


# What is told


def test_S45_what_the_package_says_is_not_repeated() -> None:
    body = json.dumps({"access_token": "canary", "client_secret": "canary"})
    said = [
        OAuthTokenError(f"Token exchange failed (400): {body}"),
        OAuthTokenError(f"Invalid token response: {body}"),
        OAuthRegistrationError(f"Registration failed: 400 {body}"),
        OAuthRegistrationError(f"Invalid registration response: {body}"),
        OAuthFlowError("State parameter mismatch: canary != canary"),
        ValueError("canary"),
        KeyError("canary"),
    ]
    for error in said:
        assert "canary" not in str(explain_refusal(error)), error


def test_an_authorization_servers_own_words_are_told_harmlessly() -> None:
    assert str(build_denied("invalid_grant", "no\x1b[31m\nway")) == "invalid_grant: no way"
    failed = OAuthRegistrationError('Registration failed: 403 {"error": "invalid_redirect_uri"}')
    assert "(HTTP status 403): invalid_redirect_uri" in str(explain_refusal(failed))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"error": "invalid_grant"}', Denied),
        (401, b'{"error": "invalid_client"}', Denied),
        (400, b'{"error": "temporarily_unavailable"}', Unreachable),
        (429, b'{"error": "invalid_grant"}', Unreachable),
        (503, b"", Unreachable),
    ],
)
def test_only_a_plain_no_is_for_good(status: int, body: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        check_token_response(httpx2.Response(status, content=body))


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b'{"error": 5}', b"\xff"])
def test_no_answer_of_oauth_is_no_plain_no(body: bytes) -> None:
    with pytest.raises(NotAuthorized) as caught:
        check_token_response(httpx2.Response(404, content=body))
    assert not isinstance(caught.value, Denied | Unreachable)


@pytest.mark.parametrize(
    ("status", "header", "scope"),
    [
        (403, 'Bearer error="insufficient_scope", scope="a b"', "a b"),
        (403, 'Bearer scope="a", error=insufficient_scope', "a"),
        (403, 'Bearer error="insufficient_scope"', None),
        (403, 'Bearer error="invalid_token", scope="a"', None),
        (401, 'Bearer error="insufficient_scope", scope="a"', None),
        (403, "", None),
        (403, 'Bearer error="insufficient_scope", scope="' + "a" * 10_000 + '"', None),
    ],
)
def test_a_scope_that_is_lacking_is_known(status: int, header: str, scope: str | None) -> None:
    assert find_missing_scope(httpx2.Response(status, headers={"www-authenticate": header})) == scope


def test_what_to_do_is_what_would_help() -> None:
    url = "https://a/mcp"
    oauth = McpOauthSettings(
        grant="client_credentials", client_id="c", client_secret="${S}", issuer="https://login.example"
    )
    assert describe_remedy("s", McpServerSettings(url=url)) == "log in with `holdfast mcp login s`"
    assert "Authorization header" in describe_remedy("s", McpServerSettings(url=url, headers={"authorization": "x"}))
    assert "`oauth`" in describe_remedy("s", McpServerSettings(url=url, oauth=oauth))


# The settings


WRONG: dict[str, tuple[str, str]] = {
    "a secret in the file": ('client_id = "c"\nissuer = "https://i"\nclient_secret = "canary"', "must be a reference"),
    "half a reference": ('client_id = "c"\nissuer = "https://i"\nclient_secret = "x${A}"', "must be a reference"),
    "nobody's secret": ('issuer = "https://i"\nclient_secret = "${A}"', "needs `client_id` and `issuer`"),
    "a secret for anybody": ('client_id = "c"\nclient_secret = "${A}"', "needs `client_id` and `issuer`"),
    "no credentials": ('grant = "client_credentials"', "needs `client_id` and `client_secret`"),
    "another grant": ('grant = "password"', "must be"),
    "no address": ('issuer = "login.example"', "must begin with http"),
    "a port": ("redirect_port = 70000", "at most 65,535"),
    "unknown": ('client_secrets = "x"', "client_secrets"),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_that_make_no_sense_are_told(case: str) -> None:
    lines, words = WRONG[case]
    text = f'[mcp.servers.s]\nurl = "https://a/mcp"\n[mcp.servers.s.oauth]\n{lines}\n'
    problems = parse_configuration(FileContent(Path("/project/holdfast.toml"), text.encode())).problems
    assert [words in str(problem) for problem in problems] == [True], problems
    assert "canary" not in str(problems)


@pytest.mark.parametrize("more", [{"command": "x"}, {"url": "https://a", "headers": {"AUTHORIZATION": "Bearer x"}}])
def test_oauth_is_for_a_url_and_no_second_way(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="oauth"):
        McpServerSettings.model_validate({**more, "oauth": {}})


def test_a_secret_that_is_not_set_or_empty_is_told_by_its_name() -> None:
    oauth = McpOauthSettings(client_id="c", client_secret="${THEIR_SECRET}", issuer="https://i")
    server = McpServerSettings(url="https://a/mcp", oauth=oauth)
    with pytest.raises(BadInput, match="'THEIR_SECRET'"):
        resolve_server(server, {})
    with pytest.raises(BadInput, match="is empty"):
        resolve_server(server, {"THEIR_SECRET": ""})
    assert resolve_server(server, {"THEIR_SECRET": "/a/secret"}).secrets.hide("is /a/secret") == "is [THEIR_SECRET]"
