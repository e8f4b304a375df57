"""Writes the generated parts of committed pages: python -m tests.docs.update.

The table of rooms in ARCHITECTURE.md, the page of rules, and the list of decisions. What only the site has (the
references of the command line and of the Python API) is made by `make docs`.
"""

from __future__ import annotations

import re

from tests.docs import rooms, rules
from tests.support.pages import ROOT

DECISIONS = ROOT / "docs" / "decisions"
INDEX = DECISIONS / "README.md"
_LIST = re.compile(r"(?<=\n\n)1\. .*", re.DOTALL)


def render_decisions() -> str:
    """A line for each record, by its number and title."""
    files = sorted(DECISIONS.glob("0*.md"))
    titles = (re.match(r"# (\d+)\. (.*)\n", file.read_text()) for file in files)
    found = zip(files, titles, strict=True)
    return "".join(f"{title[1]}. [{title[2]}]({file.name})\n" for file, title in found if title)


def render_index() -> str:
    """The whole list of decisions."""
    return _LIST.sub(lambda _: render_decisions(), INDEX.read_text())


if __name__ == "__main__":
    rooms.PAGE.write_text(rooms.render_page())
    rules.PAGE.write_text(rules.render_page())
    INDEX.write_text(render_index())
