"""The shape of the repository: imports go one way, the core does no I/O, and every claimed rule has a test."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
OUTER = {
    "__init__", "client", "watching", "configuration", "conversion", "documents", "functions", "hosts", "keys",
    "named_files", "neighbours", "owner_key", "plugin", "payloads", "queries", "search_attributes", "settings",
    "signatures", "suggestions", "temporal_private", "testing",
    "trust", "beside", "encryption", "encryption_settings", "gcs", "keeping", "keyring", "s3",
    "shared_outputs", "storage_settings", "stores",
    "identity", "locks", "setting_values", "tails", "translating", "turn", "contact", "looking", "session",
    "exporting", "observing", "live_turns", "sealing", "whole_files", "process_secrets",
}  # fmt: skip
"""Files of src/holdfast that are not the domain: they talk to Temporal, to files or to the environment."""
DOMAIN = sorted(path for path in SOURCE.glob("*.py") if path.stem not in OUTER)
FOLDERS = {name: sorted((ROOT / name).rglob("*.py")) for name in ("activities", "workflows", "workers")}
IO = {
    "asyncio", "concurrent", "ctypes", "fcntl", "ftplib", "glob", "http", "io", "logging", "mmap", "multiprocessing",
    "os", "pathlib", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
"""Modules that touch the world, a clock or chance."""


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


def offences(path: Path, *banned: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for line, name in imports(path)
        if any(name == root or name.startswith(f"{root}.") for root in banned)
    ]


def test_there_is_something_to_look_at() -> None:
    assert {"calls", "batches", "state", "approvals"} <= {path.stem for path in DOMAIN}
    assert FOLDERS["activities"]
    assert FOLDERS["workflows"]


@pytest.mark.parametrize("path", DOMAIN, ids=lambda path: path.stem)
def test_domain_knows_neither_temporal_nor_the_folders_above_it(path: Path) -> None:
    above = [f"holdfast.{name}" for name in (*FOLDERS, *(OUTER - {"__init__"}))]
    assert offences(path, "temporalio", *above) == []


@pytest.mark.parametrize("path", DOMAIN, ids=lambda path: path.stem)
def test_domain_does_no_io(path: Path) -> None:
    allowed = {"pathlib"} if path.stem == "tools" else set()
    assert offences(path, *(IO - allowed)) == []


@pytest.mark.parametrize("path", DOMAIN, ids=lambda path: path.stem)
def test_domain_imports_the_standard_library_and_pydantic_only(path: Path) -> None:
    known = {*sys.stdlib_module_names, "pydantic", "holdfast", "__future__"}
    known |= {"cryptography"} if path.stem == "signing" else set()
    assert [name for _, name in imports(path) if name.partition(".")[0] not in known] == []


@pytest.mark.parametrize(
    ("folder", "above"),
    [("activities", ("holdfast.workflows", "holdfast.workers")), ("workflows", ("holdfast.workers",))],
)
def test_folders_know_nothing_of_the_folders_above_them(folder: str, above: tuple[str, ...]) -> None:
    found = [offence for path in FOLDERS[folder] for offence in offences(path, *above)]
    assert found == []


def test_there_is_one_import_name() -> None:
    every = [*SOURCE.glob("*.py"), *(path for paths in FOLDERS.values() for path in paths)]
    assert [offence for path in every for offence in offences(path, *FOLDERS, "src")] == []
    for name in FOLDERS:
        link = SOURCE / name
        assert link.is_symlink()
        assert str(link.readlink()) == f"../../{name}"


def test_whoever_only_speaks_with_turns_imports_nothing_that_a_worker_needs() -> None:
    """Every command of a user does: it is half of the time that they take."""
    program = "import sys, holdfast.client, holdfast.workers.connecting; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    heavy = ("temporalio.worker", "holdfast.activities.gate", "holdfast.activities.builtin", "mcp", "tree_sitter")
    assert [name for name in loaded if name in heavy] == []
    assert "temporalio.client" in loaded


def test_public_names_can_be_had() -> None:
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None, name
    with pytest.raises(AttributeError, match="nonsense"):
        holdfast.nonsense  # noqa: B018


# Rules


def rules_named_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from re.findall(r"(?<![A-Za-z0-9])S\d+(?![0-9])", node.name.replace("_", " "))
            yield from re.findall(r"\bS\d+\b", ast.get_docstring(node) or "")


def claimed() -> list[str]:
    rules = tomllib.loads((ROOT / "tests" / "rules.toml").read_text())["rules"]
    assert isinstance(rules, list)
    return [str(rule) for rule in rules]


def test_every_claimed_rule_has_a_test() -> None:
    proven = {rule for path in (ROOT / "tests").rglob("test_*.py") for rule in rules_named_in(path)}
    assert sorted(set(claimed()) - proven) == []


def test_claimed_rules_are_rules_and_claimed_once() -> None:
    rules = claimed()
    assert len(set(rules)) == len(rules)
    assert all(re.fullmatch(r"S([1-9]|[1-3]\d|4[0-7])", rule) for rule in rules)
