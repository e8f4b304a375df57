"""Trying one tool without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.activities.registry.registry import Registry
from holdfast.domain.calls.tool import Invocation, Tool


def build(tool: Tool, workspace: Path, **arguments: Any) -> Invocation:
    """What the gate does: check the arguments, then bind them. ValueError when they are wrong."""
    registry = Registry([tool])
    entry = registry.get(tool.name)
    assert entry is not None
    return tool.build(entry.schema.check(arguments).given, workspace)
