"""Open words: first words of well-known programs, what may follow them unasked, and what never may."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.activities.policy.grants import build_offers, find_covering_grant
from holdfast.activities.policy.subject import Subject
from holdfast.activities.shell.analyze import analyse_command
from holdfast.activities.shell.programs.program_effects import find_subcommand, is_harmless
from holdfast.domain.approvals.approval import Decision, DecisionAction, Offer, Scope
from holdfast.domain.approvals.grants import Grant
from tests.support.policies import run

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def offered(subject: Subject) -> list[Offer]:
    """What may be said of this kind of command."""
    return [offer for offer in build_offers(subject, "d", None) if offer.outcome is DecisionAction.PROCEED_ALWAYS]


def answers(scope: Scope, subject: Subject) -> bool:
    decision = Decision(approval_id="t/c/1", digest="d", outcome=DecisionAction.PROCEED_ALWAYS, by="ann")
    given_once = Grant(id="g1", scope=scope, covers="", decision=decision, given_at=NOW)
    return find_covering_grant([given_once], subject, "d", NOW) is not None


FURTHER: dict[str, list[str]] = {
    "git status": ["-sb", "--porcelain=v2", "-uno", "-- src"],
    "git diff": ["HEAD~1 -- src/a.py", "--stat main...topic", "--cached -w", "@~1", "-U3", "..topic", "-S text"],
    "git log": ["-5", "-n 5 --oneline", "--since='2 weeks ago' --author ann", "--format=%h/%s", "origin/main..HEAD"],
    "git show": ["HEAD:src/a.py", "--name-only @{u}"],
    "git grep": ["-n text -- '*.py'", "-rniE 'a|b'", "-A3 -e x --and -e y"],
    "git add": [". -v", "-A src"],
    "git commit": ["-m 'A message: with -O in it'", "-am all", "--message=x -q"],
    "git ls-files": ["-om --exclude-standard"],
    "cargo test": ["-p core --release parses", "-- --nocapture --test-threads=1"],
    "cargo clippy": ["--workspace --all-targets"],
    "go test": ["./...", "-v -run TestX ./pkg", "-count=1 ."],
    "docker logs": ["-f --tail 50 web", "--since=1h web"],
    "docker ps": ["-aq --format '{{.ID}}'"],
    "pip show": ["pydantic --files"],
    "ruff check": ["src tests --select E,F"],
}  # fmt: skip


@pytest.mark.parametrize("first", FURTHER)
def test_S24_open_words_cover_ordinary_options_and_names_of_the_workspace(first: str) -> None:
    _, opened = offered(run(first))
    for words in FURTHER[first]:
        assert answers(opened.scope, run(f"{first} {words}")), words
        assert opened in offered(run(f"{first} {words}")), words


LED_ON: dict[str, list[str]] = {
    "git grep": [
        "-Orm x", "-nOrm x", "-5Orm x", "-n5Orm x", "'-Osh -c \"touch y\"' x", "--open-files-in-pager=rm x",
        "--open=rm x", "--no-index x", "--textconv x", "-f .env", "x ../other", "x /etc",
    ],
    "git diff": [
        "--no-index /etc/passwd /etc/hosts", "/etc/passwd /etc/hosts", "a ../../b", "--no-ind a b", "--output=x",
        "--ou x", "--ext-diff", "-Ox", "~root/x y", "--textconv",
    ],
    "git log": ["--output=x", "-p --ext-diff", "-Ox", "-n5 --outp=x"],
    "git show": ["--output=x", "--ext-diff"],
    "git blame": ["--contents /etc/passwd a", "--contents=x a", "-S x a", "--ignore-revs-file=x a"],
    "git ls-files": ["-X /etc/passwd -o", "--exclude-from=x"],
    "git status": ["../other", "--git-dir=x", "$X"],
    "git add": ["-f .env", "--force .env", "-p", "-e", "--chmod=+x a", "--pathspec-from-file=x", "--edit"],
    "git commit": ["--amend", "-n -m x", "--no-verify -m x", "-F .env", "-t x", "-S -m x", "--author=x -m x", "-C x"],
    "cargo build": [
        "--target-dir=/x", "--target-dir x", "--config build.rustc-wrapper='./x'", "--manifest-path=../Cargo.toml",
        "--target x.json", "-Zunstable-options", "-C x", "--out-dir x", "--features x",
    ],
    "cargo clippy": ["--fix", "-- -Clinker=./x"],
    "cargo test": ["--config x", "-- --logfile=x", "-- --ignored", "--target-dir=x"],
    "go test": [
        "-exec x", "-toolexec=x", "-c -o /usr/bin/ls", "-coverprofile=x", "-ldflags=-extld=./x", "-overlay=x", "-u",
        "-modfile=x", "-C x", "-args x", "-vet=x", "-tags x", "--exec x", "/x/...", "../other",
    ],
    "go vet": ["-vettool=./x", "-toolexec x"],
    "go doc": ["-http", "-C x"],
    "docker logs": ["--host=tcp://x web", "--config x web"],
    "docker ps": ["-H tcp://x"],
    "pip list": ["--index-url=http://x --outdated", "-f http://x", "--log=x", "--python=./x", "--proxy=x", "--cert=x"],
    "ruff check": [
        "--fix", "--unsafe-fixes", "--add-noqa", "--output-file=x", "-o x", "--config=x", "--cache-dir=/x", "@x", "-",
    ],
}  # fmt: skip


@pytest.mark.parametrize("first", LED_ON)
def test_S24_open_words_cover_nothing_that_runs_writes_or_reads_elsewhere(first: str) -> None:
    _, opened = offered(run(first))
    for words in LED_ON[first]:
        other = run(f"{first} {words}")
        assert not answers(opened.scope, other), words
        assert opened not in offered(other), words


CLOSED = [
    "git switch x", "git branch x", "git mv a b", "git merge x", "git stash", "git checkout x", "git push", "git fetch",
    "git config a b", "git cat-file -p x", "npm test", "npm run x", "yarn test", "go build", "go list", "go fmt",
    "go generate", "cargo run", "cargo doc", "cargo fmt", "cargo bench", "terraform plan", "terraform show", "tofu fmt",
    "kubectl get pods", "kubectl logs x", "docker run x", "docker exec x y", "dotnet test", "ruff format",
    "pip install x", "systemctl status x", "make test", "git", "git --version", "./git status", "/bin/git status",
]  # fmt: skip


@pytest.mark.parametrize("command", CLOSED)
def test_S24_only_exact_words_are_offered_where_further_ones_may_do_anything(command: str) -> None:
    [only] = offered(run(command))
    assert "exactly" in only.covers


@pytest.mark.parametrize("words", ["git", "git switch", "npm run lint", "make"])
def test_S24_open_words_that_nobody_offers_cover_nothing_more(words: str) -> None:
    """Written by hand, forged, or given when they still were offered."""
    opened = Scope(tool="shell", server="", command=(words,))
    for further in ("-f", "x", "push"):
        assert not answers(opened, run(f"{words} {further}"))


letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ5="
option = st.text(letters, max_size=3).map("-{}".format) | st.sampled_from(
    ["--output=x", "--ou", "--ext-diff", "--open=x", "--textconv", "--no-index", "--cached", "--", "a", "/etc", "../a"]
)


@settings(max_examples=1_000)
@given(st.sampled_from(["blame", "diff", "grep", "log", "ls-files", "rev-parse", "show", "status"]), st.lists(option))
def test_open_words_of_what_looks_only_look(looking: str, further: list[str]) -> None:
    """Two tables, made apart: what the one opens, the other must know to be harmless."""
    [program] = analyse_command(" ".join(["git", looking, *further])).programs
    assert is_harmless(program) or find_subcommand(program) is None
