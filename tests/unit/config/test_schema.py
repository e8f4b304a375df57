"""The settings file: what it may hold, every mistake with its line, and what the environment says against it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.config.provider_keys import OUR_PREFIXES
from holdfast.config.schema import (
    ApproverSettings,
    Configuration,
    DiscoverySettings,
    HookSettings,
    ModelServerSettings,
    ModelsSettings,
    ShellSettings,
    ToolSettings,
    WorkerSettings,
    parse_configuration,
)
from holdfast.config.sections import GcsSettings, KeySettings, S3Settings
from holdfast.config.settings import Settings, load_settings
from holdfast.config.toml_document import FileContent, FileProblem, format_problems, read_content
from holdfast.domain.base import StrictData
from holdfast.domain.calls.tool import Effect
from holdfast.errors import BadInput
from holdfast.util.text import escape_controls
from tests.support.pages import read_blocks, read_page

FILE = Path("/project/holdfast.toml")
DISCOVERY = '[[discovery]]\nname = "a"\ndiscovery_command = "./t list"\ncall_command = ["./t", "call"]\n'
APPROVER = '[[approvers]]\nname = "ada"\n'
KEY = 'key = "ed25519:cVoKYjnyHVQCYXFUkv5w6a0Jt1ZclnUI6bvaF9SAbwU="\n'


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)


def found(text: str | bytes) -> tuple[FileProblem, ...]:
    data = text if isinstance(text, bytes) else text.encode()
    return parse_configuration(FileContent(FILE, data)).problems


def loaded(text: str) -> Configuration:
    return parse_configuration(FileContent(FILE, text.encode())).get_value()


# What it says


def example() -> str:
    block = read_blocks("settings")["settings"]
    return str(block)


def test_the_example_of_the_docs_is_read_and_holds_every_key() -> None:
    configuration = loaded(example())
    [source] = configuration.discovery
    [approver] = configuration.approvers
    assert (source.discovery_command, source.call_command) == (("./tools.py", "list"), ("./tools.py", "call"))
    assert source.folder == configuration.workspace == FILE.parent
    tables: list[StrictData] = [
        configuration,
        configuration.tools,
        configuration.tools.shell,
        configuration.tools.fetch,
    ]
    [server] = configuration.models.servers.values()
    tables += [configuration.models, server]
    tables += [configuration.limits, configuration.gateway, configuration.telemetry, configuration.worker]
    storage, encryption = configuration.storage, configuration.encryption
    assert storage.s3
    assert storage.gcs
    tables += [encryption, storage, storage.s3, storage.gcs]
    for table in (*tables, configuration.deployment, configuration.mcp, approver, source):
        written = {name for name, field in type(table).model_fields.items() if not field.exclude}
        assert table.model_fields_set == written, "the example leaves out a key"
    hooks = {name for hook in configuration.hooks for name in hook.model_fields_set}
    assert hooks == {name for name, field in HookSettings.model_fields.items() if not field.exclude}
    keys = {name for key in encryption.keys for name in key.model_fields_set}
    assert keys == {name for name, field in KeySettings.model_fields.items() if not field.exclude}
    assert set(configuration.mcp.servers) == {"files", "search", "tracker"}
    oauth = configuration.mcp.servers["tracker"].oauth
    assert oauth
    assert oauth.model_fields_set == set(type(oauth).model_fields)


def test_the_table_of_the_docs_tells_every_key_and_its_true_default() -> None:
    told = dict(re.findall(r"^\| `([\w.]+)` \| `?(.*?)`? \|", read_page("settings"), re.MULTILINE))
    tools, limits, gateway = Configuration().tools, Configuration().limits, Configuration().gateway
    telemetry = Configuration().telemetry
    for prefix, table in (
        ("tools.shell", tools.shell),
        ("tools.fetch", tools.fetch),
        ("limits", limits),
        ("gateway", gateway),
        ("telemetry", telemetry),
        ("deployment", Configuration().deployment),
    ):
        for name, value in table.model_dump(mode="json").items():
            shown = str(value).lower().removesuffix(".0")
            assert told[f"{prefix}.{name}"] == shown, name
    assert {f"approvers.{name}" for name in ApproverSettings.model_fields} <= set(told)
    assert {f"worker.{name}" for name in WorkerSettings.model_fields} <= set(told)
    for name, field in HookSettings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else str(default).lower().replace("('*',)", '["*"]')
        assert field.exclude or told[f"hooks.{name}"] == shown, name
    keys = {f"models.{name}" for name in ModelsSettings.model_fields if name != "servers"}
    keys |= {f"models.servers.NAME.{name}" for name in ModelServerSettings.model_fields}
    assert keys <= set(told)
    keys = {f"encryption.keys.{name}" for name, field in KeySettings.model_fields.items() if not field.exclude}
    keys |= {"encryption.plain", "storage.kind", *(f"storage.s3.{name}" for name in S3Settings.model_fields)}
    keys |= {f"storage.gcs.{name}" for name in GcsSettings.model_fields}
    assert keys <= set(told)
    keys = {f"discovery.{name}" for name, field in DiscoverySettings.model_fields.items() if not field.exclude}
    assert keys <= set(told)
    assert set(Configuration.model_fields) - {
        "tools",
        "discovery",
        "hooks",
        "approvers",
        "mcp",
        "models",
        "limits",
        "gateway",
        "telemetry",
        "worker",
        "encryption",
        "storage",
        "deployment",
    } <= set(told)


def test_approvers_are_part_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(f'{APPROVER}{KEY}roles = ["release"]\n[[approvers]]\nname = "Zoë of ops"\n')
    assert [(one.name, one.roles, bool(one.key)) for one in load_settings(file).approvers] == [
        ("ada", ("release",), True),
        ("Zoë of ops", (), False),
    ]
    assert Settings().approvers == ()


def test_an_empty_file_is_the_defaults() -> None:
    assert loaded("# nothing\n") == Configuration()
    assert loaded("\ufeff") == Configuration()


def test_paths_count_from_the_files_folder_and_know_the_home(tmp_path: Path) -> None:
    assert loaded('workspace = "sub/folder"').workspace == FILE.parent / "sub" / "folder"
    assert loaded('workspace = "/elsewhere"').workspace == Path("/elsewhere")
    assert loaded('data = "~/data"').data == tmp_path / "user" / "data"


def test_values_are_frozen_and_can_be_made_in_code(tmp_path: Path) -> None:
    made = DiscoverySettings(
        name="x", discovery_command=("a",), call_command=("b",), effect=Effect.READ, folder=tmp_path
    )
    assert (made.folder, made.timeout_seconds, made.call_timeout_seconds) == (tmp_path, 10, 600)
    with pytest.raises(ValidationError):
        made.name = "y"
    assert ToolSettings() == Settings().tools
    assert ShellSettings(timeout_seconds=5).timeout_seconds == 5


def test_a_sandbox_is_asked_for_as_the_docs_say_and_never_by_default() -> None:
    block = read_blocks("shell-commands")["sandbox"]
    shell = loaded(block).tools.shell
    assert (shell.sandbox, shell.network) == ("bwrap", False)
    assert loaded(block.replace("false", "true")).tools.shell.network
    assert (ShellSettings().sandbox, ShellSettings().lease_seconds) == ("none", 120)
    assert loaded("tools.shell.lease_seconds = 5").tools.shell.lease_seconds == 5


@pytest.mark.parametrize(
    "allowed",
    ["localhost", "host.example:80", "127.0.0.1", "127.0.0.1:8080", "::1", "[::1]:80", "10.0.0.0/8", "fd00::/8"],
)
def test_hosts_ports_and_networks_may_be_allowed(allowed: str) -> None:
    assert loaded(f'[tools.fetch]\nallow = ["{allowed}"]').tools.fetch.allow == (allowed,)


# What is wrong with it

WRONG: dict[str, tuple[str, int, str]] = {
    "broken": ('a = 1\nb = "x', 2, "is not TOML: "),
    "half a table": ("a = 1\n[tools", 2, "is not TOML: "),
    "twice": ("data = 'a'\ndata = 'b'\n", 2, "is not TOML: Cannot overwrite a value, column"),
    "a number without end": ("a = " + "9" * 5_000, 1, "Exceeds the limit"),
    "unknown": ("\ntols = 1", 2, "`tols` is not a setting; did you mean `tools`?"),
    "unknown inside": ("[tools]\n\n[tools.shel]", 3, "`tools.shel` is not a setting; did you mean `shell`?"),
    "unknown and like nothing": ("qqqqqqqq = 1", 1, "`qqqqqqqq` is not a setting"),
    "unknown in discovery": (DISCOVERY + "effects = 1", 5, "`discovery.1.effects` is not a setting; did you mean `eff"),
    "folder": (DISCOVERY + "folder = '.'", 5, "`discovery.1.folder` is not a setting"),
    "unknown in a server": ("[mcp.servers.a]\nur = 'x'", 2, "is not a setting; did you mean `url`?"),
    "type of text": ("task_queue = 5", 1, "`task_queue` must be text, not a whole number"),
    "type of a path": ("workspace = [1]", 1, "`workspace` must be text, not an array"),
    "type of a flag": ("tools.entry_points = 1", 1, "`tools.entry_points` must be true or false, not a whole number"),
    "type of a number": ("limits.concurrent_calls = true", 1, "must be a whole number, not true or false"),
    "type of seconds": ("tools.shell.timeout_seconds = '9'", 1, "must be a number, not text"),
    "type of an array": ("tools.disable = 'fetch'", 1, "`tools.disable` must be an array, not text"),
    "type of an element": ("tools.disable = [\n'a',\n2]", 3, "`tools.disable.2` must be text, not a whole number"),
    "type of a table": ("tools = 1979-05-27", 1, "`tools` must be a table, not a date or time"),
    "type of tables": ("discovery = {}", 1, "`discovery` must be an array, not a table"),
    "type of variables": ("tools.shell.environment = []", 1, "must be a table, not an array"),
    "too small": ("limits.output_characters = 999", 1, "must be at least 1,000, not 999"),
    "too large": ("[limits]\nconcurrent_calls = 1_001", 2, "must be at most 1,000, not 1001"),
    "very large": ("limits.concurrent_calls = 0x" + "f" * 9_000, 1, "must be at most 1,000, not a very large number"),
    "infinite": ("tools.shell.timeout_seconds = inf", 1, "must be at most 3,600, not inf"),
    "not a number": ("tools.shell.timeout_seconds = nan", 1, "`tools.shell.timeout_seconds` must be"),
    "an empty queue": ("task_queue = ' '", 1, "`task_queue` is empty"),
    "a long queue": (f"task_queue = '{'x' * 1_001}'", 1, "`task_queue` is over 1,000 characters"),
    "an empty path": ("workspace = ''", 1, "`workspace` is empty"),
    "half a path": ('workspace = "a\\u0000"', 1, "`workspace` holds a NUL character"),
    "nobody's home": ("data = '~nobody-at-all/x'", 1, "`data` has an unknown user in `~name`"),
    "a policy that is no path": ("\npolicy = [7]", 2, "`policy.1`"),
    "any policy": ("policy = true", 1, "must be an array"),
    "a mode nobody has": ("modes = ['bold']", 1, "`modes.1`"),
    "no mode": ("modes = []", 1, "`modes` is empty"),
    "an approver's key": (APPROVER + "key = 'x'", 3, "`approvers.1.key` must be `ed25519:` and 32 bytes in base64"),
    "half a key": (APPROVER + "key = 'ed25519:AAAA'", 3, "must be `ed25519:` and 32 bytes in base64"),
    "a key of zeros": (APPROVER + f"key = 'ed25519:{'A' * 43}='", 3, "is a key for which anybody can sign"),
    "a key taken": (f"{APPROVER}{KEY}[[approvers]]\nname = 'bob'\n{KEY}", 6, "another [[approvers]] has the same key"),
    "an approver taken": (APPROVER * 2, 4, "`approvers.2.name` is taken: another [[approvers]] is called 'ada'"),
    "an approver nobody sees": ("[[approvers]]\nname = '\u202e'", 2, "must be 1 to 200 printable characters"),
    "an approver of spaces": ("[[approvers]]\nname = ' '", 2, "must be 1 to 200 printable characters"),
    "an approver without end": (f"[[approvers]]\nname = '{'x' * 201}'", 2, "must be 1 to 200 printable characters"),
    "an approver without a name": ("[[approvers]]\nroles = []", 1, "`name` is missing in `approvers.1`"),
    "a role": (APPROVER + "roles = ['']", 3, "`approvers.1.roles.1` is empty"),
    "vouching": (APPROVER + "vouches = true", 1, "`approvers.1` has `vouches = true`, and needs a `key` for it"),
    "a gateway's port": ("gateway.port = 65536", 1, "`gateway.port` must be at most 65,535, not 65536"),
    "a gateway's host": (
        "[gateway]\nhost = '127.0.0.1:80/'",
        2,
        "must be the name or the address of a host, without a",
    ),
    "a host with a path": (
        "gateway.names = ['a.b/c']",
        1,
        "`gateway.names.1` must be the name or the address of a host",
    ),
    "a worker's grace": ("worker.grace_seconds = 90000", 1, "`worker.grace_seconds` must be at most 86,400, not 90000"),
    "probes without a port": (
        "[worker]\nhealth = '127.0.0.1'",
        2,
        "`worker.health` must be host:port, as in 127.0.0.1:8235",
    ),
    "probes at a bare IPv6 address": ("worker.health = '::1:80'", 1, "`worker.health` must be host:port"),
    "no host": ("gateway.host = ''", 1, "`gateway.host` is empty"),
    "a module": ("tools.modules = ['a.b']", 1, "`tools.modules.1` must be `module:name`"),
    "no module": ("tools.modules = [':x']", 1, "must be `module:name`"),
    "no name": ("tools.modules = ['a-b:c']", 1, "must be `module:name`"),
    "a variable": ("tools.shell.environment = { 'a-b' = '' }", 1, "is not the name of an environment variable"),
    **{
        f"our variable {ours}": (f"tools.shell.environment.{ours}X = ''", 1, "are never inherited")
        for ours in OUR_PREFIXES
    },
    "half a variable": ('tools.shell.environment.X = "\\u0000"', 1, "holds a NUL character"),
    "a short lease": ("[tools.shell]\nlease_seconds = 4", 2, "`tools.shell.lease_seconds` must be at least 5, not 4"),
    "a lease of days": ("tools.shell.lease_seconds = 86_401", 1, "must be at most 86,400, not 86401"),
    "a lease without end": ("tools.shell.lease_seconds = inf", 1, "must be at most 86,400, not inf"),
    "a lease in words": ("tools.shell.lease_seconds = '2m'", 1, "must be a number, not text"),
    "a sandbox nobody knows": ("tools.shell.sandbox = 'docker'", 1, "'none' or 'bwrap'"),
    "a sandbox by a flag": ("tools.shell.sandbox = true", 1, "'none' or 'bwrap'"),
    "a network by a word": ("[tools.shell]\nsandbox = 'bwrap'\nnetwork = 'on'", 3, "must be true or false, not text"),
    "a network without a sandbox": ("[tools.shell]\nnetwork = true", 1, "`network = true`, which needs a `sandbox`"),
    "a host": ("tools.fetch.allow = ['a b']", 1, "must be a host, host:port, or a network"),
    "a port": ("tools.fetch.allow = ['a:99999']", 1, "must be a host, host:port, or a network"),
    "a network": ("tools.fetch.allow = ['10.0.0.1/8']", 1, "must be a host, host:port, or a network"),
    "no command": (DISCOVERY.replace('"./t list"', "''"), 3, "`discovery.1.discovery_command` is empty"),
    "no words": (DISCOVERY.replace('["./t", "call"]', "[]"), 4, "`discovery.1.call_command` is empty"),
    "an open quote": (DISCOVERY.replace("./t list", "a 'b"), 3, "cannot be split into words: no closing quotation"),
    "a missing command": (
        "[[discovery]]\nname = 'a'\ncall_command = 'x'",
        1,
        "`discovery_command` is missing in `disc",
    ),
    "an effect": (DISCOVERY + "effect = 'twice'", 5, "must be 'read', 'idempotent' or 'once', not 'twice'"),
    "a table for an effect": (DISCOVERY + "effect.x = 0x" + "f" * 9_000, 5, "or 'once', not a table"),
    "a name": (DISCOVERY.replace('"a"', '"a b"'), 2, "`discovery.1.name` must be 1 to 40 letters"),
    "a name taken": (DISCOVERY * 2, 6, "`discovery.2.name` is taken: another [[discovery]] is called 'a'"),
    "neither way": ("[mcp.servers.a]", 1, "`mcp.servers.a` needs `command` or `url`, and not both"),
    "both ways": ("mcp.servers.a = { command = 'x', url = 'http://x' }", 1, "needs `command` or `url`, and not both"),
    "words for a URL": ("mcp.servers.a = { url = 'http://x', args = ['y'] }", 1, "are for a `command`"),
    "no URL": ("mcp.servers.a = { url = 'file:///x' }", 1, "must begin with http:// or https://"),
    "no server name": ("[mcp.servers.'a.b']\ncommand = 'x'", 1, "must be 1 to 40 letters"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_told_with_its_line(name: str) -> None:
    text, line, words = WRONG[name]
    problems = found(text)
    assert words in " / ".join(problem.message for problem in problems)
    assert [problem.line for problem in problems] == [line]


def test_all_mistakes_are_told_at_once_in_the_order_of_their_lines() -> None:
    text = DISCOVERY + DISCOVERY + "effect = 'x'\n[limits]\nconcurrent_calls = 0\noops = 1\n[tools]\ndisable = [1]\n"
    assert [problem.line for problem in found(text)] == [6, 9, 11, 12, 14]
    with pytest.raises(BadInput) as refusal:
        parse_configuration(FileContent(FILE, text.encode())).get_value()
    told = str(refusal.value).split("\n")
    assert len(told) == 5
    assert told[1] == f"{FILE}, line 9: `discovery.2.effect` must be 'read', 'idempotent' or 'once', not 'x'"


def test_of_a_thousand_mistakes_twenty_are_told_and_the_rest_counted() -> None:
    problems = found("".join(f"wrong{number} = 1\n" for number in range(1_000)))
    told = format_problems(FILE, problems).split("\n")
    assert (len(problems), len(told), told[-1]) == (1_000, 21, f"{FILE}: and 980 more; --json lists all")


def test_what_is_not_text_or_nested_without_end_is_refused() -> None:
    assert found(b"a = 1\n\xff") == (FileProblem(2, "", "byte 6 is not UTF-8 text"),)
    assert found("a = " + "[" * 200_000) == (FileProblem(None, "", "is nested too deeply"),)


def test_escape_codes_of_the_file_are_written_out() -> None:
    for text in ('"\\u001b[31m\\nx" = 1', '[tools]\ndisable = "\\u001b]0;x"', 'tools.modules = ["\\u202e:\\u001b"]'):
        for problem in found(text):
            assert escape_controls(problem.message) == problem.message
            assert "\n" not in problem.message


# Files


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    assert read_content(file).problem == "there is no such file"
    assert read_content(tmp_path).problem == "is a folder, not a file"
    assert "NUL" in (read_content(Path("a\0b")).problem or "").upper()
    os.mkfifo(file)
    assert read_content(file).problem == "is not a regular file"
    file.unlink()
    file.touch()
    os.truncate(file, 100 * 1024**3)
    assert read_content(file).problem == "is over 1,000,000 bytes"
    file.unlink()
    file.symlink_to(file)
    assert "cannot be read" in (read_content(file).problem or "")


@pytest.mark.parametrize(("mode", "group", "fits"), [(0o644, 0, True), (0o664, 0, True), (0o664, 1, False)])
def test_a_file_that_others_may_write_is_refused(
    mode: int, group: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("")
    file.chmod(mode)
    gid = file.stat().st_gid + group
    monkeypatch.setattr(os, "getegid", lambda: gid)
    assert (read_content(file).problem is None) is fits
    file.chmod(mode | 0o002)
    assert "chmod go-w" in (read_content(file).problem or "")


def test_the_digest_is_of_the_bytes_that_were_parsed(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('task_queue = "one"')
    settings = load_settings(file)
    assert load_settings(file, digest=settings.file_digest).task_queue == "one"
    file.write_text('task_queue = "two"')
    with pytest.raises(BadInput, match="has changed since"):
        load_settings(file, digest=settings.file_digest)


# Settings


def test_settings_read_no_file_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("not toml")
    assert Settings() == Settings(workspace=tmp_path)
    assert Settings().file is None


def test_the_environment_wins_over_the_file_and_the_file_over_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sub" / "any.toml"
    file.parent.mkdir()
    file.write_text('task_queue = "filed"\nworkspace = "."\ndata = "d"\n[limits]\nconcurrent_calls = 7\n' + DISCOVERY)
    monkeypatch.setenv("HOLDFAST_WORKSPACE", "/environment")
    settings = load_settings(file)
    assert (settings.task_queue, settings.workspace) == ("filed", Path("/environment"))
    assert settings.data == file.parent / "d"
    assert (settings.limits.concurrent_calls, settings.discovery[0].folder) == (7, file.parent)
    assert (settings.file, settings.file_lines) == (file, {"task_queue": 1, "data": 3})
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    assert load_settings() == settings


def test_without_a_file_loading_is_the_defaults() -> None:
    assert load_settings() == Settings()


# Whatever is in it


def harmless(text: str | bytes) -> None:
    problems = found(text)
    for problem in problems:
        assert escape_controls(problem.message) == problem.message
        assert len(problem.message) < 1_000
    assert format_problems(FILE, problems) or not problems


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_settings_or_problems(data: bytes) -> None:
    harmless(data)


MODELS = (Configuration, DiscoverySettings, HookSettings, ToolSettings)
KEYS = sorted({name for model in MODELS for name in model.model_fields})
keys = st.sampled_from([*KEYS, "servers", "command", "environment", "'é'", '"\\u001b"', '""'])
scalars = st.sampled_from(
    ["1", "-1", "0x" + "f" * 5_000, "nan", "-inf", "true", "''", '"\\u0000"', '"a:b"', "1979-05-27", "07:32:00", "'~'"]
)
tables = st.lists(st.tuples(keys, scalars).map(" = ".join), max_size=2).map(lambda made: f"{{ {', '.join(made)} }}")
values = scalars | tables | st.lists(scalars | tables, max_size=3).map(lambda made: f"[{', '.join(made)}]")
paths = st.lists(keys, min_size=1, max_size=3).map(".".join)


@st.composite
def tomls(draw: st.DrawFn) -> str:
    statement = st.one_of(
        st.tuples(paths, values).map(" = ".join),
        paths.map(lambda path: f"[{path}]"),
        st.sampled_from(["[[discovery]]", "[[hooks]]"]),
    )
    return "\n".join(draw(st.lists(statement, max_size=6)))


@given(tomls())
def test_any_toml_is_settings_or_problems(text: str) -> None:
    harmless(text)


@pytest.mark.parametrize(
    "text",
    ["", "9464", "localhost:9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000", "1.2.3.999:1", "::1:9464", "a b:1"],
)
def test_metrics_listen_at_an_address_and_a_port(text: str) -> None:
    [problem] = found(f"[telemetry]\nmetrics = {json.dumps(text)}\n")
    assert problem.line == 2
    assert "must be an address and a port, as 127.0.0.1:9464" in problem.message
    assert loaded('[telemetry]\nmetrics = "[::1]:9464"\n').telemetry.metrics == "[::1]:9464"


@pytest.mark.parametrize("line", ['traces = "jaeger"', 'logs = "xml"', 'content = "yes"', 'endpoint = "http://x"'])
def test_what_telemetry_does_not_know_is_an_error_with_its_line(line: str) -> None:
    [problem] = found(f"[telemetry]\n{line}\n")
    assert problem.line == 2
