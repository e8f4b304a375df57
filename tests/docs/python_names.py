"""The reference of the Python API as marks for mkdocstrings: every public name, under a heading by its module."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.support.pages import ROOT

HEADINGS = {
    "Connect, start and watch": ("client", "plugin", "config"),
    "Turns and sessions: what they are given and return": ("domain.turn", "domain.session", "domain.modes"),
    "Models and conversations": ("domain.conversation",),
    "Calls, events and responses": ("domain.calls", "domain.content"),
    "Approvals and decisions": ("domain.approvals",),
    "Tools": ("domain.calls.tool", "function_tools", "domain.context"),
    "Hooks": ("activities.hooks",),
    "Errors": ("errors",),
    "Everything else": ("",),
}
"""Where the names of a module go: under the heading with its longest prefix."""
WITHOUT_MEMBERS = {"HoldfastPlugin"}
"""What is for Temporal to call, not for an application."""


def render_names() -> str:
    """A section for each heading that has a name."""
    sections = defaultdict(list)
    for module, name in list_names():
        sections[_find_heading(module)].append(name)
    parts = [f"## {heading}\n\n{''.join(map(_render, sections[heading]))}" for heading in HEADINGS if sections[heading]]
    return "\n".join(parts)


def list_names() -> list[tuple[str, str]]:
    """The public names of `holdfast` with the module of each, in the order of `__init__.pyi`."""
    text = (ROOT / "src" / "holdfast" / "__init__.pyi").read_text()
    return re.findall(r"^from \.(\S+) import (\w+) as \2$", text, re.MULTILINE)


def _find_heading(module: str) -> str:
    fitting = {prefix: heading for heading, prefixes in HEADINGS.items() for prefix in prefixes}
    return fitting[max((prefix for prefix in fitting if module.startswith(prefix)), key=len)]


def _render(name: str) -> str:
    options = "    options:\n      members: false\n" if name in WITHOUT_MEMBERS else ""
    return f"::: holdfast.{name}\n{options}\n"
