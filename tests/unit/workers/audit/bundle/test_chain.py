"""The chain and the container of a bundle: whatever is done to them is found, and told by its name (S43)."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.workers.audit.bundle.chain import (
    Chain,
    Link,
    Record,
    digest_bytes,
    find_chain_problems,
    find_differences,
    read_chain,
)
from holdfast.workers.audit.bundle.tar import BLOCK, Container, ContainerWriter, build_header, inspect_container
from tests.support.bundles import archive

MEMBERS = [("histories/0001.jsonl", b'{"a":1}\n{"b":2}\n'), ("payloads/00", bytes(513)), ("manifest.json", b"{}")]


def looked(folder: Path, data: bytes) -> Container:
    file = folder / "bundle.tar"
    file.write_bytes(data)
    return inspect_container(file)


def test_an_archive_gives_back_what_went_in_and_any_tar_opens_it(tmp_path: Path) -> None:
    import tarfile

    found = looked(tmp_path, archive(MEMBERS))
    assert found.problems == []
    assert [(name, found.read(name)) for name in found.members] == MEMBERS
    with tarfile.open(tmp_path / "bundle.tar") as opened:
        assert opened.getnames() == [name for name, _ in MEMBERS]


def test_S43_every_byte_of_an_archive_is_content_or_known_beforehand(tmp_path: Path) -> None:
    whole = archive(MEMBERS)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x41
        found = looked(tmp_path, bytes(changed))
        contents = [(name, found.read(name)) for name in found.members]
        assert found.problems or contents != MEMBERS, f"byte {place} may be anything"


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 1024, 3000])
def test_an_archive_that_was_cut_off_says_so(tmp_path: Path, length: int) -> None:
    found = looked(tmp_path, archive(MEMBERS)[:length])
    assert any("changed" in problem for problem in found.problems)


def test_what_is_added_behind_the_end_or_twice_is_told(tmp_path: Path) -> None:
    whole = archive(MEMBERS)
    assert "added after it" in looked(tmp_path, whole + bytes(BLOCK)).problems[0]
    twice = looked(tmp_path, archive([*MEMBERS, MEMBERS[0]]))
    assert twice.problems == ["added: a second 'histories/0001.jsonl' at byte 3,584"]


def chain_of(bodies: list[str]) -> Chain:
    chain = Chain()
    for place, body in enumerate(bodies, start=1):
        chain.add(Record("event", "h", f"event {place}", digest_bytes(body.encode()), place))
    return chain


def findings(data: bytes) -> list[str]:
    found = list(read_chain(data.splitlines()))
    links = [one for one in found if isinstance(one, Link)]
    return [one for one in found if isinstance(one, str)] + list(find_chain_problems(links))


def test_a_line_is_known_by_its_hash_however_long_it_is_and_whether_it_ends(tmp_path: Path) -> None:
    rows = [b"", b"a", b"b" * 3_000_000, b"c"]
    found = looked(tmp_path, archive([("histories/0001.jsonl", b"".join(row + b"\n" for row in rows))]))
    assert list(found.digest_lines("histories/0001.jsonl")) == [digest_bytes(row) for row in rows]
    assert list(found.read_lines("histories/0001.jsonl")) == rows
    open_end = looked(tmp_path, archive([("h", b"a\nb")]))
    assert list(open_end.digest_lines("h"))[-1] != digest_bytes(b"b")
    assert list(open_end.read_lines("h"))[-1] != b"b"


def test_a_stranger_s_giant_is_not_read_into_memory(tmp_path: Path) -> None:
    file = tmp_path / "giant.tar"
    with file.open("wb") as opened:
        opened.write(build_header("histories/0001.jsonl", 6 * 1024**3))
        opened.truncate(6 * 1024**3 + 3 * BLOCK)
    found = inspect_container(file)
    with pytest.raises(BadInput, match="larger than any"):
        found.read("histories/0001.jsonl")
    with pytest.raises(BadInput, match="longer than any"):
        list(found.read_lines("histories/0001.jsonl"))


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a file"):
        inspect_container(tmp_path / "pipe")


def test_a_file_that_changed_leaves_no_trace_in_an_archive(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"something else")
    written = io.BytesIO()
    writer = ContainerWriter(written)
    writer.add("a", b"1")
    before = written.getvalue()
    assert not writer.add_file("outputs/x.txt", tmp_path / "source", digest_bytes(b"what it was"))
    assert not writer.add_file("outputs/x.txt", tmp_path / "missing", digest_bytes(b""))
    assert written.getvalue() == before
    assert writer.add_file("outputs/x.txt", tmp_path / "source", digest_bytes(b"something else"))


Bodies = st.lists(st.text(max_size=5), min_size=2, max_size=12)


@given(Bodies, st.data())
def test_S43_a_chain_tells_the_record_that_was_changed_removed_or_moved(bodies: list[str], data: st.DataObject) -> None:
    lines = chain_of(bodies).encode_lines().splitlines()
    assert findings(b"".join(line + b"\n" for line in lines)) == []
    place = data.draw(st.integers(0, len(lines) - 2))
    how = data.draw(st.sampled_from(["changed", "removed", "moved", "doubled"]))
    if how == "changed":
        lines[place] = lines[place].replace(b'"kind":"event"', b'"kind":"other"')
    elif how == "removed":
        del lines[place]
    elif how == "moved":
        lines[place], lines[place + 1] = lines[place + 1], lines[place]
    else:
        lines.insert(place, lines[place])
    found = findings(b"".join(line + b"\n" for line in lines))
    assert found
    assert any(str(place + 1) in finding or str(place + 2) in finding for finding in found)


GOOD = {"n": 1, "kind": "event", "file": "h", "about": "a", "sha256": "0", "link": "0"}
BAD = [{**GOOD, "file": []}, {**GOOD, "file": 3}, {**GOOD, "sha256": [1]}, {**GOOD, "more": 1}, {**GOOD, "n": True}]


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"{}", b"3", b'{"n":1}', b'{"n":"1","link":1}', b"\xff", b"[" * 5_000]
    + [json.dumps(one).encode() for one in [*BAD, {**GOOD, "line": "1"}]],
)
def test_lines_of_a_chain_that_are_none_are_told(line: bytes) -> None:
    assert [one for one in read_chain([line]) if isinstance(one, Link)] == []
    assert list(read_chain([line])) == ["changed: line 1 of the chain cannot be read"]


def test_S43_many_lines_that_are_not_as_they_were_are_told_in_bounded_time() -> None:
    records = [Record("event", "h", f"event {n}", "same", n) for n in range(1, 20_001)]
    found = list(find_differences(records, ["same"] * 10_000 + ["other"] + ["same"] * 9_000, "h"))
    assert found
    assert next(find_differences(records, ["other"] * 20_000, "h")) == "changed or missing: event 1"


@given(st.lists(st.integers(0, 50), unique=True, min_size=3, max_size=30), st.data())
def test_S43_what_was_done_to_lines_is_told_by_what_they_are(numbers: list[int], data: st.DataObject) -> None:
    records = [Record("event", "h", f"event {n}", digest_bytes(b"%d" % n), place) for place, n in enumerate(numbers, 1)]
    found = [record.sha256 for record in records]
    assert list(find_differences(records, found, "h")) == []
    place = data.draw(st.integers(0, len(found) - 1))
    about = records[place].about
    changed = [*found[:place], digest_bytes(b"other"), *found[place + 1 :]]
    assert list(find_differences(records, changed, "h")) == [f"changed: {about}"]
    assert list(find_differences(records, found[:place] + found[place + 1 :], "h")) == [f"missing: {about}"]
    added = [*found[:place], digest_bytes(b"new"), *found[place:]]
    assert list(find_differences(records, added, "h")) == [f"added: line {place + 1} of h"]
    twice = list(find_differences(records, [*found, found[place]], "h"))
    assert len(twice) == 1
    assert twice[0].startswith("added: line")
    other = data.draw(st.integers(0, len(found) - 1).filter(lambda n: n != place))
    moved = found[:place] + found[place + 1 :]
    moved.insert(other, found[place])
    told = list(find_differences(records, moved, "h"))
    assert told
    assert all(words.startswith("moved: ") for words in told)
