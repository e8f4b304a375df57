"""Which values in the settings of an MCP server are secret, and how its command is shown."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.mcp.server_secrets import GivenSettings, find_secrets, format_command
from holdfast.config.schema import McpServerSettings
from holdfast.util.secrets import Secrets
from tests.support.secrets.writings import pem

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
PEM = pem(bytes(range(256)) * 6)
SECRET: dict[str, tuple[dict[str, Any], dict[str, str], str, str]] = {
    "a token in an argument": ({"words": ["x", "${GITHUB_PAT}"]}, {"GITHUB_PAT": TOKEN}, TOKEN, "GITHUB_PAT"),
    "whatever its name": ({"words": ["x", "--a=${THING}"]}, {"THING": TOKEN}, TOKEN, "THING"),
    "in the command": ({"words": ["/bin/${THING}"]}, {"THING": TOKEN}, TOKEN, "THING"),
    "in the address": ({"words": ["https://x/${THING}"]}, {"THING": TOKEN}, TOKEN, "THING"),
    "in a header": ({"assigned": [("Authorization", "Bearer ${THING}")]}, {"THING": TOKEN}, TOKEN, "THING"),
    "as another program writes it": ({"assigned": [("A", "${env:THING}")]}, {"THING": TOKEN}, TOKEN, "THING"),
    "what looks like a path": ({"assigned": [("A", "${DB_PWD}")]}, {"DB_PWD": "/Zq7+XyW9a"}, "/Zq7+XyW9a", "DB_PWD"),
    "an address with a password": (
        {"words": ["x", "${DATABASE_URL}"]},
        {"DATABASE_URL": "postgres://bob:hunter2@db/x"},
        "postgres://bob:hunter2@db/x",
        "DATABASE_URL",
    ),
    "its password": (
        {"words": ["x", "${DATABASE_URL}"]},
        {"DATABASE_URL": "postgres://bob:hunter2@db/x"},
        "hunter2",
        "DATABASE_URL",
    ),
    "its password, unescaped": (
        {"words": ["x", "${DATABASE_URL}"]},
        {"DATABASE_URL": "postgres://bob:p%40ss%2Fw0rd@db/x"},
        "p@ss/w0rd",
        "DATABASE_URL",
    ),
    "its only name": ({"words": ["x", "${REPO}"]}, {"REPO": f"https://{TOKEN}@github.com/a/b"}, TOKEN, "REPO"),
    "a line of a key": ({"assigned": [("A", "${IT}")]}, {"IT": PEM}, PEM.splitlines()[1], "IT"),
    "without the blanks around it": ({"assigned": [("A", "${IT}")]}, {"IT": f" {TOKEN}\n"}, TOKEN, "IT"),
    "a password of letters": ({"assigned": [("A", "${MY_PASSWORD}")]}, {"MY_PASSWORD": "correcthorse"}, "correcthorse",
                              "MY_PASSWORD"),
    "what is written down by its name": ({"assigned": [("API_KEY", TOKEN)]}, {}, TOKEN, "API_KEY"),
    "after a scheme": ({"assigned": [("Authorization", f"Bearer {TOKEN}")]}, {}, TOKEN, "Authorization"),
    "instead of what is not there": ({"assigned": [("API_KEY", f"${{NONE:-{TOKEN}}}")]}, {}, TOKEN, "API_KEY"),
    "an argument by its name": ({"words": ["x", "--api-key", TOKEN]}, {}, TOKEN, "api-key"),
    "an argument with its name": ({"words": ["x", f"--api-key={TOKEN}"]}, {}, TOKEN, "api-key"),
    "in the query of an address": ({"words": [f"https://x/?a=b&token={TOKEN}"]}, {}, TOKEN, "token"),
    "an address in the arguments": ({"words": ["x", "postgres://bob:hunter2@db/x"]}, {}, "hunter2", "password"),
}  # fmt: skip


@pytest.mark.parametrize("case", SECRET)
def test_S45_it_is_secret(case: str) -> None:
    given, environment, value, name = SECRET[case]
    secrets = Secrets(find_secrets(GivenSettings(**given), environment))
    assert secrets.hide(f"it is {value}, you see") == f"it is [{name}], you see"


def test_S45_what_every_command_gets_and_what_is_short_is_not_secret() -> None:
    environment = {
        "HOME": "/home/ada-lovelace",
        "PWD": "/srv/project",
        "LC_ALL": "en_GB.UTF-8",
        "REGION": "eu-1",
        "PORT": "8080",
    }
    given = GivenSettings(assigned=[("A", "".join(f"${{{name}}}" for name in environment))])
    assert list(find_secrets(given, environment)) == []


def test_S45_what_is_written_down_under_a_plain_name_is_not_secret() -> None:
    given = GivenSettings(["server", "--at", "/srv/project", "https://a.example/?page=second"], [("LEVEL", "warnings")])
    assert list(find_secrets(given, {})) == []


def test_S45_a_scheme_is_not_hidden() -> None:
    given = GivenSettings(assigned=[("Authorization", "Bearer ${IT}"), ("Proxy-Authorization", f"Bearer {TOKEN}")])
    secrets = Secrets(find_secrets(given, {"IT": "canary-token"}))
    assert secrets.hide(f"Bearer canary-token, Bearer of {TOKEN}") == "Bearer [IT], Bearer of [Proxy-Authorization]"


def test_S45_a_value_goes_by_the_first_of_its_names() -> None:
    given = GivenSettings(assigned=[("X", "${A}"), ("Y", "${B}")])
    assert Secrets(find_secrets(given, {"A": TOKEN, "B": TOKEN})).hide(TOKEN) == "[A]"


# The command as it is shown

HERE = {"TOKEN": "canary-token", "PLACE": "/srv/canary", "NAME": "canary-name"}


def show(*words: str, **env: str) -> str | None:
    return format_command(McpServerSettings(command=words[0], args=words[1:], env=env), HERE)


@pytest.mark.parametrize(
    "words",
    [
        "npx -y @modelcontextprotocol/server-everything@2026.8.31 stdio",
        "uvx --from mcp-server-git==2026.10.19 mcp-server-git",
        "docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/server",
        "server --token ${TOKEN} --at=${PLACE}/sub ${NAME}",
    ],
)
def test_servers_are_told_apart_by_their_first_arguments(words: str) -> None:
    assert show(*words.split()) == words


def test_references_stay_as_they_are_written_without_their_defaults() -> None:
    shown = show("${PLACE}/run", "${env:NAME}", "--key=${TOKEN:-canary-default}", "${NONE:-canary-default}")
    assert shown == "${PLACE}/run ${NAME} --key=${TOKEN} ${NONE}"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("server", "--token", "canary-1"), "server --token [token]"),
        (("server", "--api-key=canary-1", "--port=80"), "server --api-key=[api-key] --port=80"),
        (("server", "postgres://ada:canary-1@db/main"), "server postgres://ada:[password]@db/main"),
    ],
)
def test_S45_secrets_that_are_written_down_are_not_shown(words: tuple[str, ...], shown: str) -> None:
    assert show(*words) == shown


def test_S45_a_variable_of_the_settings_is_not_shown_as_an_argument() -> None:
    assert show("server", "--say", "canary-words", API_KEY="canary-words") == "server --say [API_KEY]"


def test_only_the_first_arguments_are_shown() -> None:
    shown = show("server", *(f"word-{letter}" for letter in "abcdefghijklmnop"))
    assert shown
    assert shown.startswith("server word-a word-b")
    assert shown.endswith("word-h …")


def test_a_server_at_an_address_has_no_command() -> None:
    assert format_command(McpServerSettings(url="https://example.com/mcp"), {}) is None
