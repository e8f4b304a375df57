"""Where tools come from: packages and modules of other people, which may do anything; and the whole catalogue."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.activities.load_registry import load_registry
from holdfast.activities.mcp.servers import McpServers
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.entry_points import collect_tools, load_entry_points, load_module
from holdfast.activities.registry.registry import Registry
from holdfast.config.schema import DiscoverySettings, McpServerSettings, McpSettings, ToolSettings
from holdfast.config.settings import Settings
from holdfast.domain.calls.tool import Run, Tool
from holdfast.errors import BadInput
from holdfast.function_tools.decorator import tool
from holdfast.testing import FakeTool

CODE = """
import sys
from pathlib import Path
from holdfast import Effect, Invocation, Tool, tool


@tool(effect=Effect.READ)
def greet(who: str) -> str:
    "Greet somebody."
    return f"Hello {who}"


@tool
def part(who: str) -> str:
    return who


class Classy(Tool):
    name = "classy"
    description = "A class."
    Parameters = {"type": "object"}

    def build(self, arguments, workspace):
        raise NotImplementedError


class Needy(Classy):
    def __init__(self, needed):
        raise AssertionError("never made")


class Holder:
    tools = (greet, [part, Classy])


def make():
    return [greet, part]


def one():
    return greet


def maker_of_makers():
    return make


def leaves():
    sys.exit("gone")


def breaks():
    raise RuntimeError("\\x1b[31mmoon")


def circle():
    return circle


several = [greet, part]
by_name = {"greet": greet}
mixed = [greet, 7]
nothing = []
number = 7
text = "greet"
clash = [greet, greet]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python imports from."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    (folder / "hf_things.py").write_text(CODE)
    importlib.invalidate_caches()
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("hf_"):
            del sys.modules[name]


def install(site: Path, name: str, *points: str, code: str = "", group: str = "holdfast.tools") -> None:
    """A package as pip leaves it, with these entry points."""
    module = name.replace("-", "_")
    (site / f"{module}.py").write_text(textwrap.dedent(code))
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *points]))


def loaded(registry: Registry) -> dict[str, str]:
    return {entry.declaration.name: entry.source for entry in registry.entries}


def from_module(reference: str) -> Registry:
    registry = Registry()
    load_module(registry, reference)
    return registry


# Modules


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("greet", ["greet"]),
        ("Classy", ["classy"]),
        ("several", ["greet", "part"]),
        ("make", ["greet", "part"]),
        ("one", ["greet"]),
        ("maker_of_makers", ["greet", "part"]),
        ("Holder.tools", ["classy", "greet", "part"]),
        ("nothing", []),
    ],
)
def test_S39_what_a_module_names_is_taken_in(site: Path, name: str, tools: list[str]) -> None:
    registry = from_module(f"hf_things:{name}")
    assert loaded(registry) == dict.fromkeys(tools, f"module hf_things:{name}")
    assert registry.problems == []


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("hf_things:number", "7 is no tool"),
        ("hf_things:text", "'greet' is no tool"),
        ("hf_things:by_name", "'greet' is no tool"),
        ("hf_things:mixed", "7 is no tool"),
        ("hf_things:Holder", "is no tool"),
        ("hf_things:Needy", "TypeError"),
        ("hf_things:leaves", "SystemExit: gone"),
        ("hf_things:breaks", "RuntimeError: moon"),
        ("hf_things:circle", "RecursionError"),
        ("hf_things:missing", "has no attribute 'missing'"),
        ("hf_things:Holder.missing", "has no attribute 'missing'"),
        ("hf_things", "AttributeError"),
        ("hf_things:", "AttributeError"),
        ("hf_missing:tools", "ModuleNotFoundError: No module named 'hf_missing'"),
        ("", "ValueError"),
        (":x", "ValueError"),
        (".relative:x", "TypeError"),
    ],
)
def test_S39_module_that_brings_no_tools_is_remembered_with_its_reason(site: Path, reference: str, words: str) -> None:
    registry = from_module(reference)
    assert registry.entries == []
    [problem] = registry.problems
    assert problem.source == f"module {reference}"
    assert words in problem.reason
    assert "\x1b" not in problem.reason


def test_S39_second_tool_of_a_name_is_refused_and_the_first_stays(site: Path) -> None:
    registry = from_module("hf_things:clash")
    assert list(loaded(registry)) == ["greet"]
    assert "two tools are called 'greet'" in registry.problems[0].reason


@pytest.mark.parametrize(
    "code", ["import sys; sys.exit(3)", "raise SystemExit", "1 / 0", "syntax error", "import no_such"]
)
def test_S39_module_that_breaks_when_imported_costs_nobody_else_anything(site: Path, code: str) -> None:
    (site / "hf_broken.py").write_text(code)
    registry = Registry()
    load_module(registry, "hf_broken:tools")
    load_module(registry, "hf_things:greet")
    assert list(loaded(registry)) == ["greet"]
    assert [problem.source for problem in registry.problems] == ["module hf_broken:tools"]


def test_S39_a_module_beside_the_settings_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_file.py").write_text(
        "from holdfast.testing import FakeTool\ntool = FakeTool('beside', None)\n"
    )
    registry = Registry()
    load_module(registry, "beside_the_file:tool", tmp_path)
    assert [entry.declaration.name for entry in registry.entries] == ["beside"]


def test_a_function_that_was_not_decorated_is_told_apart_from_a_maker() -> None:
    def plain(a: int) -> int:
        return a

    with pytest.raises(BadInput, match=r"'plain' takes parameters, .* put @tool above it"):
        collect_tools(plain)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 10**9, "soon"])
def test_a_tool_with_an_impossible_time_limit_is_refused(seconds: Any) -> None:
    made = FakeTool("late", None, timeout_seconds=seconds)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="its timeout_seconds must be a number above 0"):
        Registry([made])


@pytest.mark.parametrize("found", [None, 7, "text", b"bytes", {"a": 1}, object(), Tool, dict, [None], lambda: None])
def test_what_is_no_tool_is_refused(found: object) -> None:
    with pytest.raises((BadInput, TypeError)):
        collect_tools(found)


# Packages


def test_S39_what_a_package_offers_is_taken_in(site: Path) -> None:
    install(site, "hf-offers", "first = hf_things:several", "second = hf_things:Classy")
    registry = Registry()
    load_entry_points(registry)
    assert loaded(registry) == {
        "greet": "package hf-offers (hf_things:several)",
        "part": "package hf-offers (hf_things:several)",
        "classy": "package hf-offers (hf_things:Classy)",
    }
    assert registry.problems == []


def test_S39_package_that_breaks_costs_nobody_else_anything(site: Path) -> None:
    install(site, "hf-raises", "a = hf_raises:tools", code="raise RuntimeError('\\x1b[31mmoon')")
    install(site, "hf-leaves", "b = hf_leaves:tools", code="import sys; sys.exit(3)")
    install(site, "hf-number", "c = hf_number:tools", code="tools = 7")
    install(site, "hf-nothing", "d = hf_nothing:missing")
    install(site, "hf-gone", "e = hf_not_there:tools")
    install(site, "hf-nonsense", "f = not a reference")
    install(site, "hf-good", "g = hf_things:greet")
    registry = Registry()
    load_entry_points(registry)
    assert list(loaded(registry)) == ["greet"]
    reasons = {problem.source.split()[1]: problem.reason for problem in registry.problems}
    assert sorted(reasons) == ["hf-gone", "hf-leaves", "hf-nonsense", "hf-nothing", "hf-number", "hf-raises"]
    assert re.fullmatch(r"RuntimeError: moon \(.*hf_raises.py, line 1\)", reasons["hf-raises"])
    assert reasons["hf-leaves"].startswith("SystemExit: 3 (")
    assert "7 is no tool" in reasons["hf-number"]


def test_S39_packages_are_taken_in_by_the_names_of_their_entry_points(site: Path) -> None:
    """So that which of two tools keeps its name does not depend on the folder's order."""
    install(site, "hf-zebra", "a = hf_zebra:greet", code="from hf_things import greet")
    install(site, "hf-ant", "b = hf_things:greet")
    registry = Registry()
    load_entry_points(registry)
    assert loaded(registry) == {"greet": "package hf-zebra (hf_zebra:greet)"}
    assert "one from package hf-zebra (hf_zebra:greet) and one from package hf-ant" in registry.problems[0].reason


def test_S39_entry_points_of_other_groups_are_not_loaded(site: Path) -> None:
    install(site, "hf-other", "a = hf_other:tools", code="raise RuntimeError", group="console_scripts")
    registry = Registry()
    load_entry_points(registry)
    assert (registry.entries, registry.problems) == ([], [])


# The catalogue


async def nothing(arguments: dict[str, Any], run: Run) -> str:
    return ""


def settings(tmp_path: Path, **more: Any) -> Settings:
    return Settings(data=tmp_path / "data", workspace=tmp_path, **more)


def catalogue(tmp_path: Path, *given: Tool, **more: Any) -> Registry:
    return load_registry(settings(tmp_path, **more), OutputStore(tmp_path / "outputs"), given)


def discovery(tmp_path: Path, name: str, printed: str) -> DiscoverySettings:
    return DiscoverySettings(name=name, discovery_command=("echo", printed), call_command=("true",), folder=tmp_path)


def test_S37_built_in_tools_are_there(tmp_path: Path) -> None:
    registry = catalogue(tmp_path, tools=ToolSettings(entry_points=False))
    built_in = {name for name, source in loaded(registry).items() if source == "built in"}
    assert built_in >= {"shell", "read_file", "write_file", "edit", "list_directory", "ask_user"}
    assert registry.problems == []


def test_S39_sources_come_in_order_and_the_first_keeps_its_name(site: Path, tmp_path: Path) -> None:
    install(site, "hf-offers", "a = hf_things:several", "b = hf_things:Classy")
    declared = '[{"name": "classy"}, {"name": "shell"}, {"name": "part"}, {"name": "new"}]'
    registry = catalogue(
        tmp_path,
        FakeTool("part", nothing),
        tools=ToolSettings(modules=("hf_things:greet",)),
        discovery=(discovery(tmp_path, "d", declared),),
    )
    sources = loaded(registry)
    assert {name: sources[name] for name in ("shell", "part", "greet", "classy", "new")} == {
        "shell": "built in",
        "part": "this program",
        "greet": "module hf_things:greet",
        "classy": "package hf-offers (hf_things:Classy)",
        "new": "discovery d",
    }
    refused = [problem.source for problem in registry.problems]
    assert refused == [*["package hf-offers (hf_things:several)"] * 2, *["discovery d"] * 3]


def test_S39_packages_can_be_left_out(site: Path, tmp_path: Path) -> None:
    install(site, "hf-offers", "a = hf_things:several")
    assert "greet" not in loaded(catalogue(tmp_path, tools=ToolSettings(entry_points=False)))


def test_S39_tool_of_the_program_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="one from built in and one from this program"):
        catalogue(tmp_path, FakeTool("shell", nothing))


def test_disabled_tools_are_not_there_wherever_they_come_from(site: Path, tmp_path: Path) -> None:
    registry = catalogue(
        tmp_path,
        tools=ToolSettings(entry_points=False, modules=("hf_things:several",), disable=("shell", "greet", "d")),
        discovery=(discovery(tmp_path, "one", '[{"name": "d"}]'),),
    )
    assert {"shell", "greet", "d"}.isdisjoint(loaded(registry))
    assert "part" in loaded(registry)
    assert registry.problems == []


def test_a_tool_of_ones_own_can_take_the_place_of_a_disabled_one(tmp_path: Path) -> None:
    @tool(name="shell")
    def own(command: str) -> str:
        """Run a command elsewhere."""
        return command

    settings = Settings(data=tmp_path, tools=ToolSettings(disable=("shell",), entry_points=False))
    registry = load_registry(settings, OutputStore(tmp_path), [own])
    found = registry.get("shell")
    assert found is not None
    assert (found.tool, registry.problems) == (own, [])


def test_disabling_what_is_not_there_is_told(tmp_path: Path) -> None:
    registry = catalogue(tmp_path, tools=ToolSettings(entry_points=False, disable=("edot",)))
    [problem] = registry.problems
    assert problem.source == "tools.disable"
    assert problem.reason == "no tool is called 'edot', so it cannot be disabled. Did you mean \"edit\"?"
    with pytest.raises(ValidationError, match="cannot be the name of a tool"):
        ToolSettings(disable=("shel\x1b[31ml",))


def test_S38_broken_discovery_costs_nobody_else_anything(tmp_path: Path) -> None:
    missing = DiscoverySettings(name="missing", discovery_command=("./none",), call_command=("true",), folder=tmp_path)
    registry = catalogue(
        tmp_path,
        tools=ToolSettings(entry_points=False),
        discovery=(
            discovery(tmp_path, "broken", "no json"),
            missing,
            discovery(tmp_path, "partly", '[{"name": "two words"}, {"name": "fine", "parameters": {"type": "array"}},'
                                          ' {"name": "same"}, {"name": "same"}]'),
            discovery(tmp_path, "good", '[{"name": "good"}]'),
        ),
    )  # fmt: skip
    assert "good" in loaded(registry)
    assert loaded(registry)["same"] == "discovery partly"
    sources = [problem.source for problem in registry.problems]
    assert sources == ["discovery broken", "discovery missing", *["discovery partly"] * 3]


async def test_S38_discovery_works_where_a_loop_already_runs(tmp_path: Path) -> None:
    registry = catalogue(
        tmp_path,
        tools=ToolSettings(entry_points=False),
        discovery=(discovery(tmp_path, "good", '[{"name": "good"}]'),),
    )
    assert loaded(registry)["good"] == "discovery good"


def test_servers_that_are_not_connected_are_told(tmp_path: Path) -> None:
    servers = McpSettings(servers={"s": McpServerSettings(command="server")})
    outputs = OutputStore(tmp_path / "outputs")
    given = settings(tmp_path, tools=ToolSettings(entry_points=False, disable=("s__a", "t__a")))
    registry = load_registry(given, outputs, servers=McpServers(servers, tmp_path))
    assert [problem.reason for problem in registry.problems] == ["no tool is called 't__a', so it cannot be disabled"]
    error = registry.explain_missing("s__a")
    assert error is not None
    message = "'s__a' cannot be called now. MCP server s: it is not connected yet"
    assert (error.type, error.message) == ("mcp_unavailable", message)
    assert registry.explain_missing("t__a") is None


def test_function_with_the_decorator_is_a_tool_wherever_one_is_wanted() -> None:
    @tool
    def greet(who: str) -> str:
        return who

    assert collect_tools([greet, (greet,)]) == [greet, greet]
