"""Conditions of rules: what each means, and that an allow rule covers all of a call where others need one thing."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.policy.subject import CallKind, Subject, build_call_subject
from holdfast.domain.calls.tool import Effect
from tests.support.policies import policy, rule, run, said


def call(**fields: Any) -> Subject:
    return Subject(**{"tool": "upload", "effect": Effect.ONCE, **fields})


def holds(keys: str, subject: Subject, decision: str = "allow") -> bool:
    """Does a policy of this one rule say so of the call?"""
    return said(policy(rule(keys, decision)), subject) == decision


# One condition at a time: the rule, a call it is about, a call it is not about

PLAIN: dict[str, tuple[str, Subject, Subject]] = {
    "tool": ('tool = "upload"', call(), call(tool="uploads")),
    "tools": ('tool = ["a", "upload"]', call(), call(tool="b")),
    "a glob": ('tool = "up*"', call(), call(tool="down")),
    "braces": ('tool = "{up,down}load"', call(tool="download"), call(tool="load")),
    "a set": ('tool = "upload_[0-9]"', call(tool="upload_1"), call(tool="upload_x")),
    "escaped": (r"server = 'up\*'", call(server="up*"), call(server="upload")),
    "a slash in a name": ('tool = "a*"', call(tool="a/b"), call(tool="b/a")),
    "server": ('server = "track*"', call(server="tracker"), call(server=None)),
    "a server's own name": (
        'server = "tracker"\ntool = "delete_*"',
        call(tool="tracker__delete_issue", server="tracker", own_name="delete_issue"),
        call(tool="tracker__list_issues", server="tracker", own_name="list_issues"),
    ),
    "our name of a server's tool": (
        'server = "tracker"\ntool = "tracker__delete_*"',
        call(tool="tracker__delete_issue", server="tracker", own_name="delete_issue"),
        call(tool="other__delete_issue", server="other", own_name="delete_issue"),
    ),
    "a server's own name, with no server in the rule": (
        'tool = "delete_issue"',
        call(tool="delete_issue"),
        call(tool="tracker__delete_issue", server="tracker", own_name="delete_issue"),
    ),
    "an own name that looks like ours of another tool": (
        'server = "tracker"\ntool = "tracker__look"',
        call(tool="tracker__look", server="tracker", own_name="look"),
        call(tool="tracker__tracker__look", server="tracker", own_name="tracker__look"),
    ),
    "of no server": ("server = false", call(server=None), call(server="s")),
    "of any server": ('server = "*"', call(server="s"), call(server=None)),
    "effect": ('effect = ["read", "once"]', call(), call(effect=Effect.IDEMPOTENT)),
    "kind": ('kind = "edit"', call(kind=CallKind.EDIT), call(kind=None)),
    "path": ('path = "docs/**"', call(paths=("docs/a/b",)), call(paths=("src/a",))),
    "a path that is not normal": ('path = "docs/*"', call(paths=("./src/../docs/a",)), call(paths=("docs/../a",))),
    "a star within a name": ('path = "*.md"', call(paths=("a.md",)), call(paths=("docs/a.md",))),
    "an absolute path": ('path = "/etc/**"', call(paths=("/etc/x/y",)), call(paths=("etc/x",))),
    "host": ('host = "example.com"', call(urls=("https://EXAMPLE.com./x",)), call(urls=("https://a.example.com",))),
    "below a host": (
        'host = "*.example.com"',
        call(urls=("http://a.b.example.com:8",)),
        call(urls=("http://example.com",)),
    ),
    "not a suffix": (
        'host = "*.example.com"',
        call(urls=("http://a.example.com",)),
        call(urls=("http://bexample.com",)),
    ),
    "a user in a url": (
        'host = "good.example"',
        call(urls=("http://x@good.example",)),
        call(urls=("http://good.example@evil.example",)),
    ),
    "an address": ('host = "127.0.0.1"', call(urls=("http://2130706433/",)), call(urls=("http://127.0.0.2",))),
    "an address in another": (
        'host = "127.0.0.1"',
        call(urls=("http://[::ffff:7f00:1]/",)),
        call(urls=("http://[::1]",)),
    ),
    "a long address": ('host = "::1"', call(urls=("http://[0:0::1]:80/",)), call(urls=("http://[::2]",))),
    "other scripts": (
        'host = "bücher.example"',
        call(urls=("http://xn--bcher-kva.example",)),
        call(urls=("http://bucher.example",)),
    ),
    "argument": ("arguments = { n = 1 }", call(arguments={"n": 1.0, "x": 2}), call(arguments={"n": True})),
    "argument true": ("arguments = { n = true }", call(arguments={"n": True}), call(arguments={"n": 1})),
    "argument inside": (
        "arguments = { a.b = 'x' }",
        call(arguments={"a": {"b": "x", "c": 1}}),
        call(arguments={"a": "b"}),
    ),
    "argument list": ("arguments = { a = [1, 'x'] }", call(arguments={"a": [1, "x"]}), call(arguments={"a": [1]})),
    "argument is no JSON text": ("arguments = { a = '1' }", call(arguments={"a": "1"}), call(arguments={"a": 1})),
    "pattern": ("patterns = { a = 'x+' }", call(arguments={"a": "xx"}), call(arguments={"a": "xxy"})),
    "pattern over lines": ("patterns = { a = 'x' }", call(arguments={"a": "x"}), call(arguments={"a": "x\n"})),
    "pattern with choices": ("patterns = { a = 'x|y' }", call(arguments={"a": "y"}), call(arguments={"a": "xz"})),
    "pattern inside": (
        "patterns = { a.b = '[0-9]*' }",
        call(arguments={"a": {"b": "12"}}),
        call(arguments={"a": {"b": 12}}),
    ),
    "tainted": ("tainted = true", call(tainted=True), call()),
    "not tainted": ("tainted = false", call(), call(tainted=True)),
    "sends": ("sends = true", call(sends=True), call()),
    "in the workspace": ("in_workspace = true", call(), call(in_workspace=False)),
    "outside by a path": ("in_workspace = false", call(paths=("../x",)), call(paths=("x",))),
    "several": ('tool = "upload"\nsends = true', call(sends=True), call(tool="x", sends=True)),
    "anything": ("anything = true", call(), run("rm -rf /")),
}


@pytest.mark.parametrize("decision", ["allow", "ask", "deny"])
@pytest.mark.parametrize("name", PLAIN)
def test_a_condition_means_the_same_in_every_rule(name: str, decision: str) -> None:
    """S29: by tool, server, effect, structured arguments."""
    keys, about, other = PLAIN[name]
    assert holds(keys, about, decision)
    assert not holds(keys, other, decision) or name == "anything"


# Everything, or one thing

QUANTIFIED: dict[str, tuple[str, Subject, bool, bool]] = {
    "every path": ('path = "docs/**"', call(paths=("docs/a", "docs/b")), True, True),
    "one path": ('path = "docs/**"', call(paths=("docs/a", "src/b")), False, True),
    "no path": ('path = "docs/**"', call(), False, False),
    "a folder": ('path = "docs/**"', call(paths=("docs",)), False, True),
    "the workspace": ('path = "**"', call(paths=(".",)), True, True),
    "outside": ('path = "**"', call(paths=("../x",)), False, True),
    "elsewhere": ('path = "**"', call(paths=("/etc/x",)), False, True),
    "every url": ('host = "a.example"', call(urls=("http://a.example/1", "http://a.example/2")), True, True),
    "one url": ('host = "a.example"', call(urls=("http://a.example", "http://b.example")), False, True),
    "no url": ('host = "*"', call(), False, False),
    "a path beside urls": ('host = "a.example"', call(urls=("http://a.example",), paths=("x",)), False, True),
    "a url beside paths": ('path = "x"', call(urls=("http://a.example",), paths=("x",)), False, True),
    "both": ('path = "x"\nhost = "*"', call(urls=("http://a.example",), paths=("x",)), True, True),
    "a command beside paths": ('path = "x"', call(paths=("x",), command="ls"), False, True),
    "every program": ('command = ["ls", "cat"]', run("ls | cat; ls"), True, True),
    "one program": ('command = ["ls", "cat"]', run("ls && wget x"), False, True),
    "no command": ('command = "ls"', call(), False, False),
    "an empty command": ('command = "ls"', run(""), False, False),
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTIFIED)
def test_an_allow_rule_covers_all_of_a_call_and_others_need_one_thing(name: str) -> None:
    keys, subject, covered, touched = QUANTIFIED[name]
    assert holds(keys, subject) is covered
    assert holds(keys, subject, "deny") is touched
    assert holds(keys, subject, "ask") is touched


# Commands: what allow covers, what deny says ("deny", or "ask" where nobody can know)

COMMANDS: dict[tuple[str, str], tuple[bool, str | None]] = {
    ("git status", "git status"): (True, "deny"),
    ("git status", "git status -s --long"): (True, "deny"),
    ("git status", "git push"): (False, None),
    ("git status", "git"): (False, None),
    ("git status", "git statusx"): (False, None),
    ("git status $", "git status"): (True, "deny"),
    ("git status $", "git status -s"): (False, None),
    ("git *", "git push x"): (True, "deny"),
    ("git {status,diff}", "git diff x"): (True, "deny"),
    ("git push ** --force*", "git push origin main --force-with-lease"): (True, "deny"),
    ("git push ** --force*", "git push origin main"): (False, None),
    ("git status", "git status && git push"): (False, "deny"),
    ("git status", "git status > file"): (False, "deny"),
    ("git status", "git status > /dev/null 2>&1"): (True, "deny"),
    ("git status", "GIT_DIR=x git status"): (False, "deny"),
    ("git status", "env A=1 git status"): (False, "deny"),
    ("git status", "/tmp/git status"): (False, "deny"),
    ("git status", "./git status"): (False, "deny"),
    ("git status", "git -C /elsewhere status"): (False, "deny"),
    ("git status", "git status $X"): (False, "deny"),
    ("git status **", "git status $X"): (True, "deny"),
    ("git status **", "git $X"): (False, "ask"),
    ("git status", "git $X"): (False, "ask"),
    ("git *", "git $X"): (False, "deny"),
    ("git status", "$X status"): (False, "ask"),
    ("git status", "hg $X"): (False, None),
    ("git status", "git status $(git push)"): (False, "deny"),
    ("git push", "echo $(git push)"): (False, "deny"),
    ("git push", "echo hi | xargs git push"): (False, "deny"),
    ("git push", "sudo git push"): (False, "deny"),
    ("sudo", "sudo ls"): (False, "deny"),
    ("rm", "bash -c 'rm x'"): (True, "deny"),
    ("rm", "find . -exec rm {} +"): (False, "deny"),
    ("rm", "timeout 5 rm x"): (True, "deny"),
    ("timeout", "timeout 5 rm x"): (False, "deny"),
    ("rm", "f() { rm x; }; f"): (False, "deny"),
    ("rm", "cat <<E\n$(rm x)\nE"): (False, "deny"),
    ("rm", "eval \"$X\""): (False, "ask"),
    ("rm", "ls; if"): (False, "ask"),
    ("rm", "echo rm"): (False, None),
    ("rm", "echo 'a; rm x'"): (False, None),
    ("grep '*.c'", "grep '*.c'"): (True, "deny"),
    ("grep '*.c'", "grep a.c"): (False, None),
    ("grep 'a b'", "grep 'a b' x"): (True, "deny"),
    ("echo \\$", "echo '$'"): (True, "deny"),
    ("cat tests/*", "cat tests/a/b"): (True, "deny"),
    ("cat tests/*", "cat tests/../../etc"): (False, "deny"),
    ("** --force", "rm --force"): (True, "deny"),
}  # fmt: skip


@pytest.mark.parametrize(("phrase", "command"), COMMANDS)
def test_S30_commands_are_judged_by_the_words_of_every_program(phrase: str, command: str) -> None:
    covered, denied = COMMANDS[phrase, command]
    keys = f"command = '''{phrase}'''"
    assert holds(keys, run(command)) is covered
    assert said(policy(rule(keys, "deny")), run(command)) == denied
    assert (said(policy(rule(keys, "ask")), run(command)) == "ask") is (denied is not None)


@pytest.mark.parametrize("command", ["ls > x", "A=1 ls", "ls; if", "source x; ls", 'eval "$X"; ls'])
def test_what_an_allow_rule_on_commands_never_covers_it_covers_with_anything(command: str) -> None:
    keys = 'command = ["ls", "source", "eval **"]'
    assert not holds(keys, run(command))
    assert holds(f"{keys}\nanything = true", run(command))


def test_variables_that_a_call_sets_are_not_covered() -> None:
    subject = build_call_subject("shell", {"command": "ls", "environment": {"LD_PRELOAD": "x"}})
    assert not holds('command = "ls"', subject)
    assert holds('command = "ls"\nanything = true', subject)
    assert not holds("arguments = { command = 'ls' }", subject)


def test_a_rule_may_be_about_commands_in_the_background_and_sees_nothing_of_what_a_model_says_of_one() -> None:
    said_of: dict[str, Any] = {"command": "ls", "background": True, "description": "harmless"}
    subject = build_call_subject("shell", said_of)
    assert holds('tool = "shell"\narguments = { background = true }', subject, "ask")
    assert not holds('tool = "shell"\narguments = { background = true }', run("ls"), "ask")
    assert "description" not in subject.arguments
    assert "description" in build_call_subject("upload", said_of).arguments


HARMLESS = {
    "ls": True, "ls -la src | head -5": True, "ls && rm x": False, "ls > x": False, "ls $X": False, "nothing": False,
    "cat /etc/passwd": False, "cat ../x": False, "cat ~/x": False, "cat < /etc/passwd": False, "cat < x": True,
    "grep --file=/etc/passwd x": False, "cd .. && ls": False,
    "grep -f/etc/passwd x": False, "cd && cat .ssh/id": False, "cd - && ls": False, "cd src && ls": True,
    "cat < /dev/null": True, "ls main..dev": True,
}  # fmt: skip


@pytest.mark.parametrize("command", HARMLESS)
def test_harmless_commands_that_stay_in_the_workspace(command: str) -> None:
    assert holds("harmless = true\nin_workspace = true", run(command)) is HARMLESS[command]


def test_a_harmless_command_of_which_a_word_is_not_known_is_not_covered() -> None:
    assert holds("harmless = true", run("cat /etc/hosts"))
    assert not holds("harmless = true", run("cat $X"))


def test_a_command_that_starts_elsewhere_is_not_in_the_workspace() -> None:
    assert not holds(
        "harmless = true\nin_workspace = true", build_call_subject("shell", {"command": "ls", "directory": "/"})
    )
    assert holds("harmless = true", build_call_subject("shell", {"command": "ls", "directory": "/"}))


def test_a_broad_allow_rule_does_not_cover_what_destroys() -> None:
    for broad in ('tool = "shell"', "anything = true", 'kind = "exec"'):
        assert holds(broad, run("ls -la"))
        assert not holds(broad, run("ls; rm -rf /"))
    for narrow in ('command = "rm"', "destructive = true", "arguments = { command = 'rm -rf x' }"):
        assert holds(narrow, run("rm -rf x"))


def test_what_may_be_destructive_is_asked_about() -> None:
    for command, expected in (("rm -rf /", "deny"), ("$X -rf /", "ask"), ("if", "ask"), ("ls $X", None)):
        assert said(policy(rule("destructive = true", "deny")), run(command)) == expected


def test_a_url_that_cannot_be_read_is_covered_by_nothing_and_asked_about() -> None:
    for url in ("http://[", "", "no url", "http://a b/", "\ud800", "http://" + "a" * 70_000):
        assert said(policy(rule('host = "*"')), call(urls=(url,))) is None
        assert said(policy(rule('host = "a.example"', "deny")), call(urls=(url,))) == "ask"


def test_half_a_character_matches_no_pattern_for_certain() -> None:
    subject = call(arguments={"a": "\ud800"})
    assert said(policy(rule("patterns = { a = '.*' }")), subject) is None
    assert said(policy(rule("patterns = { a = 'x' }", "deny")), subject) == "ask"


def test_a_pattern_takes_no_time_however_it_is_written() -> None:
    rules = policy(rule("patterns = { a = '(x+x+)+y' }", "deny"))
    assert said(rules, call(arguments={"a": "x" * 200_000})) is None


def test_subjects_of_the_built_in_tools() -> None:
    assert build_call_subject("grep", {"pattern": "x"}).paths == (".",)
    assert build_call_subject("fetch", {"url": "http://a"}).urls == ("http://a",)
    assert build_call_subject("edit", {"path": "a/../b"}).kind is CallKind.EDIT
    assert build_call_subject("read_file", {"path": 5}).paths == (".",)
    assert build_call_subject("shell", {"command": 5}).command is None
    assert not build_call_subject("read_file", {"path": "../x"}).in_workspace
    assert build_call_subject("x", {}, server="s").kind is CallKind.MCP


@pytest.mark.parametrize("name", ["look", "s__look"])
def test_a_servers_tool_is_described_by_either_name(name: str) -> None:
    subject = build_call_subject(name, {}, server="s")
    assert (subject.tool, subject.own_name, subject.tool_names) == ("s__look", "look", ("s__look", "look"))
