"""Paths that a model gives, resolved inside the workspace or refused."""

from __future__ import annotations

from pathlib import Path


def inside(workspace: Path, path: str) -> Path:
    """The absolute path of `path`, links resolved; ValueError when it leads out of the workspace."""
    if "\0" in path:
        raise ValueError("a path holds no NUL character")
    root = workspace.resolve()
    try:
        target = (root / path).resolve()
    except (OSError, RuntimeError) as error:
        raise ValueError(f"the path {path!r} cannot be resolved: {error}") from error
    if not target.is_relative_to(root):
        raise ValueError(f"the path {path!r} is outside the workspace")
    return target


def shown(workspace: Path, target: Path) -> str:
    """A path as a person in the workspace would write it."""
    return str(target.relative_to(workspace.resolve()))
