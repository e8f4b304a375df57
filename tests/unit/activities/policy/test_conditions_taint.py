"""What a call takes in from outside, and whether it may send something out."""

from __future__ import annotations

import pytest

from holdfast.activities.policy.conditions import may_send, may_take_in
from holdfast.activities.policy.subject import Subject, build_call_subject
from holdfast.domain.calls.tool import Effect
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
    assert (may_take_in(subject), may_send(subject)) == COMMANDS[command]


def test_a_harmless_command_with_variables_may_be_another() -> None:
    assert may_send(build_call_subject("shell", {"command": "ls", "environment": {"LD_PRELOAD": "x"}}))


def test_tools_with_urls_do_both_and_others_as_they_say() -> None:
    fetch = build_call_subject("fetch", {"url": "https://a.example"})
    assert (may_take_in(fetch), may_send(fetch)) == (True, True)
    for tool in ("read_file", "edit", "ask_user"):
        assert (may_take_in(build_call_subject(tool, {})), may_send(build_call_subject(tool, {}))) == (False, False)
    theirs = Subject(tool="x", server="s", effect=Effect.READ)
    assert (may_take_in(theirs), may_send(theirs)) == (False, False)
    assert (may_take_in(theirs, open_world=True), may_send(theirs, open_world=True)) == (True, True)


def test_a_rule_asks_before_something_is_sent_after_something_was_read() -> None:
    rules = policy(rule("tainted = true\nsends = true\npriority = 500", "ask") + rule("tool = 'shell'"))
    for command, tainted, expected in (
        ("npm test", True, "ask"), ("npm test", False, "allow"), ("ls", True, "allow"), ("curl x", True, "ask"),
    ):  # fmt: skip
        subject = run(command, tainted=tainted)
        assert said(rules, subject.model_copy(update={"sends": may_send(subject)})) == expected
