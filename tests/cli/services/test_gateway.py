"""`holdfast gateway` and `holdfast tokens` as a user types them, and the lines of the documents that tell of them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.support import COMMAND, SECONDS, Home, Up, call
from tests.support.pages import read_blocks

ROOT = Path(__file__).resolve().parents[3]
USUAL = "http://127.0.0.1:8234"


def ask(url: str, token: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Status and answer."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body is not None else None
    try:
        with urlopen(Request(url, data, headers), timeout=SECONDS) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


@contextmanager
def gateway(home: Home, *options: str) -> Iterator[Up]:
    """`holdfast gateway` on a home with a server, once it is ready."""
    process = subprocess.Popen(
        [*COMMAND, "gateway", "--json", *options],
        env=home.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=home.folder,
    )
    running = Up(process)
    try:
        running.where = json.loads(running.wait_for('"url"'))
        yield running
    finally:
        if process.poll() is None:
            running.end()
        if process.stdout:
            process.stdout.close()


# Tokens


def test_S45_a_token_is_printed_once_and_nothing_else_on_standard_output(empty: Home) -> None:
    done = empty.run("tokens", "create", "ada", "--expires", "30d")
    assert done.returncode == 0
    assert re.fullmatch(r"hf_[A-Za-z0-9_-]{43}\n", done.stdout)
    assert "It is not shown again" in done.stderr
    made = empty.json("tokens", "create", "Zoë of ops", "--role", "viewer")
    assert (made["name"], made["role"], made["expired"]) == ("Zoë of ops", "viewer", False)
    listed = empty.run("tokens", "list")
    assert re.search(r"ada +approver +20\d\d-", listed.stdout)
    assert re.search(r"Zoë of ops +viewer +20\d\d-.* never", listed.stdout)
    everything = listed.stdout + json.dumps(empty.json("tokens", "list")) + (empty.data / "tokens.json").read_text()
    assert done.stdout.strip() not in everything
    assert made["token"] not in everything
    assert "sha256" not in json.dumps(empty.json("tokens", "list"))
    assert "is revoked" in empty.run("tokens", "revoke", "ada").stdout
    assert [token["name"] for token in empty.json("tokens", "list")["tokens"]] == ["Zoë of ops"]


def test_without_tokens_that_is_said(empty: Home) -> None:
    assert "nobody can use the HTTP endpoint" in empty.run("tokens", "list").stdout
    assert empty.json("tokens", "list")["tokens"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["tokens", "create", ""], 2, "is not a valid token name"),
        (["tokens", "create", "a\x1b[31m"], 2, "is not a valid token name"),
        (["tokens", "create", "ada", "--role", "root"], 2, "is not a role: give approver or viewer"),
        (["tokens", "create", "ada", "--expires", "soon"], 2, "--expires must be a duration such as"),
        (["tokens", "create", "ada", "--expires", "0d"], 2, "--expires must be at least a second"),
        (["tokens", "revoke", "ada"], 1, "no token is called 'ada'"),
        (["tokens", "list", "--data", ""], 2, "the folder's name is empty"),
        (["gateway", "--host", "a b"], 2, "must be the name or the address of a host"),
        (["gateway", "--host", ""], 2, "must be the name or the address of a host"),
        (["gateway", "--port", "65536"], 2, "65535"),
        (["gateway"], 3, "start one with `holdfast up`"),
        (["up", "--no-gateway", "--gateway-port", "1"], 2, "not both"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(arguments: list[str], code: int, words: str, empty: Home) -> None:
    done = empty.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


def test_S45_a_damaged_file_of_tokens_is_named_and_left_alone(empty: Home) -> None:
    empty.run("tokens", "create", "ada")
    file = empty.data / "tokens.json"
    file.write_text("{")
    for arguments in (["list"], ["create", "ben"], ["revoke", "ada"]):
        done = empty.run("tokens", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{str(file)!r} is damaged" in done.stderr
    assert file.read_text() == "{"


def test_a_settings_file_that_is_not_trusted_opens_nothing(empty: Home) -> None:
    (empty.folder / "holdfast.toml").write_text('data = "theirs"\n[gateway]\nhost = "0.0.0.0"\n')
    for arguments in (["gateway"], ["tokens", "create", "ada"], ["tokens", "list"]):
        done = empty.run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "is not trusted" in done.stderr
    told = empty.run("config", "check")
    assert "HTTP listens on  0.0.0.0, port 8234" in told.stdout
    assert not (empty.folder / "theirs").exists()


def test_every_command_has_an_example(empty: Home) -> None:
    for command in (["tokens", "create"], ["tokens", "list"], ["tokens", "revoke"], ["gateway"]):
        done = empty.run(*command, "--help")
        assert f"  holdfast {' '.join(command)}" in done.stdout
        assert "Exit codes:" in done.stdout


# The gateway alone


def test_a_gateway_of_its_own_serves_those_with_a_token_and_ends_cleanly(home: Home) -> None:
    token = home.json("tokens", "create", "alone")["token"]
    home.start("alone", call("shell", command="echo alone"))
    home.seen("alone", after="awaiting_approval")
    with gateway(home, "--port", "0") as running:
        url = running.where["url"]
        status, item = ask(f"{url}/v1/approvals/alone/b1c1/1", token)
        assert (status, item["command"]) == (200, "echo alone")
        status, taken = ask(f"{url}/v1/approvals/alone/b1c1/1", token, {"outcome": "yes", "digest": item["digest"]})
        assert (status, taken["counted"]) == (200, True)
        home.seen("alone", kind="turn", after="completed")
        home.run("tokens", "revoke", "alone")
        assert ask(f"{url}/v1/inbox", token)[0] == 401
        assert running.end(signal.SIGTERM) == 0
    shown = home.json("turn", "show", "alone")
    assert "alone" in json.dumps(shown)


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_and_another_host_is_warned_about(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = home.run("gateway", "--port", port)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"port {port} of 127.0.0.1 is in use: choose another" in done.stderr
        file = home.folder / "taken.toml"
        file.write_text(f"[gateway]\nport = {port}\n")
        done = home.run("--config", str(file), "gateway")
        assert (done.returncode, f"port {port} of 127.0.0.1 is in use" in done.stderr) == (1, True)
    with gateway(home, "--port", "0", "--host", "0.0.0.0") as running:
        assert any("in plain HTTP" in line for line in running.said)
    done = home.run("gateway", "--host", "no-such-host.invalid")
    assert (done.returncode, "is not a host to listen on" in done.stderr) == (2, True)


def test_S45_the_log_of_a_gateway_holds_no_token(home: Home) -> None:
    token = home.json("tokens", "create", "logged")["token"]
    with gateway(home, "--port", "0", "--verbose") as running:
        assert ask(f"{running.where['url']}/v1/inbox?turn=private-query", token)[0] == 200
        assert ask(f"{running.where['url']}/v1/{token}", token)[0] == 404
        assert ask(f"{running.where['url']}/v1/inbox?token={token}", "wrong")[0] == 401
        running.end(signal.SIGTERM)
    said = "\n".join(running.said)
    assert "GET /v1/inbox 200 by logged" in said
    assert "GET /v1/inbox 401 by an unknown client" in said
    assert token.removeprefix("hf_") not in said
    assert "private-query" not in said


def test_a_key_that_does_not_vouch_signs_nothing_here(home: Home) -> None:
    created = home.run("keys", "create", "mine")
    assert created.returncode == 0, created.stderr
    home.env["HOLDFAST_KEY"] = "mine"
    try:
        with gateway(home, "--port", "0") as running:
            assert any("may not vouch for others" in line for line in running.said)
    finally:
        del home.env["HOLDFAST_KEY"]


# The documents


def _shell(home: Home, script: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{home.env['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script],
        env={**home.env, "PATH": path},
        cwd=home.folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.needs("curl")
def test_S41_the_lines_of_the_documents_decide_over_http(home: Home) -> None:
    with gateway(home, "--port", "0") as running:
        url = running.where["url"]
        home.start("deploy-7", call("shell", command="echo deployed"))
        home.seen("deploy-7", after="awaiting_approval")
        blocks = read_blocks("http")
        told = [json.loads(line) for line in _shell(home, blocks["first"].replace(USUAL, url)).splitlines()]
        inbox, taken, standing = told
        assert "deploy-7/b1c1/1" in [item["approval_id"] for item in inbox["approvals"]]
        assert (taken["call"], taken["counted"]) == ("b1c1", True)
        assert standing["id"] == "deploy-7"
        home.seen("deploy-7", kind="turn", after="completed")
        assert "dashboard  viewer" in re.sub(" {2,}", "  ", _shell(home, blocks["tokens"]))

        # The item is asked for right after the start: give validation its moment, as a reader's hands would.
        start, rest = read_blocks("getting-started")["http"].split("\n", 1)
        _shell(home, start)
        home.seen("load", after="awaiting_approval")
        assert '"counted": true' in _shell(home, rest.replace(USUAL, url))
        assert home.seen("load", kind="turn")["after"] == "completed"
