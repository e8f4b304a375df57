"""What is imported: clients import nothing that runs calls, workers no `mcp` and no provider that they do not need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 120
PROVIDERS = ("pydantic_ai", "openai", "anthropic", "google.genai")
MCP = ("mcp", "mcp_types")
TOOL_ROOMS = ("builtin", "registry", "models", "mcp", "execution", "gate", "hooks", "tool_activities", "loading")
"""What runs or judges calls. Saved grants, which `approve` may write, are rules (`policy`)."""
CLIENT_COMMANDS = [
    ("inbox",),
    ("turn", "list"),
    ("turn", "start", "--calls", "-"),
    ("approve", "nobody/b1c1/1"),
    ("sessions", "list"),
]
WORKER = """
import asyncio, sys
from pathlib import Path
from temporalio.client import Client
from temporalio.worker import Worker
from holdfast import CallRequest, Holdfast, HoldfastPlugin, Settings, TurnInput

async def main(address: str, folder: Path) -> None:
    settings = Settings(data=folder / "data", workspace=folder / "work", task_queue=folder.name)
    settings.workspace.mkdir()
    client = await Client.connect(address, plugins=[HoldfastPlugin(settings)])
    async with Worker(client, task_queue=folder.name):
        holdfast = Holdfast(client, task_queue=folder.name)
        turn = await holdfast.start(TurnInput(batches=((CallRequest(tool="list_directory"),),)))
        print((await turn.result()).responses[0].status)
    print(*sys.modules)

asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
"""


def find_imported(modules: list[str], *packages: str) -> list[str]:
    return [name for name in modules if any(name == one or name.startswith(f"{one}.") for one in packages)]


@pytest.mark.parametrize("command", CLIENT_COMMANDS, ids=" ".join)
def test_a_client_command_imports_no_tools_providers_or_mcp(
    command: tuple[str, ...], server_address: str, tmp_path: Path
) -> None:
    program = [sys.executable, "-X", "importtime", "-m", "holdfast.workers.cli", *command, "--address", server_address]
    environment = {**os.environ, "HOLDFAST_DATA": str(tmp_path / "data"), "HOLDFAST_WORKSPACE": str(tmp_path)}
    calls = '[{"tool": "list_directory"}]'
    done = subprocess.run(
        program, input=calls, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS
    )
    imported = re.findall(r"^import time: [\d |]+ +(\S+)$", done.stderr, re.MULTILINE)
    assert "temporalio.client" in imported, done.stderr[-2_000:]
    heavy = ("holdfast.workflows", "temporalio.worker", "tree_sitter", "starlette", "uvicorn", *PROVIDERS, *MCP)
    tools = [f"holdfast.activities.{room}" for room in TOOL_ROOMS]
    assert find_imported(imported, *heavy, *tools) == []


def test_a_worker_without_servers_or_models_imports_neither_mcp_nor_providers(
    server_address: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKER, server_address, str(tmp_path)], capture_output=True, text=True, timeout=SECONDS
    )
    status, modules = done.stdout.splitlines()[-2:]
    assert status == "success", done.stderr[-2_000:]
    assert "holdfast.activities.mcp.servers" in modules.split()
    assert find_imported(modules.split(), *PROVIDERS, *MCP) == []
