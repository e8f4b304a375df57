"""Commands in a sandbox as a settings file asks for it, from worker to answer; and no worker without it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.testing import wait_until
from tests.cli.support import Home
from tests.support.commands import Unlike, answer, begin, left
from tests.support.engine import Engine
from tests.support.processes import hurried_worker
from tests.support.waiting import speaking

SECONDS = 30.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "holdfast.toml"
    made.write_text('[tools.shell]\nsandbox = "bwrap"\n')
    return made


@pytest.fixture
def inner(engine: Engine) -> Iterator[Engine]:
    """With its data where commands could read it: in the home folder, and not in one that a sandbox has of its own."""
    made = copy(engine)
    with TemporaryDirectory(dir=Path.home()) as folder:
        made.settings = replace(engine.settings, data=Path(folder))
        yield made


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Where somebody on this machine greets whoever connects."""

    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


CLOSED_IN = """
for folder in ~ /etc /usr /var; do (echo x > $folder/holdfast-test) 2> /dev/null && echo wrote $folder; done
echo private > {outside}/holdfast-test
ls -A {data}
(exec 3<> /dev/tcp/127.0.0.1/{port}) 2> /dev/null && echo connected
echo kept >> kept
env -i setsid sleep {seconds} &
echo up
while [ ! -e go ]; do sleep 0.05; done
echo done
"""


@pytest.mark.needs("bwrap")
async def test_S31_command_in_a_sandbox_reaches_nothing_outside_and_is_found_again_when_its_worker_is_killed(
    inner: Engine, file: Path, tmp_path: Path, port: int
) -> None:
    unlike = Unlike()
    async with hurried_worker(inner, file) as first:
        data = inner.settings.data
        turn = await begin(inner, CLOSED_IN.format(outside=tmp_path, data=data, port=port, seconds=unlike.seconds))
        await wait_until(lambda: speaking(turn, "up"))
        assert any(data.iterdir()), "there is something to hide"
        assert len(unlike.living()) == 1
        await first.kill()
    (inner.workspace / "go").touch()
    async with hurried_worker(inner, file):
        response = await answer(turn)
    assert (response.status, response.text) == ("success", "up\ndone\n")
    assert (inner.workspace / "kept").read_text() == "kept\n"
    assert not any(place.exists() for place in (tmp_path / "holdfast-test", Path.home() / "holdfast-test"))
    assert unlike.living() == []
    assert left(inner.settings) == []


@pytest.fixture
def connected(file: Path) -> Path:
    file.write_text('[tools.shell]\nsandbox = "bwrap"\nnetwork = true\n')
    return file


@pytest.mark.needs("bwrap")
async def test_command_in_a_sandbox_with_network_reaches_this_machine(
    engine: Engine, connected: Path, port: int
) -> None:
    async with hurried_worker(engine, connected):
        turn = await begin(engine, f"cat < /dev/tcp/127.0.0.1/{port}; echo x > /usr/holdfast-test || echo kept out")
        assert (await answer(turn)).text.endswith("kept out\n")
        assert (await answer(turn)).text.startswith("welcome\n")


# Not to be had


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs without bubblewrap."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("bash", "sh"):
        (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return folder


async def _worker(engine: Engine, file: Path, programs: Path) -> tuple[int | None, str, str]:
    """How `holdfast worker` ends, and what it says."""
    folders = ("--data", str(engine.settings.data), "--workspace", str(engine.workspace))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast.workers.cli", "--config", str(file)),
        *("worker", "--address", engine.address, *folders),
        env={**os.environ, "PATH": str(programs), "HOLDFAST_TASK_QUEUE": engine.queue},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, complained = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, said.decode(), complained.decode()


async def test_worker_that_is_to_close_commands_in_and_cannot_does_not_start(
    engine: Engine, file: Path, programs: Path
) -> None:
    code, said, complained = await _worker(engine, file, programs)
    assert (code, said) == (2, "")
    assert complained.startswith("holdfast: commands are to run in a sandbox (tools.shell.sandbox = 'bwrap'), but ")
    assert "'bwrap' is not installed (Debian: apt-get install bubblewrap)" in complained
    assert complained.count("\n") == 1
    (programs / "bwrap").write_text("#!/bin/sh\necho bwrap: No permissions to create new namespace >&2\nexit 1\n")
    (programs / "bwrap").chmod(0o755)
    code, said, complained = await _worker(engine, file, programs)
    assert (code, said) == (2, "")
    assert "bwrap: No permissions to create new namespace (does the kernel permit user namespaces?)" in complained
    assert complained.count("\n") == 1


def test_up_that_is_to_close_commands_in_and_cannot_ends_and_says_why(tmp_path: Path, programs: Path) -> None:
    home = Home(tmp_path / "home")
    (home.folder / "any.toml").write_text('[tools.shell]\nsandbox = "bwrap"\n')
    up = ("--config", "any.toml", "up", "--port", "0", "--no-gateway")
    done = home.run(*up, PATH=str(programs))
    assert done.returncode == 1
    assert "'bwrap' is not installed (Debian: apt-get install bubblewrap)" in done.stderr
    assert "Traceback" not in done.stderr
    assert home.all_gone()
