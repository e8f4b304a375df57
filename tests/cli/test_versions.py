"""`holdfast versions …` as a user types it, and what a build means for `up` and `worker` (S46)."""

from __future__ import annotations

from tests.cli.support import Home, call


def test_without_versions_it_says_so(home: Home) -> None:
    said = home.run("versions", "list")
    assert (said.returncode, "No worker has a version of 'holdfast'" in said.stdout) == (0, True)
    told = home.json("versions", "list", "--deployment", "another")
    assert (told["deployment"], told["versions"], told["current"]) == ("another", [], None)


def test_what_cannot_be_says_what_to_do(home: Home) -> None:
    for words, code, said in (
        (("set-current", "v1"), 1, "start one with HOLDFAST_BUILD=v1"),
        (("drain", "v1"), 1, "no worker of version 'v1' of 'holdfast' has ever polled"),
        (("move", "turn-x", "v1"), 1, "see `holdfast versions list`"),
        (("set-current", "a b"), 2, "a build must be 1 to 128 letters"),
        (("set-current", "x" * 5_000), 2, "a build must be 1 to 128 letters"),
        (("list", "--deployment", "a.b"), 2, "a deployment's name must be 1 to 80 letters"),
        (("list", "--address", "127.0.0.1:1"), 3, "no Temporal server answers"),
    ):
        done = home.run("versions", *words)
        assert (done.returncode, said in done.stderr) == (code, True), (words, done.stderr)
        assert "Traceback" not in done.stderr


def test_S46_up_has_no_versions_whatever_the_environment_says(empty: Home) -> None:
    """Its worker goes with it: a turn that stayed with its version would find nobody the next time."""
    empty.env["HOLDFAST_BUILD"] = "v1"
    with empty.up():
        empty.start("first", call("list_directory", path="."))
        assert empty.seen("first", kind="result")
        assert empty.json("versions", "list")["versions"] == []


def test_a_worker_without_a_build_cannot_become_current(home: Home) -> None:
    done = home.run("worker", "--current-if-none")
    assert (done.returncode, "set HOLDFAST_BUILD" in done.stderr) == (2, True)
    done = home.run("worker", HOLDFAST_BUILD="no good")
    assert (done.returncode, "a build must be" in done.stderr) == (2, True)
