"""Pages of the documentation, found by name, and the blocks in them that tests execute."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"<!-- test: (\w+) -->\n```\w*\n(.*?)```", re.DOTALL)
_SAMPLE = re.compile(r"<!-- sample: (\w+) -->\n```\w*\n(.*?)```", re.DOTALL)


def list_pages() -> list[Path]:
    """Every page of the repository, relative to it."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    return sorted(file.relative_to(ROOT) for file in found)


def find_page(name: str) -> Path:
    """README.md, or the one page of docs/ with this name: `models/local` is docs/how-to/models/local.md."""
    if name == "README":
        return ROOT / "README.md"
    [found] = ROOT.glob(f"docs/*/{name}.md")
    return found


def read_page(name: str) -> str:
    """The text of a page."""
    return find_page(name).read_text()


def read_blocks(name: str) -> dict[str, str]:
    """The code blocks with a mark `<!-- test: NAME -->`, by name."""
    return dict(_BLOCK.findall(read_page(name)))


def read_samples(name: str) -> dict[str, str]:
    """The output that a page shows, with a mark `<!-- sample: NAME -->`, by name."""
    return dict(_SAMPLE.findall(read_page(name)))
