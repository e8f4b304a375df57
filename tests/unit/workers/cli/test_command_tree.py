"""The tree of commands: what each says of itself, and what is loaded to say it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from holdfast.workers.cli.command_tree import app


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from _walk(f"{name} {word}", inner)


COMMANDS = dict(_walk("holdfast", get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_with_an_example_and_the_exit_codes(name: str) -> None:
    command = COMMANDS[name]
    assert (command.help or "").strip()
    examples, _, rest = (command.epilog or "").partition("Exit codes:")
    assert name in " ".join(examples.split()), "the example is of this command"
    assert "0 done" in rest


def test_help_loads_neither_temporal_nor_pydantic_nor_what_draws() -> None:
    heavy = {"temporalio", "pydantic", "rich", "prompt_toolkit", "mcp", "cryptography"}
    code = f"import sys, holdfast.workers.cli.command_tree; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
