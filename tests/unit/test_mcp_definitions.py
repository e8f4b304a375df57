"""What servers say of their tools: what it means, what changed, and what is remembered."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from mcp_types import Tool as ListedTool
from mcp_types import ToolAnnotations

from holdfast.activities.mcp.approved import Approved
from holdfast.activities.mcp.changes import diff_of, told
from holdfast.activities.mcp.definitions import Definition, definition_of, effect_of
from holdfast.activities.mcp.reading import read_by, reading_tools
from holdfast.activities.mcp.secrets import Secrets
from holdfast.activities.mcp.server import Server
from holdfast.configuration import McpServerSettings
from holdfast.errors import BadInput
from holdfast.tools import Effect

BEFORE = Definition(
    name="act",
    description="Acts.\nAnd rests.",
    parameters={"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]},
    annotations={"readOnlyHint": True},
)


def after(**changes: Any) -> Definition:
    return BEFORE.model_copy(update=changes)


def test_a_listed_tool_is_data_of_ours() -> None:
    listed = ListedTool(
        name="act",
        description=None,
        input_schema={"type": "object"},
        annotations=ToolAnnotations(title="Act!", read_only_hint=True, open_world_hint=False),
    )
    found = definition_of(listed, Secrets())
    assert found == Definition(
        name="act",
        title="Act!",
        parameters={"type": "object"},
        annotations={"readOnlyHint": True, "openWorldHint": False},
    )


@pytest.mark.parametrize(
    ("hints", "settings", "effect"),
    [
        ({"readOnlyHint": True}, {}, Effect.ONCE),
        ({"readOnlyHint": True}, {"trust": True}, Effect.READ),
        ({"idempotentHint": True}, {"trust": True}, Effect.IDEMPOTENT),
        ({"readOnlyHint": False, "idempotentHint": True}, {"trust": True}, Effect.IDEMPOTENT),
        ({"readOnlyHint": "yes"}, {"trust": True}, Effect.ONCE),
        ({}, {"trust": True}, Effect.ONCE),
        ({"readOnlyHint": True}, {"trust": True, "effects": {"act": "once"}}, Effect.ONCE),
        ({}, {"effects": {"act": "read"}}, Effect.READ),
    ],
)
def test_S39_effects_are_the_users_word_or_that_of_a_trusted_server(hints: Any, settings: Any, effect: Effect) -> None:
    made = McpServerSettings.model_validate({"command": "x", **settings})
    assert effect_of(Definition(name="act", annotations=hints), made) is effect


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"title": "Act"}, "its title"),
        ({"description": "Acts."}, "its description"),
        ({"parameters": {"properties": {"a": {"type": "string"}}, "required": ["a"]}}, "the parameter b (gone)"),
        (
            {"parameters": {"properties": {"a": {}, "b": {"type": "integer"}, "c": {}}, "required": ["a"]}},
            "the parameters a and c (new)",
        ),
        ({"parameters": {**BEFORE.parameters, "required": []}}, "the rules for its parameters"),
        ({"output": {"type": "object"}}, "the form of its result"),
        ({"annotations": {"destructiveHint": True}}, "destructiveHint from silence to yes, readOnlyHint from yes to s"),
        ({"annotations": {"readOnlyHint": False}}, "readOnlyHint from yes to no"),
        ({}, "nothing"),
    ],
)
def test_S39_what_changed_is_told(change: Any, words: str) -> None:
    assert told(BEFORE, after(**change)).startswith(words)
    assert bool(diff_of(BEFORE, after(**change))) == bool(change)
    assert (BEFORE.digest != after(**change).digest) == bool(change)


def test_many_changes_are_told_briefly() -> None:
    many: Any = {"properties": {f"p{number}" * 50: {} for number in range(500)}}
    words = told(BEFORE, after(parameters=many))
    assert "494 others" in words
    assert len(words) < 1_000


# What is remembered


def test_S39_a_definition_is_kept_when_first_seen_and_moves_when_let_through(tmp_path: Path) -> None:
    known = Approved(tmp_path / "mcp", "s")
    assert known.change(BEFORE) is None
    known.meet([BEFORE])
    known.meet([after(description="Other.")])  # what is known stays
    assert known.change(BEFORE) is None
    change = known.change(after(description="Other."))
    assert change is not None
    assert "since it was first seen" in change.sentence
    assert "-description: And rests." in change.diff
    other = Approved(tmp_path / "mcp", "s")  # another worker of this host
    other.approve(after(description="Other."))
    assert known.change(after(description="Other.")) is None
    change = known.change(BEFORE)
    assert change is not None
    assert "since it was last approved" in change.sentence
    file = tmp_path / "mcp" / "s.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_S39_servers_do_not_know_each_others_tools(tmp_path: Path) -> None:
    Approved(tmp_path, "a").meet([BEFORE])
    assert Approved(tmp_path, "b").change(after(description="Other.")) is None


@pytest.mark.parametrize("damage", [b"", b"{", b'{"tools": {"act": 5}}', b"\xff\xfe"])
def test_S39_what_cannot_be_read_any_more_is_asked_about(tmp_path: Path, damage: bytes) -> None:
    known = Approved(tmp_path, "s")
    known.approve(BEFORE)
    (tmp_path / "s.json").write_bytes(damage)
    change = known.change(BEFORE)
    assert change is not None
    assert "cannot be read" in change.sentence
    known.meet([BEFORE])
    assert known.change(BEFORE) is not None
    known.approve(BEFORE)
    assert known.change(BEFORE) is None


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be written"):
        Approved(tmp_path / "file", "s").approve(BEFORE)


def test_S39_what_is_remembered_of_a_server_tells_its_tools_from_ours_that_read_it(tmp_path: Path) -> None:
    settings = McpServerSettings(url="http://127.0.0.1:9/mcp")
    own = Definition(name="list_prompts", description="Its own.")
    server = Server("s", settings, lambda _: None)
    server.remember([own], frozenset({"resources", "prompts"}))
    known = Approved(tmp_path, "s")
    known.meet([BEFORE, own, *(tool.definition for tool in reading_tools(server, known))])
    assert {one.name: read_by(one, "s") for one in known.definitions} == {
        "act": None,
        "list_prompts": None,
        "list_resources": "resources",
        "read_resource": "resources",
        "mcp_list_prompts": "prompts",
        "get_prompt": "prompts",
    }
