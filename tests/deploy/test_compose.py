"""deploy/compose: read by compose's own schema, and its scripts run for real as far as that goes without an engine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from holdfast.activities.ledger.postgres import PostgresLedger
from holdfast.config.ledger_address import resolve_address
from holdfast.config.settings import load_settings
from holdfast.errors import BadInput
from holdfast.plugin.search_attributes import ATTRIBUTES
from holdfast.util.durations import parse_duration
from holdfast.workers.embedded.temporal_server import FAST_OPTIONS
from holdfast.workers.gateway import STOP_SECONDS as GATEWAY_STOP_SECONDS
from holdfast.workers.runtime.worker import stop_seconds
from tests.deploy.container import recipe
from tests.deploy.support import DEPLOY, ROOT, SECONDS, checked, loaded, read
from tests.support.server import address_of, start_server, temporal_command
from tests.support.services.postgres import USER, postgres_server

FOLDER = DEPLOY / "compose"
COMPOSE = FOLDER / "compose.yaml"


def services() -> dict[str, Any]:
    found: dict[str, Any] = loaded(COMPOSE)["services"]
    return found


def test_the_file_is_what_the_compose_specification_allows() -> None:
    checked("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


@pytest.mark.parametrize("name", ["POSTGRES_PASSWORD", "HOLDFAST_LEDGER_PASSWORD"])
def test_nothing_starts_without_passwords_and_no_file_has_one(name: str) -> None:
    text = COMPOSE.read_text()
    used = re.findall(r"\$\{([A-Z_]+)([^}]*)\}", text)
    assert name in dict(used)
    assert all(rest.startswith(":?") for _, rest in used), "empty counts as unset"
    assert f"\n{name}=\n" in read("compose", ".env.example")
    assert {found for found, _ in used} == set(re.findall(r"^([A-Z_]+)=$", read("compose", ".env.example"), re.M))
    assert ".env" in read("compose", ".gitignore").split()


def test_what_is_published_is_published_on_this_machine_alone() -> None:
    ports = [port for service in services().values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    inner = loaded(COMPOSE)["networks"]["inner"]
    assert inner == {"internal": True}
    assert services()["postgresql"]["networks"] == services()["temporal"]["networks"] == ["inner"]


def test_images_are_pinned_and_ours_is_of_this_version() -> None:
    for name, service in services().items():
        assert re.fullmatch(r"[a-z/-]+:\d+\.\d+(\.\d+)?", service["image"]), name
    [version] = re.findall(r"^ARG VERSION=(\S+)", read("image", "Dockerfile"), re.M)
    assert services()["gateway"]["image"] == f"holdfast:{version}"
    assert services()["schema"]["image"] == services()["prepare"]["image"]
    assert services()["schema"]["image"].split(":")[1] == services()["temporal"]["image"].split(":")[1]


def test_a_worker_is_a_host_of_its_own_and_shares_what_must_be_shared() -> None:
    places = {
        name: dict(mount.split(":")[:2] for mount in one["volumes"])
        for name, one in services().items()
        if one["image"].startswith("holdfast")
    }
    assert set(places) == {"worker-1", "worker-2", "gateway"}
    data = [next(volume for volume, place in mounts.items() if place == "/data") for mounts in places.values()]
    assert len(set(data)) == 3
    assert {mounts["payloads"] for mounts in places.values()} == {"/data/payloads"}
    assert places["worker-1"]["workspace"] == places["worker-2"]["workspace"] == "/workspace"
    declared = loaded(COMPOSE)["volumes"]
    used = {name for mounts in places.values() for name in mounts if not name.startswith(".")}
    assert used | {"postgresql"} == set(declared)


def bytes_of(text: str) -> int:
    return int(text[:-1]) * {"m": 2**20, "g": 2**30}[text[-1]]


def test_no_service_can_fill_the_memory_or_the_disk_with_its_log() -> None:
    """A tmpfs counts as memory of its container, so a worker has more than it may write there."""
    for name, service in services().items():
        assert bytes_of(service["mem_limit"]) >= 128 * 2**20, name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert bytes_of(service["logging"]["options"]["max-size"]) <= 50 * 2**20, name
    for name in ("worker-1", "worker-2"):
        written = re.findall(r"size=(\w+)", " ".join(services()[name]["tmpfs"]))
        assert bytes_of(services()[name]["mem_limit"]) > sum(map(bytes_of, written)) + 512 * 2**20
    staying = [service for service in services().values() if service["restart"] == "unless-stopped"]
    needed = re.search(r"and (\d+) GB of memory", read("compose", "README.md"))
    assert needed
    assert sum(bytes_of(service["mem_limit"]) for service in staying) <= int(needed[1]) * 2**30


def test_files_that_are_mounted_are_there() -> None:
    mounted = [mount.split(":")[0] for one in services().values() for mount in one.get("volumes", ())]
    assert all((FOLDER / name).is_file() for name in mounted if name.startswith("."))
    build = services()["gateway"]["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077], ids=oct)
def test_the_modes_that_the_guide_leaves_are_taken_by_the_user_of_the_containers(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git makes files by the umask of whoever checks out, who is somebody else in a container."""
    mounted = {mount.split(":")[0] for one in services().values() for mount in one.get("volumes", ())}
    files = [tmp_path / name for name in mounted if name.startswith(".")]
    for file in files:
        file.write_bytes((FOLDER / file.name).read_bytes())
        file.chmod(0o666 & ~umask)
    monkeypatch.setattr(os, "geteuid", lambda: recipe().user)
    monkeypatch.setattr(os, "getegid", lambda: recipe().user)
    if umask == 0o002:
        with pytest.raises(BadInput, match="other users can write it"):
            load_settings(tmp_path / "holdfast.toml")
    told = re.findall(r"^chmod \d+ holdfast\.toml .*$", read("compose", "README.md"), re.M)
    assert len(told) == 2, "at the start, and after git has written files anew"
    for line in told:
        checked("bash", "-c", line, cwd=tmp_path)
        assert load_settings(tmp_path / "holdfast.toml").worker.health
        assert {file.stat().st_mode & 0o777 for file in files} == {0o644}


def test_S36_a_container_is_given_longer_to_end_than_its_worker_takes() -> None:
    settings = load_settings(FOLDER / "holdfast.toml")
    assert parse_duration(services()["worker-1"]["stop_grace_period"]) > stop_seconds(settings)
    assert parse_duration(services()["gateway"]["stop_grace_period"]) > GATEWAY_STOP_SECONDS
    assert settings.worker.grace_seconds == settings.tools.shell.timeout_seconds


def test_probes_and_ports_are_those_of_the_settings() -> None:
    settings = load_settings(FOLDER / "holdfast.toml")
    default = re.findall(r'"(http://127.0.0.1:\d+/ready)"', read("image", "healthy.py"))
    assert default == [f"http://{settings.worker.health}/ready"]
    gateway = services()["gateway"]
    assert gateway["environment"]["HOLDFAST_PROBE"] == f"http://127.0.0.1:{settings.gateway.port}/ready"
    assert gateway["ports"] == [f"127.0.0.1:{settings.gateway.port}:{settings.gateway.port}"]
    assert settings.gateway.host == "0.0.0.0"
    mounted = gateway["environment"]["HOLDFAST_CONFIG"]
    assert any(mount.endswith(f":{mounted}:ro") for mount in gateway["volumes"])
    uid = recipe().user
    assert any(f"uid={uid},gid={uid}" in mount for mount in gateway["tmpfs"])


PARTITIONS = ("matching.numTaskqueueReadPartitions", "matching.numTaskqueueWritePartitions")


def test_the_servers_settings_are_what_the_embedded_one_has() -> None:
    """But for those that make a single shard on one machine fast."""
    found = loaded(FOLDER / "dynamicconfig.yaml")
    embedded = dict(value.split("=") for option, value in FAST_OPTIONS if option == "--dynamic-config-value")
    of_one_machine = {"history.transferProcessorMaxPollRPS", *PARTITIONS}
    embedded = {name: value for name, value in embedded.items() if name not in of_one_machine}
    assert found == {name: [{"value": json.loads(value)}] for name, value in embedded.items()}


@pytest.mark.parametrize(
    "guide", ["deploy/README.md", "deploy/compose/README.md", "deploy/cloud/README.md", "docs/how-to/operating.md"]
)
def test_each_guide_to_a_server_names_the_settings_that_it_needs(guide: str) -> None:
    text = (ROOT / guide).read_text()
    assert [name for name in loaded(FOLDER / "dynamicconfig.yaml") if f"`{name}" not in text] == []


# The scripts


def run(script: str, path: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{path}:/usr/bin:/bin", **environment}
    command = ["sh", str(FOLDER / script)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)


async def test_the_namespace_and_the_search_attributes_are_made_and_made_again_without_harm(tmp_path: Path) -> None:
    """On a real server that has neither."""
    async with await start_server(tmp_path / "temporal.db") as server:
        address = address_of(server)
        said = {"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": "agents", "RETENTION": "720h", "HOME": str(tmp_path)}
        for _ in range(2):
            done = await asyncio.to_thread(run, "prepare.sh", Path(temporal_command()).parent, **said)
            assert done.returncode == 0, done.stdout + done.stderr
        client = await Client.connect(address, namespace="agents")
        listed = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace="agents"))
        assert set(ATTRIBUTES) <= set(listed.custom_attributes)
    for name, kind in ATTRIBUTES.items():
        assert f"--name {name} --type {kind}" in read("compose", "prepare.sh")


STAND_IN = """#!/bin/sh
# Temporal's tool, which only its image has: what its three commands do to a database, and how they fail.
echo "$2 $3 $5" >> "$LOG"
if [ "$3" = "$FAILS" ]; then echo "pq: password authentication failed for user $2" >&2; exit 1; fi
case "$3" in
    create) touch "$MADE/$2" ;;
    setup-schema) [ -e "$MADE/$2.version" ] || echo 0.0 > "$MADE/$2.version" ;;
    update-schema) [ -e "$MADE/$2.version" ] && echo "$5" > "$MADE/$2.version" ;;
esac
"""


@pytest.fixture
def schema_tool(tmp_path: Path) -> dict[str, str]:
    """A stand-in for temporal-sql-tool in a folder; the variables that it reads."""
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(STAND_IN)
    tool.chmod(0o755)
    return {"LOG": str(tmp_path / "log"), "MADE": str(tmp_path), "FAILS": ""}


def test_databases_are_made_and_at_the_next_start_only_updated(tmp_path: Path, schema_tool: dict[str, str]) -> None:
    place = "/etc/temporal/schema/postgresql/v12"
    for _ in range(2):
        assert run("schema.sh", tmp_path, **schema_tool).returncode == 0
        assert (tmp_path / "temporal.version").read_text() == f"{place}/temporal/versioned\n"
        assert (tmp_path / "temporal_visibility.version").read_text() == f"{place}/visibility/versioned\n"
    steps = ["create", "setup-schema", "update-schema"]
    done = [line.split()[:2] for line in (tmp_path / "log").read_text().splitlines()]
    assert done == 2 * [[name, step] for name in ("temporal", "temporal_visibility") for step in steps]


@pytest.mark.parametrize("step", ["create", "setup-schema", "update-schema"])
def test_a_failure_of_the_schema_is_told_as_it_is_and_ends_the_script(
    step: str, tmp_path: Path, schema_tool: dict[str, str]
) -> None:
    """A wrong password is no missing database: nothing is tried after it, and nothing else is said."""
    done = run("schema.sh", tmp_path, **{**schema_tool, "FAILS": step})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "pq: password authentication failed for user temporal\n"
    assert (tmp_path / "log").read_text().splitlines()[-1].split()[1] == step


async def test_the_ledger_has_a_database_of_its_own() -> None:
    """Made by the script on a real server, as its image makes it; with the password of compose.yaml's address."""
    password = "0a1b2c3d"
    address = re.sub(r"\$\{[^}]*\}", password, services()["worker-1"]["environment"]["HOLDFAST_LEDGER"])
    assert resolve_address("env:HOLDFAST_LEDGER", {"HOLDFAST_LEDGER": address}) == address
    with postgres_server("fsync=off") as server:
        here = server.address().partition("?host=")[2]
        first = await asyncpg.connect(server.address())
        await first.execute(f"CREATE ROLE temporal SUPERUSER LOGIN PASSWORD '{password}'")
        await first.close()
        second = await asyncpg.connect(server.address(user="temporal", password=password))
        await second.execute(f'ALTER ROLE "{USER}" RENAME TO elsewhere')
        said = {"PGHOST": here, "PGPASSWORD": password, "POSTGRES_USER": "temporal"}
        done = await asyncio.to_thread(run, "ledger.sh", "", HOLDFAST_LEDGER_PASSWORD=password, **said)
        assert done.returncode == 0, done.stderr
        ledger = PostgresLedger(server.address(user="holdfast", password=password, database="holdfast"))
        await ledger.sweep(timedelta(days=1))
        await ledger.close()
        made = {row["tablename"] for row in await second.fetch("SELECT tablename FROM pg_tables")}
        assert "holdfast_effects" not in made, "in a database of its own"
        await second.close()
