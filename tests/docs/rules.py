"""The page of rules, made from tests/rules.toml and the names of the tests."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections import defaultdict

from tests.support.pages import ROOT
from tests.unit.repository.test_layout import rules_named_in

PAGE = ROOT / "docs" / "reference" / "rules.md"
FOLDERS = ("unit", "replay", "integration", "cli", "security", "chaos", "browser", "deploy", "fuzz")
HEAD = """# The rules that tests prove

What the specification asks of Holdfast, as far as it is claimed: a sentence for each rule, and the files under `tests/`
with a test that names it (`test_S12_…`, or S12 in a docstring). The sentences are those of `tests/rules.toml`;
`python -m tests.docs.update` writes this page.
"""


def render_page() -> str:
    """The whole page."""
    named = find_tests()
    return HEAD + "".join(_render(rule, text, named[rule]) for rule, text in read_rules().items())


def read_page() -> dict[str, tuple[str, list[str]]]:
    """What the page says now: of each rule its sentence and the files."""
    parts = (part.split("\n\n", 2) for part in PAGE.read_text().split("\n## ")[1:])
    return {rule: (" ".join(text.split()), re.findall(r"`(.+?)`", files)) for rule, text, files in parts}


def read_rules() -> dict[str, str]:
    """The claimed rules, each with its sentence."""
    rules: dict[str, str] = tomllib.loads((ROOT / "tests" / "rules.toml").read_text())["rules"]
    return rules


def find_tests() -> dict[str, set[str]]:
    """The files under tests/ that have a test of a rule, by rule."""
    found: dict[str, set[str]] = defaultdict(set)
    for folder in FOLDERS:
        for path in (ROOT / "tests" / folder).rglob("test_*.py"):
            for rule in rules_named_in(path):
                found[rule].add(str(path.relative_to(ROOT / "tests")))
    return found


def _render(rule: str, text: str, files: set[str]) -> str:
    order = {folder: place for place, folder in enumerate(FOLDERS)}
    ordered = sorted(files, key=lambda file: (order[file.split("/")[0]], file))
    names = ", ".join(f"`{file}`" for file in ordered)
    return "".join(f"\n{textwrap.fill(one, 120, break_on_hyphens=False)}\n" for one in (f"## {rule}", text, names))
