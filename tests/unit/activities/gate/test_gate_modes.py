"""The table of the page on policy that tells what each mode does to each kind of call, held true by asking the gate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from holdfast.activities.builtin import build_builtin_tools
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext
from holdfast.activities.mcp.server.definition_pins import PinnedDefinitions
from holdfast.activities.mcp.server.definitions import Definition
from holdfast.activities.mcp.server.server import Server
from holdfast.activities.mcp.tools.mcp_tool import McpTool
from holdfast.activities.policy.load_policy import list_sources, load_policy
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.registry import BUILT_IN, Registry
from holdfast.config.schema import McpServerSettings, ToolSettings
from holdfast.config.settings import Settings
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, Run
from holdfast.domain.calls.verdicts import Ask, Deny, Reject
from holdfast.domain.modes import Confirming, Mode
from holdfast.testing import FakeTool
from tests.support.pages import read_page

COLUMNS = ["default", "auto_edit", "plan", "yolo", "yolo, `yolo_asks = false`", '`confirm = "always"`']
Example = tuple[str, dict[str, JsonValue]]
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "reading, listing, searching the workspace": (
        ("read_file", {"path": "a"}), ("list_directory", {"path": "."}), ("grep", {"pattern": "x"}),
        ("glob", {"pattern": "*"}),
    ),
    "reading outside of it": (("read_file", {"path": "/etc/hostname"}), ("grep", {"pattern": "x", "path": ".."})),
    "editing files of the workspace": (
        ("edit", {"path": "a", "old_text": "old", "new_text": "new"}), ("write_file", {"path": "b", "content": "new"}),
    ),
    "editing files outside of it": (("write_file", {"path": "../b", "content": "new"}),),
    "changing a file that decides what runs": (
        ("write_file", {"path": ".git/hooks/pre-commit", "content": "x"}),
        ("write_file", {"path": ".envrc", "content": "x"}),
    ),
    "harmless commands": (("shell", {"command": "ls"}), ("shell", {"command": "git status"})),
    "other commands": (("shell", {"command": "make"}), ("shell", {"command": "cp a b"})),
    "destructive commands": (
        ("shell", {"command": "rm -rf build"}), ("shell", {"command": "git push --force"}),
        ("shell", {"command": "find . -delete"}), ("shell", {"command": "ls && git reset --hard"}),
    ),
    "commands that cannot be read": (
        ("shell", {"command": "$TOOL x"}), ("shell", {"command": "eval \"$(cat script)\""}),
        ("shell", {"command": "if ("}),
    ),
    "fetching": (("fetch", {"url": "https://docs.example.com/"}),),
    "tools of MCP servers that merely read": (("files__look", {}),),
    "other tools of MCP servers": (("files__act", {}),),
    "tools that say that they destroy": (("files__drop", {}), ("raze", {})),
    "tools of your own that merely read": (("peek", {}),),
    "other tools of your own that ask": (("poke", {}),),
    "other tools of your own that do not": (("prod", {}),),
    "delegating a task": (("delegate", {"prompt": "Look around"}),),
    "questions of the model": (("ask_user", {"question": "Which one?"}),),
}  # fmt: skip


async def _nothing(arguments: dict[str, Any], run: Run) -> str:
    return ""


def _registry(folder: Path) -> Registry:
    """Every built-in tool, some of a trusted server, and some of one's own."""
    registry = Registry(build_builtin_tools(OutputStore(folder / "outputs"), ToolSettings()), source=BUILT_IN)
    settings = McpServerSettings(command="files", trust=True)
    server = Server("files", settings, lambda _: None, lambda *_: asyncio.sleep(0))
    hints: dict[str, dict[str, JsonValue]] = {
        "look": {"readOnlyHint": True}, "act": {}, "drop": {"destructiveHint": True},
    }  # fmt: skip
    approved = PinnedDefinitions(folder / "mcp", "files")
    definitions = [Definition(name=name, annotations=annotations) for name, annotations in hints.items()]
    approved.pin_new(definitions)
    for definition in definitions:
        registry.add(McpTool(server, definition, approved))
    raze = FakeTool("raze", _nothing, asks=True)
    raze.destructive = True
    for tool in (
        FakeTool("peek", _nothing, effect=Effect.READ),
        FakeTool("poke", _nothing, asks=True),
        FakeTool("prod", _nothing),
        raze,
    ):
        registry.add(tool)
    return registry


def _gate(tmp_path: Path, *, yolo_asks: bool = True) -> Gate:
    workspace = tmp_path / "workspace"
    (workspace / ".git").mkdir(parents=True, exist_ok=True)
    (workspace / "a").write_text("old")
    settings = Settings(data=tmp_path / "data", workspace=workspace, yolo_asks=yolo_asks)
    return Gate(_registry(tmp_path), workspace, load_policy(list_sources(settings)), tuple(Mode))


async def _said(gate: Gate, example: Example, **of: Any) -> str:
    verdict = (await gate.judge(CallRequest(tool=example[0], arguments=example[1]), CallContext(**of))).verdict
    if isinstance(verdict, Ask):
        offered = verdict.confirmation.offers or verdict.confirmation.kind == "question"
        return "ask" if offered else "ask each time"
    return "deny" if isinstance(verdict, Deny) else "error" if isinstance(verdict, Reject) else "allow"


def _table() -> dict[str, list[str]]:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in read_page("policy").splitlines()
        if line.startswith("|")
    ]
    start = next(place for place, row in enumerate(rows) if row[1:] == COLUMNS)
    found: dict[str, list[str]] = {}
    for name, *cells in rows[start + 2 :]:
        if len(cells) != len(COLUMNS):
            break
        found[name] = cells
    return found


def test_S27_the_table_of_the_docs_has_a_row_for_every_example() -> None:
    assert list(_table()) == list(EXAMPLES)


NEEDS_GIT = {"harmless commands"}
"""Without git it is not known in which repository a command of it would run."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.needs("git") if kind in NEEDS_GIT else ()) for kind in EXAMPLES]
)
async def test_S27_the_table_of_the_docs_tells_what_the_gate_does(tmp_path: Path, kind: str) -> None:
    gate, lifted = _gate(tmp_path), _gate(tmp_path, yolo_asks=False)
    for example in EXAMPLES[kind]:
        said = [await _said(gate, example, mode=mode) for mode in Mode]
        said.append(await _said(lifted, example, mode=Mode.YOLO))
        said.append(await _said(gate, example, confirm=Confirming.ALWAYS))
        assert said == _table()[kind], example


@pytest.mark.parametrize("kind", EXAMPLES)
async def test_S27_confirm_always_asks_in_every_mode_about_what_is_not_denied(tmp_path: Path, kind: str) -> None:
    gate = _gate(tmp_path)
    for example in EXAMPLES[kind]:
        for mode in Mode:
            usual = await _said(gate, example, mode=mode)
            now = await _said(gate, example, mode=mode, confirm=Confirming.ALWAYS)
            expected = usual if usual in ("deny", "error") else "ask" if example[0] == "ask_user" else "ask each time"
            assert now == expected, (example, mode)
