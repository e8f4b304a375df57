"""The documentation holds together: links lead somewhere, and every file that it or the code names exists."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.docs import rooms, rules, update
from tests.docs.commands import list_commands, render_commands
from tests.docs.python_names import list_names, render_names
from tests.support.pages import ROOT, find_page, list_pages

PAGES = [str(page) for page in list_pages()]
EXAMPLES = {"docs/a.md", "docs/performance.md"}
"""Of other people's repositories, in tests."""
CODE = ("activities", "deploy", "src/holdfast", "tests", "workers", "workflows")
LINK = re.compile(r"\]\(([^)\s:]+)\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = FENCE.sub("", (ROOT / page).read_text())
    for target in LINK.findall(text):
        name, _, part = target.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        assert file.exists(), target
        if part:
            assert part in _anchors(file.resolve()), target


@cache
def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_that_the_code_names_exists() -> None:
    named = {name for text in _read_code() for name in re.findall(r"docs/[\w/-]+\.md", text)} - EXAMPLES
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@cache
def _read_code() -> list[str]:
    files = [file for folder in CODE for kind in ("py", "toml", "yaml") for file in (ROOT / folder).rglob(f"*.{kind}")]
    return [file.read_text() for file in [*files, ROOT / "pyproject.toml", ROOT / "requirements-docs.in"]]


def test_names_of_pages_are_unique() -> None:
    names = [path.stem for path in (ROOT / "docs").rglob("*.md") if path.stem != "index"]
    assert sorted({name for name in names if names.count(name) > 1}) == []
    assert find_page("models/local").exists()


def test_every_page_is_in_one_of_the_folders() -> None:
    folders = {os.path.relpath(path, ROOT / "docs").split(os.sep)[0] for path in (ROOT / "docs").rglob("*.md")}
    assert folders <= {"tutorial", "how-to", "reference", "explanation", "decisions"}
    records = [path.name for path in (ROOT / "docs" / "decisions").iterdir()]
    assert [name for name in records if not re.match(r"\d{4}-|README", name)] == []


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text())
    named = [page for entry in _leaves(config["project"]["nav"]) for page in ROOT.glob(entry)]
    assert sorted(named) == [ROOT / page for page in PAGES]


def _leaves(nav: Any) -> Iterator[str]:
    for entry in nav.values() if isinstance(nav, dict) else nav:
        if isinstance(entry, str):
            yield entry
        else:
            yield from _leaves(entry)


def test_every_public_name_is_in_the_python_reference() -> None:
    assert sorted(name for _, name in list_names()) == sorted(set(holdfast.__all__) - {"__version__"})
    assert "Everything else" not in render_names()


def test_every_command_is_in_the_reference_of_the_command_line() -> None:
    text = render_commands()
    assert len(list_commands()) > 50
    assert [name for name in list_commands() if f"## `{name}`\n" not in text] == []


def test_the_page_of_rules_says_what_is_claimed_and_names_tests_that_name_the_rule() -> None:
    """Written by `python -m tests.docs.update`; a file that is not on it yet is no mistake."""
    told, named = rules.read_page(), rules.find_tests()
    assert {rule: text for rule, (text, _) in told.items()} == rules.read_rules()
    assert {rule: set(files) - named[rule] for rule, (_, files) in told.items() if set(files) - named[rule]} == {}
    assert [rule for rule, (_, files) in told.items() if not files] == []


def test_the_table_of_rooms_is_what_the_packages_say() -> None:
    """Written by `python -m tests.docs.update`."""
    assert rooms.PAGE.read_text() == rooms.render_page()


def test_the_list_of_decisions_is_complete() -> None:
    """Written by `python -m tests.docs.update`."""
    assert update.INDEX.read_text() == update.render_index()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"`((?:src|activities|workflows|workers|tests)/[\w./-]*)`", _text(page))
    assert sorted({name for name in named if not (ROOT / name).exists()}) == []


def test_the_architecture_is_two_pages_that_name_many_files() -> None:
    text = _text("ARCHITECTURE.md")
    assert len(re.findall(r"`(?:src|activities|workflows|workers)/", text)) > 100
    assert len(text.splitlines()) <= 160


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/decisions/0")])
def test_a_decision_is_one_short_record_that_the_code_names(page: str) -> None:
    text = _text(page)
    number = re.fullmatch(r"docs/decisions/(\d{4})-[\w-]+\.md", page)
    assert number, "a number and a title"
    assert text.startswith(f"# {int(number[1])}. ")
    assert [part for part in ("**Context.**", "**Decision.**", "**Consequences.**") if part not in text] == []
    assert len(text.splitlines()) <= 60
    assert any(page in code for code in _read_code()), "name it in a comment where it explains the code"


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads(_text("pyproject.toml"))["project"]
    named = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    reasons = _text(str(next((ROOT / "docs" / "decisions").glob("*-dependencies.md"))))
    names = {re.match(r"[\w-]+", one)[0] for one in named}  # type: ignore[index]
    assert sorted(name for name in names if f"`{name}`" not in reasons and f"`{name}[" not in reasons) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_marks_of_a_merge(page: str) -> None:
    assert re.search(r"^(<{7}|>{7})", _text(page), re.MULTILINE) is None


def test_every_python_name_that_a_page_names_exists() -> None:
    blocks = "\n".join(block for page in PAGES for block in re.findall(r"```python\n(.*?)```", _text(page), re.DOTALL))
    for module, names in re.findall(r"^from (holdfast[\w.]*) import (.+)$", blocks, re.MULTILINE):
        assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == []
    named = {name for page in PAGES for name in re.findall(r"`(holdfast(?:\.\w+)+)\(", _text(page))}
    assert len(named) >= 4
    assert [name for name in sorted(named) if not callable(pkgutil.resolve_name(name))] == []


def _text(page: str) -> str:
    return (ROOT / page).read_text()
