"""What servers say of their tools: what it means, what changed, and what is remembered."""

from __future__ import annotations

import asyncio
import fcntl
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from mcp_types import Tool as ListedTool
from mcp_types import ToolAnnotations

from holdfast.activities.mcp.server.definition_pins import (
    DefinitionChange,
    PinnedDefinitions,
    describe_definition_change,
    diff_definitions,
)
from holdfast.activities.mcp.server.definitions import Definition, build_definition, find_effect
from holdfast.activities.mcp.server.server import Server
from holdfast.activities.mcp.tools.resource_tools import build_reading_tools, find_read_kind
from holdfast.config.schema import McpServerSettings
from holdfast.domain.calls.tool import Effect
from holdfast.errors import BadInput
from holdfast.util.secrets import Secrets

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
    found = build_definition(listed, Secrets())
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
    assert find_effect(Definition(name="act", annotations=hints), made) is effect


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
    assert describe_definition_change(BEFORE, after(**change)).startswith(words)
    assert bool(diff_definitions(BEFORE, after(**change))) == bool(change)
    assert (BEFORE.digest != after(**change).digest) == bool(change)


def test_many_changes_are_told_briefly() -> None:
    many: Any = {"properties": {f"p{number}" * 50: {} for number in range(500)}}
    words = describe_definition_change(BEFORE, after(parameters=many))
    assert "494 others" in words
    assert len(words) < 1_000


# What is remembered


def test_S39_a_definition_is_kept_when_first_seen_and_moves_when_let_through(tmp_path: Path) -> None:
    known = PinnedDefinitions(tmp_path / "mcp", "s")
    known.pin_new([BEFORE])
    known.pin_new([after(description="Other.")])  # what is known stays
    assert known.find_change(BEFORE) is None
    change = known.find_change(after(description="Other."))
    assert change is not None
    assert "since it was first seen" in change.sentence
    assert "-description: And rests." in change.diff
    other = PinnedDefinitions(tmp_path / "mcp", "s")  # another worker of this host
    other.approve(after(description="Other."))
    assert known.find_change(after(description="Other.")) is None
    change = known.find_change(BEFORE)
    assert change is not None
    assert "since it was last approved" in change.sentence
    file = tmp_path / "mcp" / "s.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def sentence(change: DefinitionChange | None) -> str:
    assert change is not None
    return change.sentence


def test_S39_what_is_not_known_is_asked_about(tmp_path: Path) -> None:
    PinnedDefinitions(tmp_path, "a").pin_new([BEFORE])
    assert "could not be stored" in sentence(PinnedDefinitions(tmp_path, "b").find_change(BEFORE))


def test_S39_a_server_cannot_make_us_forget_what_was_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lists more than is kept: what it has no more makes room, what was gone by stays, the rest is asked about."""
    monkeypatch.setattr("holdfast.activities.mcp.server.definition_pins.TOOLS_LIMIT", 20)
    known = PinnedDefinitions(tmp_path, "s")
    known.pin_new([BEFORE])
    known.approve(BEFORE)
    for flood in range(5):
        known.pin_new([BEFORE, *(Definition(name=f"junk-{flood}-{number}") for number in range(15))])
    assert {one.name for one in known.definitions} == {"act", *(f"junk-4-{number}" for number in range(15))}
    with pytest.raises(BadInput, match="would exceed 20 tools"):
        known.pin_new([Definition(name=f"more-{number}") for number in range(20)])
    assert "since it was last approved" in sentence(known.find_change(after(description="Other.")))
    assert "could not be stored" in sentence(known.find_change(Definition(name="more-1")))


def test_S39_a_damaged_file_makes_everything_asked_about_until_it_is_approved(tmp_path: Path) -> None:
    known, other = PinnedDefinitions(tmp_path, "s"), Definition(name="other")
    known.pin_new([BEFORE, other])
    (tmp_path / "s.json").write_bytes(b"")
    known.approve(BEFORE)
    assert known.find_change(BEFORE) is None
    known.pin_new([BEFORE, other])  # which nobody can say is seen for the first time
    assert "was lost with a damaged file" in sentence(known.find_change(other))
    known.approve(other)
    assert known.find_change(other) is None


def test_a_file_that_another_process_holds_keeps_nobody_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.activities.mcp.server.definition_pins.LOCK_SECONDS", 0.1)
    with open(tmp_path / "s.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="is being changed by another process"):
            PinnedDefinitions(tmp_path, "s").pin_new([BEFORE])


@pytest.mark.parametrize("reordered", [True, False])
def test_S39_a_change_of_many_lines_is_told_in_time(reordered: bool) -> None:
    numbers = list(range(40_000))
    changed = numbers[::-1] if reordered else [number * 3 for number in numbers]
    one, two = (Definition(name="act", output={"enum": list(values)}) for values in (numbers, changed))
    began = time.process_time()
    diff = diff_definitions(one, two)
    assert time.process_time() - began < 3
    assert len(diff.splitlines()) < 250
    assert ("more lines" in diff) or reordered


def test_a_change_near_the_end_of_a_long_definition_is_shown_line_by_line() -> None:
    one, two = (Definition(name="act", output={"enum": [*range(5_000), last]}) for last in (7, 8))
    changed = [
        line for line in diff_definitions(one, two).splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert changed == ["-output:     7", "+output:     8"]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"tools": {"act": 5}}', b"\xff\xfe"])
def test_S39_what_cannot_be_read_any_more_is_asked_about(tmp_path: Path, damage: bytes) -> None:
    known = PinnedDefinitions(tmp_path, "s")
    known.approve(BEFORE)
    (tmp_path / "s.json").write_bytes(damage)
    change = known.find_change(BEFORE)
    assert change is not None
    assert "cannot be read" in change.sentence
    known.pin_new([BEFORE])
    assert known.find_change(BEFORE) is not None
    known.approve(BEFORE)
    assert known.find_change(BEFORE) is None


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be written"):
        PinnedDefinitions(tmp_path / "file", "s").approve(BEFORE)


def test_S39_what_is_remembered_of_a_server_tells_its_tools_from_ours_that_read_it(tmp_path: Path) -> None:
    settings = McpServerSettings(url="http://127.0.0.1:9/mcp")
    own = Definition(name="list_prompts", description="Its own.")
    server = Server("s", settings, lambda _: None, lambda *_: asyncio.sleep(0))
    server.restore_tools([own], frozenset({"resources", "prompts"}))
    known = PinnedDefinitions(tmp_path, "s")
    known.pin_new([BEFORE, own, *(tool.definition for tool in build_reading_tools(server, known))])
    assert {one.name: find_read_kind(one, "s") for one in known.definitions} == {
        "act": None,
        "list_prompts": None,
        "list_resources": "resources",
        "read_resource": "resources",
        "mcp_list_prompts": "prompts",
        "get_prompt": "prompts",
    }
