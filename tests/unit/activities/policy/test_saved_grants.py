"""Answers kept for good: written whole, by one process at a time, read again when they change, and lost by nobody."""

from __future__ import annotations

import multiprocessing
import os
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.activities.policy import saved_grants
from holdfast.activities.policy.rules import RuleEffect
from holdfast.activities.policy.saved_grants import SavedGrants, load_saved, remove_grant, save_grant
from holdfast.activities.policy.subject import build_call_subject
from holdfast.domain.approvals.approval import Decision, DecisionAction, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.errors import BadInput
from holdfast.util.private_files import lock_file
from tests.support.policies import run

NOW = datetime(2030, 1, 31, tzinfo=UTC)
PUSH = Scope(tool="shell", server="", command=("git push $",))


def grant(scope: Scope = PUSH, outcome: DecisionAction = DecisionAction.PROCEED_ALWAYS, **keys: Any) -> Grant:
    remember = outcome is DecisionAction.CANCEL
    decision = Decision(
        approval_id="turn-1/c1/1", digest="d", outcome=outcome, remember=remember, **{"by": "ann", **keys}
    )
    return Grant(id="g", scope=scope, covers="", decision=decision, given_at=NOW)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "granted.toml"


def names(file: Path) -> list[str | None]:
    return [entry.rule.name for entry in load_saved(file).entries]


def test_an_answer_is_kept_with_who_gave_it_and_answers_from_then_on(file: Path) -> None:
    kept = SavedGrants(file)
    assert kept.find_covering(run("git push"), NOW) is None
    name = save_grant(file, grant(expires=NOW + timedelta(days=1)))
    found = kept.find_covering(run("git push"), NOW)
    assert found
    assert (found.name, found.decision) == (name, RuleEffect.ALLOW)
    assert found.reason == "given by ann on 2030-01-31 for turn-1/c1/1"
    assert name.startswith("granted-")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert kept.find_covering(run("git push -f"), NOW) is None
    assert kept.find_covering(run("git push"), NOW + timedelta(days=1)) is None, "it has expired"
    assert kept.find_covering(build_call_subject("shell", {"command": "git push", "directory": "x"}), NOW) is None


def test_a_refusal_comes_first_and_a_question_is_never_answered(file: Path) -> None:
    save_grant(file, grant())
    save_grant(file, grant(Scope(tool="shell", server="", command=("git",)), DecisionAction.CANCEL))
    save_grant(file, grant(Scope(tool="ask_user", server="")))
    kept = SavedGrants(file)
    found = kept.find_covering(run("ls; git push"), NOW)
    assert found
    assert found.decision is RuleEffect.DENY
    assert kept.find_covering(build_call_subject("ask_user", {}), NOW) is None
    assert len(kept.rules) == 3


def test_saving_twice_keeps_one_and_what_stood_there_stays(file: Path) -> None:
    file.parent.mkdir()
    by_hand = '# mine\n[[rule]]   # not ours\nname = "by-hand"\ndecision = "deny"\ntool = "x"\n'
    file.write_text(by_hand)
    file.chmod(0o600)
    name = save_grant(file, grant())
    assert save_grant(file, grant(by="bob")) == name
    assert save_grant(file, grant(expires=NOW)) == name, "what lasts for ever lasts till then"
    assert names(file) == ["by-hand", name]
    assert file.read_text().startswith(by_hand)
    until = save_grant(file, grant(Scope(tool="y"), expires=NOW))
    later = save_grant(file, grant(Scope(tool="y"), expires=NOW + timedelta(days=1)))
    assert len({name, until, later}) == 3
    assert save_grant(file, grant(Scope(tool="y"), expires=NOW)) == until


def test_an_answer_is_taken_out_and_the_rest_stays_as_it_is(file: Path) -> None:
    first, second = (
        save_grant(file, grant()),
        save_grant(file, grant(Scope(tool="y", arguments={"a\u2028": {"b": "\x7f'\n"}}))),
    )
    third = save_grant(file, grant(Scope(server="s")))
    with file.open("a") as opened:
        opened.write("# a comment\n")
    kept = SavedGrants(file)
    assert remove_grant(file, second).tool == ("y",)
    assert names(file) == [first, third]
    assert file.read_text().endswith("# a comment\n")
    remove_grant(file, first)
    remove_grant(file, third)
    assert (names(file), kept.rules, kept.problem) == ([], (), None)
    with pytest.raises(BadInput, match="no saved grant is called 'granted-x'"):
        remove_grant(file, "granted-x")


def test_a_file_that_was_rewritten_by_hand_is_not_guessed_at(file: Path) -> None:
    file.parent.mkdir()
    text = 'rule = [{ name = "a", decision = "deny", tool = "x" }, { name = "b", decision = "deny", tool = "y" }]\n'
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(BadInput, match="take 'a' out by hand"):
        remove_grant(file, "a")
    with pytest.raises(BadInput, match=r"is not TOML"):
        save_grant(file, grant())
    assert file.read_text() == text


def test_what_cannot_be_kept_says_why(file: Path) -> None:
    for wrong, words in (
        (grant(Scope(digest="d")), "for one call alone"),
        (grant(uses=3), "for a number of calls"),
        (grant(Scope()), "covers nothing"),
        (grant(Scope(tool="x" * 900, arguments={"a": "y" * 1_000_000})), "is full"),
    ):
        with pytest.raises(BadInput, match=words):
            save_grant(file, wrong)
    assert not file.exists()
    save_grant(file, grant())
    with pytest.raises(BadInput, match=r"'granted-\w{8}' is in the way: revoke it first"):
        save_grant(file, grant(outcome=DecisionAction.CANCEL))


BROKEN = {
    "no TOML": "[[rule",
    "another key": '[[rule]]\nname = "a"\ndecision = "allow"\ntol = "x"\n',
    "ask": '[[rule]]\nname = "a"\ndecision = "ask"\ntool = "x"\n',
    "no name": '[[rule]]\ndecision = "allow"\ntool = "x"\n',
    "everything": '[[rule]]\nname = "a"\ndecision = "allow"\nanything = true\n',
    "everything of commands": '[[rule]]\nname = "a"\ndecision = "allow"\ncommand = "ls"\nanything = true\n',
    "modes": '[[rule]]\nname = "a"\ndecision = "allow"\ntool = "x"\nmodes = ["plan"]\n',
    "a kind": '[[rule]]\nname = "a"\ndecision = "allow"\nkind = "edit"\n',
    "bytes": "\udcff",
}


MADE = Scope(tool="shell", server="", command=("touch made",))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_allows_nothing_and_is_never_overwritten(name: str, file: Path) -> None:
    save_grant(file, grant())
    refusal = save_grant(file, grant(MADE, DecisionAction.CANCEL))
    kept = SavedGrants(file)
    assert kept.find_covering(run("git push"), NOW)
    broken = file.read_bytes() + BROKEN[name].encode("utf-8", "surrogateescape")
    file.write_bytes(broken)
    assert kept.find_covering(run("git push"), NOW) is None
    refused = kept.find_covering(run("touch made"), NOW)
    assert refused, "what was refused before it broke stays refused"
    assert (refused.name, kept.may_miss_refusals) == (refusal, False)
    assert str(file) in (kept.problem or "")
    for change in (lambda: save_grant(file, grant(Scope(tool="z"))), lambda: remove_grant(file, "a")):
        with pytest.raises(BadInput):
            change()
    assert file.read_bytes() == broken
    assert sorted(os.listdir(file.parent)) == ["granted.lock", "granted.toml"]


def test_a_file_that_is_broken_from_the_start_is_uncertain_until_it_is_mended(file: Path) -> None:
    save_grant(file, grant(MADE, DecisionAction.CANCEL))
    good = file.read_text()
    file.write_text(good + BROKEN["another key"])
    kept = SavedGrants(file)
    assert kept.may_miss_refusals, "also when nothing else was asked yet"
    assert kept.find_covering(run("touch made"), NOW) is None
    file.write_text(good)
    assert (kept.may_miss_refusals, kept.problem) == (False, None)
    assert kept.find_covering(run("touch made"), NOW)
    file.write_text(good + BROKEN["no TOML"])
    assert kept.find_covering(run("touch made"), NOW)
    assert not kept.may_miss_refusals, "its refusals are known"
    file.write_text("# all revoked\n")
    assert (kept.find_covering(run("touch made"), NOW), kept.may_miss_refusals) == (None, False)


def test_no_file_holds_no_refusal_but_one_that_may_be_there_might(file: Path) -> None:
    kept = SavedGrants(file)
    assert (kept.may_miss_refusals, kept.problem) == (False, None)
    file.parent.mkdir()
    file.write_text(BROKEN["another key"])
    file.chmod(0o600)
    assert kept.may_miss_refusals, "that there was none before says nothing of what it was meant to refuse"
    file.unlink()
    assert (kept.may_miss_refusals, kept.problem) == (False, None)
    file.symlink_to(file)
    assert kept.may_miss_refusals
    behind = SavedGrants(file.with_name("file") / "granted.toml")
    file.with_name("file").touch()
    assert behind.may_miss_refusals
    assert "cannot be read" in (behind.problem or "")


def test_a_file_that_others_may_write_allows_nothing(file: Path) -> None:
    save_grant(file, grant())
    file.chmod(0o666)
    kept = SavedGrants(file)
    assert kept.find_covering(run("git push"), NOW) is None
    assert kept.may_miss_refusals
    assert "chmod go-w" in (kept.problem or "")
    with pytest.raises(BadInput, match="chmod go-w"):
        save_grant(file, grant())


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be written"):
        save_grant(tmp_path / "file" / "granted.toml", grant())
    (tmp_path / "granted.toml").mkdir()
    with pytest.raises(BadInput, match="is a folder"):
        save_grant(tmp_path / "granted.toml", grant())


def _save_some(file: Path, start: int) -> None:
    for number in range(start, start + 10):
        save_grant(file, grant(Scope(tool=f"tool{number}")))


def test_processes_that_save_at_once_lose_nothing(file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_save_some, args=(file, start)) for start in (0, 10, 20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(names(file)) == 30


def test_nobody_waits_for_ever_for_a_lock(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_grants, "LOCK_SECONDS", 0.05)
    with lock_file(file, 1), pytest.raises(BadInput, match="another process"):
        save_grant(file, grant())
    assert save_grant(file, grant())


def test_a_thousand_answers_are_looked_through_in_no_time(file: Path) -> None:
    file.parent.mkdir()
    shapes = ('command = "git x{} $"', 'command = "prog{}"')
    file.write_text(
        "".join(
            f'[[rule]]\nname = "g{number}"\ndecision = "allow"\ntool = "shell"\n{shapes[number % 2].format(number)}\n'
            for number in range(1_000)
        )
    )
    file.chmod(0o600)
    kept = SavedGrants(file)
    assert kept.find_covering(run("make"), NOW) is None
    assert kept.problem is None
    taken = []
    for _ in range(10):
        began = time.perf_counter()
        assert kept.find_covering(run("git x998"), NOW)
        taken.append(time.perf_counter() - began)
    assert min(taken) < 0.05
