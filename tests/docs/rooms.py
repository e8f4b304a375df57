"""The table of rooms in ARCHITECTURE.md, made from the docstrings of the packages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.pages import ROOT
from tests.unit.repository.test_layout import LAYERS

PAGE = ROOT / "ARCHITECTURE.md"
PART = re.compile(r"(?<=<!-- rooms -->\n).*?(?=<!-- /rooms -->)", re.DOTALL)
WITHOUT_INIT = {
    "holdfast.activities": (
        "The activities: `tool_activities.py` with `call_executor.py`, `model_activities.py`; and `load_registry.py`."
    ),
    "holdfast.workflows": "The workflows `turn.py` and `session.py`, with their handlers and steps beside them.",
    "holdfast.workers": "The exit codes, `exit_codes.py`.",
}


def render_page() -> str:
    """ARCHITECTURE.md with the table as it is due."""
    return PART.sub(lambda _: render_rooms(), PAGE.read_text())


def render_rooms() -> str:
    """A row for each room, in the order in which rooms may import each other."""
    rows = (f"| {_name(room)}{_name_inner(room)} | {_describe(room)} |\n" for room in LAYERS[1:])
    return "".join(["| room | what it holds |\n| --- | --- |\n", *rows])


def _folder(room: str) -> Path:
    parts = room.split(".")[1:]
    top = ROOT if parts[0] in ("activities", "workflows", "workers") else ROOT / "src" / "holdfast"
    found = top.joinpath(*parts)
    return found if found.is_dir() else found.with_suffix(".py")


def _name(room: str) -> str:
    path = _folder(room)
    return f"`{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}`"


def _name_inner(room: str) -> str:
    """The packages inside a room that are no rooms of their own."""
    names = list(_list_inner(room))
    return f" with {', '.join(f'`{name}/`' for name in names)}" if names else ""


def _list_inner(room: str) -> Iterator[str]:
    folder = _folder(room)
    for init in sorted(folder.glob("*/__init__.py")) if folder.is_dir() else ():
        if f"{room}.{init.parent.name}" not in LAYERS:
            yield init.parent.name


def _describe(room: str) -> str:
    if room in WITHOUT_INIT:
        return WITHOUT_INIT[room]
    path = _folder(room)
    text = ast.get_docstring(ast.parse((path / "__init__.py" if path.is_dir() else path).read_text())) or ""
    return re.split(r"(?<=\.)\s", text.replace("\n", " "), maxsplit=1)[0]
