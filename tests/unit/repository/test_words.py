"""One word for one thing: docstrings, help, errors and log lines use the words of the glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.repository.test_layout import ROOT, modules

WORDS = {
    r"standing answers?": "grant",
    r"what waits": "pending approvals, queued messages",
    r"at work": "running",
    r"nobody says": "by default",
    r"cannot be said to": "invalid body",
    r"a mode was not heard": "ignored signal",
}
"""Phrases that are not used any more, and what is said instead."""
PATTERN = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def find_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every text in a module, with its line: docstrings, help, errors and the words of log lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())


@pytest.mark.parametrize("folder", sorted({str(path.relative_to(ROOT).parts[0]) for path in modules().values()}))
def test_product_says_none_of_the_words_that_were_replaced(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r}"
        for path in modules().values()
        if path.is_relative_to(ROOT / folder)
        for line, text in find_texts(path)
        for match in PATTERN.finditer(text)
    ]
    assert found == []
