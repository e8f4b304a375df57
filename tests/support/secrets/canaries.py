"""Secrets that must never be seen again, and the server that tells them to everybody."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from holdfast.config.schema import McpServerSettings
from tests.support.secrets.writings import pem

ROOT = Path(__file__).parents[3]
_KEY = pem(bytes((number * 37 + 11) % 256 for number in range(160)))
GIVEN = {
    "CANARY": "kZ8+qW/3vT_u6-Rm9=pLx7",
    "CANARY_KEY": _KEY,
    "CANARY_URL": "postgres://bob:Wq4%2FnB8sHj2@db.example/x",
    "DB_PWD": "/mT5/yUc9eKb",
    "CANARY_NUMBER": "4815162342108000",
}
"""The worker's environment."""
TOLD = (
    GIVEN["CANARY"], *_KEY.splitlines()[1:-1], "Wq4/nB8sHj2", "Wq4%2FnB8sHj2", GIVEN["DB_PWD"], GIVEN["CANARY_NUMBER"],
)  # fmt: skip
"""What would be told of it."""
_WORDS = ("-m", "tests.support.mcp.mcp_leaky")
_VARIABLES = {"THING": "${CANARY}", "SIGNING": "${CANARY_KEY}", "ENTRY": "${DB_PWD}", "NUMBER": "${CANARY_NUMBER}"}


def leaky(folder: Path, **more: Any) -> McpServerSettings:
    """The server, with a folder of its own."""
    words = (*_WORDS, str(folder), "${CANARY_URL}")
    return McpServerSettings(command=sys.executable, args=words, env=_VARIABLES, cwd=ROOT, **more)


def leaky_table(folder: Path, name: str = "s") -> str:
    """The same in a settings file."""
    lines = [f"[mcp.servers.{name}]", f"command = {json.dumps(sys.executable)}", f"cwd = {json.dumps(str(ROOT))}"]
    lines += [f"args = {json.dumps([*_WORDS, str(folder), '${CANARY_URL}'])}"]
    lines += [f"[mcp.servers.{name}.env]", *(f"{key} = {json.dumps(value)}" for key, value in _VARIABLES.items())]
    return "\n".join(lines) + "\n"
