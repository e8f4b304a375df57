"""The threat model names tests that exist, and every test of this folder is in it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.pages import ROOT, read_page

PAGE = read_page("security")


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = re.findall(r"`((?:tests/)?[\w/]+\.py|tests/\w+)`", PAGE)
    assert len(named) > 10
    for name in named:
        assert (ROOT / name if name.startswith("tests/") else Path(__file__).with_name(name)).exists(), name


def test_every_suite_of_this_folder_is_in_the_threat_model() -> None:
    suites = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert {name for name in suites if f"`{name}`" not in PAGE} == set()
