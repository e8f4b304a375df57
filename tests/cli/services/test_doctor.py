"""`holdfast doctor` on real failures: each is found, and the sentence says what to do (S46, S36)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.workers.embedded.temporal_server import find_binary
from tests.cli.support import Home

Options = tuple[()] | tuple[str, str]


def looked(home: Home, *words: str, file: Options = (), **env: str) -> tuple[int, dict[str, list[Any]]]:
    """The exit code, and what was found by check."""
    done = home.run(*file, "doctor", *words, "--json", **env)
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    found: dict[str, list[Any]] = {}
    for one in told["checks"]:
        found.setdefault(one["check"], []).append(one)
        assert one["level"] == "ok" or one["do"], one
    assert told["problems"] == sum(one["level"] == "problem" for ones in found.values() for one in ones)
    assert told["ok"] is (done.returncode == 0)
    return done.returncode, found


def bad(found: dict[str, list[Any]], check: str, level: str = "problem") -> str:
    """What a check says is wrong, and what to do."""
    [one] = [one for one in found[check] if one["level"] == level]
    return f"{one['says']} → {one['do']}"


def written(home: Home, text: str) -> tuple[str, str]:
    """Options for a settings file with this text."""
    file = home.folder / "holdfast.toml"
    file.write_text(text)
    return ("--config", str(file))


def test_S46_everything_is_well_on_the_embedded_server(empty: Home) -> None:
    with empty.up():
        code, found = looked(empty)
        wrong = [one for ones in found.values() for one in ones if one["level"] != "ok"]
        assert (code, wrong) == (0, [])
        wanted = {
            "server",
            "latency",
            "search attributes",
            "clocks",
            "workers",
            "hosts",
            "versions",
            "disk",
            "payloads",
        }
        assert wanted | {"ledger", "sandbox", "tools", "policy", "hooks", "mcp", "models", "gateway"} <= set(found)
        said = empty.run("doctor").stdout
        assert said.rstrip().endswith("No problems.")
        assert "\x1b" not in said, "nobody looks: no colours"
        before = sorted(empty.data.rglob("*"))
        looked(empty)
        assert sorted(empty.data.rglob("*")) == before, "it changes nothing"

        code, found = looked(empty, HOLDFAST_TASK_QUEUE="nobody-is-here")
        assert code == 1
        assert "no worker polls 'nobody-is-here': turns cannot go on → start one: holdfast worker" in bad(
            found, "workers"
        )

        code, found = looked(empty, HOLDFAST_BUILD="v7")
        assert (code, "no worker of version 'v7'" in bad(found, "versions")) == (1, True)


def test_without_a_server_the_rest_is_looked_at(empty: Home) -> None:
    code, found = looked(empty)
    assert code == 3
    assert "`holdfast up` starts one" in bad(found, "server")
    assert found["policy"][0]["level"] == "ok"
    assert "workers" not in found
    code, found = looked(empty, "--address", "127.0.0.1:1")
    assert (code, "no Temporal server answers at '127.0.0.1:1'" in bad(found, "server")) == (3, True)
    assert not empty.data.exists(), "nothing is made"


def test_offline_asks_no_server(empty: Home) -> None:
    code, found = looked(empty, "--offline")
    assert (code, "server" in found, "workers" in found) == (0, False, False)


def _namespace(home: Home, name: str, *attributes: str) -> str:
    """The name of a new namespace, with these search attributes as numbers."""
    address = json.loads((home.data / "server.json").read_text())["address"]
    env = {"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": name}
    commands: list[tuple[str, ...]] = [("namespace", "create", "--namespace", name)]
    commands += [("search-attribute", "create", "--name", one, "--type", "Int") for one in attributes]
    for words in commands:
        subprocess.run([find_binary(), "operator", *words], env={**home.env, **env}, check=True, timeout=60)
    return name


def test_a_namespace_that_is_not_there_and_attributes_that_are_not(home: Home) -> None:
    address = json.loads((home.data / "server.json").read_text())["address"]
    code, found = looked(home, TEMPORAL_ADDRESS=address, TEMPORAL_NAMESPACE="nowhere")
    assert code == 1
    assert "has no namespace 'nowhere'" in bad(found, "server")
    assert "temporal operator namespace create --namespace nowhere" in bad(found, "server")

    code, found = looked(home, TEMPORAL_ADDRESS=address, TEMPORAL_NAMESPACE=_namespace(home, "bare"))
    assert code == 1
    said = bad(found, "search attributes")
    assert "HoldfastState, HoldfastTools, HoldfastDeadline" in said
    assert "temporal operator search-attribute create --namespace bare --name HoldfastState --type Keyword" in said

    code, found = looked(home, TEMPORAL_ADDRESS=address, TEMPORAL_NAMESPACE=_namespace(home, "typed", "HoldfastState"))
    assert (code, "HoldfastState must be Keyword" in bad(found, "search attributes")) == (1, True)


@pytest.mark.parametrize(
    ("text", "check", "said"),
    [
        ('[mcp.servers.broken]\ncommand = "false"\n', "mcp", "holdfast mcp test broken"),
        ('[mcp.servers.gone]\nurl = "http://127.0.0.1:1/mcp"\n', "mcp", "holdfast mcp test gone"),
        ('policy = ["garbage.toml"]\n', "policy", "holdfast policy check"),
        ('[models]\ndefault = "anthropic:claude"\n', "models", "`ANTHROPIC_API_KEY`"),
        (
            '[models.servers.mine]\nurl = "http://127.0.0.1:1"\nkey = "${MY_KEY}"\n',
            "models",
            "'mine' needs its key in MY_KEY",
        ),
        ('[[hooks]]\nname = "h"\nwhen = "before"\npython = "no_such_module:hook"\n', "hooks", "workers do not start"),
        ('ledger = "postgresql://ada@127.0.0.1:1/x"\n', "ledger", "cannot be reached"),
        ('workspace = "not-there"\n', "workspace", "is not a folder"),
    ],
    ids=lambda value: value.split("\n")[0][:20],
)
def test_what_the_settings_name_is_tried(empty: Home, text: str, check: str, said: str) -> None:
    (empty.folder / "garbage.toml").write_text("[[rules]]\ntool = 7\n\x00")
    empty.env.pop("HOLDFAST_WORKSPACE")
    code, found = looked(empty, "--offline", file=written(empty, text))
    assert code == 1
    assert said in bad(found, check)


def test_S29_names_of_tools_that_are_probably_misspelt_are_warnings(empty: Home) -> None:
    rule, hook = '[[rule]]\ndecision = "deny"\n', '[[hooks]]\nname = "h"\nwhen = "before"\ncommand = "true"\n'
    (empty.folder / "mine.toml").write_text(f'{rule}tool = "shel"\n')
    text = f'policy = ["mine.toml"]\n{hook}tools = ["Bash"]\n'
    _, found = looked(empty, "--offline", file=written(empty, text))
    assert "mine.toml, line 1: no built-in tool is called 'shel'" in bad(found, "policy", "warning")
    assert "the hook 'h': no built-in tool is called 'Bash'" in bad(found, "hooks", "warning")


def test_tools_that_cannot_be_used_are_warnings_and_those_of_servers_are_left_to_them(empty: Home) -> None:
    text = '[tools]\nmodules = ["no_such_module:tools"]\ndisable = ["later__tool"]\n'
    text += '[mcp.servers.later]\ncommand = "false"\n'
    code, found = looked(empty, "--offline", file=written(empty, text))
    assert code == 1
    assert "no_such_module" in bad(found, "tools", "warning")
    assert "later" in bad(found, "mcp")


def test_a_sandbox_that_cannot_be_had_is_a_problem(empty: Home, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    options = written(empty, '[tools.shell]\nsandbox = "bwrap"\n')
    code, found = looked(empty, "--offline", file=options, PATH=str(programs))
    assert code == 1
    assert "'bwrap' is not installed" in bad(found, "sandbox")


def test_a_settings_file_that_cannot_be_read_is_told_and_gone_without(empty: Home) -> None:
    code, found = looked(empty, "--offline", file=written(empty, "tols = 1\n"))
    assert code == 1
    assert "line 1: `tols` is not a setting" in bad(found, "settings")
    assert found["tools"][0]["level"] == "ok"
    code, found = looked(empty, "--offline", file=("--config", "/nowhere/holdfast.toml"))
    assert (code, "holdfast config check" in bad(found, "settings")) == (1, True)
    done = empty.run("doctor", "--offline", HOLDFAST_BUILD="no good")
    assert (done.returncode, "a build must be" in done.stderr) == (2, True)


def test_files_of_the_data_folder_that_are_not_as_they_should_be(empty: Home) -> None:
    empty.data.mkdir(mode=0o755)
    empty.data.chmod(0o755)
    (empty.data / "tokens.json").write_text("{}")
    (empty.data / "tokens.json").chmod(0o666)
    (empty.data / "ledger.db").write_text("garbage" * 100)
    (empty.data / "host").write_text("../../etc")
    (empty.data / "granted.toml").write_text("what?")
    (empty.data / "granted.toml").chmod(0o600)
    code, found = looked(empty, "--offline")
    assert code == 1
    assert f"chmod 700 {empty.data}" in bad(found, "disk", "warning")
    assert "no token is accepted" in bad(found, "gateway")
    assert "restore it from a copy" in bad(found, "ledger")
    assert "once no command runs here" in bad(found, "host")
    assert "granted.toml" in bad(found, "grants")


def test_S46_a_volume_of_kubernetes_is_as_it_should_be(empty: Home) -> None:
    """For `fsGroup` the kubelet gives the root of a volume to the group, with setgid: `chmod 700` would not last."""
    empty.data.mkdir()
    os.chown(empty.data, -1, os.getegid())
    empty.data.chmod(0o2775)
    with empty.up():
        _, found = looked(empty)  # its exit code is of all checks, and one of the server may time out on a busy machine
    assert {one["level"] for one in found["disk"]} == {"ok"}
    assert "(fsGroup), and only their owner can read the files in it" in found["disk"][0]["says"]
    (empty.data / "tokens.json").touch()
    (empty.data / "tokens.json").chmod(0o640)
    _, found = looked(empty, "--offline")
    assert f"chmod go-rwx {empty.data / 'tokens.json'}" in bad(found, "disk", "warning")


def test_temporals_own_configuration_is_read(empty: Home) -> None:
    file = empty.folder / "temporal.toml"
    file.write_text("garbage = [")
    code, found = looked(empty, TEMPORAL_CONFIG_FILE=str(file))
    assert code == 1
    assert "TEMPORAL_CONFIG_FILE" in bad(found, "temporal configuration")


def test_S45_no_secret_is_told(empty: Home) -> None:
    canary = "canary-3f9a2b"
    text = (
        '[models]\ndefault = "openai:gpt"\n[mcp.servers.broken]\ncommand = "sh"\n'
        'args = ["-c", "echo $TOKEN >&2; exit 1"]\nenv = { TOKEN = "${CANARY}" }\n'
    )
    done = empty.run(*written(empty, text), "doctor", "--offline", CANARY=canary, OPENAI_API_KEY=canary)
    assert done.returncode == 1
    assert "openai:gpt has what it needs" in done.stdout
    assert canary not in done.stdout + done.stderr


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "holdfast-test", str(folder)]
    done = subprocess.run(mounting, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip() or 'mount was refused'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=20)


def test_a_disk_that_is_full_or_may_only_be_read_is_a_problem(empty: Home, disk: Path) -> None:
    code, found = looked(empty, "--offline", "--data", str(disk))
    assert code == 1
    assert "free some space" in bad(found, "disk")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, timeout=20)
    code, found = looked(empty, "--offline", "--data", str(disk))
    assert (code, str(disk) in bad(found, "disk")) == (1, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_may_not_be_written_is_a_problem(empty: Home) -> None:
    empty.data.mkdir(mode=0o500)
    code, found = looked(empty, "--offline")
    assert (code, "cannot be written by this user" in bad(found, "disk")) == (1, True)


def test_S45_a_key_that_cannot_be_had_and_a_collector_that_is_away_are_told(empty: Home) -> None:
    keys = '[[encryption.keys]]\nid = "new"\nenv = "HOLDFAST_NO_KEY"\n[telemetry]\ntraces = "otlp"\n'
    file = written(empty, keys)
    code, found = looked(empty, "--offline", file=file, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert code == 1
    assert "the encryption key 'new' cannot be read from" in bad(found, "encryption")
    assert "no collector answers at 127.0.0.1:9" in bad(found, "traces", "warning")
    assert [one["level"] for one in found["stores"]] == ["ok"]


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://u:s3cr/et@host:43x18", "OTEL_EXPORTER_OTLP_ENDPOINT is not an address"),
        ("http://no-such-host.invalid:4318", "unknown host name"),
    ],
)
def test_S45_an_address_of_a_collector_that_is_none_is_told_without_what_is_in_it(
    empty: Home, endpoint: str, words: str
) -> None:
    file = written(empty, '[telemetry]\ntraces = "otlp"\n')
    done = empty.run(*file, "doctor", "--offline", "--json", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert words in done.stdout
    assert "s3cr" not in done.stdout + done.stderr
