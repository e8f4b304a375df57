"""git runs programs that a repository's configuration names: not in a command that nobody was asked about (S30).

Each way is shown twice: by git alone, where the program runs, and by ours, where it does not or somebody is asked.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import Mode, Settings, TurnInput
from holdfast.activities.builtin.shell import Shell
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext
from holdfast.activities.policy.load_policy import list_sources, load_policy
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.registry import Registry
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import ToolFailure
from holdfast.domain.calls.verdicts import Allow, Ask, Verdict
from holdfast.testing import FakeRun, build_request, wait_until
from tests.support.engine import new_engine
from tests.support.policies import rule
from tests.support.programs import require_program
from tests.support.waiting import waiting


class Repository:
    """A workspace that is a repository, and a program beside it that leaves a mark when it runs."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(data=folder / "data", workspace=folder / "workspace", policy=(folder / "user.toml",))
        self.settings.policy[0].write_text(rule("command = ['git **', 'cd **']"))
        self.workspace = self.settings.workspace
        self.mark = folder / "mark"
        self.program = folder / "program"
        self.program.write_text(f"#!/bin/sh\necho ran >> {self.mark}\nexit 1\n")
        self.program.chmod(0o755)
        self.workspace.mkdir()
        self.create(self.workspace)

    def create(self, folder: Path) -> None:
        """A repository with a commit, and a file that has changed since."""
        self.git("init", "-q", str(folder))
        (folder / "a.txt").write_text("one\n")
        self.git("-C", str(folder), "add", "a.txt")
        self.git("-C", str(folder), "commit", "-q", "-m", "first")
        (folder / "a.txt").write_text("two\n")

    def git(self, *words: str) -> None:
        subprocess.run([require_program("git"), *words], cwd=self.workspace, check=True)

    def configure(self, key: str, value: str | None = None, folder: str = ".") -> None:
        """Set a key of a repository, to our program if nothing else is said."""
        self.git("-C", folder, "config", key, str(self.program) if value is None else value)

    def runs_without_us(self, command: str) -> bool:
        """Does the program run when git is left alone?"""
        quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        words = ["bash", "-c", command]
        subprocess.run(
            words, cwd=self.workspace, env=quiet, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
        return self._ran()

    async def runs(self, command: str, *, unasked: bool = True, directory: str | None = None) -> bool:
        """Does it run by our command?"""
        arguments = {"command": command, **({"directory": directory} if directory else {})}
        invocation = self._shell.build(Shell.Parameters.model_validate(arguments), self.workspace)
        run = FakeRun(self.workspace)
        run.is_unasked = unasked
        with suppress(ToolFailure):  # git may fail where it does not get what it wants
            await invocation.execute(run)
        return self._ran()

    async def judge(self, command: str, mode: Mode = Mode.DEFAULT, **arguments: object) -> Verdict:
        """What the gate says of a command, with a rule that allows everything of git's."""
        gate = Gate(Registry([self._shell]), self.workspace, load_policy(list_sources(self.settings)), tuple(Mode))
        call = CallRequest.model_validate({"tool": "shell", "arguments": {"command": command, **arguments}})
        verdict = (await gate.judge(call, CallContext(mode=mode))).verdict
        assert isinstance(verdict, Allow | Ask), verdict
        return verdict

    @property
    def _shell(self) -> Shell:
        return Shell(OutputStore(self.settings.data / "outputs"))

    def _ran(self) -> bool:
        ran = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return ran


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository of a user who has a name and nothing else."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = n\nemail = e@example.com\n")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return Repository(tmp_path)


async def is_asked(repository: Repository, command: str, about: str, **more: object) -> bool:
    """Is a person asked about a command that a rule allows, and told why?"""
    for mode in (Mode.DEFAULT, Mode.YOLO):
        verdict = await repository.judge(command, mode, **more)
        if not isinstance(verdict, Ask):
            return False
        assert any(about in doubt for doubt in verdict.confirmation.doubts), verdict.confirmation.doubts
    return True


# What git can be told


CREDENTIALS = "printf 'protocol=https\\nhost=example.invalid\\n\\n' | git credential fill"


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("core.fsmonitor", "git status"),
        ("core.sshCommand", "git fetch ssh://example.invalid/x"),
        ("core.askPass", CREDENTIALS),
        ("core.editor", "git commit --allow-empty"),
        ("sequence.editor", "git rebase -i --root"),
        ("gpg.program", "git commit -S --allow-empty -m x"),
        ("gpg.openpgp.program", "git commit -S --allow-empty -m x"),
        ("credential.helper", CREDENTIALS),
        ("credential.https://example.invalid.helper", CREDENTIALS),
    ],
)
async def test_S30_a_program_of_the_repository_does_not_run_where_git_can_be_told_so(
    repository: Repository, key: str, command: str
) -> None:
    repository.configure("user.signingKey", "x")
    if key == "sequence.editor":
        repository.git("checkout", "-q", "--", ".")
    repository.configure(key)
    assert repository.runs_without_us(command), "git runs it when it is left alone"
    assert not await repository.runs(command)


async def test_S30_a_command_that_nobody_was_asked_about_runs_no_hook_and_an_approved_one_does(
    repository: Repository,
) -> None:
    hook = repository.workspace / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(repository.program.read_text())
    hook.chmod(0o755)
    command = "git commit -q -a --allow-empty -m x"
    assert repository.runs_without_us(command)
    assert not await repository.runs(command)
    assert await repository.runs(command, unasked=False)
    repository.configure("core.hooksPath", str(hook.parent))
    assert not await repository.runs(command)
    repository.configure("core.fsmonitor")
    assert not await repository.runs("git status", unasked=False), "a monitor never runs: nobody is shown it"


async def test_S30_no_command_takes_a_folder_that_only_looks_like_one_for_a_repository(
    repository: Repository,
) -> None:
    bare = repository.workspace / "docs"
    repository.git("init", "-q", "--bare", str(bare))
    repository.configure("core.bare", "false", "docs")
    repository.configure("core.worktree", str(bare), "docs")
    repository.configure("alias.hello", f"!{repository.program}", "docs")
    assert repository.runs_without_us("cd docs && git hello")
    for unasked in (True, False):
        assert not await repository.runs("git hello", unasked=unasked, directory="docs")
        assert not await repository.runs("cd docs && git hello", unasked=unasked)


async def test_the_users_own_programs_still_run(repository: Repository, tmp_path: Path) -> None:
    """What the user configured is theirs; only what a repository says instead is left out."""
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    for key, command in (("core.sshCommand", "git fetch ssh://example.invalid/x"), ("credential.helper", CREDENTIALS)):
        repository.git("config", "--global", key, str(repository.program))
        assert await repository.runs(command), key
        repository.configure(key, str(other))
        assert await repository.runs(command), key
    repository.git("config", "--global", "filter.mine.clean", str(repository.program))
    (repository.workspace / ".gitattributes").write_text("*.txt filter=mine\n")
    assert isinstance(await repository.judge("git status"), Allow)
    assert await repository.runs("git add a.txt")


# What git cannot be told


@pytest.mark.parametrize(
    ("key", "value", "attributes", "command"),
    [
        ("filter.f.clean", None, "*.txt filter=f", "git status"),
        ("filter.f.process", None, "*.txt filter=f", "git add a.txt"),
        ("diff.external", None, "", "git diff"),
        ("diff.d.command", None, "*.txt diff=d", "git diff"),
        ("diff.d.textconv", None, "*.txt diff=d", "git log -p"),
        ("alias.hello", "!{}", "", "git hello"),
        ("alias.hello", "-c core.pager=x --exec-path=/tmp status", "", None),
        ("merge.m.driver", "{} %O", "", None),
        ("core.alternateRefsCommand", None, "", None),
        ("core.gitProxy", None, "", None),
        ("remote.origin.uploadpack", None, "", "git fetch origin"),
        ("remote.origin.url", "ext::{}", "", "git -c protocol.ext.allow=always fetch origin"),
        ("trailer.t.command", None, "", None),
        ("tar.x.command", None, "", "git archive --format=x HEAD"),
        ("include.path", "../elsewhere", "", None),
        ("some.future.key", None, "", None),
    ],
)
async def test_S30_a_command_is_asked_about_where_git_cannot_be_told_to_leave_a_program_out(
    repository: Repository, key: str, value: str | None, attributes: str, command: str | None
) -> None:
    assert isinstance(await repository.judge("git status"), Allow)
    if key == "remote.origin.uploadpack":
        repository.configure("remote.origin.url", str(repository.workspace / ".git"))
    repository.configure(key, value.format(repository.program) if value else None)
    if attributes:
        (repository.workspace / ".gitattributes").write_text(f"{attributes}\n")
    if command:
        assert repository.runs_without_us(command), "git runs it when it is left alone"
    assert await is_asked(repository, "git status" if command is None or "-c " in command else command, key.lower())


async def test_S30_a_submodule_is_a_repository_of_its_own(repository: Repository) -> None:
    module = repository.workspace / "module"
    repository.create(module)
    repository.git("add", "module")
    repository.configure("filter.f.clean", None, "module")
    (module / ".gitattributes").write_text("*.txt filter=f\n")
    assert repository.runs_without_us("git status")
    assert await is_asked(repository, "git status", "filter.f.clean")
    assert isinstance(await repository.judge("git log"), Allow), "which does not look into submodules"


async def test_what_is_usual_in_a_repository_is_not_asked_about(repository: Repository) -> None:
    for key, value in {
        "remote.origin.url": "https://example.com/x.git",
        "remote.origin.fetch": "+refs/heads/*:refs/remotes/origin/*",
        "branch.main.remote": "origin",
        "branch.main.merge": "refs/heads/main",
        "user.email": "me@example.com",
        "pull.rebase": "true",
        "filter.lfs.clean": "git-lfs clean -- %f",
        "filter.lfs.smudge": "git-lfs smudge -- %f",
        "filter.lfs.process": "git-lfs filter-process",
        "filter.lfs.required": "true",
        "core.hooksPath": ".husky/_",
    }.items():
        repository.configure(key, value)
    for command in ("git status --short", "git diff", "cd . && git log -3", "git -C . branch"):
        assert isinstance(await repository.judge(command), Allow), command


# Which repository


async def test_S30_the_repository_that_git_would_use_is_the_one_that_is_looked_at(repository: Repository) -> None:
    repository.create(repository.workspace / "sub")
    repository.configure("filter.f.clean", None, "sub")
    (repository.workspace / "sub" / "deep").mkdir()
    assert isinstance(await repository.judge("git status"), Allow)
    for command in (
        "git -C sub status",
        "git -C . -C sub/deep status",
        "git --git-dir=sub/.git log",
        "git --git-dir sub/.git --work-tree sub status",
        "cd sub && git status",
        "cd sub/deep; git status",
        "f() { git status; }; cd sub; f",
        "bash -c 'cd sub && git status'",
        "timeout 5 git -C sub status",
    ):
        assert await is_asked(repository, command, "filter.f.clean"), command
    assert await is_asked(repository, "git status", "filter.f.clean", directory="sub")
    assert await is_asked(repository, "git status", "filter.f.clean", environment={"GIT_DIR": "sub/.git"})
    for command in ("cd $SOMEWHERE && git status", "cd && git status", "env -C sub git status", "cd new && git status"):
        assert await is_asked(repository, command, "it is not known"), command


async def test_S30_a_repository_that_the_environment_of_the_worker_names_is_looked_at(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.create(repository.workspace / "sub")
    repository.configure("filter.f.clean", None, "sub")
    monkeypatch.setenv("GIT_DIR", str(repository.workspace / "sub" / ".git"))
    assert await is_asked(repository, "git status", "filter.f.clean")


async def test_settings_that_the_environment_has_already_stay(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "alias.mine")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", f"!{repository.program}")
    assert await repository.runs("git mine")
    repository.configure("core.fsmonitor")
    assert not await repository.runs("git status")


# The whole way


async def test_S30_a_turn_runs_git_unasked_without_the_programs_of_the_repository(
    repository: Repository, server_address: str, tmp_path: Path
) -> None:
    async with new_engine(server_address, tmp_path / "engine") as engine:
        engine.settings = replace(engine.settings, workspace=repository.workspace, policy=repository.settings.policy)
        hook = repository.workspace / ".git" / "hooks" / "pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(repository.program.read_text())
        hook.chmod(0o755)
        repository.configure("core.fsmonitor")
        commit = build_request("shell", command="git commit -q --allow-empty -m x")
        assert repository.runs_without_us("git status")
        async with engine.worker():
            turn = await engine.start(TurnInput(batches=((build_request("shell", command="git status"), commit),)))
            result = await turn.result()
            assert [response.status for response in result.responses] == ["success", "success"]
            assert not repository.mark.exists()
            repository.configure("diff.external")
            turn = await engine.start(TurnInput(batches=((commit,),)))
            [item] = (await wait_until(lambda: waiting(turn))).approvals
            assert not repository.mark.exists()
            await engine.holdfast.approve(item.approval_id, digest=item.digest)
            await turn.result()
            assert repository.mark.exists(), "somebody said yes to it"
