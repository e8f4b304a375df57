"""How rules ask: whose word, how many, until when; and durations as people write them."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.policy.load_policy import build_policy, load_shipped
from holdfast.activities.policy.policy import Ruling
from holdfast.activities.policy.protected_files import complete_subject
from holdfast.activities.policy.rules import RuleEffect, Tier
from holdfast.activities.policy.subject import Subject, build_call_subject
from holdfast.domain.approvals.approval import Deadline, Needs
from holdfast.domain.modes import Mode
from holdfast.util.durations import LONGEST, format_duration, parse_duration
from tests.support.policies import found, load, policy, rule, run

ASK = '[[rule]]\ndecision = "ask"\ntool = "x"\n'
WRONG: dict[str, tuple[str, str]] = {
    "allow": ('[[rule]]\ndecision = "allow"\ntool = "x"\nalways_ask = true', "`always_ask` says how a person is asked"),
    "deny": ('[[rule]]\ndecision = "deny"\ntool = "x"\ndeadline = "1h"', "it goes with `ask` only"),
    "never": (ASK + "always_ask = false", "can only be true"),
    "anybody": (ASK + "not_requester = false", "can only be true"),
    "nobody": (ASK + "approvals = 0", "must be at least 1, not 0"),
    "everybody": (ASK + "approvals = 11", "must be at most 10, not 11"),
    "half": (ASK + "approvals = 1.5", "must be a whole number"),
    "a role": (ASK + 'role = ""', "must be one line of 1 to 100 characters"),
    "a role that hides": (ASK + 'role = "a\\u202e"', "all of them visible"),
    "a duration": (ASK + 'deadline = "soon"', "must be a duration such as 90s, 15m, 1h30m, 7d or 2w"),
    "a number": (ASK + "deadline = 60", "must be text"),
    "too long": (ASK + 'deadline = "53w"', "at most a year"),
    "too short": (ASK + 'deadline = "0s"', "at least a second"),
    "a warning of nothing": (ASK + 'warning = "1h"', "`warning` is about a deadline: say `deadline` as well"),
    "a default of nothing": (ASK + 'on_deadline = "deny"', "`on_deadline` is about a deadline"),
    "a late warning": (ASK + 'warning = "1h"\ndeadline = "60m"', "`warning` must be shorter than the deadline"),
    "another default": (ASK + 'on_deadline = "ask"\ndeadline = "1h"', "'deny' or 'allow'"),
    "nobody approved": (ASK + 'on_deadline = "allow"\napprovals = 2\ndeadline = "1h"', "that nobody approved"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_asking_is_told_with_its_line(name: str) -> None:
    text, words = WRONG[name]
    problems = found(text)
    assert words in " / ".join(problem.message for problem in problems)
    assert [problem.line for problem in problems] == [4]


def test_a_workspace_may_not_let_what_nobody_answers_run() -> None:
    text = ASK + 'deadline = "1s"\non_deadline = "allow"'
    assert found(text) == ()
    [problem] = found(text, Tier.WORKSPACE)
    assert (problem.line, "may only tighten" in problem.message) == (5, True)
    assert found(ASK + 'deadline = "1s"\nalways_ask = true\napprovals = 2', Tier.WORKSPACE) == ()


def ruled(*texts: str, subject: Subject | None = None, **tiers: Any) -> Ruling:
    ruling = policy(*texts, **tiers).find_ruling(subject or build_call_subject("x", {}), Mode.DEFAULT)
    assert ruling
    return ruling


def test_a_ruling_says_whose_word_it_needs_and_until_when() -> None:
    """S28"""
    ruling = ruled(ASK + 'role = "release"\napprovals = 2\nnot_requester = true\ndeadline = "7d"\nwarning = "1h"')
    assert ruling.needs == Needs(role="release", approvals=2, not_requester=True)
    assert ruling.deadline == Deadline(seconds=604_800, warning_seconds=3_600, default="deny")
    assert not ruling.always_ask
    ruling = ruled(ASK + 'always_ask = true\ndeadline = "100s"\non_deadline = "allow"')
    assert ruling.deadline == Deadline(seconds=100, warning_seconds=10, default="allow")
    assert (ruling.always_ask, ruling.needs) == (True, Needs())
    assert ruled(ASK).deadline is None


STRICT = (
    '[[rule]]\ndecision = "ask"\nanything = true\nalways_ask = true\nrole = "ops"\napprovals = 3\ndeadline = "1h"\n'
)


@pytest.mark.parametrize(
    ("tiers", "subject"),
    [
        ({"admin": rule("command = 'rm'", "deny"), "user": STRICT}, run("$X")),
        ({"workspace": rule("anything = true", "ask"), "default": STRICT}, build_call_subject("x", {})),
        (
            {"admin": rule("command = 'rm'", "deny"), "workspace": rule("anything = true", "ask"), "default": STRICT},
            run("$X"),
        ),
        ({"admin": rule("command = 'rm'", "deny"), "workspace": STRICT}, run("$X")),
    ],
)
def test_S29_caution_of_one_rule_takes_nothing_from_the_strictness_of_the_next(
    tiers: dict[str, Any], subject: Subject
) -> None:
    ruling = ruled(subject=subject, **tiers)
    assert (ruling.decision.value, ruling.always_ask) == ("ask", True)
    assert ruling.needs == Needs(role="ops", approvals=3)
    assert ruling.deadline
    assert ruling.deadline.seconds == 3_600


def asking(role: str) -> str:
    return rule(f"anything = true\nname = '{role}-asks'\nrole = '{role}'\napprovals = 2", "ask")


@pytest.mark.parametrize("more", [{}, {"admin": rule("command = 'rm'", "deny")}])
def test_S29_rules_that_want_different_roles_deny_what_neither_can_have(more: dict[str, Any]) -> None:
    """A workspace's file only tightens: its role does not do for another one, nor the other one for it."""
    subject = run("$X")
    ruling = ruled(subject=subject, workspace=asking("team"), default=asking("ops"), **more)
    assert ruling.decision.value == "deny"
    assert "it needs the role 'team', and by the rule 'ops-asks' the role 'ops'" in (ruling.message or "")
    same = ruled(subject=subject, workspace=asking("ops"), default=asking("ops"), **more)
    assert (same.decision.value, same.needs) == ("ask", Needs(role="ops", approvals=2))
    explained = policy(workspace=asking("team"), default=asking("ops"), **more).explain_ruling(subject, Mode.DEFAULT)
    assert explained.ruling == ruling


RULINGS = st.builds(
    Ruling,
    decision=st.just(RuleEffect.ASK),
    rule=st.sampled_from(["a", "b"]),
    tier=st.sampled_from(Tier),
    always_ask=st.booleans(),
    needs=st.builds(
        Needs, role=st.sampled_from([None, "x", "y"]), approvals=st.integers(1, 3), not_requester=st.booleans()
    ),
    deadline=st.none() | st.builds(Deadline, seconds=st.integers(1, 9), default=st.sampled_from(["deny", "allow"])),
)


@given(st.lists(RULINGS, min_size=2, max_size=3))
def test_S29_as_strict_as_others_is_no_less_strict_than_any_of_them(rulings: list[Ruling]) -> None:
    made = reduce(Ruling.tighten_to, rulings)
    roles = {one.needs.role for one in rulings} - {None}
    assert (made.decision is RuleEffect.DENY) is (len(roles) > 1)
    if made.decision is RuleEffect.DENY:
        return
    assert {made.needs.role} - {None} == roles
    assert made.needs.approvals == max(one.needs.approvals for one in rulings)
    assert made.needs.not_requester is any(one.needs.not_requester for one in rulings)
    assert made.always_ask is any(one.always_ask for one in rulings)
    assert made.deadline is None or made.deadline.default == "deny"


def test_what_is_perhaps_denied_is_not_allowed_by_silence() -> None:
    lenient = rule("anything = true\ndeadline = '1h'\non_deadline = 'allow'", "ask")
    assert (ruled(lenient, subject=run("ls")).deadline or Deadline(seconds=1)).default == "allow"
    cautious = ruled(admin=rule("command = 'rm'", "deny"), user=lenient, subject=run("$X"))
    assert cautious.deadline
    assert cautious.deadline.default == "deny"


def test_a_workspaces_question_does_not_lift_that_hooks_are_always_asked_about() -> None:
    rules = build_policy([load_shipped(), load(rule("kind = 'edit'", "ask"), Tier.WORKSPACE)])
    ruling = rules.find_ruling(
        complete_subject(build_call_subject("edit", {"path": ".git/hooks/x"}), None), Mode.DEFAULT
    )
    assert ruling
    assert (ruling.tier, ruling.always_ask) == (Tier.WORKSPACE, True)


def test_the_policy_tells_the_roles_that_rules_ask_for() -> None:
    rules = policy(
        ASK + 'role = "release"\n',
        '[[rule]]\ndecision = "ask"\ntool = "y"\nrole = "release"\napprovals = 3\n',
        '[[rule]]\ndecision = "ask"\ntool = "z"\napprovals = 2\n',
        rule("tool = 'w'"),
    )
    assert rules.roles == {"release"}
    assert rules.required_approvals == {"release": 3, None: 2}
    assert policy(rule("tool = 'w'")).roles == frozenset()


def test_the_digest_of_a_policy_without_these_keys_is_as_it_was() -> None:
    before = "df84ab72"
    rules = policy(rule("tool = 'x'") + rule("command = 'rm'\nreason = 'r'\npriority = 5", "ask"))
    assert rules.digest[:8] == before
    assert policy(ASK).digest != policy(ASK + 'deadline = "1h"').digest


# Durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("90s", 90), ("15m", 900), ("1h30m", 5_400), ("1h 30m", 5_400), ("7d", 604_800), ("2w1d", 1_296_000)],
)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5",
        "h",
        "-1h",
        "1.5h",
        "30m1h",
        "1h1h",
        "1y",
        "1H",
        "0s",
        "366d",
        "9" * 5_000 + "s",
        "１h",
        "1h\n\n2m x",
    ],
)
def test_what_is_no_duration_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be (a duration such as|at least a second)"):
        parse_duration(text)


@given(st.integers(1, LONGEST))
def test_a_duration_that_is_told_can_be_read_again(seconds: int) -> None:
    assert parse_duration(format_duration(seconds).replace("min", "m")) == seconds


def test_durations_are_told_in_a_few_words() -> None:
    assert [format_duration(seconds) for seconds in (0, 0.4, 61.9, 5_400, 604_800, -5)] == [
        "0 s", "0 s", "1 min 1 s", "1 h 30 min", "7 d", "0 s",
    ]  # fmt: skip
