"""How workers and gateways answer probes, and how long a worker takes to end: real sockets and processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import Holdfast, HoldfastError, HoldfastPlugin, Settings, TurnInput
from holdfast.config.schema import WorkerSettings
from holdfast.testing import build_request, wait_until
from holdfast.workers.gateway.serve import open_listener, run_gateway
from holdfast.workers.runtime.health import ASK_SECONDS, HEAD_LIMIT, MAX_CONNECTIONS, Health, serve_health
from holdfast.workers.runtime.worker import find_grace, stop_seconds
from tests.support.commands import answer, begin, left
from tests.support.engine import Engine
from tests.support.processes import ROOT, command_line_worker
from tests.support.server import start_server
from tests.support.waiting import speaking


async def exchanged(url: str, sent: bytes) -> bytes:
    """What comes back for these bytes, to the end of the connection."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        writer.write(sent)
        await writer.drain()
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:  # what is closed with something unread is reset
        return b""
    finally:
        writer.close()


async def probed(url: str, path: str, method: str = "GET", host: str = "x") -> tuple[int, str]:
    """The status and what the answer says."""
    sent = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    head, _, body = (await exchanged(url, sent.encode())).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["status"] if body else ""


@asynccontextmanager
async def asked() -> AsyncIterator[tuple[Health, str]]:
    health = Health()
    async with serve_health(health, "127.0.0.1:0") as url:
        yield health, url


async def test_a_worker_that_starts_lives_and_is_not_ready() -> None:
    async with asked() as (health, url):
        assert await probed(url, "/live") == (200, "ok")
        assert await probed(url, "/ready") == (503, "starting")
        assert await probed(url, "/ready?verbose=1", "HEAD") == (503, "")
        health.set_ending()
        assert await probed(url, "/live") == (200, "ok")
        assert await probed(url, "/ready") == (503, "ending")


async def test_probes_get_one_answer_whatever_they_send() -> None:
    async with asked() as (_, url):
        assert await probed(url, "/") == (404, "the paths are /live and /ready")
        assert await probed(url, "/live/../ready") == (404, "the paths are /live and /ready")
        assert await probed(url, "/ready", "POST") == (405, "only GET and HEAD")
        for garbage in (b"\r\n\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"x" * (2 * HEAD_LIMIT)):
            assert (await exchanged(url, garbage)).startswith(b"HTTP/1.1 400 ")
        assert await probed(url, "/live") == (200, "ok")


async def test_who_connects_and_says_nothing_keeps_nobody_else_out_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.workers.runtime.health.ARRIVE_SECONDS", 1)
    monkeypatch.setattr("holdfast.workers.runtime.health.ASK_SECONDS", 1)
    async with asked() as (_, url):
        silent = await asyncio.gather(*(exchanged(url, b"GET /live") for _ in range(2 * MAX_CONNECTIONS)))
        assert set(silent) == {b""}
        assert await probed(url, "/live") == (200, "ok")


async def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    async with asked() as (_, url):
        address = url.removeprefix("http://")
        with pytest.raises(HoldfastError, match=f"cannot listen for probes at '{address}': .*in use"):
            async with serve_health(Health(), address):
                pass


async def test_S36_a_worker_is_not_ready_while_its_server_is_away(tmp_path: Path) -> None:
    server = await start_server(tmp_path / "temporal.db")
    health, fresh = Health(), "holdfast.workers.runtime.health.FRESH_SECONDS"
    async with serve_health(health, "127.0.0.1:0") as url:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fresh, 0.0)
            health.set_polling(server.client, lambda: True)
            assert await probed(url, "/ready") == (200, "ok")
            await server.shutdown()
            assert await probed(url, "/ready") == (503, "no answer from the server")
            assert await probed(url, "/live") == (200, "ok")
        health.set_polling(server.client, lambda: False)
        assert await probed(url, "/ready") == (503, "not polling")


async def test_S36_a_gateway_is_not_ready_while_its_server_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives all the same: a restart would help nobody. However many probe, the server is asked once at a time."""
    monkeypatch.setattr("holdfast.workers.runtime.health.FRESH_SECONDS", 0.0)
    server = await start_server(tmp_path / "temporal.db")
    stop, listener = asyncio.Event(), open_listener("127.0.0.1", 0)
    holdfast, settings = Holdfast(server.client), Settings(data=tmp_path)
    running = run_gateway(holdfast, settings, listener, host="127.0.0.1", say=lambda _: None, stop=stop)
    gateway = asyncio.create_task(running)
    try:
        assert await probed(listener.url, "/ready", host="localhost") == (200, "ok")
        await server.shutdown()
        began = time.monotonic()
        many = await asyncio.gather(*(probed(listener.url, "/ready", host="localhost") for _ in range(20)))
        assert set(many) == {(503, "no answer from the server")}
        assert time.monotonic() - began < 10 * ASK_SECONDS
        assert await probed(listener.url, "/health", host="localhost") == (200, "ok")
        assert (await probed(listener.url, "/ready", "HEAD", host="localhost"))[0] == 503
    finally:
        stop.set()
        await gateway


# The command


@asynccontextmanager
async def worker(engine: Engine, *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    """`holdfast worker --json`, ready; its process and what it said."""
    folders = ("--data", str(engine.settings.data), "--workspace", str(engine.workspace))
    command = ("worker", "--address", engine.address, "--json", *folders, *options)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast.workers.cli", *command),
        cwd=ROOT,
        env={**os.environ, "HOLDFAST_TASK_QUEUE": engine.queue},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout
        async with asyncio.timeout(60):
            said = json.loads(await process.stdout.readline())
        yield process, said
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


WAITING = "echo {name} >> {name}; echo up; while [ ! -e {name}.go ]; do sleep 0.02; done; echo done"


async def test_S36_with_a_grace_a_worker_finishes_what_runs_and_takes_up_nothing_more(engine: Engine) -> None:
    """A pod that drains: its command would die with it, so the worker waits for it, and is not ready meanwhile."""
    async with worker(engine, "--grace", "10m", "--health", "127.0.0.1:0") as (process, said):
        url = said["health"]
        assert await probed(url, "/ready") == (200, "ok")
        turn = await begin(engine, WAITING.format(name="long"))
        await wait_until(lambda: speaking(turn, "up"))
        process.send_signal(signal.SIGTERM)
        await wait_until(lambda: _ending(url))
        assert await probed(url, "/live") == (200, "ok")
        later = await engine.start(TurnInput(batches=((build_request("list_directory", path="."),),)))
        # Longer than a worker without a grace gives a command: it is still there, and still heard.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(6):
                await process.wait()
        (engine.workspace / "long.go").touch()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    assert (await engine.history(turn)).count("ACTIVITY_TASK_COMPLETED") == 1, "answered by whoever ran it"
    assert "ACTIVITY_TASK_SCHEDULED" not in await engine.history(later)
    assert left(engine.settings) == []
    async with worker(engine):
        assert (await answer(turn)).text == "up\ndone\n"
        assert (await answer(later)).status == "success"


async def _ending(url: str) -> bool:
    return await probed(url, "/ready") == (503, "ending")


async def test_settings_say_where_probes_ask_and_how_long_a_worker_takes(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[worker]\nhealth = "127.0.0.1:0"\ngrace_seconds = 0\n')
    async with command_line_worker(engine, file) as process:
        turn = await begin(engine, WAITING.format(name="short"))
        await wait_until(lambda: speaking(turn, "up"))
        os.kill(process.pid, signal.SIGTERM)
        assert await process.died() == 0
    assert len(left(engine.settings)) == 1, "handed over at once"
    (engine.workspace / "short.go").touch()
    async with command_line_worker(engine, file):
        assert (await answer(turn)).text == "up\ndone\n"


@pytest.mark.parametrize("seconds", [None, 5.0])
async def test_heartbeats_are_as_rare_as_the_settings_say(engine: Engine, seconds: float | None) -> None:
    asked = WorkerSettings() if seconds is None else WorkerSettings(heartbeat_seconds=seconds)
    plugin = HoldfastPlugin(replace(engine.settings, worker=asked))
    made = Worker(await Client.connect(engine.address, plugins=[plugin]), task_queue=engine.queue)
    config = made.config(active_config=True)
    expected = timedelta(seconds=seconds or 0.2)
    assert config["max_heartbeat_throttle_interval"] == config["default_heartbeat_throttle_interval"] == expected


def test_without_a_grace_nothing_is_other_than_it_was() -> None:
    usual, patient = Settings(), Settings(worker=WorkerSettings(grace_seconds=600))
    assert (find_grace(usual).total_seconds(), stop_seconds(usual)) == (5, 20)
    assert (find_grace(patient).total_seconds(), stop_seconds(patient)) == (600, 615)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--grace", "2d"), "--grace must be at most a day"),
        (("--grace", "soon"), "'soon' must be a duration"),
        (("--health", "127.0.0.1"), "--health must be HOST:PORT, for example 127.0.0.1:8235"),
        (("--health", "a b:80"), "--health must be HOST:PORT"),
        (("--health", "127.0.0.1:99999"), "--health must be HOST:PORT"),
    ],
)
def test_bad_options_of_a_worker_are_told_before_anything_starts(
    option: tuple[str, str], said: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "holdfast.workers.cli", "--no-config", "worker", "--data", str(tmp_path), *option]
    (tmp_path / "workspace").mkdir()
    done = subprocess.run(command, cwd=tmp_path / "workspace", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
