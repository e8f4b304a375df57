"""Where commands of `shell` run, and that they are followed where they go (S47)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast.activities.builtin.shell import Shell
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.supervision import run_protocol
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.config.provider_keys import OUR_PREFIXES
from holdfast.domain.calls.tool import Invocation, ToolFailure
from holdfast.domain.content import Result
from holdfast.domain.context import Context
from holdfast.testing import FakeRun
from tests.support.marks import PATIENCE

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="commands are followed where they are supervised")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(OutputStore(tmp_path / "outputs"), runs=Runs(tmp_path / "runs"))


@pytest.fixture(autouse=True)
def sub(workspace: Path) -> Path:
    folder = workspace / "sub"
    folder.mkdir()
    return folder


def build(shell: Shell, workspace: Path, command: str, context: Context | None = None, **more: Any) -> Invocation:
    arguments = Shell.Parameters.model_validate({"command": command, **more})
    return shell.build_in(arguments, workspace, context or Context())


async def ran(invocation: Invocation) -> Result:
    async with asyncio.timeout(PATIENCE):
        return await invocation.execute(FakeRun(key=f"turn-{uuid4()}/b1c1"))


def said(result: Result) -> str:
    return "".join(part.text for part in result.parts)


def left(result: Result) -> str | None:
    """The folder that it leaves for the next."""
    return result.context.folder if result.context else None


# Which commands tell


@pytest.mark.parametrize(
    "command", ["cd sub", "make && cd sub", "(cd sub)", "pushd sub", "popd", "ls;cd", "if cd sub; then :; fi", "\ncd\n"]
)
def test_command_with_a_word_that_moves_is_followed(command: str) -> None:
    assert run_protocol.may_move(command)


@pytest.mark.parametrize("command", ["ls", "cdrecord x", "abcd", "run --cd", "cd-rom", "./xcd", "popd_x"])
def test_others_run_as_they_are(command: str) -> None:
    assert not run_protocol.may_move(command)


@pytest.mark.parametrize(
    ("told", "folder"),
    [
        (b"/a/b\n", "/a/b"),
        (b"/a\nb\n", "/a\nb"),
        (b"/\xc3\xa4\n", "/ä"),
        (b"", ""),
        (b"a/b\n", ""),
        (b"/\xff\n", ""),
        (b"/" + b"a" * run_protocol.FOLDER_LIMIT, ""),
    ],
)
def test_what_is_told_is_a_path_or_nothing(told: bytes, folder: str) -> None:
    receiving, sending = os.pipe()
    os.set_blocking(receiving, False)
    os.write(sending, told)
    assert run_protocol.read_folder(receiving) == folder
    os.close(sending)
    assert run_protocol.read_folder(receiving) in ("", "a"), "and no more than that"
    os.close(receiving)


# Where they end


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("cd sub", "sub"),
        ("cd sub; exit", "sub"),
        ("cd sub && cd ..", ""),
        ("pushd sub", "sub"),
        ("set -eux; cd sub", "sub"),
        ("(cd sub)", ""),
        ("cd sub & wait", ""),
        ("f() { cd sub; }; f", "sub"),
        ("pwd() { echo /; }; cd sub", "sub"),
        ("mkdir 'two words' && cd 'two words'", "two words"),
        ("ln -s sub link && cd link", "sub"),
        ("trap 'echo D' DEBUG; cd sub", None),
        ("trap 'echo bye' EXIT; cd sub", None),
        ("cd sub; exec true", None),
        ("cd sub; rmdir ../sub", None),
        ("cd sub; exec 240>&-", None),
        ("echo sub", None),
    ],
)
async def test_S47_folder_that_a_command_ended_in_is_left_for_the_next(
    shell: Shell, workspace: Path, command: str, folder: str | None
) -> None:
    result = await ran(build(shell, workspace, command))
    assert left(result) == (None if folder is None else str((workspace / folder).resolve()))


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("cd sub; echo out; echo err >&2", "out\nerr\n"),
        ("cd sub; set -x; true", "+ true\n"),
        ("cd sub", "(no output)"),
        ("cd sub\necho $LINENO", "2\n"),
        ("cat <<X; cd sub\nhi\nX", "hi\n"),
        ("trap 'echo bye' EXIT; cd sub", "bye\n"),
        ("cd sub; trap 'echo D' DEBUG; true", "D\n"),
    ],
)
async def test_output_is_that_of_the_command_alone(shell: Shell, workspace: Path, command: str, output: str) -> None:
    assert said(await ran(build(shell, workspace, command))) == output


@pytest.mark.parametrize(
    ("command", "end"),
    [
        ("cd sub; exit 7", "code 7"),
        ("cd sub; false", "code 1"),
        ("set -e; cd sub; false; exit 9", "code 1"),
        ("cd gone", "code 1"),
        ('cd "', "code 2"),
        ("cd sub; kill -KILL $$", "signal 9"),
        ("cd sub; kill -TERM $$", "signal 15"),
        ("cd sub; exec 240>&-; set -e; exit 3", "code 3"),
    ],
)
async def test_exit_code_is_that_of_the_command(shell: Shell, workspace: Path, command: str, end: str) -> None:
    with pytest.raises(ToolFailure, match=end):
        await ran(build(shell, workspace, command))


async def test_path_that_is_too_long_to_be_kept_is_not_followed(shell: Shell, workspace: Path) -> None:
    deep = "/".join(["d" * 200] * 6)
    assert left(await ran(build(shell, workspace, f"mkdir -p {deep} && cd {deep}"))) is None
    odd = "\x01" * 250
    result = await ran(build(shell, workspace, f"mkdir -p '{odd}/{odd}' && cd '{odd}/{odd}' && echo fine"))
    assert said(result) == "fine\n", "its end is known, however little of its path can be written down"


async def test_command_without_a_supervisor_is_not_followed(workspace: Path, tmp_path: Path) -> None:
    plain = Shell(OutputStore(tmp_path / "outputs"))
    result = await ran(build(plain, workspace, "cd sub && pwd", Context(folder=".")))
    assert (said(result), left(result)) == (f"{(workspace / 'sub').resolve()}\n", None)


@pytest.mark.needs("bwrap")
async def test_S47_command_in_a_sandbox_is_followed(workspace: Path, tmp_path: Path) -> None:
    closed = Shell(OutputStore(tmp_path / "outputs"), runs=Runs(tmp_path / "runs"), sandbox=Sandbox(workspace))
    assert left(await ran(build(closed, workspace, "cd sub"))) == str((workspace / "sub").resolve())
    assert left(await ran(build(closed, workspace, "cd /tmp"))) == "/tmp"


# Where they begin


async def test_S47_command_runs_in_the_folder_of_the_context_unless_it_names_one(shell: Shell, workspace: Path) -> None:
    within = Context(folder="sub")
    there, here = build(shell, workspace, "pwd", within), build(shell, workspace, "pwd", within, directory=".")
    assert (there.describe(), here.describe()) == ("Run pwd (in sub)", "Run pwd")
    assert said(await ran(there)).endswith("/workspace/sub\n")
    assert said(await ran(here)).endswith("/workspace\n")
    assert build(shell, workspace, "pwd", directory="sub").describe() == "Run pwd (in sub)"


def test_title_of_a_long_command_still_says_where_it_runs(shell: Shell, workspace: Path) -> None:
    title = build(shell, workspace, "true " * 200, Context(folder="sub")).describe()
    assert title.endswith("(in sub)")
    assert len(title) < 300


@pytest.mark.parametrize("folder", ["gone", "file", "link"])
def test_S47_folder_that_is_gone_is_told_with_what_to_do(shell: Shell, workspace: Path, folder: str) -> None:
    (workspace / "file").touch()
    (workspace / "link").symlink_to("/")
    with pytest.raises(ValueError, match="say in `directory` where this one is to run"):
        build(shell, workspace, "true", Context(folder=folder))
    build(shell, workspace, "true", Context(folder=folder), directory=".")


# What is in their environment

CANARY = "canary-5d1c"


async def test_S47_variables_have_the_values_that_the_worker_has(
    shell: Shell, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE", CANARY)
    within = Context(environment={"TOKEN": "SOURCE", "OTHER": "SOURCE"})
    invocation = build(shell, workspace, "echo $TOKEN $OTHER", within, environment={"OTHER": "own"})
    asked = await invocation.should_confirm()
    assert asked
    assert CANARY not in f"{invocation.describe()}{asked.model_dump_json()}"
    assert said(await ran(invocation)) == f"{CANARY} own\n"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"TOKEN": "NOT_SET"}, "'TOKEN' .* 'NOT_SET' .* not set"),
        *(({"TOKEN": f"{ours}KEY"}, f"'{ours}KEY' is not for commands") for ours in OUR_PREFIXES),
        ({"TOKEN": "OPENAI_API_KEY"}, "'OPENAI_API_KEY' is not for commands"),
        ({"TOKEN": "temporal_key"}, "'temporal_key' is not for commands"),
        *(({f"{ours}CALL": "SOURCE"}, f"'{ours}CALL' is not for commands") for ours in OUR_PREFIXES),
    ],
)
def test_S47_variable_that_cannot_be_had_is_an_error_without_any_value(
    shell: Shell, workspace: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: str
) -> None:
    for name in ("SOURCE", "temporal_key", *(f"{ours}KEY" for ours in OUR_PREFIXES)):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ValueError, match=words) as refused:
        build(shell, workspace, "true", Context(environment=environment))
    assert CANARY not in str(refused.value)
