"""What decides what runs is out of a model's reach without a yes: by file tools, commands and tools of others (S29)."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import Mode, Settings, Tool, TurnInput
from holdfast.activities.builtin.edit import Edit
from holdfast.activities.builtin.shell import Shell
from holdfast.activities.builtin.write_file import WriteFile
from holdfast.activities.files.workspace import Workspace
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext
from holdfast.activities.policy.code_files import CODE_FILES, explain_code_file
from holdfast.activities.policy.find_protected import build_protected
from holdfast.activities.policy.grants import CandidateCall, is_covered
from holdfast.activities.policy.load_policy import list_sources, load_policy
from holdfast.activities.policy.protected_files import complete_subject
from holdfast.activities.policy.subject import build_call_subject
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.registry import Registry
from holdfast.config.settings import load_settings
from holdfast.config.toml_document import read_content
from holdfast.config.trust import is_trusted
from holdfast.domain.approvals.approval import Scope
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, Run
from holdfast.domain.calls.verdicts import Allow, Ask, Verdict
from holdfast.errors import BadInput
from holdfast.testing import FakeTool, build_request, wait_until
from tests.cli.support import Home
from tests.support.engine import new_engine
from tests.support.policies import rule
from tests.support.programs import require_program
from tests.support.waiting import waiting


def git(*words: str | Path) -> None:
    """Run git."""
    subprocess.run([require_program("git"), *words], check=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A workspace that is a repository, and a data folder beside it."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    git("init", "-q", workspace)
    (workspace / "src").mkdir()
    (workspace / "src" / "a.py").write_text("one\n")
    return Settings(data=tmp_path / "data", workspace=workspace, modes=tuple(Mode))


async def _store(arguments: dict[str, Any], run: Run) -> str:
    return "stored"


async def judge(settings: Settings, tool: str, mode: Mode = Mode.YOLO, **arguments: Any) -> Verdict:
    """What the gate of a worker with these settings says of a call."""
    tools: list[Tool] = [WriteFile(), Edit(), Shell(OutputStore(settings.data / "outputs"))]
    tools.append(FakeTool("store", _store, effect=Effect.IDEMPOTENT))  # somebody else's, that asks nothing
    gate = Gate(
        Registry(tools),
        settings.workspace,
        load_policy(list_sources(settings)),
        tuple(Mode),
        protected=build_protected(settings),
    )
    return (await gate.judge(CallRequest(tool=tool, arguments=arguments), CallContext(mode=mode))).verdict


async def is_asked(settings: Settings, tool: str, mode: Mode = Mode.YOLO, **arguments: Any) -> bool:
    """Is a person asked? Where nobody is, the call must be allowed, and not refused for another reason."""
    verdict = await judge(settings, tool, mode, **arguments)
    assert isinstance(verdict, Ask | Allow), verdict
    if isinstance(verdict, Ask):
        assert verdict.confirmation.offers == (), "nothing is answered for good"
    return isinstance(verdict, Ask)


# By name


@pytest.mark.parametrize("mode", [Mode.AUTO_EDIT, Mode.YOLO])
async def test_S29_no_mode_lets_a_file_be_written_unasked_that_another_program_runs(
    settings: Settings, mode: Mode
) -> None:
    names = [name for _, names in CODE_FILES for name in names]
    paths = [name.replace("*", "x") for name in names] + [f"deep/down/{name.replace('*', 'x')}/in" for name in names]
    paths += [".GIT/hooks/x", "src/../.Envrc", ".vscode/tasks.json", ".github/workflows/a.yml", "a/.git"]
    for path in paths:
        if (settings.workspace / path).is_dir():
            continue
        assert await is_asked(settings, "write_file", mode, path=path, content="x"), path
    ordinary = (
        "src/a.py",
        "Makefile",
        "package.json",
        "conftest.py",
        "AGENTS.md",
        ".gitignore",
        ".env",
        "a.git",
        "HEAD",
    )
    for path in ordinary:
        assert not await is_asked(settings, "write_file", mode, path=path, content="x"), path


async def test_a_person_is_told_why_a_file_decides_what_runs(settings: Settings) -> None:
    verdict = await judge(settings, "write_file", path=".envrc", content="x")
    assert isinstance(verdict, Ask)
    assert "It changes what runs later. .envrc: it runs when its folder is entered." in (
        verdict.confirmation.reason or ""
    )
    assert explain_code_file("src/.envrc.py") is None


async def test_S29_a_link_that_leads_to_a_protected_file_protects_nothing_less(settings: Settings) -> None:
    (settings.workspace / "innocent").symlink_to(".git")
    assert await is_asked(settings, "write_file", path="innocent/hooks/pre-commit", content="x")
    assert await is_asked(settings, "shell", command="cp src/a.py innocent/hooks/pre-commit")
    assert await is_asked(settings, "shell", command="echo x > innocent/config")


def test_S29_a_link_that_is_put_in_the_way_after_the_judgement_leads_no_write_elsewhere(settings: Settings) -> None:
    place = Workspace(settings.workspace).resolve_path("src/config")
    (settings.workspace / "src").rename(settings.workspace / "moved")
    (settings.workspace / "src").symlink_to(".git")
    with pytest.raises(OSError, match="a link leads elsewhere"):
        Workspace(settings.workspace).write(place, b"x")
    assert (settings.workspace / ".git" / "config").read_text() != "x"


# What git takes for a repository


async def test_S29_a_repository_cannot_be_made_file_by_file(settings: Settings) -> None:
    folder = settings.workspace / "evil"
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    assert not await is_asked(settings, "write_file", path="evil/config", content="x"), "not yet a repository"
    assert await is_asked(settings, "write_file", path="evil/HEAD", content="ref: refs/heads/main\n")
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    assert await is_asked(settings, "write_file", path="evil/config", content="x")
    assert await is_asked(settings, "write_file", path="evil/refs/heads/main", content="x")
    assert await is_asked(settings, "shell", command="echo '[core]' >> evil/config")


async def test_S29_a_bare_repository_and_the_folder_that_a_git_file_names_are_protected(settings: Settings) -> None:
    git("init", "-q", "--bare", settings.workspace / "bare")
    git("init", "-q", "--separate-git-dir", settings.workspace / "elsewhere", settings.workspace / "tree")
    for path in ("bare/config", "bare/hooks/post-update", "elsewhere/config", "elsewhere/hooks/x", "tree/.git"):
        assert await is_asked(settings, "write_file", path=path, content="x"), path


async def test_S29_the_folder_that_git_takes_hooks_from_is_protected_whatever_it_is_called(settings: Settings) -> None:
    git("-C", settings.workspace, "config", "core.hooksPath", "scripts/on-commit")
    assert await is_asked(settings, "write_file", path="scripts/on-commit/pre-commit", content="x")
    assert not await is_asked(settings, "write_file", path="scripts/build", content="x")


# What the settings name


SETTINGS = """
policy = ["rules/team.rules"]
[[hooks]]
name = "look"
when = "before"
command = ["python3", "checks/look.py"]
[[hooks]]
name = "module"
when = "after"
python = "ours.after:look"
[[discovery]]
name = "own"
discovery_command = "sh tooling/list"
call_command = ["sh", "tooling/call"]
[mcp]
files = ["servers.list"]
[mcp.servers.own]
command = "python3"
args = ["-m", "serving.main", "--settings=serving/settings.ini"]
[tools]
modules = ["extra:tools"]
"""
NAMED = {
    "rules/team.rules": "",
    "checks/look.py": "",
    "ours/__init__.py": "",
    "ours/after.py": "",
    "tooling/list": "",
    "tooling/call": "",
    "servers.list": json.dumps({"mcpServers": {"theirs": {"command": "sh", "args": ["theirs/start"]}}}),
    "theirs/start": "",
    "serving/main.py": "",
    "serving/settings.ini": "",
    "extra.py": "",
}


def write_settings(folder: Path, name: str = "holdfast.toml") -> Path:
    """A settings file, and all that it names."""
    for path, text in NAMED.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    file = folder / name
    file.write_text(SETTINGS)
    return file


async def test_S29_what_the_settings_in_effect_name_is_protected_whatever_it_is_called(settings: Settings) -> None:
    workspace = settings.workspace
    plain = replace(settings)
    file = write_settings(workspace, "any-name.conf")
    settings = replace(load_settings(file), data=settings.data, workspace=workspace, modes=tuple(Mode))
    for path in ("any-name.conf", *NAMED):
        assert not await is_asked(plain, "write_file", path=path, content="x"), f"{path} is an ordinary file elsewhere"
        assert await is_asked(settings, "write_file", path=path, content="x"), path
        assert await is_asked(settings, "shell", command=f"touch {path}"), path
    for beside in ("checks/json.py", "checks/helper.py", "serving/other.py", "ours/more.py", "logging.py"):
        assert await is_asked(settings, "write_file", path=beside, content="x"), f"Python would import {beside}"
    for free in ("rules/notes.txt", "tooling/notes", "src/a.py", "README.md"):
        assert not await is_asked(settings, "write_file", path=free, content="x"), free
    assert await is_asked(settings, "shell", command="mv rules old-rules"), "with the policy file in it"
    assert not await is_asked(settings, "shell", command="mv src old-src")


async def test_S29_the_data_folder_and_keys_are_protected_from_commands_and_other_tools(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for path in (
        settings.data / "granted.toml",
        settings.owner_key_file,
        tmp_path / "config" / "holdfast" / "keys" / "me",
        tmp_path / "state" / "holdfast" / "trusted" / "x.json",
    ):
        assert await is_asked(settings, "shell", command=f"cp src/a.py {path}"), path
        assert await is_asked(settings, "store", path=str(path)), path
        assert await is_asked(settings, "store", change={"files": [{"name": str(path)}]}), path
    assert await is_asked(settings, "store", path=".git/hooks/x")
    assert not await is_asked(settings, "store", path="src/a.py")


# By commands


@pytest.mark.parametrize(
    "command",
    [
        "echo x > .git/hooks/pre-commit",
        "echo x >> .git/config",
        "echo x > ./src/../.git/config",
        "echo x > .gi?/config",
        "echo x > $PWD/.git/config",
        "cp src/a.py ~/.bashrc",
        'cp src/a.py "$HOME/.ssh/config"',
        "echo x | tee .envrc",
        "echo x 2>.envrc",
        "{ echo x; } > .envrc",
        "cp src/a.py .git/hooks/pre-commit",
        "cp src/a.py .git/hooks",
        "cp -t .git/hooks src/a.py",
        "cp --target-directory=.git/hooks src/a.py",
        "cp src/a.py .gi*/config",
        "mv src/a.py .vscode/tasks.json",
        "mv .git elsewhere",
        "ln -s /tmp/evil .git/hooks/pre-commit",
        "ln .git/config src/config",
        "cd .git && cp ../src/a.py hooks/pre-commit",
        "cd .git; cd hooks; echo x > pre-commit",
        "sed -i s/a/b/ .git/config",
        "dd if=src/a.py of=.git/config",
        "curl -o.envrc https://example.com/x",
        "curl --output=.envrc https://example.com/x",
        "chmod +x .git/hooks/pre-commit",
        "rm .gitattributes",
        "bash -c 'echo x > .envrc'",
        "timeout 5 cp src/a.py .envrc",
        "find src -name a.py -exec cp {} .envrc ';'",
        "python3 patch.py .github/workflows/ci.yml",
        "git config core.fsmonitor ./evil",
        "git -C src config --add core.hooksPath x",
        "git config --unset core.bare",
        "git mv src/a.py .envrc",
    ],
)
async def test_S29_a_command_that_is_known_to_write_a_protected_file_is_asked_about(
    settings: Settings, command: str
) -> None:
    assert await is_asked(settings, "shell", command=command)


async def test_S29_a_folder_that_is_copied_over_another_brings_no_protected_file_along(settings: Settings) -> None:
    hooks = settings.workspace / "template" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("x")
    for command in ("cp -r template/. .", "cp -a template new", "rsync -a template/ .", "mv template src"):
        assert await is_asked(settings, "shell", command=command), command
    assert not await is_asked(settings, "shell", command="cp -r src copied")


@pytest.mark.parametrize(
    "command",
    [
        "cat .git/config",
        "ls -la .git/hooks .github",
        "echo x > notes.txt",
        "cp src/a.py src/b.py",
        "git add .github/workflows/ci.yml .gitattributes",
        "git commit -m '.envrc: say why'",
        "git config --get user.name",
        "git config user.name",
        "git config --list",
        "curl https://example.com/.git/config",
        "make",
        "python3 build.py > build.log",
        "touch Makefile package.json",
    ],
)
async def test_what_only_reads_a_protected_file_or_names_none_proceeds_in_yolo(
    settings: Settings, command: str
) -> None:
    assert not await is_asked(settings, "shell", command=command)


# Rules and standing answers


async def test_S29_an_allow_rule_covers_a_protected_file_only_by_naming_that_very_file(
    settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "user.toml"
    for keys in (
        "kind = 'edit'",
        "tool = 'write_file'",
        "path = ['**']",
        "path = ['.github/**', '.envr?']",
        "path = ['.github/workflows']",
        "anything = true\npriority = 999",
    ):
        file.write_text(rule(keys))
        for path in (".envrc", ".github/workflows/ci.yml"):
            ruled = replace(settings, policy=(file,))
            assert await is_asked(ruled, "write_file", Mode.DEFAULT, path=path, content="x"), keys
    file.write_text(rule("path = ['src/*', '.envrc']") + rule("command = 'cp **'"))
    ruled = replace(settings, policy=(file,))
    assert not await is_asked(ruled, "write_file", Mode.DEFAULT, path=".envrc", content="x")
    assert await is_asked(ruled, "write_file", Mode.DEFAULT, path="sub/.envrc", content="x")
    assert not await is_asked(ruled, "shell", Mode.DEFAULT, command="cp src/a.py src/b.py")
    assert await is_asked(ruled, "shell", Mode.DEFAULT, command="cp src/a.py .envrc")


async def test_S29_nobodys_silence_lets_a_protected_file_be_written(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "user.toml"
    file.write_text(rule("kind = 'edit'\ndeadline = '1h'\non_deadline = 'allow'", "ask"))
    ruled = replace(settings, policy=(file,))
    ordinary = await judge(ruled, "write_file", Mode.DEFAULT, path="src/b.py", content="x")
    protected = await judge(ruled, "write_file", Mode.DEFAULT, path=".envrc", content="x")
    deadlines = [verdict.confirmation.deadline for verdict in (ordinary, protected) if isinstance(verdict, Ask)]
    assert [deadline.default for deadline in deadlines if deadline] == ["allow", "deny"]


def test_S24_no_standing_answer_that_is_wider_than_the_file_covers_a_protected_one() -> None:
    hook = complete_subject(build_call_subject("write_file", {"path": ".git/hooks/x", "content": "x"}), None)
    plain = complete_subject(build_call_subject("write_file", {"path": "src/a.py", "content": "x"}), None)
    for scope in (Scope(tool="write_file", server=""), Scope(tool="write_file", server="", path=("**",))):
        assert is_covered(scope, CandidateCall(plain), True)
        assert not is_covered(scope, CandidateCall(hook), True)
        assert is_covered(scope, CandidateCall(hook), False), "a refusal may be as wide as it likes"
    assert is_covered(Scope(tool="write_file", server="", path=(".git/hooks/x",)), CandidateCall(hook), True)


# The whole way


async def test_S29_in_yolo_a_hook_of_git_is_written_only_after_a_yes(server_address: str, tmp_path: Path) -> None:
    async with new_engine(server_address, tmp_path) as engine:
        engine.settings = replace(engine.settings, modes=tuple(Mode))
        git("init", "-q", engine.workspace)
        hook = engine.workspace / ".git" / "hooks" / "pre-commit"
        async with engine.worker():
            calls = (
                build_request("write_file", path="a.txt", content="x"),
                build_request("write_file", path=".git/hooks/pre-commit", content="#!/bin/sh\n"),
                build_request("shell", command="echo x > .git/hooks/post-commit"),
            )
            turn = await engine.start(TurnInput(batches=(calls,), mode=Mode.YOLO))
            items = (await wait_until(lambda: waiting(turn, 2))).approvals
            assert not hook.exists()
            await engine.holdfast.approve(items[0].approval_id, digest=items[0].digest)
            await engine.holdfast.deny(items[1].approval_id, digest=items[1].digest)
            result = await turn.result()
        assert [response.status for response in result.batches[0].responses] == ["success", "success", "cancelled"]
        assert hook.exists()
        assert not hook.with_name("post-commit").exists()


# At the start


def test_S29_a_data_folder_or_a_key_in_the_workspace_is_refused_at_the_start(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for words in (("up", "--port", "0"), ("worker", "--address", "127.0.0.1:1")):
        done = home.run(*words, "--data", str(home.workspace / "data"))
        assert (done.returncode, "is in the workspace" in done.stderr) == (2, True), done.stderr
        done = home.run(*words, "--workspace", str(home.folder))
        assert (done.returncode, "the data folder" in done.stderr) == (2, True), done.stderr
    assert home.run("keys", "create", "me", XDG_CONFIG_HOME=str(home.workspace / "config")).returncode == 0
    done = home.run("worker", "--address", "127.0.0.1:1", XDG_CONFIG_HOME=str(home.workspace / "config"))
    assert (done.returncode, "the key" in done.stderr, "is in the workspace" in done.stderr) == (2, True, True)


def test_S29_a_change_of_a_policy_file_or_a_script_is_asked_about_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    home.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    monkeypatch.setenv("XDG_STATE_HOME", home.env["XDG_STATE_HOME"])
    file = write_settings(home.folder)
    trusted = home.run("config", "trust", "--yes")
    assert trusted.returncode == 0, trusted.stderr
    for path, text in NAMED.items():
        assert re.search(rf"trusted with it +{re.escape(str(home.folder / path))}", trusted.stdout)
        (home.folder / path).write_text(text + "\n")
        assert not is_trusted(read_content(file)), path
        (home.folder / path).write_text(text)
        assert is_trusted(read_content(file)), "the very content that was trusted"
    (home.folder / "checks" / "look.py").write_text("another")
    done = home.run("worker", "--address", "127.0.0.1:1")
    assert (done.returncode, "names files that have changed since it was trusted" in done.stderr) == (2, True)
    assert "checks/look.py" in done.stderr
    (home.folder / "rules" / "team.rules").unlink()
    assert not is_trusted(read_content(file))


def test_S29_a_worker_that_up_starts_again_reads_no_policy_and_runs_no_script_that_changed(tmp_path: Path) -> None:
    file = write_settings(tmp_path)
    digest = load_settings(file).file_digest
    load_settings(file, digest=digest)
    (tmp_path / "rules" / "team.rules").write_text(rule("anything = true"))
    with pytest.raises(BadInput, match="a file that it names, has changed since"):
        load_settings(file, digest=digest)
