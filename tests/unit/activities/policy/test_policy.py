"""Which rule decides: tiers, priorities, strictness and order; and that no rules let a denied call through."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.activities.policy.conditions import CallFacts, build_conditions, match_rule
from holdfast.activities.policy.load_policy import build_policy, load_shipped
from holdfast.activities.policy.policy import Policy, PolicyRule
from holdfast.activities.policy.rules import Rule, RuleEffect, Tier
from holdfast.activities.policy.subject import CallKind, Subject, Truth, build_call_subject
from holdfast.domain.calls.tool import Effect
from holdfast.domain.modes import Mode
from tests.support.policies import FILE, load, policy, rule, run, said

ALL = "anything = true\n"
STRICT = [RuleEffect.DENY, RuleEffect.ASK, RuleEffect.ALLOW]
TIERS = list(Tier)


def entry(tier: Tier, line: int = 1, **keys: Any) -> PolicyRule:
    return PolicyRule(Rule(**keys), tier, "p.toml", line)


# Who wins


def test_the_higher_tier_wins_whatever_the_priorities() -> None:
    subject = build_call_subject("x", {})
    assert said(policy(admin=rule(ALL), user=rule(ALL + "priority = 999", "deny")), subject) == "allow"
    assert said(policy(user=rule(ALL), workspace=rule(ALL + "priority = 999", "deny")), subject) == "allow"
    assert said(policy(workspace=rule(ALL, "ask"), default=rule(ALL + "priority = 999")), subject) == "ask"


def test_then_the_higher_priority_then_the_stricter_then_the_first() -> None:
    subject = build_call_subject("x", {})
    assert said(policy(rule(ALL, "deny"), rule(ALL + "priority = 101")), subject) == "allow"
    assert said(policy(rule(ALL), rule(ALL, "ask"), rule(ALL, "deny")), subject) == "deny"
    assert said(policy(rule(ALL), rule(ALL, "ask")), subject) == "ask"
    ruling = policy(rule(ALL + "name = 'a'"), rule(ALL + "name = 'b'")).find_ruling(subject, Mode.DEFAULT)
    assert ruling
    assert ruling.rule == "a"


def test_without_a_rule_the_tools_own_wish_decides() -> None:
    assert policy(rule("tool = 'x'")).find_ruling(build_call_subject("y", {}), Mode.DEFAULT) is None


def test_a_ruling_names_its_rule_and_what_to_tell() -> None:
    rules = policy("\n" + rule("tool = 'x'\nreason = 'why'\nmessage = 'instead'", "deny"))
    ruling = rules.find_ruling(build_call_subject("x", {}), Mode.DEFAULT)
    assert ruling
    assert (ruling.rule, ruling.tier, ruling.reason, ruling.message) == (f"{FILE}:2", Tier.USER, "why", "instead")
    with pytest.raises(ValidationError):
        ruling.rule = "other"


# Towards caution


def test_a_deny_that_may_be_meant_asks_and_a_later_one_that_is_meant_denies() -> None:
    doubtful = rule("command = 'rm'\nreason = 'no'", "deny")
    for other, expected in (("allow", "ask"), ("ask", "ask"), ("deny", "deny")):
        rules = policy(admin=doubtful, user=rule("tool = 'shell'", other))
        assert said(rules, run("$X -rf /")) == expected
        assert said(rules, run("rm -rf /")) == "deny"
    ruling = policy(doubtful).find_ruling(run("$X"), Mode.DEFAULT)
    assert ruling
    assert (ruling.decision, ruling.message) == (RuleEffect.ASK, None)
    assert ruling.reason == "no (it may be what this rule denies: that is not known before it runs)"


def test_a_workspace_cannot_lift_a_denial_of_the_defaults() -> None:
    asking = load(rule("tool = 'edit'\nmodes = ['default', 'auto_edit', 'plan', 'yolo']", "ask"), Tier.WORKSPACE)
    subject = build_call_subject("edit", {"path": "a"})
    rules = build_policy([load_shipped(), asking])
    assert [said(rules, subject, mode) for mode in Mode] == ["ask", "ask", "deny", "ask"]
    denying = load(rule("tool = 'edit'\npriority = 5", "deny"), Tier.WORKSPACE)
    assert said(build_policy([load_shipped(), asking, denying]), subject) == "ask", "its own order counts within a tier"


def test_in_plan_mode_a_rule_without_modes_loosens_nothing() -> None:
    """S27: plan is for tools that merely read."""
    edit, read = build_call_subject("edit", {"path": "a"}), build_call_subject("read_file", {"path": "a"})
    for decision in ("allow", "ask"):
        rules = build_policy([load_shipped(), load(rule(ALL, decision))])
        assert (said(rules, edit, Mode.PLAN), said(rules, read, Mode.PLAN)) == ("deny", decision)
        named = build_policy([load_shipped(), load(rule(ALL + "modes = ['plan']", decision))])
        assert said(named, edit, Mode.PLAN) == decision


def test_a_rule_ends_when_it_says_so_though_the_worker_goes_on() -> None:
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    made = entry(Tier.USER, decision="allow", tool="x", expires=datetime(2030, 1, 2, tzinfo=UTC))
    rules = Policy([made], clock=lambda: now[0])
    assert said(rules, build_call_subject("x", {})) == "allow"
    now[0] = datetime(2030, 1, 2, tzinfo=UTC)
    assert said(rules, build_call_subject("x", {})) is None


# Explaining


def test_an_explanation_tells_every_rule_that_was_passed_over_and_why() -> None:
    rules = build_policy(
        [load_shipped(), load(rule("command = 'git push'\nname = 'no'", "deny") + rule("path = 'a/**'"))]
    )
    found = rules.explain_ruling(run("git status > x"), Mode.DEFAULT)
    assert found.ruling
    assert (found.ruling.rule, found.ruling.decision) == ("changes-ask", RuleEffect.ASK)
    assert re.search(r"/defaults\.toml:\d+$", found.where or "")
    told = {one.rule: one.why for one in found.passed}
    assert told["no"] == "no program of the call is `git push`"
    assert told[f"{FILE}:5"] == "not every path of the call is `a/**`"
    assert told["plan-only-reads"] == "it is not for mode `default`"
    assert told["edits-proceed"] == "it is not for mode `default`"
    assert "changes-ask" not in told


@pytest.mark.parametrize(
    ("keys", "subject", "why"),
    [
        ("command = 'ls'", run("ls > x"), "it writes to a file: an allow rule on commands does not cover that"),
        ("command = 'ls'", run("A=1 ls"), "it sets variables: an allow rule on commands does not cover that"),
        ("tool = 'shell'", run("rm -rf /"), "the command is destructive, and a rule covers that only with `command`"),
        ("tool = ['a', 'b*']", run("ls"), "the tool is not `a` or `b*`"),
        (
            "path = 'a'",
            Subject(tool="x", effect=Effect.READ, paths=("a",), urls=("u",)),
            "does not mention the call's urls",
        ),
        ("in_workspace = true", run("cat /etc/x"), "the call leaves the workspace, or may do so"),
    ],
)
def test_the_reasons_are_those_a_person_needs(keys: str, subject: Subject, why: str) -> None:
    [passed] = policy(rule(keys)).explain_ruling(subject, Mode.DEFAULT).passed
    assert why in passed.why


# Digests and speed


def test_the_digest_is_of_the_rules_and_not_of_their_files() -> None:
    one = policy(rule("tool = 'x'"))
    assert one.digest == policy("# a comment\n\n" + rule("tool = 'x'\nmatch = [{}]")).digest
    others = [rule("tool = 'y'"), rule("tool = 'x'", "ask"), rule("tool = 'x'\npriority = 1"), ""]
    assert len({one.digest, *(policy(text).digest for text in others), policy(admin=rule("tool = 'x'")).digest}) == 6


def test_a_thousand_rules_take_under_a_millisecond() -> None:
    kinds = (
        "tool = 'tool_{0}'",
        "command = 'program{0} x'",
        "tool = 'server{0}_*'",
        "tool = 'write_file'\npath = 'p{0}/**'",
    )
    rules = policy("".join(rule(kinds[number % 4].format(number), "deny") for number in range(1_000)))
    for subject in (
        run("git status"),
        build_call_subject("read_file", {"path": "a/b"}),
        build_call_subject("other", {}, server="s"),
    ):
        assert said(rules, subject) is None
        assert min(_seconds(rules, subject) for _ in range(20)) < 0.001


def _seconds(rules: Policy, subject: Subject) -> float:
    began = time.perf_counter()
    rules.find_ruling(subject, Mode.DEFAULT)
    return time.perf_counter() - began


# Whatever the rules, the order and the call

COMMANDS = ["ls", "git push", "rm -rf /", "$X", "ls; git push", "if", "git $X", "ls > x", "", "\0", "sudo git push"]
subjects = st.builds(
    Subject,
    tool=st.sampled_from(["shell", "read_file", "x"]),
    server=st.none() | st.just("s"),
    effect=st.sampled_from(Effect),
    kind=st.none() | st.sampled_from(CallKind),
    paths=st.lists(st.sampled_from(["a", "a/b", "../c", "/etc", "."]), max_size=2).map(tuple),
    urls=st.lists(st.sampled_from(["http://a.example", "http://b.example", "http://["]), max_size=2).map(tuple),
    command=st.none() | st.sampled_from(COMMANDS),
    in_workspace=st.booleans(),
    tainted=st.booleans(),
    sends=st.booleans(),
)
CONDITIONS: list[dict[str, Any]] = [
    {"anything": True}, {"tool": "shell"}, {"tool": "*"}, {"effect": "read"}, {"kind": "exec"}, {"path": "a/**"},
    {"path": "**"}, {"host": "a.example"}, {"command": "git push"}, {"command": "git *"}, {"destructive": True},
    {"harmless": True}, {"in_workspace": True}, {"tainted": True}, {"server": "*"},
]  # fmt: skip
rules_of = st.builds(
    lambda decision, conditions, priority, modes: Rule(
        decision=decision, **conditions, priority=priority, **({"modes": modes} if modes else {})
    ),
    st.sampled_from(RuleEffect),
    st.sampled_from(CONDITIONS),
    st.sampled_from([1, 100, 200]),
    st.none() | st.lists(st.sampled_from(Mode), min_size=1, unique=True).map(tuple),
)
entries = st.builds(PolicyRule, rules_of, st.sampled_from(Tier)).filter(
    lambda one: one.tier is not Tier.WORKSPACE or one.rule.decision is not RuleEffect.ALLOW
)


def speaking(one: PolicyRule, subject: Subject, mode: Mode) -> Truth:
    """What `deciding` says of a single rule, said again in other words."""
    if one.rule.modes is not None and mode not in one.rule.modes:
        return Truth.NO
    loosens = one.rule.modes is None and one.rule.decision is not RuleEffect.DENY
    if mode is Mode.PLAN and loosens and subject.effect is not Effect.READ:
        return Truth.NO
    return match_rule(one.rule, build_conditions(one.rule), CallFacts(subject))[0]


def rank(one: PolicyRule) -> tuple[int, int, int]:
    return TIERS.index(one.tier), -one.rule.priority, STRICT.index(one.rule.decision)


@settings(max_examples=400)
@given(st.lists(entries, max_size=6), subjects, st.sampled_from(Mode), st.randoms(use_true_random=False))
def test_S29_no_rules_in_no_order_let_a_denied_call_through(
    given_rules: list[PolicyRule], subject: Subject, mode: Mode, chance: Any
) -> None:
    ruling = Policy(given_rules).find_ruling(subject, mode)
    about = [one for one in given_rules if speaking(one, subject, mode) is not Truth.NO]
    assert (ruling is None) is (not about)
    if not about:
        return
    assert ruling
    best = min(map(rank, about))
    winners = [one for one in about if rank(one) == best]
    if winners[0].rule.decision is RuleEffect.DENY:
        certain = any(speaking(one, subject, mode) is Truth.YES for one in winners)
        assert ruling.decision is RuleEffect.DENY or (not certain and ruling.decision is RuleEffect.ASK)
    elif winners[0].tier is Tier.WORKSPACE:
        assert ruling.decision is not RuleEffect.ALLOW
    else:
        assert ruling.decision is winners[0].rule.decision
    shuffled = list(given_rules)
    chance.shuffle(shuffled)
    again = Policy(shuffled).find_ruling(subject, mode)
    assert again
    assert again.decision is ruling.decision, "the order of a file decides only between rules that say the same"


@given(st.lists(entries, max_size=6), subjects, st.sampled_from(Mode))
def test_an_explanation_says_what_the_ruling_says(given_rules: list[PolicyRule], subject: Subject, mode: Mode) -> None:
    rules = Policy(given_rules)
    assert rules.explain_ruling(subject, mode).ruling == rules.find_ruling(subject, mode)


@settings(max_examples=400)
@given(st.lists(entries, max_size=5), entries, subjects, st.sampled_from(Mode))
def test_a_workspaces_file_never_loosens(
    given_rules: list[PolicyRule], more: PolicyRule, subject: Subject, mode: Mode
) -> None:
    if more.rule.decision is RuleEffect.ALLOW:
        return
    before = Policy(given_rules).find_ruling(subject, mode)
    after = Policy([*given_rules, PolicyRule(more.rule, Tier.WORKSPACE)]).find_ruling(subject, mode)
    if any(one.tier is Tier.WORKSPACE for one in given_rules):
        return
    strictness: dict[RuleEffect | None, int] = {None: 2, **{answer: place for place, answer in enumerate(STRICT)}}
    assert strictness[after.decision if after else None] <= strictness[before.decision if before else None]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
wild = st.builds(
    Subject,
    tool=st.text(),
    server=st.none() | st.text(),
    effect=st.sampled_from(Effect),
    arguments=st.dictionaries(st.sampled_from(["a", "b", "environment"]) | st.text(), json_values, max_size=3),
    paths=st.lists(st.text(), max_size=2).map(tuple),
    urls=st.lists(st.text(), max_size=2).map(tuple),
    command=st.none() | st.text(),
)
EVERYTHING = "".join(
    rule(keys, decision)
    for decision in ("allow", "ask", "deny")
    for keys in (
        "tool = '*[!a]?'", "server = '{a,b*}'", "path = ['**/*.py', '/a/**']", "host = ['*.a.example', '10.0.0.1']",
        "command = ['a ** b', '* x $']", "harmless = true", "destructive = true", "arguments = { a.b = [1, 'x'] }",
        "patterns = { a = '(a|b)*', b.c = '.' }", "in_workspace = true", "in_workspace = false",
    )
)  # fmt: skip


@given(wild, st.sampled_from(Mode))
def test_no_call_makes_it_raise(subject: Subject, mode: Mode) -> None:
    rules = _EVERYTHING
    ruling, found = rules.find_ruling(subject, mode), rules.explain_ruling(subject, mode)
    assert found.ruling == ruling
    if ruling:
        ruling.model_dump_json()


_EVERYTHING = policy(*(f"[[rule]]{text}" for text in EVERYTHING.split("[[rule]]")[1:]))
