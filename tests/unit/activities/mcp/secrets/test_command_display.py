"""How a server is started, as people are told it: recognisable, and without what may be secret."""

from __future__ import annotations

import pytest

from holdfast.activities.mcp.secrets.command_display import format_place
from holdfast.config.schema import McpServerSettings

HERE = {"TOKEN": "canary-token", "PLACE": "/srv/canary", "NAME": "canary-name"}


def place(*words: str, **env: str) -> str | None:
    return format_place(McpServerSettings(command=words[0], args=words[1:], env=env), HERE)


@pytest.mark.parametrize(
    "words",
    [
        "npx -y @modelcontextprotocol/server-memory",
        "npx -y @modelcontextprotocol/server-everything@2026.8.31 stdio",
        "uvx mcp-server-git --repository /home/ada/work",
        "uvx --from mcp-server-git==2026.10.19 mcp-server-git",
        "python3 -m my_package.server --port 8080",
        "docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/server",
        "node ./build/index.js --url https://example.com/mcp",
        "mcp-server-time --local-timezone Europe/Berlin",
        "server --token ${TOKEN} --at=${PLACE}/sub ${NAME}",
    ],
)
def test_servers_are_told_apart_by_their_first_arguments(words: str) -> None:
    assert place(*words.split()) == words


def test_references_stay_as_they_are_written_without_what_stands_for_them() -> None:
    told = place("${PLACE}/run", "${env:NAME}", "--key=${TOKEN:-canary-default}", "${NONE:-canary-default}")
    assert told == "${PLACE}/run ${NAME} --key=${TOKEN} ${NONE}"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("server", "--token", "canary"), "server --token …"),
        (("server", "--api-key=canary", "--port=80"), "server --api-key=… --port=80"),
        (("server", "--password", "canary", "--port", "80"), "server --password … --port 80"),
        (("docker", "run", "-e", "API_KEY=canary", "image"), "docker run -e API_KEY=… image"),
        (("server", "--header", "Authorization: Bearer canary"), "server --header Authorization:…"),
        (("server", "--header", "X-Session-Token:canary"), "server --header X-Session-Token:…"),
        (("server", "postgres://ada:canary@db/main?sslkey=canary"), "server postgres://…@db/main"),
        (("server", "postgres://ada:can@ary/@db/main#canary"), "server postgres://…@db/main"),
        (("server", "https://example.com/mcp?key=canary"), "server https://example.com/mcp"),
        (("server", "sk-canary0123456789"), "server …"),
        (("server", "-k", "canary2"), "server -k …"),
        (("server", "-u", "ada:canary"), "server -u …"),
        (("server", "--user=ada:canary"), "server --user=…"),
        (("server", "canary0123456789:x"), "server …"),
        (("server", "--name=ghp_canary0123456789AbCdEf"), "server --name=…"),
        (("server", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canary"), "server …"),
        (("server", "/keys/canary0123456789abcdef"), "server …"),
        (("bash", "-c", "TOKEN=canary exec server"), "bash -c TOKEN=…"),
        (("bash", "-c", "exec server --password canary"), "bash -c …"),
        (("bash", "-c", "exec server"), "bash -c 'exec server'"),
    ],
)
def test_S45_what_may_be_secret_is_left_out(words: tuple[str, ...], told: str) -> None:
    assert place(*words) == told
    assert "canary" not in told


def test_S45_what_the_settings_give_in_a_variable_is_not_told_as_an_argument() -> None:
    assert place("server", "--say", "canary-words", API_KEY="canary-words") == "server --say [API_KEY]"


def test_only_the_first_arguments_are_told() -> None:
    told = place("server", *(f"word-{letter}" for letter in "abcdefghijklmnop"))
    assert told
    assert told.startswith("server word-a word-b")
    assert told.endswith("word-h …")
    assert place("server", "x" * 5_000_000) == "server …"


def test_a_server_at_an_address_has_no_command() -> None:
    assert format_place(McpServerSettings(url="https://example.com/mcp"), {}) is None
