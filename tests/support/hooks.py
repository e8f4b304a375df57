"""Hooks written in a test, and calls to ask them about."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from holdfast.activities.hooks.hook_chain import Hook
from holdfast.activities.hooks.hook_io import AfterTool, BeforeTool
from holdfast.activities.hooks.hook_runners import CommandRunner, FunctionRunner
from holdfast.config.schema import OnFailure, When
from holdfast.domain.calls.tool import Effect

WORKSPACE = Path("/project")


def before(tool: str = "shell", phase: Literal["validate", "execute"] = "validate", **arguments: Any) -> BeforeTool:
    """A call that would run."""
    return BeforeTool(
        turn_id="turn", call_id="b1c1", tool=tool, effect=Effect.ONCE, arguments=arguments, workspace=WORKSPACE,
        phase=phase,
    )  # fmt: skip


def after(text: str = "what it put out", tool: str = "shell", **more: Any) -> AfterTool:
    """A call that has run."""
    told = {"turn_id": "turn", "call_id": "b1c1", "tool": tool, "effect": Effect.ONCE, "arguments": {}}
    return AfterTool.model_validate({**told, "workspace": WORKSPACE, "status": "success", "text": text, **more})


def python(folder: Path, code: str) -> list[str]:
    """A command that runs this code, after `call` was read."""
    file = folder / f"hook-{uuid4().hex}.py"
    file.write_text(f"import json, os, sys, time\ncall = json.load(sys.stdin)\n{textwrap.dedent(code)}")
    return [sys.executable, "-I", "-S", str(file)]


def command(
    folder: Path, code: str, when: str = "before", *, name: str = "mine", seconds: float = 20, **more: Any
) -> Hook:
    """A hook that is a command and runs this code."""
    return of_words(python(folder, code), folder, when, name=name, seconds=seconds, **more)


def of_words(
    words: list[str], folder: Path, when: str = "before", *, name: str = "mine", seconds: float = 20, **more: Any
) -> Hook:
    """A hook that is this command."""
    return _hook(name, when, CommandRunner(words, folder, seconds), more)


def function(
    made: Callable[[Any], Any], when: str = "before", *, name: str = "mine", seconds: float = 20, **more: Any
) -> Hook:
    """A hook that is this function."""
    return _hook(name, when, FunctionRunner(made, seconds, {"python": "test"}), more)


def _hook(name: str, when: str, way: Any, more: dict[str, Any]) -> Hook:
    means = OnFailure(more.pop("on_failure", "deny"))
    return Hook(name, When(when), way, on_failure=means, **more)
