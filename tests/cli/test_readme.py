"""The code of README and docs does what they say: every block with a test mark is executed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import Holdfast, HoldfastPlugin, Settings, Tool, TurnInput
from holdfast.testing import request
from tests.cli.support import SECONDS, Home

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- test: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)


def _blocks(name: str) -> dict[str, str]:
    return dict(BLOCK.findall((ROOT / name).read_text()))


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


def test_the_first_run_of_the_readme_works_as_written(home: Home) -> None:
    blocks = _blocks("README.md")
    # The inbox is asked right after the start: give validation its moment, as a reader's hands would.
    start, ask = blocks["start"].rsplit("\n", 2)[0], "holdfast inbox"
    _shell(home, start)
    home.seen("hello", call="b1c3", after="awaiting_approval")
    listed = _shell(home, ask)
    assert "hello/b1c2/1" in listed
    assert "hello/b1c3/1" in listed
    watched = _shell(home, blocks["approve"])
    assert "completed" in watched
    assert (home.workspace / "hello.txt").read_text() == "Hello\n"


def test_S23_the_stock_command_of_the_readme_decides(home: Home) -> None:
    _shell(home, _blocks("README.md")["signal"], TEMPORAL_ADDRESS=_address(home))
    assert home.seen("clock", kind="turn")["after"] == "completed"


def _address(home: Home) -> str:
    return str(json.loads((home.data / "server.json").read_text())["address"])


def test_the_python_of_the_readme_runs_a_turn(home: Home) -> None:
    script = _blocks("README.md")["python"] + f"\n\nasyncio.run(main({_address(home)!r}))\n"
    done = subprocess.run(
        [sys.executable, "-c", script], env=home.env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert "list_directory success" in done.stdout, done.stderr


async def test_the_tool_of_the_how_to_works_in_a_turn(home: Home) -> None:
    names: dict[str, Any] = {}
    exec(_blocks("docs/tools.md")["tool"], names)
    made = names["CountWords"]()
    assert isinstance(made, Tool)
    settings = Settings(data=home.data, workspace=home.workspace, task_queue="how-to")
    client = await Client.connect(_address(home), plugins=[HoldfastPlugin(settings, tools=[made])])
    async with asyncio.timeout(SECONDS), Worker(client, task_queue="how-to"):
        calls = (request("count_words", text="one two three"), request("count_words", text=" "))
        turn = await Holdfast(client, task_queue="how-to").start(TurnInput(batches=(calls,)))
        result = await turn.result()
    assert [response.text for response in result.responses] == ["3", "There is nothing to count."]
