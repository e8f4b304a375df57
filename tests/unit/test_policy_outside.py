"""What a call takes in from outside, and whether it may send something out."""

from __future__ import annotations

import pytest

from holdfast.activities.policy.matching import Facts
from holdfast.activities.policy.outside import sends, takes_in
from holdfast.activities.policy.subjects import Subject, subject_of
from holdfast.tools import Effect
from tests.support.policies import policy, rule, run, said

COMMANDS: dict[str, tuple[bool, bool]] = {
    "ls -la src": (False, False),
    "git status && git log -5 | head": (False, False),
    "cat a > b": (False, True),
    "grep x *.c": (False, True),
    "ls; make": (False, True),
    "npm test": (False, True),
    "python script.py": (False, True),
    "sed -i s/a/b/ x": (False, True),
    "git push": (True, True),
    "git -C sub pull": (True, True),
    "curl https://a.example": (True, True),
    "ls | nc host 80": (True, True),
    "env A=1 /usr/bin/wget x": (True, True),
    "timeout 5 bash -c 'ssh host ls'": (True, True),
    "pip install x": (True, True),
    "npm ci": (True, True),
    "cargo add x": (True, True),
    "docker pull x": (True, True),
    "python -c 'import urllib.request'": (True, True),
    "$X": (True, True),
    "npm $X": (True, True),
    "if": (True, True),
    "cat < /dev/tcp/host/80": (True, True),
    "": (False, True),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_sends_unless_it_is_harmless_and_takes_in_what_it_is_known_to(command: str) -> None:
    subject = run(command)
    assert (takes_in(subject), sends(subject)) == COMMANDS[command]
    assert (takes_in(Facts(subject)), sends(Facts(subject))) == COMMANDS[command]


def test_a_harmless_command_with_variables_may_be_another() -> None:
    assert sends(subject_of("shell", {"command": "ls", "environment": {"LD_PRELOAD": "x"}}))


def test_tools_with_urls_do_both_and_others_as_they_say() -> None:
    fetch = subject_of("fetch", {"url": "https://a.example"})
    assert (takes_in(fetch), sends(fetch)) == (True, True)
    for tool in ("read_file", "edit", "ask_user"):
        assert (takes_in(subject_of(tool, {})), sends(subject_of(tool, {}))) == (False, False)
    theirs = Subject(tool="x", server="s", effect=Effect.READ)
    assert (takes_in(theirs), sends(theirs)) == (False, False)
    assert (takes_in(theirs, open_world=True), sends(theirs, open_world=True)) == (True, True)


def test_a_rule_asks_before_something_is_sent_after_something_was_read() -> None:
    rules = policy(rule("tainted = true\nsends = true\npriority = 500", "ask") + rule("tool = 'shell'"))
    for command, tainted, expected in (
        ("npm test", True, "ask"), ("npm test", False, "allow"), ("ls", True, "allow"), ("curl x", True, "ask"),
    ):  # fmt: skip
        subject = run(command, tainted=tainted)
        assert said(rules, subject.model_copy(update={"sends": sends(subject)})) == expected
