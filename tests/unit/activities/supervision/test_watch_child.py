"""What a supervisor decides: why a run is over, what its exit code means, what is kept of its output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.activities.process.proc import MAIN_SCRIPT, list_descendants, read_start_time
from holdfast.activities.supervision import run_protocol as files
from holdfast.activities.supervision.launch import explain_unsupported
from holdfast.activities.supervision.run_protocol import Request
from holdfast.activities.supervision.supervisor import classify_end
from holdfast.activities.supervision.watch_child import Lease, OutputBuffer, find_end_reason

REPORT = b'{ "child-pid": 5 }\n{ "exit-code": 1 }\n'


@pytest.mark.parametrize(
    ("ended", "told", "late", "alone", "why"),
    [
        (False, False, False, False, None),
        (True, True, True, True, "exited"),
        (False, True, True, True, "stopped"),
        (False, False, True, True, "timed_out"),
        (False, False, False, True, "abandoned"),
    ],
)
def test_first_reason_counts(ended: bool, told: bool, late: bool, alone: bool, why: str | None) -> None:
    assert find_end_reason(ended=ended, stop_requested=told, late=late, alone=alone) == why


@pytest.mark.parametrize(
    ("why", "code", "failure", "report", "expected"),
    [
        ("exited", 0, "", None, ("exited", 0)),
        ("exited", 137, "", None, ("exited", 137)),
        ("exited", -9, "", None, ("exited", -9)),
        ("stopped", None, "", None, ("stopped", None)),
        ("exited", 127, "no such file", None, ("not_started", None)),
        ("stopped", -15, "no such file", None, ("not_started", None)),
        ("exited", 1, "", REPORT, ("exited", 1)),
        ("exited", 1, "", b'{ "child-pid": 5 }\n', ("not_started", None)),
        ("exited", 1, "", b"", ("not_started", None)),
        ("stopped", 1, "", b"", ("stopped", 1)),
        ("exited", 137, "", REPORT, ("exited", -9)),
        ("exited", 128, "", REPORT, ("exited", 128)),
        ("exited", 255, "", REPORT, ("exited", 255)),
        ("stopped", -9, "", REPORT, ("stopped", -9)),
    ],
)
def test_end_of_a_run_is_read(
    why: str, code: int | None, failure: str, report: bytes | None, expected: tuple[str, int | None]
) -> None:
    assert classify_end(why, code, failure, report)[:2] == expected


@pytest.mark.parametrize(
    ("pieces", "most", "kept"),
    [
        ([b"abc", b"def"], 100, b"abcdef"),
        ([b"abc", b"def"], 6, b"abcdef"),
        ([b"abc", b"def"], 4, b"abcd"),
        ([b"abc", b"def", b"g"], 3, b"abc"),
        ([b"abc"], 0, b""),
    ],
)
def test_S33_output_is_kept_up_to_the_limit_and_never_behind_a_gap(
    tmp_path: Path, pieces: list[bytes], most: int, kept: bytes
) -> None:
    output = OutputBuffer(str(tmp_path / "output"), most)
    for piece in pieces:
        output.append(piece)
    assert (tmp_path / "output").read_bytes() == kept
    assert (output.total_bytes, output.stored_bytes, output.error) == (len(b"".join(pieces)), len(kept), "")


def test_lease_counts_from_the_last_touch_whatever_the_clock_says(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    path.touch()
    began = time.monotonic()
    lease = Lease(str(path), 10)
    assert not lease.has_run_out(began + 9)
    os.utime(path, (1, 1))
    assert not lease.has_run_out(began + 18), "a clock that was set back is a touch like any other"
    assert lease.has_run_out(began + 29)
    os.utime(path, (2, 2))
    assert not lease.has_run_out(began + 40)
    path.unlink()
    assert not lease.has_run_out(began + 49)
    assert lease.has_run_out(began + 51), "nobody touches what is not there"


def test_request_survives_its_way() -> None:
    given = {
        "key": "turn/ä\udce9", "digest": "d", "words": ["a", "b\nc", ""], "directory": "/tmp", "seconds": 1.5,
        "environment": {"A": "\udce9\n"}, "lease_seconds": 2, "grace_seconds": 3, "most_bytes": 4, "sandboxed": True,
        "follow": True, "input": b"\n\0\xff", "owner": {"family": "ä"},
    }  # fmt: skip
    assert vars(Request.unpack(Request(**given).pack())) == given  # type: ignore[arg-type]


def test_lock_is_seen_without_being_taken(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    assert not files.is_held(folder)
    first = files.take_lock(folder)
    assert first is not None
    assert files.is_held(folder)
    assert files.take_lock(folder) is None
    assert files.is_held(folder)
    os.close(first)
    assert not files.is_held(folder)
    second = files.take_lock(folder)
    assert second is not None
    files.clear_run(folder)
    assert not files.is_held(folder)
    assert not Path(folder).exists()
    third = files.take_lock(folder)
    assert third is not None, "what is removed is not what is locked anew"
    os.close(second)
    assert files.is_held(folder)
    os.close(third)


def test_status_needs_no_more_room_than_was_taken_for_it(tmp_path: Path) -> None:
    folder = str(tmp_path)
    files.reserve_status(folder)
    files.write_status(folder, {"why": "exited", "code": 0, "error": "x" * 100_000})
    assert (tmp_path / files.STATUS_FILE).stat().st_size <= files.RESERVED_BYTES
    assert (files.read_file(folder, files.STATUS_FILE) or {})["why"] == "exited"
    assert not (tmp_path / files.RESERVED_FILE).exists()


def test_processes_are_told_apart_and_found_below_each_other() -> None:
    with subprocess.Popen(["bash", "-c", "sleep 600 & wait"]) as process:
        try:
            deadline = time.monotonic() + 10
            while len(below := list_descendants(process.pid)) < 1:
                assert time.monotonic() < deadline
            [child] = below
            assert below[child] == process.pid
            assert list_descendants(os.getpid())[child] == process.pid
            assert read_start_time(process.pid) == read_start_time(process.pid)
            assert (read_start_time(os.getpid()) or 0) <= (read_start_time(process.pid) or 0)
        finally:
            os.kill(child, 9)
            process.kill()
    assert read_start_time(2**22 + 1) is None


def test_supervisor_imports_little_and_only_of_the_standard_library() -> None:
    """It is started once per command, and these would double the time that takes."""
    words = [sys.executable, "-I", "-S", "-X", "importtime", MAIN_SCRIPT, "/nonexistent/run"]
    done = subprocess.run(words, input=b"", capture_output=True, timeout=30, check=False)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines() if "|" in line}
    assert "holdfast.activities.supervision.supervisor" in loaded
    ours = {name for name in loaded if name.startswith("holdfast")}
    others = {"holdfast.activities", "holdfast.activities.process", "holdfast.activities.process.proc"}
    assert {name for name in ours if not name.startswith("holdfast.activities.supervision")} == others
    known = {*sys.stdlib_module_names, "holdfast", "imported package"}
    assert {name.partition(".")[0] for name in loaded} <= known
    assert not {"typing", "asyncio", "dataclasses", "subprocess", "pathlib", "inspect", "site"} & loaded


def test_supervisor_can_be_had_here() -> None:
    assert (explain_unsupported() is None) == (sys.platform == "linux")
    assert Path(holdfast.__file__).parent in Path(MAIN_SCRIPT).parents
