"""The catalogue: unique names, what is refused and why, and one digest for all that a person may have approved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from holdfast.activities.registry.registry import Registry, SourceProblem
from holdfast.domain.calls.tool import (
    Declaration,
    Effect,
    Interrupt,
    Invocation,
    Run,
    StrictParameters,
    Tool,
    ToolRef,
    Traits,
)
from holdfast.errors import BadInput
from holdfast.testing import FakeTool
from holdfast.util.suggestions import suggest_names


async def nothing(arguments: dict[str, Any], run: Run) -> str:
    return ""


def fake(name: str, **more: Any) -> FakeTool:
    return FakeTool(name, nothing, **more)


class Schemed(Tool):
    """A tool with any JSON schema."""

    description = "Does."

    def __init__(self, name: str = "schemed", schema: Any = None) -> None:
        self.name = name
        self.Parameters = schema or {"type": "object"}

    def build(self, arguments: Any, workspace: Path) -> Invocation:
        raise NotImplementedError


# Names


@pytest.mark.parametrize("name", ["a", "list_files", "9", "_x", "server/tool", "a.b:c-d", "x" * 128])
def test_ordinary_names_are_taken(name: str) -> None:
    entry = Registry([fake(name)]).get(name)
    assert entry is not None
    assert (entry.declaration.name, entry.source) == (name, "this program")


MISLEADING = ["", " ", "two words", "a\n", "\na", "a\nb", "\x1b[31mred", "a\0", "é", "𝟙", "a\u202eb", "a\ud800"]
DANGEROUS = ["-rf", "--help", ".hidden", "/etc", "a;b", "$(a)", "a'b", "x" * 129, "x" * 200]
BAD_NAMES = [*MISLEADING, *DANGEROUS]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_could_mislead_are_refused(name: str) -> None:
    with pytest.raises(BadInput) as error:
        Registry([fake(name)], source="a package")
    assert "a package" in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("name", BAD_NAMES)
def test_refused_name_is_told_in_harmless_text(name: str) -> None:
    registry = Registry()
    registry.offer(fake(name), "discovery \x1b]0;pwned\x07it")
    [problem] = registry.problems
    assert problem.source == "discovery it"
    assert registry.entries == []
    for character in problem.source + problem.reason:
        assert character.isprintable() or character == "\n"


@given(st.text(max_size=20))
def test_any_name_is_taken_as_it_is_or_refused(name: str) -> None:
    registry = Registry()
    registry.offer(fake(name), "elsewhere")
    if registry.problems:
        assert registry.get(name) is None
    else:
        assert [entry.declaration.name for entry in registry.entries] == [name]
        assert name.isascii()
        assert name.isprintable()


def test_S39_names_that_collide_are_refused_and_both_sources_named() -> None:
    registry = Registry([fake("same")], source="built in")
    with pytest.raises(BadInput, match=r"'same', one from built in and one from package p: rename one"):
        registry.add(fake("same"), "package p")
    registry.offer(fake("same"), "module m")
    assert "one from built in and one from module m" in registry.problems[0].reason
    [entry] = registry.entries
    assert entry.source == "built in"


def test_names_differ_by_case() -> None:
    assert len(Registry([fake("Same"), fake("same")]).entries) == 2


def test_entries_are_by_name_and_can_be_taken_out() -> None:
    registry = Registry([fake("b"), fake("a"), fake("c")])
    assert registry.remove("b")
    assert not registry.remove("b")
    assert [entry.declaration.name for entry in registry.entries] == ["a", "c"]


# Suggestions


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("list_file", ["list_files"]),
        ("listfiles", ["list_files"]),
        ("list-files", ["list_files"]),
        ("raed_file", ["read_file", "write_file"]),
        ("shel", ["shell"]),
        ("something_else_entirely", []),
        ("", []),
        ("\ud800", []),
        ("x" * 1_000_000, []),
    ],
)
def test_S5_close_names_are_suggested_closest_first(wrong: str, right: list[str]) -> None:
    assert (
        suggest_names(wrong, ["list_files", "read_file", "write_file", "shell", "glob"])[: len(right) or None] == right
    )


@given(wrong=st.text(max_size=30))
def test_S5_at_most_three_names_are_suggested_and_they_exist(wrong: str) -> None:
    names = [f"tool_{letter}" for letter in "abcdefgh"]
    found = suggest_names(wrong, names)
    assert len(found) <= 3
    assert set(found) <= set(names)


# What is refused


class Raising(Schemed):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def build_declaration(self) -> Declaration:
        raise self._error


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize("error", [RuntimeError("moon"), Silent(), RecursionError("moon"), ValueError("\x1b[31mmoon")])
def test_tool_that_breaks_is_remembered_and_costs_nobody_else_anything(error: Exception) -> None:
    registry = Registry([fake("good")])
    registry.offer(Raising(error), "package p")
    registry.offer(fake("better"), "package p")
    assert [entry.declaration.name for entry in registry.entries] == ["better", "good"]
    [problem] = registry.problems
    assert (problem.source, "\x1b" in problem.reason) == ("package p", False)


def test_tool_that_leaves_the_process_is_remembered() -> None:
    """Other people's code, asked for its declaration."""
    registry = Registry()
    registry.offer(Raising(SystemExit(3)), "package p")
    assert registry.problems[0].source == "package p"


@pytest.mark.parametrize("tool", [None, 7, object(), FakeTool])
def test_what_is_no_tool_is_refused(tool: Any) -> None:
    with pytest.raises(BadInput, match="has no valid declaration"):
        Registry([tool])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"properties": 3},
        {"$ref": "http://127.0.0.1:9/x"},
        {"default": float("nan")},
        {"x": "\ud800"},
    ],
)
def test_S6_tool_whose_schema_cannot_be_used_is_refused(schema: Any) -> None:
    registry = Registry()
    registry.offer(Schemed(schema=schema), "package p")
    assert registry.entries == []
    assert len(registry.problems) == 1


class NotANumber(Schemed):
    class Parameters(BaseModel):
        share: float = float("nan")

    def __init__(self) -> None:
        self.name = "share"


def test_tool_whose_definition_has_no_digest_is_refused_when_it_is_offered() -> None:
    """Found later, it would cost the worker its start: the gate needs the digest of the whole catalogue."""
    registry = Registry([fake("good")])
    registry.offer(NotANumber(), "package p")
    assert registry.digest
    assert [problem.source for problem in registry.problems] == ["package p"]


def test_problem_can_be_written_anywhere() -> None:
    registry = Registry()
    registry.refuse("half \ud800", "half \udcff" + "x" * 100_000)
    [problem] = registry.problems
    assert f"{problem.source} {problem.reason}".encode()
    assert len(problem.reason) <= 1_000
    assert isinstance(problem, SourceProblem)


# Digests


def test_S22_digest_does_not_depend_on_the_order() -> None:
    assert Registry([fake("a"), fake("b")]).digest == Registry([fake("b"), fake("a")]).digest


def test_S22_digest_changes_with_any_definition_and_with_any_tool() -> None:
    tools: list[list[Tool]] = [
        [fake("a")],
        [fake("b")],
        [fake("a"), fake("b")],
        [fake("a", description="Another.")],
        [fake("a", effect=Effect.READ)],
        [Schemed("a")],
        [Schemed("a", {"type": "object", "properties": {"x": {}}})],
        [],
    ]
    digests = [Registry(some).digest for some in tools]
    assert len(set(digests)) == len(digests)


DECLARATION = Declaration(name="a", description="d", parameters={"type": "object"}, effect=Effect.ONCE)


@pytest.mark.parametrize(
    "change",
    [
        {"display_name": "A"},
        {"traits": Traits(interrupt=Interrupt.CANCEL)},
        {"traits": Traits(aborts_siblings=True, live_output=True, markdown=True, task_queue="gpu")},
    ],
)
def test_S22_how_a_tool_is_treated_or_called_is_no_part_of_what_is_approved(change: dict[str, Any]) -> None:
    assert DECLARATION.model_copy(update=change).digest == DECLARATION.digest


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"description": "e"},
        {"parameters": {"type": "object", "title": "T"}},
        {"effect": Effect.READ},
        {"server": "s"},
    ],
)
def test_S39_what_a_tool_is_and_does_is_part_of_what_is_approved(change: dict[str, Any]) -> None:
    assert DECLARATION.model_copy(update=change).digest != DECLARATION.digest


def test_S22_digest_survives_the_history() -> None:
    declaration = DECLARATION.model_copy(update={"parameters": {"b": [1, {"ä": None}], "a": 1.5}})
    again = Declaration.model_validate_json(declaration.model_dump_json())
    assert (again, again.digest) == (declaration, declaration.digest)


def test_model_is_told_name_description_and_parameters() -> None:
    traits = Traits(task_queue="secret-queue")
    told = DECLARATION.model_copy(update={"display_name": "A", "traits": traits, "server": "s"}).describe_for_model()
    assert json.loads(json.dumps(told)) == {"name": "a", "description": "d", "parameters": {"type": "object"}}


def test_call_remembers_its_tool_without_the_schema() -> None:
    traits = Traits(live_output=True)
    ref = DECLARATION.model_copy(update={"display_name": "A", "traits": traits}).build_ref()
    assert ref == ToolRef(name="a", effect=Effect.ONCE, definition=DECLARATION.digest, display_name="A", traits=traits)
    old = json.loads(ref.model_dump_json(exclude={"display_name", "traits"}))
    assert ToolRef.model_validate(old) == ref.model_copy(update={"display_name": None, "traits": Traits()})


def test_S6_strict_parameters_refuse_what_they_do_not_know() -> None:
    class Parameters(StrictParameters):
        path: str

    with pytest.raises(ValidationError, match="pth"):
        Parameters.model_validate({"path": "a", "pth": "b"})


@pytest.mark.parametrize(
    "trait",
    [
        {"timeout_seconds": float("inf")},
        {"timeout_seconds": -100},
        {"heartbeat_seconds": float("inf")},
        {"heartbeat_seconds": 0},
        {"task_queue": ""},
        {"task_queue": "q" * 1_500},
        {"task_queue": "/_sys/q"},
        {"task_queue": "q\0"},
        {"display_name": "x" * 2_500_000},
        {"display_name": "x\x1b]0;owned\x07"},
        {"description": "x" * 60_000},
    ],
    ids=lambda trait: f"{next(iter(trait))} {str(next(iter(trait.values())))[:10]!r}",
)
def test_S36_a_trait_that_would_break_a_turn_is_refused_when_the_tool_is_taken_in(trait: dict[str, Any]) -> None:
    made = FakeTool("odd", None)  # type: ignore[arg-type]
    for name, value in trait.items():
        setattr(made, name, value)
    with pytest.raises(BadInput, match=f"its {next(iter(trait))}"):
        Registry([made])
