"""The tools every worker has."""

from __future__ import annotations

from holdfast.activities.builtin.files import ListDirectory, ReadFile, WriteFile
from holdfast.activities.builtin.shell import Shell
from holdfast.activities.outputs import OutputStore
from holdfast.tools import Tool


def builtin_tools(outputs: OutputStore) -> list[Tool]:
    """One of each."""
    return [ReadFile(), ListDirectory(), WriteFile(), Shell(outputs)]
