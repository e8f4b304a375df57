"""What a build means for `up` and `worker` (S46)."""

from __future__ import annotations

import json

from tests.cli.support import Home, call


def test_S46_up_has_no_versions_whatever_the_environment_says(empty: Home) -> None:
    """Its worker goes with it: a turn that stayed with its version would find nobody the next time."""
    empty.env["HOLDFAST_BUILD"] = "v1"
    with empty.up("--no-gateway"):
        empty.start("first", call("list_directory", path="."))
        assert empty.seen("first", kind="result")
        said = json.loads(empty.run("doctor", "--json").stdout)
        found = {one["check"]: one["says"] for one in said["checks"]}
        assert found["versions"] == "no worker of version 'v1' has polled"


def test_a_worker_without_a_build_cannot_become_current(home: Home) -> None:
    done = home.run("worker", "--current-if-none")
    assert (done.returncode, "set HOLDFAST_BUILD" in done.stderr) == (2, True)
    done = home.run("worker", HOLDFAST_BUILD="no good")
    assert (done.returncode, "a build must be" in done.stderr) == (2, True)
