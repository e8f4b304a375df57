"""The code of README, the tutorial and the page on tools does what they say: blocks with a test mark are executed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import CallRequest, Holdfast, HoldfastPlugin, Settings, Tool, TurnInput
from holdfast.config.settings import load_settings
from holdfast.testing import build_request, decide_all
from tests.cli.support import SECONDS, Home
from tests.support.pages import read_blocks


def _shell(home: Home, script: str, **env: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{home.env['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script],
        env={**home.env, "PATH": path, **env},
        cwd=home.workspace,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_run_of_the_tutorial_works_as_written(home: Home) -> None:
    blocks = read_blocks("getting-started")
    # The inbox is asked right after the start: give validation its moment, as a reader's hands would.
    start, ask = blocks["start"].rsplit("\n", 2)[0], "holdfast inbox"
    _shell(home, start)
    home.seen("hello", call="b1c3", after="awaiting_approval")
    listed = _shell(home, ask)
    assert "hello/b1c2/1" in listed
    assert "hello/b1c3/1" in listed
    watched = _shell(home, blocks["approve"])
    assert "completed" in watched
    assert '[{"tool": "list_directory"},' in _shell(home, blocks["tools"])
    assert (home.workspace / "hello.txt").read_text() == "Hello\n"
    audited = _shell(home, blocks["audit"])
    assert "proceed_once by" in audited
    assert "Bundle is intact: turn hello" in audited
    assert "acts the same" in audited


def test_the_first_run_of_the_readme_is_that_of_the_tutorial() -> None:
    blocks, told = read_blocks("README"), read_blocks("getting-started")
    assert (blocks["start"], blocks["approve"]) == (told["start"], told["approve"])


def test_the_conversation_of_the_tutorial_is_answered_and_kept(home: Home) -> None:
    told = _shell(home, read_blocks("getting-started")["session"])
    assert told.startswith("All is there.\n")
    assert "Is all there?" in told.removeprefix("All is there.\n")


def test_S29_the_rules_of_the_tutorial_are_right_and_deny_the_push(home: Home) -> None:
    told = _shell(home, read_blocks("getting-started")["policy"])
    assert "policy.toml: ok" in told
    assert "deny" in told


def test_S23_the_stock_command_of_the_tutorial_decides(home: Home) -> None:
    _shell(home, read_blocks("getting-started")["signal"], TEMPORAL_ADDRESS=_address(home))
    assert home.seen("clock", kind="turn")["after"] == "completed"


def _address(home: Home) -> str:
    return str(json.loads((home.data / "server.json").read_text())["address"])


def test_the_python_of_the_readme_runs_a_turn(home: Home) -> None:
    script = read_blocks("README")["python"] + f"\n\nasyncio.run(main({_address(home)!r}))\n"
    done = subprocess.run(
        [sys.executable, "-c", script], env=home.env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert "list_directory success" in done.stdout, done.stderr


async def _texts(home: Home, settings: Settings, tools: list[Tool], *calls: CallRequest) -> list[str]:
    """What the calls of one turn answer, with everything approved."""
    client = await Client.connect(_address(home), plugins=[HoldfastPlugin(settings, tools=tools)])
    holdfast = Holdfast(client, task_queue=settings.task_queue)
    async with asyncio.timeout(SECONDS), Worker(client, task_queue=settings.task_queue):
        turn = await holdfast.start(TurnInput(batches=(calls,)))
        await decide_all(holdfast, turn)
        return [response.text for response in (await turn.result()).responses]


async def test_the_function_of_the_tutorial_is_a_tool(home: Home) -> None:
    names: dict[str, Any] = {}
    exec(read_blocks("getting-started")["function"], names)
    settings = Settings(data=home.data, workspace=home.workspace, task_queue="readme-function")
    assert await _texts(home, settings, [names["weather"]], build_request("weather", city="Rome")) == [
        '{"city": "Rome", "degrees": 21}'
    ]


async def test_the_class_of_the_how_to_works_in_a_turn(home: Home) -> None:
    names: dict[str, Any] = {}
    exec(read_blocks("tools")["tool"], names)
    settings = Settings(data=home.data, workspace=home.workspace, task_queue="how-to-class")
    calls = (build_request("count_words", text="one two three"), build_request("count_words", text=" "))
    assert await _texts(home, settings, [names["CountWords"]()], *calls) == ["3", "There is nothing to count."]


async def test_the_functions_of_the_how_to_work_in_a_turn(home: Home) -> None:
    names: dict[str, Any] = {}
    exec(read_blocks("tools")["function"], names)
    settings = Settings(data=home.data, workspace=home.workspace, task_queue="how-to-function")
    calls = (build_request("longest_word", text="a bcd ef"), build_request("publish", title="News", body="None."))
    longest, published = await _texts(home, settings, [names["longest_word"], names["publish"]], *calls)
    assert longest == "bcd"
    assert json.loads(published)["characters"] == 5


async def test_the_discovery_of_the_how_to_works_in_a_turn(home: Home, tmp_path: Path) -> None:
    blocks = read_blocks("tools")
    (tmp_path / "project_tools.py").write_text(blocks["discovery"])
    file = tmp_path / "holdfast.toml"
    file.write_text(blocks["settings"])
    loaded = load_settings(file)
    settings = replace(loaded, data=home.data, workspace=home.workspace, task_queue="how-to-discovery")
    assert [text.strip() for text in await _texts(home, settings, [], build_request("reverse", text="abc"))] == ["cba"]
