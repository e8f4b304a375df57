"""The tree of commands: what each says of itself, and what is loaded to say it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.workers.cli.command_tree import COMMANDS as COMMAND_LINES
from holdfast.workers.cli.command_tree import import_all_commands, run_command


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from _walk(f"{name} {word}", inner)


COMMANDS = dict(_walk("holdfast", import_all_commands()))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_with_an_example_and_the_exit_codes(name: str) -> None:
    command = COMMANDS[name]
    assert (command.help or "").strip()
    examples, _, rest = (command.epilog or "").partition("Exit codes:")
    assert name in " ".join(examples.split()), "the example is of this command"
    assert "0 done" in rest


HEAVY = {"temporalio", "pydantic", "rich", "prompt_toolkit", "mcp", "cryptography"}


def _run(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """What `holdfast` prints, and which heavy packages it has imported by then."""
    code = "import sys, holdfast.workers.cli.command_tree as tree\ntry: tree.run_command(sys.argv[1:])\n"
    code += f"finally: print('\\nimported', *({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    shown, _, loaded = done.stdout.rpartition("\nimported")
    return shown, set(loaded.split())


def test_help_lists_every_command_with_its_whole_line_and_imports_none() -> None:
    shown, loaded = _run("--help")
    for name, (_, summary) in COMMAND_LINES.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", shown, re.MULTILINE), name
    assert loaded == set()


def test_completion_lists_commands_without_importing_them_and_options_of_one() -> None:
    shown, loaded = _run(_HOLDFAST_COMPLETE="complete_bash", COMP_WORDS="holdfast to", COMP_CWORD="1")
    assert shown.split() == ["tools", "tokens"]
    assert loaded <= {"pydantic"}, "which typer needs to complete"
    shown, _ = _run(_HOLDFAST_COMPLETE="complete_bash", COMP_WORDS="holdfast keys cr", COMP_CWORD="2")
    assert shown.split() == ["create"]


def test_a_command_that_does_not_exist_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        run_command(["inbx"])
    assert leaving.value.code == 2
    assert "Did you mean 'inbox'?" in capsys.readouterr().err
