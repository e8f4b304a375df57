"""The documentation holds together: links lead somewhere, and every file that it or the code names exists."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support.pages import ROOT, find_page

FILES = [Path(name) for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()]
PAGES = sorted(str(path) for path in FILES if path.suffix == ".md")
CODE = [path for path in FILES if path.suffix in (".py", ".toml", ".yaml", ".sh", "") and "histories" not in path.parts]
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
    texts = [(ROOT / path).read_text() for path in CODE if (ROOT / path).is_file()]
    named = {name for text in texts for name in re.findall(r"docs/[\w/-]+\.md", text)} - {"docs/a.md"}
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_names_of_pages_are_unique() -> None:
    names = [path.stem for path in (ROOT / "docs").rglob("*.md") if path.stem != "index"]
    assert sorted({name for name in names if names.count(name) > 1}) == []
    assert find_page("models/local").exists()


def test_every_page_is_in_one_of_the_folders() -> None:
    folders = {os.path.relpath(path, ROOT / "docs").split(os.sep)[0] for path in (ROOT / "docs").rglob("*.md")}
    assert folders - {"index.md"} <= {"tutorial", "how-to", "reference", "explanation", "decisions"}


def test_every_python_name_that_a_page_names_exists() -> None:
    blocks = "\n".join(block for page in PAGES for block in re.findall(r"```python\n(.*?)```", _text(page), re.DOTALL))
    for module, names in re.findall(r"^from (holdfast[\w.]*) import (.+)$", blocks, re.MULTILINE):
        assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == []
    named = {name for page in PAGES for name in re.findall(r"`(holdfast(?:\.\w+)+)\(", _text(page))}
    assert len(named) >= 4
    assert [name for name in sorted(named) if not callable(pkgutil.resolve_name(name))] == []


def _text(page: str) -> str:
    return (ROOT / page).read_text()
