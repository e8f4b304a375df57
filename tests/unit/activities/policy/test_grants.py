"""Standing answers: what is offered in a question, what each covers, and what it must never cover."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.activities.policy.command_phrases import parse_phrase, quote_word
from holdfast.activities.policy.command_reading import CommandReading
from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.grants import (
    EXCEPTIONS,
    build_offers,
    build_scope_rule,
    find_covering_grant,
    may_use_grants,
)
from holdfast.activities.policy.load_policy import build_policy, format_rule, load_shipped, read_policy_file
from holdfast.activities.policy.policy import Policy, PolicyRule, Ruling
from holdfast.activities.policy.protected_files import complete_subject
from holdfast.activities.policy.rules import Rule, RuleEffect, Tier
from holdfast.activities.policy.subject import CallKind, Subject, build_call_subject
from holdfast.config.toml_document import FileContent
from holdfast.domain.approvals.approval import Decision, DecisionAction, Needs, Offer, Scope
from holdfast.domain.approvals.grants import MAX_GRANTS, Grant
from holdfast.domain.calls.tool import Effect
from holdfast.domain.modes import Mode
from holdfast.errors import BadInput
from tests.support.pages import read_page
from tests.support.policies import run

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DIGEST = "d" * 64


def grant(scope: Scope, outcome: DecisionAction = DecisionAction.PROCEED_ALWAYS, **keys: Any) -> Grant:
    remember = outcome is DecisionAction.CANCEL
    decision = Decision(approval_id="t/c/1", digest=DIGEST, outcome=outcome, remember=remember, by="ann", **keys)
    return Grant(id="g1", scope=scope, covers="", decision=decision, given_at=NOW)


def offered(subject: Subject) -> tuple[Offer, ...]:
    return build_offers(subject, DIGEST, None)


def answers(given: Offer, subject: Subject, digest: str = "other") -> bool:
    return find_covering_grant([grant(given.scope, given.outcome)], subject, digest, NOW) is not None


# What is offered

OFFERED: dict[str, list[str]] = {
    "git status -s": [
        "`git status -s`, exactly these words",
        "`git status` with further words that are known to be harmless",
    ],
    "git push": ["`git push`, exactly these words"],
    "rm x": ["`rm x`, exactly these words"],
    "python -c 'print(1)'": ["`python -c 'print(1)'`, exactly these words"],
    "npm run lint": ["`npm run lint`, exactly these words"],
    "cd sub && cargo test": [
        "`cd sub && cargo test`, exactly as it stands",
        "`cargo test` with further words that are known to be harmless; beside it `cd sub`, exactly",
    ],
    "git  status;make": ["`git status ; make`, exactly as it stands"],
    "timeout 5 git status": ["`timeout 5 git status`, exactly as it stands"],
    "git diff --output=x": ["`git diff --output=x`, exactly these words"],
    "uv run pytest -x": ["`uv run pytest -x`, exactly these words"],
}  # fmt: skip
ALONE = ("git push", "rm x", "python -c 'print(1)'", "git diff --output=x")
"""What no answer for the whole tool covers."""


@pytest.mark.parametrize("command", OFFERED)
def test_S24_a_command_is_offered_by_its_words_and_then_the_tool(command: str) -> None:
    found = offered(run(command))
    assert [offer.covers for offer in found if offer.outcome is DecisionAction.PROCEED_ALWAYS] == OFFERED[command]
    wide = [offer for offer in found if offer.outcome is DecisionAction.PROCEED_ALWAYS_TOOL]
    expected = [] if command in ALONE else [f"every call of `shell`, but not {EXCEPTIONS}"]
    assert [offer.covers for offer in wide] == expected


@pytest.mark.parametrize("command", OFFERED)
def test_S30_what_is_covered_is_covered_as_it_will_run(command: str) -> None:
    understood = CommandReading(command).rebuilt
    assert understood
    assert [offer.covers for offer in offered(run(command)) if not answers(offer, run(understood))] == []


@pytest.mark.parametrize("command", ["rm -rf x", "git push --force", "git stash drop", "sudo rm -rf x", "ls; rm -rf x"])
def test_a_destructive_command_is_offered_as_it_is_and_no_wider(command: str) -> None:
    [offer] = offered(run(command))
    assert offer.outcome is DecisionAction.PROCEED_ALWAYS
    assert "exactly" in offer.covers


@pytest.mark.parametrize("command", ["ls > x", "ls *.c", "$X", "bash -c 'git status'", "if", "PATH=. ls", "ls &"])
def test_what_is_no_plain_chain_is_offered_by_its_digest(command: str) -> None:
    [offer] = offered(run(command))
    assert offer.scope == Scope(digest=DIGEST)
    assert offer.covers == "exactly this command as it is written, with the same folder and variables"


def test_a_command_with_variables_beside_it_is_offered_by_its_digest() -> None:
    [offer] = offered(build_call_subject("shell", {"command": "make", "environment": {"A": "1"}}))
    assert offer.scope == Scope(digest=DIGEST)


def test_words_are_offered_for_another_shell_only_if_it_is_given_just_those() -> None:
    for command, words in (("git push", "`git push`, exactly these words"), ("git  push", "exactly this command as")):
        theirs = build_call_subject("run", {"command": command}, command=command, kind=CallKind.EXEC, server="s")
        assert offered(theirs)[0].covers.startswith(words)


def test_other_calls_are_offered_by_what_they_name() -> None:
    told = {
        "edit": (build_call_subject("edit", {"path": "src/a.py"}), "edits of `src/a.py` by `edit`"),
        "fetch": (build_call_subject("fetch", {"url": "https://EXAMPLE.com/x"}), "`fetch` from `example.com`"),
        "mine": (build_call_subject("mine", {"a": 1}), "exactly this call, with the same arguments"),
    }
    for tool, (subject, words) in told.items():
        assert [(offer.outcome, offer.covers) for offer in offered(subject)] == [
            (DecisionAction.PROCEED_ALWAYS, words),
            (DecisionAction.PROCEED_ALWAYS_TOOL, f"every call of `{tool}`"),
        ]
    theirs = offered(build_call_subject("create", {}, server="tracker"))
    assert [offer.outcome for offer in theirs][1:] == [
        DecisionAction.PROCEED_ALWAYS_TOOL,
        DecisionAction.PROCEED_ALWAYS_SERVER,
    ]
    assert theirs[-1].covers == "every tool of the server `tracker`"


def test_nothing_is_offered_where_each_call_is_asked_about() -> None:
    ruling = Ruling(decision=RuleEffect.ASK, rule="r", tier=Tier.USER)
    two = ruling.model_copy(update={"needs": Needs(approvals=2)})
    always = ruling.model_copy(update={"always_ask": True})
    assert build_offers(build_call_subject("ask_user", {"question": "?"}), DIGEST, ruling) == ()
    assert [build_offers(run("ls"), DIGEST, one) for one in (two, always)] == [(), ()]
    assert [may_use_grants(one) for one in (None, ruling, two, always)] == [True, True, False, False]
    role = ruling.model_copy(update={"needs": Needs(role="release", not_requester=True)})
    assert build_offers(run("ls"), DIGEST, role)


def test_what_is_covered_is_told_without_anything_hidden() -> None:
    for subject in (
        run("echo '\x1b[2K\u202e\nx'"),
        build_call_subject("edit", {"path": "a\nb\x1b"}),
        run(f"echo {'x' * 9_000}"),
    ):
        for offer in offered(subject):
            assert not {"\x1b", "\u202e", "\n"} & {*offer.covers}
            assert len(offer.covers) < 700


def test_the_docs_tell_what_is_offered() -> None:
    docs = read_page("policy")
    [table] = re.findall(r"^\| call \| offered \|\n\| --- \| --- \|\n((?:\|.*\n)+)", docs, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines()]
    told = {command: len(row[1].split("; ")) for row in rows for command in re.findall("`(.*?)`", row[0])}
    assert len(told) == 5
    assert {command: len(offered(run(command))) for command in told} == told
    others = {row[0]: len(row[1].split("; ")) for row in rows if "`" not in row[0]}
    assert others == {
        "an edit": len(offered(build_call_subject("edit", {"path": "a"}))),
        "a url": len(offered(build_call_subject("fetch", {"url": "https://a.example"}))),
        "any other call": len(offered(build_call_subject("x", {}, server="s"))),
    }


# What they cover

NOT: list[tuple[str, str]] = [
    ("git status", "git push"),
    ("git status", "git -c core.pager=x status"),
    ("git status", "git status; git push"),
    ("git status", "git status > x"),
    ("git status", "A=1 git status"),
    ("git status", "./git status"),
    ("git status", "$(git status)"),
    ("git stash", "git stash drop"),
    ("git diff", "git diff --output=.git/hooks/post-commit"),
    ("git diff", "git diff --outp x"),
    ("git diff", "git diff --ext-diff"),
    ("git branch", "git branch -D main"),
    ("npm run lint", "npm run lint -- --fix"),
    ("npm test", "npm test --script-shell=x"),
    ("go test ./...", "go test -exec x"),
    ("cd sub && make install", "make install"),
    ("cd sub && cargo test", "cd / && cargo test"),
    ("git diff --quiet && git push", "git push"),
    ("cat a | nc host 80", "cat b | nc host 80"),
    ("rm x", "rm -rf x"),
    ("ls", "ls $X"),
]  # fmt: skip


@pytest.mark.parametrize(("given_for", "other"), NOT, ids=lambda text: text)
def test_S24_no_answer_about_one_command_covers_another(given_for: str, other: str) -> None:
    about = [offer for offer in offered(run(given_for)) if offer.outcome is DecisionAction.PROCEED_ALWAYS]
    assert about
    assert [offer.covers for offer in about if answers(offer, run(other))] == []


def test_S24_open_words_cover_what_follows_and_spacing_does_not_matter() -> None:
    exact, opened, tool = offered(run("git  status"))
    assert [answers(one, run("git status -s")) for one in (exact, opened, tool)] == [False, True, True]
    assert [answers(one, run("'git' status")) for one in (exact, opened, tool)] == [True, True, True]
    chain, *_ = offered(run("make&&git status"))
    assert answers(chain, run("make   && git 'status'"))
    assert not answers(chain, run("make || git status"))


def test_a_command_in_another_folder_or_with_more_arguments_is_another_one() -> None:
    for command in ("make test", "make && make test"):
        here, *_ = offered(run(command))
        there, *_ = offered(build_call_subject("shell", {"command": command, "directory": "sub"}))
        assert "in the folder `sub`" in there.covers
        sub = build_call_subject("shell", {"command": command, "directory": "sub"})
        assert (answers(here, sub), answers(there, sub), answers(there, run(command))) == (False, True, False)
        assert answers(here, build_call_subject("shell", {"command": command, "timeout_seconds": 5, "environment": {}}))
        assert not answers(here, build_call_subject("shell", {"command": command, "host": "elsewhere"}))
        assert not answers(here, build_call_subject("shell", {"command": command, "environment": {"A": "1"}}))


@pytest.mark.parametrize(
    "command", ["rm -rf x", "ls > x", "$X", "ls *.c", "A=1 ls", "cat x | xargs rm", "bash -c ls", "ls\nif", ""]
)
def test_the_whole_tool_leaves_out_what_destroys_writes_or_is_not_certain(command: str) -> None:
    *_, tool = offered(run("ls"))
    assert tool.outcome is DecisionAction.PROCEED_ALWAYS_TOOL
    assert not answers(tool, run(command))
    assert not answers(tool, build_call_subject("shell", {"command": "ls", "environment": {"LD_PRELOAD": "x"}}))
    assert answers(tool, run("make; npm ci | tail -5"))


def test_S24_one_file_host_or_tool_does_not_cover_another() -> None:
    file, tool = offered(build_call_subject("edit", {"path": "src/[a]*.py"}))
    assert [
        answers(file, build_call_subject("edit", {"path": path})) for path in ("src/[a]*.py", "src/ax.py", "src/b.py")
    ] == [
        True,
        False,
        False,
    ]
    assert not answers(file, build_call_subject("write_file", {"path": "src/[a]*.py"}))
    assert answers(tool, build_call_subject("edit", {"path": "src/b.py"}))
    assert not answers(tool, build_call_subject("edit", {"path": "src/b.py"}, server="x")), "a server's tool is another"
    host, _ = offered(build_call_subject("fetch", {"url": "https://example.com/a"}))
    urls = ["http://example.com:80/b", "https://sub.example.com/", "https://example.com.evil.example/"]
    assert [answers(host, build_call_subject("fetch", {"url": url})) for url in urls] == [True, False, False]
    _, theirs, server = offered(build_call_subject("create", {}, server="s"))
    assert answers(theirs, build_call_subject("create", {"a": 1}, server="s"))
    for one in (theirs, server):
        assert not answers(one, build_call_subject("create", {}, server="s2"))
        assert not answers(one, build_call_subject("create", {}))
    assert answers(server, build_call_subject("delete", {}, server="s"))
    assert not answers(server, build_call_subject("ask", {}, server="s", kind=CallKind.QUESTION)), (
        "a question is for a person"
    )


def test_a_digest_covers_that_call_whatever_is_in_it_and_no_other() -> None:
    [only] = offered(run("rm -rf $X > y"))
    assert answers(only, run("rm -rf $X > y"), DIGEST)
    assert not answers(only, run("rm -rf $X > y"), "other")


# Grants

ALLOW = grant(Scope(tool="shell", server="", command=("git push $",)))
REFUSE = grant(Scope(tool="shell", server="", command=("git push",)), DecisionAction.CANCEL)


def test_a_refusal_wins_whatever_the_order_and_is_about_every_part() -> None:
    assert find_covering_grant([ALLOW, REFUSE], run("git push"), DIGEST, NOW) is REFUSE
    assert find_covering_grant([REFUSE, ALLOW], run("git push"), DIGEST, NOW) is REFUSE
    for command in ("ls; git push -f", "sudo git -C x push", "bash -c 'git push'", "/bin/git push"):
        assert find_covering_grant([REFUSE], run(command), DIGEST, NOW) is REFUSE
    assert find_covering_grant([REFUSE], run("$X push"), DIGEST, NOW) is None, "what is not certain is asked about"
    chain = grant(Scope(tool="shell", arguments={"command": "make && ls"}), DecisionAction.CANCEL)
    assert find_covering_grant([chain], run("make&&ls"), DIGEST, NOW) is chain


def test_a_grant_ends_when_it_says_so() -> None:
    ended = grant(ALLOW.scope, expires=NOW)
    spent = grant(ALLOW.scope, uses=1).model_copy(update={"used": 1})
    lasting = grant(ALLOW.scope, expires=NOW + timedelta(seconds=1), uses=1)
    assert find_covering_grant([ended, spent], run("git push"), DIGEST, NOW) is None
    assert find_covering_grant([ended, spent, lasting], CallFacts(run("git push")), DIGEST, NOW) is lasting


HOSTILE = [
    Scope(),
    Scope(tool="[", server=""),
    Scope(tool="shell", command=("ls | cat",)),
    Scope(tool="shell", command=("",)),
    Scope(path=("./x",)),
    Scope(host=("http://x",)),
    Scope(arguments={"a": None}),
]


@pytest.mark.parametrize("scope", HOSTILE, ids=str)
def test_a_scope_that_makes_no_sense_covers_nothing_and_is_no_rule(scope: Scope) -> None:
    for outcome in (DecisionAction.PROCEED_ALWAYS, DecisionAction.CANCEL):
        assert find_covering_grant([grant(scope, outcome)], run("ls"), DIGEST, NOW) is None
    with pytest.raises(BadInput, match="covers nothing"):
        build_scope_rule(scope, allow=True)


def test_a_digest_has_no_rule() -> None:
    assert build_scope_rule(Scope(digest=DIGEST, tool="x"), allow=True) is None
    made = build_scope_rule(Scope(tool="x", server=""), allow=False, name="n", expires=NOW, reason="r" * 5_000)
    assert made
    assert (made.decision, made.server, made.name, made.expires) == (RuleEffect.DENY, ("",), "n", NOW)


def test_two_hundred_grants_take_a_few_milliseconds() -> None:
    shapes = ("git status{} $", "npm run x{}", "cat a{}")
    many = [
        grant(Scope(tool="shell", server="", command=(shapes[number % 3].format(number),)))
        for number in range(MAX_GRANTS)
    ]
    subject = run("cd sub && git status -s | head -5")
    find_covering_grant(many, subject, DIGEST, NOW)
    taken = []
    for _ in range(10):
        began = time.perf_counter()
        assert find_covering_grant(many, subject, DIGEST, NOW) is None
        taken.append(time.perf_counter() - began)
    assert min(taken) < 0.02


# Whatever the call

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
names = st.sampled_from(["git", "ls", "make", "npm", "./x", "rm", "sudo", "cd"])
commands = st.one_of(
    st.lists(words.map(lambda word: "'" + word.replace("'", "'\\''") + "'"), max_size=4).flatmap(
        lambda rest: names.map(lambda name: " ".join([name, *rest]))
    ),
    st.sampled_from(["git status", "git push", "a && b | c", "ls > x", "$X", "rm -rf /", "A=1 ls", "npm run x y", ""]),
    st.text(max_size=20),
)
paths = st.text(min_size=1, max_size=12) | st.sampled_from(["a", "a/b", "../c", "/etc", ".", "a,b{c}", "[x]*", "//x"])
urls = st.sampled_from(
    ["https://a.example/x", "http://[::1]:80", "http://10.0.0.1", "http://[", "http://bücher.example"]
)
kinds = st.none() | st.sampled_from(CallKind)
subjects = st.builds(
    Subject,
    tool=st.sampled_from(["shell", "patch", "x*", "a,{b}", "ü\n"]) | st.text(min_size=1, max_size=5),
    server=st.none() | st.sampled_from(["s", "*", "[s"]) | st.text(min_size=1, max_size=5),
    effect=st.sampled_from(Effect),
    kind=kinds,
    arguments=st.dictionaries(
        st.sampled_from(["command", "directory", "environment", "timeout_seconds", "z"]),
        st.sampled_from([".", "sub", {}, 5]) | commands,
        max_size=3,
    ),
    paths=st.lists(paths, max_size=2).map(tuple),
    urls=st.lists(urls, max_size=2).map(tuple),
    command=st.none() | commands,
).map(lambda made: made.model_copy(update={"arguments": {**made.arguments, "command": made.command}}))


@settings(max_examples=300)
@given(subjects)
def test_every_offer_covers_the_call_it_was_made_for_and_survives_a_file(subject: Subject) -> None:
    found = offered(subject)
    assert bool(found) is (subject.kind is not CallKind.QUESTION)
    for offer in found:
        assert answers(offer, subject, DIGEST), offer
        again = Scope.model_validate_json(offer.scope.model_dump_json())
        assert again == offer.scope
        for allow in (True, False):
            made = build_scope_rule(again, allow=allow, name="n", expires=NOW, reason="why")
            if made is None:
                assert offer.scope == Scope(digest=DIGEST)
                continue
            loaded = read_policy_file(
                FileContent(Path("g.toml"), format_rule(made).encode()), Tier.USER, NOW - timedelta(days=1)
            )
            assert [entry.rule for entry in loaded.entries] == [made], loaded.problems
    if found:
        assert found[0].outcome is DecisionAction.PROCEED_ALWAYS, "the narrowest is first"


@settings(max_examples=300)
@given(subjects, subjects)
def test_an_answer_about_one_call_covers_no_other_that_names_something_else(one: Subject, other: Subject) -> None:
    narrow, *_ = [*offered(one), None]
    if narrow is None or not answers(narrow, other):
        return
    assert (other.tool, other.server, other.paths) == (one.tool, one.server, other.paths)
    assert set(other.paths) <= set(one.paths) or one.command is not None
    assert CallFacts(other).hosts == () or set(CallFacts(other).hosts) <= set(CallFacts(one).hosts)
    assert (one.command is None) is (other.command is None)


scopes = st.one_of(
    subjects.flatmap(lambda subject: st.sampled_from([offer.scope for offer in offered(subject)] or [Scope()])),
    st.builds(
        Scope,
        tool=st.none() | st.sampled_from(["*", "shell"]),
        command=st.sampled_from([(), ("**",), ("git",), ("rm",)]),
        path=st.sampled_from([(), ("**",)]),
    ),
)
grants = st.lists(
    st.builds(grant, scopes, st.sampled_from([DecisionAction.PROCEED_ALWAYS, DecisionAction.CANCEL])), max_size=6
)
denials: list[dict[str, Any]] = [
    {"anything": True}, {"tool": "*"}, {"command": "**"}, {"path": "**"}, {"effect": ["read", "once"]},
]  # fmt: skip
denying = st.sampled_from(denials).map(lambda keys: PolicyRule(Rule(decision=RuleEffect.DENY, **keys), Tier.ADMIN))


@settings(max_examples=300)
@given(st.lists(denying, max_size=3), grants, subjects, st.sampled_from(Mode), st.randoms(use_true_random=False))
def test_S29_no_grants_in_no_order_let_a_denied_or_refused_call_proceed(
    rules: list[PolicyRule], given_grants: list[Grant], subject: Subject, mode: Mode, chance: Any
) -> None:
    """What the gate does with both: a grant is looked at only where the policy asks."""
    ruling = Policy([*load_shipped().entries, *rules]).find_ruling(subject, mode)
    shuffled = list(given_grants)
    chance.shuffle(shuffled)
    found = [find_covering_grant(order, subject, DIGEST, NOW) for order in (given_grants, shuffled)]
    assert len({one.is_allowance if one else None for one in found}) == 1, "no order of grants changes the answer"
    refused = any(not one.is_allowance and find_covering_grant([one], subject, DIGEST, NOW) for one in given_grants)
    for one in found:
        proceeds = bool(
            ruling and ruling.decision is RuleEffect.ASK and may_use_grants(ruling) and one and one.is_allowance
        )
        assert not (proceeds and refused)
        if any(Policy([entry]).find_ruling(subject, mode) == entry.build_ruling() for entry in rules):
            assert ruling
            assert ruling.decision is RuleEffect.DENY
            assert not proceeds


@given(words)
def test_a_quoted_word_means_just_itself(word: str) -> None:
    phrase = parse_phrase(f"x {quote_word(word)} $")
    assert phrase.covers_words(("x", word))
    assert not phrase.covers_words(("x", f"{word}y"))


def test_no_grant_for_a_tool_covers_what_decides_what_runs_later() -> None:
    """S24: hooks and rules are asked about each time."""
    for mode in (Mode.DEFAULT, Mode.AUTO_EDIT, Mode.YOLO):
        for path in (".git/hooks/x", "sub/.git/config", ".holdfast/policy.toml", "holdfast.toml", "a/granted.toml"):
            ruling = build_policy([load_shipped()]).find_ruling(
                complete_subject(build_call_subject("edit", {"path": path}), None), mode
            )
            assert ruling
            assert not may_use_grants(ruling)
