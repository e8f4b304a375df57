"""MCP servers in the settings: references, secrets, and files that other programs read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.activities.mcp.resolve import ResolvedServer, resolve_server
from holdfast.activities.mcp.server.definitions import Definition, is_wanted
from holdfast.config.mcp_servers_file import load_configured, load_disabled, load_servers
from holdfast.config.provider_keys import OUR_PREFIXES
from holdfast.config.schema import McpServerSettings, McpSettings, parse_configuration
from holdfast.config.toml_document import FileContent
from holdfast.errors import BadInput
from tests.support.pages import read_blocks, read_page

HERE = {"TOKEN": "0123456789", "PLACE": "/usr/share", "HOME": "/home/ada-lovelace", "EMPTY": ""}


def server(**given: Any) -> McpServerSettings:
    return McpServerSettings.model_validate(given)


def resolved(**given: Any) -> ResolvedServer:
    return resolve_server(server(**given), HERE)


# References


def test_references_are_filled_in_everywhere() -> None:
    found = resolved(command="${PLACE}/run", args=["--at=${HOME}", "${NONE:-other}"], env={"KEY": "${env:TOKEN}"})
    assert found.words == ("/usr/share/run", "--at=/home/ada-lovelace", "other")
    assert found.environment["KEY"] == "0123456789"
    found = resolved(url="https://${NONE:-example.com}/mcp", headers={"Authorization": "Bearer ${TOKEN}"})
    assert (found.url, found.headers) == ("https://example.com/mcp", {"Authorization": "Bearer 0123456789"})
    assert found.place == "https://example.com"


def test_what_is_set_to_nothing_is_nothing() -> None:
    assert resolved(command="x", args=["${EMPTY:-other}"]).words == ("x", "")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"command": "x", "env": {"A": "${MISSING}"}}, "environment variable 'MISSING', which is not set"),
        ({"url": "https://x/", "headers": {"A": "${MISSING}"}}, "'MISSING'"),
        ({"url": "${TOKEN}"}, "is not one of http:// or https://"),
        ({"url": "http://${EMPTY}:80/"}, "is not one of http:// or https://"),
        ({"url": "https://x:99999/"}, "is not one of http:// or https://"),
        ({"url": "https://x/", "headers": {"A": "a\nb"}}, "holds what no header can"),
        ({"command": "x", "args": ["${input:key}"]}, "it needs '${input:key}', which another program fills in"),
        ({"url": "https://x/", "headers": {"A": "Bearer ${file:/x}${TOKEN}"}}, "it needs '${file:/x}'"),
    ],
)
def test_S39_what_cannot_be_filled_in_is_told_without_values(given: Any, words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        resolved(**given)
    assert words in str(refusal.value)
    assert "0123456789" not in str(refusal.value)


def test_S45_a_server_gets_little_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for ours in OUR_PREFIXES:
        monkeypatch.setenv(f"{ours}API_KEY", "secret")
    monkeypatch.setenv("SOMEBODY_ELSES_TOKEN", "secret")
    found = resolved(command="x", env={"MINE": "1"}).environment
    assert "secret" not in found.values()
    assert (found["MINE"], "PATH" in found) == ("1", True)


# Secrets


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"command": "x", "env": {"A": "${TOKEN}"}}, "[TOKEN] /usr/share /home/ada-lovelace"),
        ({"command": "x", "env": {"A": "${PLACE}", "B": "${HOME}"}}, "0123456789 [PLACE] /home/ada-lovelace"),
        ({"command": "x", "args": ["${TOKEN}", "--at=/usr/share"]}, "[TOKEN] /usr/share /home/ada-lovelace"),
        ({"url": "https://x/?k=${TOKEN}"}, "[TOKEN] /usr/share /home/ada-lovelace"),
        ({"url": "https://x/", "headers": {"A": "${TOKEN}"}}, "[TOKEN] /usr/share /home/ada-lovelace"),
        (
            {"url": "https://x/", "headers": {"Authorization": "Bearer 0123456789"}},
            "[Authorization] /usr/share /home/ada-lovelace",
        ),
    ],
)
def test_S45_what_settings_refer_to_is_hidden_and_what_they_say_is_not(given: Any, shown: str) -> None:
    found = resolved(**given).secrets
    assert found.hide("0123456789 /usr/share /home/ada-lovelace") == shown


def test_S45_how_a_server_is_reached_is_not_told() -> None:
    found = resolved(command="x", env={"A": "${TOKEN}"})
    assert "0123456789" not in repr(found)
    assert resolved(url="https://${TOKEN}.example.com/mcp").place == "https://[TOKEN].example.com"
    assert resolved(url="https://ada:${TOKEN}@example.com:8443/mcp").place == "https://example.com:8443"


# Files that other programs read


def write(folder: Path, value: object) -> Path:
    file = folder / ".mcp.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


def test_S39_servers_are_read_by_the_names_in_use(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {
            "mcpServers": {
                "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"A": "1"}, "alwaysAllow": ["x"]},
                "typed": {"type": "stdio", "command": "x", "cwd": "sub"},
                "remote": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "${KEY}"}},
                "gemini": {"httpUrl": "https://example.com/a", "url": "https://example.com/b", "trust": True},
                "My Own (server)": {"command": "x"},
                "off": {"command": "x", "disabled": True},
            }
        },
    )
    found = load_servers(file)
    assert list(found) == ["git", "typed", "remote", "gemini", "My-Own-server"]
    git, typed, remote, gemini = (found[name] for name in ("git", "typed", "remote", "gemini"))
    assert isinstance(git, McpServerSettings)
    assert (git.command, git.args, git.env, git.folder) == ("uvx", ("mcp-server-git",), {"A": "1"}, tmp_path)
    assert isinstance(typed, McpServerSettings)
    assert typed.cwd == tmp_path / "sub"
    assert isinstance(remote, McpServerSettings)
    assert remote.headers == {"X-Key": "${KEY}"}
    assert isinstance(gemini, McpServerSettings)
    assert (gemini.url, gemini.trust) == ("https://example.com/a", False)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "it is not JSON"),
        ("[]", 'it holds no {"mcpServers": {…}}'),
        ({"mcpServers": []}, 'it holds no {"mcpServers": {…}}'),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_a_file_that_is_none_of_servers_is_told(tmp_path: Path, value: object, words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        load_servers(write(tmp_path, value))
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (5, "must be an object"),
        ({}, "it has neither a `command` nor a `url`"),
        ({"comand": "x"}, 'Did you mean "command"?'),
        ({"command": "x", "url": "https://secret-host/"}, "it has a `command` and a `url`: leave one out"),
        ({"command": "x", "args": "y"}, "`args` must be an array of texts"),
        ({"command": "x", "args": ["y", 12345678]}, "`args` must be an array of texts"),
        ({"url": "https://x/", "headers": ["a"]}, "`headers` must be an object with texts"),
        ({"type": "sse", "url": "https://x/"}, "which MCP has removed"),
        ({"type": "carrier pigeon", "command": "x"}, "unknown type"),
        ({"command": ["x"]}, "command"),
        ({"command": "x", "env": {"TOKEN": 12345678}}, "env.TOKEN"),
        *(({"command": "x", "env": {f"{ours}DATA": "y"}}, "are never inherited") for ours in OUR_PREFIXES),
        ({"url": "ftp://secret-host/"}, "must begin with http:// or https://"),
        ({"command": "x", "env": {"12345678=": "a; 12345678"}}, "`env`: "),
    ],
)
def test_a_server_of_a_file_that_cannot_be_used_is_told_without_its_values(
    tmp_path: Path, entry: object, words: str
) -> None:
    found = load_servers(write(tmp_path, {"mcpServers": {"a": entry, "good": {"command": "x"}}}))
    assert isinstance(found["a"], BadInput)
    assert words in str(found["a"])
    assert "12345678" not in str(found["a"])
    assert "secret-host" not in str(found["a"])
    assert isinstance(found["good"], McpServerSettings)


def test_what_narrows_a_server_down_elsewhere_does_so_here(tmp_path: Path) -> None:
    entry = {"command": "x", "includeTools": ["read", "a*"], "excludeTools": ["write"], "trust": True}
    found = load_servers(write(tmp_path, {"mcpServers": {"a": entry}}))["a"]
    assert isinstance(found, McpServerSettings)
    taken = [name for name in ("read", "a*", "ab", "write", "other") if is_wanted(Definition(name=name), found)]
    assert (taken, found.trust) == (["read", "a*"], False)


def test_a_server_that_is_switched_off_is_known_as_such(tmp_path: Path) -> None:
    off = {f"a{place}": {"command": "x", "disabled": value} for place, value in enumerate((True, "true", 1))}
    file = write(tmp_path, {"mcpServers": {**off, "b": {"command": "x", "disabled": False}}})
    assert (set(load_servers(file)), load_disabled(file)) == ({"b"}, {"a0", "a1", "a2"})


def test_a_file_that_says_something_twice_is_not_used(tmp_path: Path) -> None:
    file = write(tmp_path, {})
    file.write_text('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}')
    with pytest.raises(BadInput, match="it has 'a' twice in one object"):
        load_servers(file)


def test_names_that_would_be_one_are_none(tmp_path: Path) -> None:
    found = load_servers(write(tmp_path, {"mcpServers": {"a b": {"command": "x"}, "a.b": {"command": "y"}}}))
    assert isinstance(found["a-b"], BadInput)


def test_a_file_that_others_may_write_is_not_read(tmp_path: Path) -> None:
    file = write(tmp_path, {"mcpServers": {"a": {"command": "x"}}})
    file.chmod(0o666)
    with pytest.raises(BadInput, match="other users can write it"):
        load_servers(file)


def test_our_settings_win_over_a_files_and_may_add_to_them(tmp_path: Path) -> None:
    file = write(tmp_path, {"mcpServers": {name: {"command": "theirs"} for name in ("a", "b", "c")}})
    text = f"""
    mcp.files = ["{file}", "gone.json"]
    [mcp.servers.a]
    command = "ours"
    [mcp.servers.b]
    trust = true
    timeout_seconds = 5
    [mcp.servers.d]
    trust = true
    """
    settings = parse_configuration(FileContent(tmp_path / "holdfast.toml", text.encode())).get_value().mcp
    found, refused = load_configured(settings)
    assert {name: one.command for name, one in found.items()} == {"a": "ours", "b": "theirs", "c": "theirs"}
    assert (found["b"].trust, found["b"].timeout_seconds, found["b"].folder) == (True, 5, tmp_path)
    assert [one.source for one in refused] == [f"MCP servers of {tmp_path / 'gone.json'}", "MCP server d"]


NARROWED = {"includeTools": ["read", "write", "a*"], "excludeTools": ["write"]}


@pytest.mark.parametrize(
    ("entry", "own", "taken"),
    [
        (NARROWED, "trust = true", {"read", "a*"}),
        (NARROWED, 'include = ["*"]\nexclude = []', {"read", "a*"}),
        (NARROWED, 'include = ["write", "delete", "r*"]', {"read"}),
        (NARROWED, 'include = ["delete"]', set()),
        (NARROWED, 'exclude = ["r*"]', {"a*"}),
        ({"excludeTools": ["write"]}, 'include = ["{read,write}"]', {"read"}),
        ({"excludeTools": ["write"]}, 'exclude = ["delete"]', {"read", "a*", "ab"}),
        ({}, 'include = ["write"]', {"write"}),
    ],
)
def test_S39_what_a_file_leaves_out_of_a_server_our_settings_never_bring_back(
    tmp_path: Path, entry: dict[str, Any], own: str, taken: set[str]
) -> None:
    file = write(tmp_path, {"mcpServers": {"a": {"command": "x", **entry}}})
    text = f'mcp.files = ["{file}"]\n[mcp.servers.a]\n{own}\n'
    settings = parse_configuration(FileContent(tmp_path / "holdfast.toml", text.encode())).get_value().mcp
    found, refused = load_configured(settings)
    names = ("read", "write", "delete", "a*", "ab")
    assert {name for name in names if is_wanted(Definition(name=name), found["a"])} == taken
    assert refused == []


def test_too_many_servers_are_told() -> None:
    found, refused = load_configured(McpSettings(servers={f"s{n}": server(command="x") for n in range(103)}))
    assert (len(found), len(refused)) == (100, 3)


# The docs


def test_the_example_of_the_docs_is_read() -> None:
    block = read_blocks("mcp")["servers"]
    found = parse_configuration(FileContent(Path("/project/holdfast.toml"), block.encode())).get_value().mcp
    assert list(found.servers) == ["git", "tracker", "notes"]


def test_the_settings_tell_every_key_and_its_true_default() -> None:
    text = read_page("settings")
    told = dict(re.findall(r"^\| `mcp\.servers\.NAME\.(\w+)` \| (.*?) \|", text, re.MULTILINE))
    fields = {name: one for name, one in McpServerSettings.model_fields.items() if not one.exclude}
    assert set(told) == set(fields)
    for name in ("trust", "timeout_seconds", "start_seconds", "args", "env", "headers", "exclude", "effects"):
        default = fields[name].get_default(call_default_factory=True)
        assert told[name].strip("`") == str(default).lower().replace("()", "[]"), name
    block = read_blocks("settings")["settings"]
    servers = parse_configuration(FileContent(Path("/project/holdfast.toml"), block.encode())).get_value().mcp.servers
    assert {name for one in servers.values() for name in one.model_fields_set} == set(fields)
