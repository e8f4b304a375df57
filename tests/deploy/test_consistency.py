"""What deploy/ says is what the code has: commands, options, variables, settings, versions, ports, links."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.config.settings import BUILD_VARIABLE, VARIABLES, Settings, load_settings
from holdfast.config.trust import CONFIG_VARIABLE as CONFIG
from holdfast.workers.cli.command_tree import import_all_commands
from tests.deploy.support import DEPLOY, ROOT, checked

TEXTS = sorted(file for file in DEPLOY.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
GUIDES = [file for file in TEXTS if file.suffix == ".md"]
SCRIPTS = [ROOT / ".ci" / name for name in ("run", "packages")]
GUIDED = ("image", "compose", "kubernetes", "cloud", "systemd")
COMMANDS = import_all_commands()
FOREIGN = {"TEMPORAL_DEFAULT_NAMESPACE", "TEMPORAL_CLOUD_API_KEY"}
"""Variables of other programs of Temporal's."""
TEMPORAL = {
    "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_API_KEY", "TEMPORAL_PROFILE", "TEMPORAL_CONFIG_FILE",
    "TEMPORAL_TLS", "TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH", "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
    "TEMPORAL_TLS_SERVER_NAME", "TEMPORAL_TLS_CLIENT_CERT_DATA", "TEMPORAL_TLS_CLIENT_KEY_DATA",
}  # fmt: skip
OURS = {
    *VARIABLES.values(),
    BUILD_VARIABLE,
    CONFIG,
    "HOLDFAST_LEDGER",
    "HOLDFAST_KEY",
    "HOLDFAST_PROBE",
    "HOLDFAST_LEDGER_PASSWORD",
}
OTHERS = (
    r"(systemctl|systemd-run|journalctl|kubectl +(delete|create)|useradd|userdel|tar|install\.sh|install -m) |^[dz] /"
)
"""Programs that are told of a holdfast which is no command."""


def named(file: Path) -> str:
    return str(file.relative_to(DEPLOY))


def words_of(text: str) -> Iterator[list[str]]:
    """The words after `holdfast` wherever a command of it is written: in shell blocks, units, sentences."""
    for whole in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = re.sub(r"(--namespace|--deployment-name|--home-dir|-g|-u) \S*holdfast", "", whole)
        if not re.search(OTHERS, line):
            for found in re.finditer(r"(?<![\w.@=:-])holdfast(?::[\d.]+)? ((?:--[a-z]|[a-z])[^`|;&>)#]*)", line):
                yield found[1].split()


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and what follows it; none where they name none."""
    found: Any = COMMANDS
    rest = list(words)
    while rest and rest[0] in ("--config", "--no-config"):
        rest = rest[2:] if rest[0] == "--config" else rest[1:]
    if not rest or rest[0] not in {*found.commands, "--version"}:
        return None, rest
    while getattr(found, "commands", None) and rest and rest[0] in found.commands:
        found, rest = found.commands[rest[0]], rest[1:]
    return found, rest


@pytest.mark.parametrize("file", TEXTS, ids=named)
def test_every_command_that_is_named_exists_with_its_options(file: Path) -> None:
    for words in words_of(file.read_text()):
        command, rest = command_of(words)
        assert command, words
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        given = [word.strip("'\"").partition("=")[0] for word in rest if re.match("--[a-z]", word)]
        assert set(given) <= known | {"--help"}, words


def test_commands_are_found_where_they_are_written() -> None:
    """Or the test above would prove nothing."""
    every = (command_of(words)[0] for file in TEXTS for words in words_of(file.read_text()))
    found = {command.name for command in every if command}
    assert {"worker", "gateway", "up", "create", "start", "show"} <= found


@pytest.mark.parametrize("file", TEXTS, ids=named)
def test_every_variable_that_is_named_is_one_that_somebody_reads(file: Path) -> None:
    found = set(re.findall(r"\b(?:HOLDFAST|TEMPORAL)_[A-Z_]*[A-Z]\b", file.read_text()))
    assert found <= TEMPORAL | OURS | FOREIGN


def test_the_variables_of_temporal_are_those_that_its_configuration_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    from temporalio.envconfig import ClientConfigProfile

    values = dict.fromkeys(TEMPORAL - {"TEMPORAL_PROFILE", "TEMPORAL_CONFIG_FILE", "TEMPORAL_TLS"}, "x")
    by_path = {name: value for name, value in values.items() if not name.endswith("_DATA")}
    loaded = ClientConfigProfile.load(override_env_vars=by_path, disable_file=True)
    assert (loaded.address, loaded.namespace, loaded.api_key) == ("x", "x", "x")
    assert loaded.tls
    assert loaded.tls.server_name == "x"
    assert {loaded.tls.client_cert, loaded.tls.client_private_key, loaded.tls.server_root_ca_cert} == {Path("x")}


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("holdfast.toml")), ids=named)
def test_every_settings_file_is_right(file: Path) -> None:
    checked("holdfast", "config", "check", file)
    assert load_settings(file).gateway.port == Settings().gateway.port


def test_yaml_is_written_as_yaml_should_be() -> None:
    checked("yamllint", "--strict", "--config-file", DEPLOY / ".yamllint", DEPLOY)


@pytest.mark.parametrize("file", sorted([*DEPLOY.rglob("*.sh"), *SCRIPTS]), ids=lambda file: file.name)
def test_scripts_are_written_as_scripts_should_be(file: Path) -> None:
    checked("shellcheck", file)
    text = file.read_text()
    assert text.startswith("#!")
    assert re.search(r"^set -eu", text, re.MULTILINE), "an error ends it"


def test_scripts_that_are_called_by_name_may_be_run() -> None:
    assert os.access(DEPLOY / "image" / "install.sh", os.X_OK)


@pytest.mark.parametrize("file", GUIDES, ids=named)
def test_links_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", file.read_text()):
        assert "://" in target or (file.parent / target).exists(), target


@pytest.mark.parametrize("folder", GUIDED)
def test_each_way_has_a_guide_from_nothing_to_a_turn_and_back(folder: str) -> None:
    text = (DEPLOY / folder / "README.md").read_text()
    for heading in ("## Start", "## A turn", "## Upgrade", "## Back up", "## Remove"):
        assert f"\n{heading}" in text, heading
    assert f"]({folder}/README.md)" in (DEPLOY / "README.md").read_text()


@pytest.mark.parametrize("file", GUIDES, ids=named)
def test_shell_blocks_of_guides_can_be_read_by_a_shell(file: Path) -> None:
    for block in re.findall(r"```sh\n(.*?)```", file.read_text(), re.DOTALL):
        checked("bash", "-n", "-c", block)
        shlex.split(block, comments=True)


def test_versions_are_told_everywhere_alike() -> None:
    for file in TEXTS:
        for found in re.findall(
            r"holdfast:(\d+\.\d+\.\d+)|^    newTag: (\S+)|^ARG VERSION=(\S+)", file.read_text(), re.M
        ):
            assert holdfast.__version__ in found, named(file)


def test_no_address_of_a_package_registry_is_in_the_tree() -> None:
    for file in TEXTS:
        assert not re.search(r"pypi\.org|pythonhosted|index-url|deb\.debian|registry\.npmjs", file.read_text()), named(
            file
        )
