"""Where hooks come from: the settings and packages; what stops a worker before it starts; and what the docs say."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.activities.hooks import AfterTool, BeforeTool, after_tool, before_tool
from holdfast.activities.hooks.decorators import find_mark
from holdfast.activities.hooks.hook_chain import Hooks
from holdfast.activities.hooks.hook_io import AfterAnswer, BeforeAnswer
from holdfast.activities.hooks.load_hooks import check_hooks, load_hooks
from holdfast.config.provider_keys import OUR_PREFIXES
from holdfast.config.schema import HookSettings, OnFailure, When, parse_configuration
from holdfast.config.settings import Settings, load_settings
from holdfast.config.toml_document import FileContent
from holdfast.errors import BadInput
from tests.support.hooks import after, before
from tests.support.pages import read_blocks, read_page
from tests.support.programs import require_program

FILE = Path("/project/holdfast.toml")
HOOK = '[[hooks]]\nname = "a"\nwhen = "before"\n'
CODE = """
import functools, sys
from holdfast.activities.hooks import after_tool, before_tool

def asks(call):
    return {"decision": "ask", "reason": "settings"}

async def later(call, *, more=1):
    return {"decision": "ask", "reason": "later"}

@before_tool(tools=["shell"], timeout_seconds=3, on_failure="ignore")
def marked(call):
    return {"decision": "ask", "reason": "marked"}

@after_tool
async def redact(call):
    return {"result": "redacted"}

class Holder:
    @staticmethod
    def inner(call):
        return {"decision": "ask", "reason": "inner"}

class Callable:
    def __call__(self, call):
        return {"decision": "ask", "reason": "called"}

def none():
    pass

def two(call, other):
    pass

partial = functools.partial(two, other=1)
called = Callable()
number = 7
"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python imports from."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    before = set(sys.modules)
    (folder / "hf_hooks.py").write_text(CODE)
    importlib.invalidate_caches()
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith(("hf_", "team_")):
            del sys.modules[name]


def install(site: Path, name: str, *points: str, code: str = "") -> None:
    """A package as pip leaves it, with these entry points."""
    module = name.replace("-", "_")
    (site / f"{module}.py").write_text(textwrap.dedent(code))
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[holdfast.hooks]", *points]))


def hook(name: str = "a", **more: Any) -> HookSettings:
    return HookSettings.model_validate({"name": name, "when": "before", **more})


def loaded(*hooks: HookSettings, **more: Any) -> Hooks:
    return load_hooks(Settings(hooks=hooks, **more))


def refusal(*hooks: HookSettings, **more: Any) -> str:
    with pytest.raises(BadInput) as error:
        loaded(*hooks, **more)
    return str(error.value)


# The settings file

WRONG: dict[str, tuple[str, int, str]] = {
    "nothing to ask": (HOOK, 1, "`hooks.1` needs `command` or `python`, and not both"),
    "two to ask": (HOOK + "command = 'x'\npython = 'a:b'", 1, "needs `command` or `python`, and not both"),
    "variables for a function": (
        HOOK + "python = 'a:b'\nenvironment = { A = '1' }",
        1,
        "has `python`: `environment` is for a `command`",
    ),
    "no name": ("[[hooks]]\nwhen = 'after'\ncommand = 'x'", 1, "`name` is missing in `hooks.1`"),
    "a bad name": (HOOK.replace('"a"', '"a b"') + "command = 'x'", 2, "`hooks.1.name` must be 1 to 40 letters"),
    "a name taken": ((HOOK + "command = 'x'\n") * 2, 6, "`hooks.2.name` is taken: another [[hooks]] is called 'a'"),
    "no moment": ("[[hooks]]\nname = 'a'\ncommand = 'x'", 1, "`when` is missing in `hooks.1`"),
    "another moment": (
        HOOK.replace("before", "while") + "command = 'x'", 3, "`hooks.1.when` must be 'before' or 'after', not 'while'",
    ),
    "another meaning": (
        HOOK + "command = 'x'\non_failure = 'allow'", 5, "`hooks.1.on_failure` must be 'deny' or 'ignore', not 'allow'",
    ),
    "no command": (HOOK + "command = ''", 4, "`hooks.1.command` is empty"),
    "no reference": (HOOK + "python = 'a.b'", 4, "`hooks.1.python` must be `module:name`"),
    "no time": (HOOK + "command = 'x'\ntimeout_seconds = 0", 5, "must be at least 1, not 0"),
    "all the time": (HOOK + "command = 'x'\ntimeout_seconds = 301", 5, "must be at most 300, not 301"),
    "no tools": (HOOK + "command = 'x'\ntools = []", 5, "`hooks.1.tools` is empty"),
    "an empty tool": (HOOK + "command = 'x'\ntools = ['']", 5, "`hooks.1.tools.1` is empty"),
    "half a pattern": (HOOK + "command = 'x'\ntools = ['a', '[a']", 5, "`hooks.1.tools.2`"),
    "a command in place of a tool": (
        HOOK + "command = 'x'\ntools = ['shell', 'shell(rm)']", 5,
        "`hooks.1.tools.2` can never match: no tool can be called 'shell(rm)'",
    ),
    "a command beside a star": (
        HOOK + "command = 'x'\ntools = ['Bash(rm:*)']", 5, "can never match: no tool can be called 'Bash(rm:)'",
    ),
    "a tool in words": (HOOK + "command = 'x'\ntools = ['shell rm']", 5, "no tool can be called 'shell rm'"),
    "one text for tools": (HOOK + "command = 'x'\ntools = 'shell'", 5, "`hooks.1.tools` must be an array, not text"),
    **{
        f"our variable {ours}": (HOOK + f"command = 'x'\nenvironment.{ours}X = ''", 5, "are never inherited")
        for ours in OUR_PREFIXES
    },
    "folder": (HOOK + "command = 'x'\nfolder = '.'", 5, "`hooks.1.folder` is not a setting"),
    "unknown": (HOOK + "command = 'x'\nwen = 'x'", 5, "`hooks.1.wen` is not a setting; did you mean `when`?"),
    "a table": ("[hooks]\nentry_points = false", 1, "`hooks` must be an array, not a table"),
    "a flag": ("hook_entry_points = 'no'", 1, "`hook_entry_points` must be true or false, not text"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_told_with_its_line(name: str) -> None:
    text, line, words = WRONG[name]
    problems = parse_configuration(FileContent(FILE, text.encode())).problems
    assert [problem.line for problem in problems] == [line]
    assert words in problems[0].message


def test_S35_hooks_are_part_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(
        f"hook_entry_points = false\n{HOOK}command = './x y'\n[[hooks]]\nname='b'\nwhen='after'\npython='m:n'"
    )
    settings = load_settings(file)
    first, second = settings.hooks
    assert (first.command, first.folder, first.tools) == (("./x", "y"), tmp_path, ("*",))
    assert (first.timeout_seconds, first.on_failure) == (10, OnFailure.DENY)
    assert (second.name, second.when, second.python) == ("b", When.AFTER, "m:n")
    assert settings.hook_entry_points is False
    assert settings.file_lines == {"hooks.1": 2, "hooks.2": 6}
    assert (Settings().hooks, Settings().hook_entry_points) == ((), True)
    with pytest.raises(ValidationError):
        first.name = "other"


# Loading


async def test_S35_hooks_of_the_settings_are_loaded_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "asks.sh").write_text("""echo '{"decision": "ask", "reason": "command"}'""")
    hooks = loaded(
        hook("z", python="hf_hooks:later"),
        hook("m", command=("sh", "asks.sh"), folder=tmp_path),
        hook("a", python="hf_hooks:asks"),
        hook("i", python="hf_hooks:Holder.inner"),
        hook("c", python="hf_hooks:called"),
        hook("p", python="hf_hooks:partial"),
        hook("other", python="hf_hooks:asks", tools=("edit",)),
    )
    found = await hooks.ask_before(before())
    assert found.deny is None
    assert [reason.split("'")[1] for reason in found.ask] == ["z", "m", "a", "i", "c"]


async def test_S35_a_module_beside_the_settings_file_is_found(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(f"{HOOK}python = 'hf_beside:asks'\n")
    (tmp_path / "hf_beside.py").write_text("def asks(call):\n    return {'decision': 'ask'}\n")
    assert (await load_hooks(load_settings(file)).ask_before(before())).ask == ("The hook 'a' asks.",)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no module": ({"python": "hf_missing:x"}, "cannot be loaded: ModuleNotFoundError: No module named 'hf_missing'"),
    "no such name": ({"python": "hf_hooks:missing"}, "cannot be loaded: AttributeError: "),
    "no function": ({"python": "hf_hooks:number"}, "cannot be used: hf_hooks:number is no function"),
    "a class": ({"python": "hf_hooks:Callable"}, "cannot be used: hf_hooks:Callable is no function"),
    "takes nothing": ({"python": "hf_hooks:none"}, "must take one argument, the call"),
    "takes two": ({"python": "hf_hooks:two"}, "must take one argument, the call"),
    "made for after": ({"python": "hf_hooks:redact"}, "hf_hooks:redact is made for 'after', not 'before'"),
    "leaves": ({"python": "hf_leaves:x"}, "cannot be loaded: SystemExit: gone away"),
    "breaks": ({"python": "hf_breaks:x"}, "cannot be loaded: RuntimeError: moon and stars"),
    "no program": ({"command": "no-such-program-at-all x"}, "there is no program 'no-such-program-at-all'"),
    "no such file": ({"command": "./missing"}, "there is no program './missing'"),
    "a folder": ({"command": "./site"}, "there is no program './site'"),
    "not executable": ({"command": "./plain"}, "'./plain' is not executable (chmod +x)"),
    "not on its own path": ({"command": "sh", "environment": {"PATH": "/nowhere"}}, "there is no program 'sh'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_S35_a_hook_that_cannot_work_stops_the_worker(site: Path, tmp_path: Path, name: str) -> None:
    (site / "hf_leaves.py").write_text("import sys; sys.exit('gone\\naway')")
    (site / "hf_breaks.py").write_text("raise RuntimeError('\\x1b[31mmoon\\nand stars')")
    (tmp_path / "plain").write_text("")
    more, words = BROKEN[name]
    told = refusal(hook(folder=tmp_path, **more))
    assert told.startswith("the hook 'a' cannot be ")
    assert words in told
    assert "\n" not in told
    assert "\x1b" not in told


def test_S35_everything_that_is_wrong_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    text = "\n".join(
        f"[[hooks]]\nname = 'h{number}'\nwhen = 'before'\n{how}\n"
        for number, how in enumerate(["command = './missing'", "command = 'true'", "python = 'hf_missing:x'"])
    )
    file.write_text(text)
    with pytest.raises(BadInput) as error:
        load_hooks(load_settings(file))
    assert str(error.value).splitlines() == [
        f"{file}, line 1: the hook 'h0' cannot be run: there is no program './missing'",
        f"{file}, line 11: the hook 'h2' cannot be loaded: ModuleNotFoundError: No module named 'hf_missing'",
    ]


# Packages


async def test_S35_hooks_of_packages_come_after_those_of_the_settings_by_name(site: Path) -> None:
    install(site, "hf-zebra", "b = hf_hooks:marked")
    install(site, "hf-ant", "c = hf_hooks:redact", "a = hf_ant:first", code="""
        from holdfast.activities.hooks import before_tool

        @before_tool
        def first(call):
            return {"decision": "ask", "reason": "first"}
    """)  # fmt: skip
    hooks = loaded(hook("z", python="hf_hooks:asks"))
    found = await hooks.ask_before(before("shell"))
    assert [reason.split("'")[1] for reason in found.ask] == ["z", "a", "b"]
    assert len((await hooks.ask_before(before("edit"))).ask) == 2
    assert (await hooks.ask_after(after())).replaced_by == ("c",)
    without = loaded(hook("z", python="hf_hooks:asks"), hook_entry_points=False)
    assert len((await without.ask_before(before("shell"))).ask) == 1
    assert loaded(hook_entry_points=False).is_empty


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ("a = hf_hooks:asks", "hf_hooks:asks is not marked with @before_tool or @after_tool"),
        ("a = hf_hooks:number", "hf_hooks:number is no function"),
        ("a = hf_hooks:missing", "cannot be loaded: AttributeError"),
        ("a = hf_missing:x", "cannot be loaded: ModuleNotFoundError"),
        ("a = not a reference", "cannot be loaded: "),
        ("two words = hf_hooks:marked", "cannot be called so"),
    ],
)
def test_S35_a_package_whose_hook_cannot_work_stops_the_worker(site: Path, point: str, words: str) -> None:
    install(site, "hf-offers", point)
    told = refusal()
    assert "of the package hf-offers " in told
    assert words in told
    assert told.endswith("remove the package, or set hook_entry_points = false")
    assert loaded(hook_entry_points=False).is_empty


def test_S35_two_hooks_of_a_name_stop_the_worker(site: Path) -> None:
    install(site, "hf-offers", "a = hf_hooks:marked")
    assert "two hooks are called 'a'" in refusal(hook("a", python="hf_hooks:asks"))


def test_a_mark_says_what_the_settings_would() -> None:
    @before_tool(tools=["sh*"], timeout_seconds=2, on_failure="ignore")
    def one(call: BeforeTool) -> None: ...

    @after_tool
    def two(call: AfterTool) -> None: ...

    first, second = find_mark(one), find_mark(two)
    assert first is not None
    assert second is not None
    assert (first.when, first.tools, first.timeout_seconds) == (When.BEFORE, ("sh*",), 2)
    assert (first.on_failure, second.when, second.tools) == (OnFailure.IGNORE, When.AFTER, ("*",))
    assert find_mark(len) is None


@pytest.mark.parametrize(
    "traits", [{"tools": []}, {"tools": ["shell(rm)"]}, {"timeout_seconds": 0}, {"on_failure": "allow"}]
)
def test_a_mark_that_makes_no_sense_is_refused(traits: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="a hook cannot be marked like this"):
        before_tool(**traits)


# Names of tools that there may not be


def test_S29_a_hook_for_a_name_close_to_that_of_a_built_in_tool_is_warned_of(site: Path) -> None:
    install(site, "hf-offers", "offered = hf_offers:one", code="""
        from holdfast.activities.hooks import before_tool

        @before_tool(tools=["readfile"])
        def one(call): ...
    """)  # fmt: skip
    mistaken = hook("mine", python="hf_hooks:asks", tools=("shell", "sh*", "{Bash,edit}", "deploy"))
    found = [(one.level, one.says) for one in check_hooks(Settings(hooks=(mistaken,)))][1:]
    own = "It is right for a tool of your own"
    assert found == [
        ("warning", f"the hook 'mine': no built-in tool is called 'Bash': do you mean 'shell'? {own}"),
        ("warning", f"the hook 'offered': no built-in tool is called 'readfile': do you mean 'read_file'? {own}"),
    ]


# The digest


def test_S35_the_digest_changes_with_the_configuration(site: Path) -> None:
    kinds = [
        [],
        [hook("a", python="hf_hooks:asks")],
        [hook("b", python="hf_hooks:asks")],
        [hook("a", python="hf_hooks:later")],
        [hook("a", python="hf_hooks:asks", tools=("shell",))],
        [hook("a", python="hf_hooks:asks", timeout_seconds=9)],
        [hook("a", python="hf_hooks:asks", on_failure="ignore")],
        [hook("a", when="after", python="hf_hooks:asks")],
        [hook("a", command="true")],
        [hook("a", command="true x")],
        [hook("a", command="true", environment={"A": "1"})],
        [hook("a", command="true"), hook("b", command="true")],
        [hook("b", command="true"), hook("a", command="true")],
    ]
    digests = [loaded(*hooks).digest for hooks in kinds]
    assert len(set(digests)) == len(kinds)
    assert digests == [loaded(*hooks).digest for hooks in kinds]
    install(site, "hf-offers", "a = hf_hooks:marked")
    assert loaded().digest not in digests


def test_the_digest_tells_nothing_of_the_values_of_variables() -> None:
    one, other = ({"TOKEN": value} for value in ("s3cret", "other"))
    assert (
        loaded(hook(command="true", environment=one)).digest == loaded(hook(command="true", environment=other)).digest
    )


# The docs


def blocks() -> dict[str, str]:
    return read_blocks("hooks")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What the docs say, written down, and a repository to work in."""
    found, folder = blocks(), tmp_path / "project"
    (folder / "hooks").mkdir(parents=True)
    (folder / "holdfast.toml").write_text(found["settings"])
    (folder / "team_hooks.py").write_text(found["team_hooks"])
    (folder / "hooks" / "freeze.sh").write_text(found["freeze"])
    program = folder / "hooks" / "no_push_to_main.py"
    program.write_text(found["no_push_to_main"])
    program.chmod(0o755)
    git(folder, "init", "-q", "-b", "main")
    return folder


def git(folder: Path, *words: str) -> None:
    subprocess.run([require_program("git"), "-C", str(folder), *words], check=True, timeout=20)


def running(folder: Path, command: str, phase: Any = "validate") -> BeforeTool:
    return before("shell", phase, command=command).model_copy(update={"workspace": folder})


async def test_S35_the_hooks_of_the_docs_deny_ask_and_rewrite(project: Path) -> None:
    hooks = load_hooks(load_settings(project / "holdfast.toml"))
    pushed = await hooks.ask_before(running(project, "git push"))
    assert pushed.deny == ("no-push-to-main", "Nobody pushes to main: push a branch and say which.")
    git(project, "checkout", "-q", "-b", "work")
    assert (await hooks.ask_before(running(project, "git push"))).deny is None
    assert (await hooks.ask_before(running(project, "git push origin main"))).deny is not None
    elsewhere = await hooks.ask_before(running(project.parent, "git push"))
    assert "not a git repository" in str(elsewhere.deny) or "CalledProcessError" in str(elsewhere.deny)

    (project / "hooks" / "freeze").touch()
    frozen = await hooks.ask_before(running(project, "ls"))
    assert frozen.ask == ("The hook 'freeze' asks: There is a freeze. Is this needed today?",)
    (project / "hooks" / "freeze").unlink()

    paged = await hooks.ask_before(running(project, "git log -3"))
    assert (paged.arguments, paged.rewritten_by) == ({"command": "git --no-pager log -3"}, ("no-pager",))
    again = await hooks.ask_before(running(project, "git --no-pager log -3", "execute"))
    assert (again.deny, again.rewritten_by) == (None, ())


async def test_S35_the_hook_of_the_docs_redacts_tokens(project: Path) -> None:
    hooks = load_hooks(load_settings(project / "holdfast.toml"))
    found = await hooks.ask_after(after(f"key ghp_{'a1' * 18}, id AKIA{'A1' * 8}."))
    assert (found.result, found.replaced_by) == ("key [redacted], id [redacted].", ("redact",))
    assert (await hooks.ask_after(after("nothing here"))).replaced_by == ()


async def test_S35_the_package_of_the_docs_brings_its_hook(site: Path) -> None:
    found = blocks()
    points = tomllib.loads(found["entry_point"])["project"]["entry-points"]["holdfast.hooks"]
    install(site, "team-package", *(f"{name} = {value}" for name, value in points.items()), code=found["team_package"])
    asked = await loaded().ask_before(before("fetch", url="http://internal/"))
    assert asked.ask == ("The hook 'audit-fetches' asks: This looks internal.",)


def test_the_docs_tell_what_a_hook_is_told_and_may_answer() -> None:
    told = json.loads(blocks()["told_before"])
    assert json.loads(BeforeTool.model_validate(told).encode()) == told
    assert list(told) == ["when", "phase", *(name for name in BeforeTool.model_fields if name not in ("when", "phase"))]
    tables = read_page("hooks").split("## Answers")[1]
    for title, kind in (("before", BeforeAnswer), ("after", AfterAnswer)):
        table = tables.split(f"| {title} a call |")[1].split("\n\n")[0]
        assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == set(kind.model_fields)
    assert {name for name in AfterTool.model_fields if f'"{name}"' not in read_page("hooks")} == set()
