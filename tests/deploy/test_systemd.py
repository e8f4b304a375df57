"""deploy/systemd: the units read by systemd's own tools, and what KillMode=process does to a worker's commands."""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import signal
from pathlib import Path

import pytest

from holdfast.config.settings import load_settings
from holdfast.testing import wait_until
from holdfast.workers.embedded.temporal_server import STOP_SECONDS as SERVER_STOP_SECONDS
from holdfast.workers.gateway import STOP_SECONDS as GATEWAY_STOP_SECONDS
from holdfast.workers.runtime.worker import stop_seconds
from tests.deploy.support import DEPLOY, checked, read
from tests.support.commands import answer, begin, left, supervisors
from tests.support.engine import new_engine
from tests.support.marks import alive
from tests.support.processes import command_line_worker
from tests.support.waiting import speaking

FOLDER = DEPLOY / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
WITH_COMMANDS = ("holdfast.service", "holdfast-worker.service")


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units, with a program that is on this machine."""
    for unit in UNITS:
        program = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(program)
    return [tmp_path / unit.name for unit in UNITS]


def service(name: str) -> dict[str, str]:
    """A unit's [Service], the last value of each key."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(read("systemd", name))
    return dict(parser["Service"])


@pytest.mark.needs("systemd-analyze")
def test_systemd_understands_every_line(units: list[Path]) -> None:
    """It says what it does not understand, and ends well all the same: so it must say nothing."""
    assert checked("systemd-analyze", "verify", "--man=no", *units, cwd=units[0].parent) == ""


@pytest.mark.needs("systemd-analyze")
def test_systemd_understands_the_drop_in_for_sandboxes(units: list[Path]) -> None:
    for name in WITH_COMMANDS:
        folder = units[0].parent / f"{name}.d"
        folder.mkdir()
        (folder / "bwrap.conf").write_text(read("systemd", "bwrap.conf"))
    assert checked("systemd-analyze", "verify", "--man=no", *units, cwd=units[0].parent) == ""


@pytest.mark.needs("systemd-analyze")
def test_systemd_finds_the_units_closed(units: list[Path]) -> None:
    """Exposure from 0 to 10; a unit that says nothing has 9.6. Its threshold is ten times that."""
    for unit in units:
        checked("systemd-analyze", "security", "--offline=true", "--threshold=25", unit, cwd=unit.parent)


@pytest.mark.needs("systemd-analyze")
def test_users_and_folders_are_what_the_units_name(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    checked("systemd-sysusers", f"--root={tmp_path}", FOLDER / "holdfast.sysusers")
    assert re.search(r"^holdfast:.*:/var/lib/holdfast:", (tmp_path / "etc" / "passwd").read_text(), re.MULTILINE)
    checked("systemd-tmpfiles", "--dry-run", "--create", FOLDER / "holdfast.tmpfiles") if _knows_dry_run() else None
    made = re.findall(r"^[dz] (\S+) (\d+) (\S+) (\S+)", read("systemd", "holdfast.tmpfiles"), re.MULTILINE)
    modes = {path: (mode, user) for path, mode, user, _ in made}
    assert modes["/etc/holdfast/holdfast.env"] == ("0600", "root")
    for unit in UNITS:
        found = service(unit.name)
        assert found["User"] == found["Group"] == "holdfast"
        assert found["EnvironmentFile"].lstrip("-") in modes
    for name in WITH_COMMANDS:
        assert f"HOLDFAST_WORKSPACE={_workspace(name)}" in service(name)["Environment"]
        assert _workspace(name) in modes
        assert service(name)["WorkingDirectory"] != _workspace(name), "a holdfast.toml that a model leaves is not found"


@pytest.mark.needs("systemd-analyze")
def test_commands_of_the_guide_speak_with_the_variables_of_the_units() -> None:
    """`as` of the guide: the server may be elsewhere, and only the units' file of variables says where."""
    [words] = re.findall(r"^as\(\) \{\n  systemd-run (.*?) \"\$@\"\n\}", read("systemd", "README.md"), re.M | re.DOTALL)
    given = words.replace("\\\n", " ").split()
    known = checked("systemd-run", "--help")
    assert all(re.search(rf"{word.partition('=')[0]}\b", known) for word in given)
    for unit in UNITS:
        found = service(unit.name)
        assert f"--property=EnvironmentFile={found['EnvironmentFile']}" in given
        assert f"--uid={found['User']}" in given
        config = found["ExecStart"].split()[2]
        said = {*found["Environment"].split(), f"HOLDFAST_CONFIG={config}"}
        assert {word.removeprefix("--setenv=") for word in given if word.startswith("--setenv=")} <= said


def _knows_dry_run() -> bool:
    return "--dry-run" in checked("systemd-tmpfiles", "--help")


def _workspace(name: str) -> str:
    return service(name)["ReadWritePaths"].split()[0]


def test_S36_what_runs_commands_ends_only_its_first_process_and_is_given_the_time() -> None:
    settings = load_settings(FOLDER / "holdfast.toml")
    for name in WITH_COMMANDS:
        found = service(name)
        assert found["KillMode"] == "process"
        assert found["PrivateTmp"] == "no", "it would be removed under commands that go on"
        assert found["OOMPolicy"] == "continue"
        assert found["Restart"] == "always"
    assert float(service("holdfast-worker.service")["TimeoutStopSec"]) > stop_seconds(settings)
    everything = stop_seconds(settings) + GATEWAY_STOP_SECONDS + 2 * SERVER_STOP_SECONDS
    assert float(service("holdfast.service")["TimeoutStopSec"]) > everything
    assert float(service("holdfast-gateway.service")["TimeoutStopSec"]) > GATEWAY_STOP_SECONDS
    assert settings.tools.shell.lease_seconds >= 120


@pytest.mark.parametrize("restart", [signal.SIGTERM, signal.SIGKILL], ids=lambda sent: sent.name)
async def test_S36_a_worker_that_systemd_restarts_finds_its_command_alive(
    restart: signal.Signals, server_address: str, tmp_path: Path
) -> None:
    """As with KillMode=process: the signal goes to the first process alone, and the unit's other processes stay."""
    command = "echo begun >> begun; echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; exit 3"
    async with new_engine(server_address, tmp_path) as engine:
        file = FOLDER / "holdfast.toml"
        async with command_line_worker(engine, file) as first:
            turn = await begin(engine, command)
            await wait_until(lambda: speaking(turn, "one"))
            [supervisor] = supervisors(engine.settings)
            os.kill(first.pid, restart)
            assert await first.died() == (0 if restart is signal.SIGTERM else -signal.SIGKILL)
        assert alive(supervisor)
        async with command_line_worker(engine, file):
            (engine.workspace / "go").touch()
            async with asyncio.timeout(60):
                response = await answer(turn)
        assert "code 3" in response.text
        assert "".join(part.text for part in response.parts) == "one\ntwo\n"
        assert (engine.workspace / "begun").read_text() == "begun\n"
        assert left(engine.settings) == []
