"""The shape of the repository: rooms import one way, the domain does no I/O, and every claimed rule has a test."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "holdfast"
FOLDERS = ("activities", "workflows", "workers")
MOST_MODULES = 25

LAYERS = (
    "holdfast",
    "holdfast.errors",
    "holdfast.names",
    "holdfast.util",
    "holdfast.temporal_private",
    "holdfast.domain",
    "holdfast.domain.forms",
    "holdfast.domain.approvals",
    "holdfast.domain.calls",
    "holdfast.domain.conversation",
    "holdfast.domain.turn",
    "holdfast.domain.session",
    "holdfast.config",
    "holdfast.payloads",
    "holdfast.telemetry",
    "holdfast.client",
    "holdfast.function_tools",
    "holdfast.activities.process",
    "holdfast.activities.files",
    "holdfast.activities.web",
    "holdfast.activities.shell",
    "holdfast.activities.ledger",
    "holdfast.activities.supervision",
    "holdfast.activities.policy",
    "holdfast.activities.registry",
    "holdfast.activities.hooks",
    "holdfast.activities.search",
    "holdfast.activities.builtin",
    "holdfast.activities.models",
    "holdfast.activities.mcp",
    "holdfast.activities.execution",
    "holdfast.activities.gate",
    "holdfast.activities",
    "holdfast.workflows",
    "holdfast.plugin",
    "holdfast.workers",
    "holdfast.workers.runtime",
    "holdfast.workers.lookup",
    "holdfast.workers.gateway",
    "holdfast.workers.storage",
    "holdfast.workers.versions",
    "holdfast.workers.mcp",
    "holdfast.workers.terminal",
    "holdfast.workers.embedded",
    "holdfast.workers.audit",
    "holdfast.workers.doctor",
    "holdfast.workers.demo",
    "holdfast.workers.cli",
    "holdfast.testing",

)  # fmt: skip
"""The rooms. Each may import itself and those above it in this list, also lazily and for types alone.

`holdfast` is the root package alone: it names what is public, and loads nothing of it when it is imported.
"""

SAME_THING = {
    "approvals",
    "chat",
    "demo",
    "encryption",
    "grants",
    "policy",
    "servers",
    "session",
    "sessions",
    "telemetry",
    "tokens",
    "turn",
    "turns",
    "up",
    "worker",

}  # fmt: skip
"""Names that several modules have because they are about the same thing, each on its level."""

IO = {
    "asyncio", "concurrent", "ctypes", "fcntl", "ftplib", "glob", "http", "io", "logging", "mmap", "multiprocessing",
    "os", "pathlib", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
"""Modules that touch the world, a clock or chance."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by its full name."""
    found = {}
    for top, package in [(SOURCE, "holdfast"), *((ROOT / name, f"holdfast.{name}") for name in FOLDERS)]:
        for path in top.rglob("*.py"):
            inner = path.relative_to(top)
            if top != SOURCE or inner.parts[0] not in FOLDERS:
                name = ".".join([package, *inner.with_suffix("").parts])
                found[name.removesuffix(".__init__")] = path
    return found


def room_of(module: str) -> str:
    """The room that a module stands in: the longest name of a layer that it begins with."""
    rooms = [room for room in LAYERS[1:] if module == room or module.startswith(f"{room}.")]
    if not rooms and module == LAYERS[0]:
        return module
    assert rooms, f"{module} stands in no room of LAYERS"
    return max(rooms, key=len)


DOMAIN = sorted(name for name in modules() if name.startswith("holdfast.domain"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports, `from a import b` as both `a` and `a.b`."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import by the full name"
            module = node.module or ""
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def imported(module: str) -> Iterator[tuple[int, str]]:
    """The modules of Holdfast that a module imports; of `from package import module` the module alone."""
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "holdfast":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if inner in modules() else node.module


def offences(path: Path, *banned: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for line, name in imports(path)
        if any(name == root or name.startswith(f"{root}.") for root in banned)
    ]


def test_there_is_something_to_look_at() -> None:
    assert "holdfast.domain.calls.call" in DOMAIN
    for room in LAYERS:
        assert any(room_of(name) == room for name in modules()), room


@pytest.mark.parametrize("room", LAYERS[1:])
def test_room_imports_only_rooms_above_it_in_the_list(room: str) -> None:
    found = [
        f"{modules()[name].relative_to(ROOT)}:{line} imports {other}"
        for name in modules()
        if room_of(name) == room
        for line, other in imported(name)
        if LAYERS.index(room_of(other)) > LAYERS.index(room)
    ]
    assert found == []


def test_root_package_loads_nothing_of_holdfast() -> None:
    program = "import sys, holdfast; print(*(name for name in sys.modules if name.startswith('holdfast')))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["holdfast"]


def test_no_folders_beside_each_other_import_each_other() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for name, path in modules().items():
        folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for _, other in imported(name):
            there = other if modules()[other].name == "__init__.py" else other.rpartition(".")[0]
            ours, theirs = folder.split("."), there.split(".")
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
            if same < min(len(ours), len(theirs)):
                graph[".".join(ours[: same + 1])].add(".".join(theirs[: same + 1]))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_no_folder_holds_too_many_modules() -> None:
    counts = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    assert [str(folder.relative_to(ROOT)) for folder, count in counts.items() if count > MOST_MODULES] == []


TESTS = ROOT / "tests"
REPOSITORY = TESTS / "unit" / "repository"
"""Tests of the repository itself, which mirror no module."""


def test_no_folder_of_tests_holds_too_many_modules() -> None:
    counts = Counter(path.parent for path in TESTS.rglob("*.py") if not path.name.startswith("__"))
    assert [str(folder.relative_to(ROOT)) for folder, count in counts.items() if count > MOST_MODULES] == []


def test_a_unit_test_is_named_after_a_module_and_stands_where_it_does() -> None:
    """`test_gate_denials.py` in `tests/unit/activities/gate` is about `activities/gate/gate.py`."""
    strangers = []
    for path in (TESTS / "unit").rglob("test_*.py"):
        package = ".".join(["holdfast", *path.relative_to(TESTS / "unit").parts[:-1]])
        words = path.stem.split("_")[1:]
        named = {"_".join(words[:end]) for end in range(1, len(words) + 1)}
        if path.parent != REPOSITORY and not any(f"{package}.{name}" in modules() for name in named):
            strangers.append(str(path.relative_to(ROOT)))
    assert strangers == []


def test_a_name_of_a_module_means_one_thing() -> None:
    counts = Counter(path.stem for path in modules().values() if not path.stem.startswith("__"))
    assert {name for name, count in counts.items() if count > 1} == SAME_THING


def test_every_folder_says_what_it_is_for() -> None:
    for folder in {path.parent for path in modules().values()} - {ROOT / name for name in FOLDERS}:
        init = folder / "__init__.py"
        assert init.exists(), folder
        assert ast.get_docstring(ast.parse(init.read_text())), init


@pytest.mark.parametrize("name", DOMAIN)
def test_domain_does_no_io(name: str) -> None:
    allowed = {"pathlib"} if name == "holdfast.domain.calls.tool" else set()
    assert offences(modules()[name], *(IO - allowed)) == []


@pytest.mark.parametrize("name", DOMAIN)
def test_domain_imports_the_standard_library_and_pydantic_only(name: str) -> None:
    known = {*sys.stdlib_module_names, "pydantic", "holdfast", "__future__"}
    known |= {"cryptography"} if name == "holdfast.domain.approvals.signing" else set()
    assert [found for _, found in imports(modules()[name]) if found.partition(".")[0] not in known] == []


USES_PRIVATE_NAMES = {
    "holdfast.temporal_private",
    "holdfast.activities.mcp.mcp_private",
    "holdfast.workers.audit.read.recorder",  # of our own workflows
}
"""The modules that use private names of what they do not define: of temporalio and mcp, with a test per name."""


def private_names(tree: ast.Module) -> Iterator[str]:
    """Private names that a module uses of objects which are not its own: `other._name`, `from package import _name`."""
    functions = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr)]
    of_self = {node.attr for node in used if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")}
    known = {*functions, *of_self, "_replace", "_asdict", "_fields", "_exit"}
    yield from (f"{node.lineno}: {ast.unparse(node)}" for node in used if node.attr not in known)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
            if any(re.match("_(?!_)", name) for name in names):
                yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", sorted(modules().keys() - USES_PRIVATE_NAMES))
def test_private_names_are_used_where_they_are_defined(name: str) -> None:
    assert list(private_names(ast.parse(modules()[name].read_text()))) == []


def test_there_is_one_import_name() -> None:
    assert [offence for path in modules().values() for offence in offences(path, *FOLDERS, "src")] == []
    for name in FOLDERS:
        link = SOURCE / name
        assert link.is_symlink()
        assert str(link.readlink()) == f"../../{name}"


def test_whoever_only_speaks_with_turns_imports_nothing_that_a_worker_needs() -> None:
    """Every command of a user does: it is half of the time that they take."""
    program = "import sys, holdfast.client.client, holdfast.workers.runtime.connect; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    heavy = ("temporalio.worker", "holdfast.activities.gate.gate", "holdfast.activities.builtin", "mcp", "tree_sitter")
    assert [name for name in loaded if name in heavy] == []
    assert "temporalio.client" in loaded


def test_public_names_can_be_had() -> None:
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None, name
    with pytest.raises(AttributeError, match="nonsense"):
        holdfast.nonsense  # type: ignore[attr-defined]  # noqa: B018


# Rules


def rules_named_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from re.findall(r"(?<![A-Za-z0-9])S\d+(?![0-9])", node.name.replace("_", " "))
            yield from re.findall(r"\bS\d+\b", ast.get_docstring(node) or "")


def claimed() -> list[str]:
    return list(tomllib.loads((ROOT / "tests" / "rules.toml").read_text())["rules"])


def test_every_claimed_rule_has_a_test() -> None:
    proven = {rule for path in (ROOT / "tests").rglob("test_*.py") for rule in rules_named_in(path)}
    assert sorted(set(claimed()) - proven) == []


def test_claimed_rules_are_rules() -> None:
    assert [rule for rule in claimed() if not re.fullmatch(r"S([1-9]|[1-5]\d|6[01])", rule)] == []
