"""Long outputs: the model reads two ends of them, the whole is kept in a file named by its hash."""

from __future__ import annotations

import hashlib
import re
import stat
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.outputs import OutputStore
from holdfast.content import Result, TextPart

NOTE = re.compile(r"\n… \[([\d,]+) characters left out; the whole output is in (\S+)\] …\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def check_whole(path: Path, content: bytes) -> None:
    assert path.read_bytes() == content
    assert path.name == hashlib.sha256(content).hexdigest() + ".txt"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# Spools


def test_short_output_is_kept_whole_and_leaves_no_file(folder: Path) -> None:
    spool = OutputStore(folder, limit=100).spool()
    for piece in (b"one\n", b"two\n"):
        spool.write(piece)
    assert spool.part().text == "one\ntwo\n"
    assert files(folder) == []


def test_output_of_exactly_the_limit_is_short(folder: Path) -> None:
    spool = OutputStore(folder, limit=100).spool()
    spool.write(b"x" * 100)
    assert spool.part().text == "x" * 100
    assert files(folder) == []


def test_no_output_is_the_empty_text(folder: Path) -> None:
    assert OutputStore(folder).spool().part().text == ""
    assert files(folder) == []


def test_discarded_spool_leaves_no_file(folder: Path) -> None:
    spool = OutputStore(folder, limit=10).spool()
    spool.write(b"x" * 1_000)
    spool.discard()
    assert files(folder) == []


def test_S33_long_output_is_cut_to_its_two_ends_and_kept_whole(folder: Path) -> None:
    content = "".join(f"{number:07}\n" for number in range(1_000)).encode()
    spool = OutputStore(folder, limit=100).spool()
    spool.write(content)
    text = spool.part().text
    note = NOTE.search(text)
    assert note
    assert text[: note.start()] == content[:20].decode()
    assert text[note.end() :] == content[-80:].decode()
    assert note[1] == "7,900"
    assert files(folder) == [Path(note[2])]
    check_whole(Path(note[2]), content)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@given(pieces=st.lists(st.binary(max_size=40), max_size=30), limit=st.integers(5, 60))
def test_S33_however_it_is_written_the_ends_are_the_ends(
    pieces: list[bytes], limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("outputs")
    spool = OutputStore(folder, limit=limit).spool()
    for piece in pieces:
        spool.write(piece)
    content = b"".join(pieces)
    characters = content.decode("utf-8", "replace")
    text = spool.part().text
    if len(characters) <= limit:
        assert text == characters
        assert files(folder) == []
        return
    head = int(limit * 0.2)
    assert text.startswith(characters[:head])
    assert text.endswith(characters[-(limit - head) :])
    [whole] = files(folder)
    check_whole(whole, content)


def test_S33_characters_of_many_bytes_at_the_cut_are_not_broken(folder: Path) -> None:
    for shift in range(4):
        spool = OutputStore(folder, limit=50).spool()
        content = "x" * shift + "日本語😀é" * 100
        spool.write(content.encode())
        text = spool.part().text
        assert "\ufffd" not in text
        note = NOTE.search(text)
        assert note
        assert content.startswith(text[: note.start()])
        assert content.endswith(text[note.end() :])


def test_S33_limit_of_a_spool_is_in_characters(folder: Path) -> None:
    spool = OutputStore(folder, limit=100).spool()
    spool.write(("é" * 100).encode())
    assert spool.part().text == "é" * 100


def test_S33_memory_stays_small_however_much_is_written(folder: Path) -> None:
    spool = OutputStore(folder).spool()
    chunk = b"0123456789abcdef" * 4_096
    tracemalloc.start()
    try:
        for _ in range(800):
            spool.write(chunk)
        _, peak = tracemalloc.get_traced_memory()
        text = spool.part().text
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
    assert len(text) < 40_300
    [whole] = files(folder)
    assert whole.stat().st_size == 800 * len(chunk) > 50_000_000


def test_same_output_is_kept_once(folder: Path) -> None:
    store = OutputStore(folder)
    assert store.save("same") == store.save("same")
    assert len(files(folder)) == 1


# Results


def test_result_within_the_limit_is_left_as_it_is(folder: Path) -> None:
    result = Result(parts=(TextPart(text="a" * 30), TextPart(text="b" * 30)), display="shown")
    assert OutputStore(folder, limit=100).bounded_result(result) == result
    assert files(folder) == []


def test_S33_limit_is_over_all_parts_together(folder: Path) -> None:
    result = Result(parts=tuple(TextPart(text=letter * 60) for letter in "ab"), display="d" * 1_000)
    bounded = OutputStore(folder, limit=100).bounded_result(result)
    [part] = bounded.parts
    note = NOTE.search(part.text)
    assert note
    assert note[1] == "21"
    check_whole(Path(note[2]), b"a" * 60 + b"\n" + b"b" * 60)
    assert bounded.display is not None
    assert len(bounded.display) < 200


@pytest.mark.parametrize(
    ("given_back", "text"), [(None, "None"), ("text", "text"), (7, "7"), ({"a": 1}, "{'a': 1}"), (b"x", "b'x'")]
)
def test_what_is_no_result_becomes_text(given_back: object, text: str, folder: Path) -> None:
    assert OutputStore(folder).bounded_result(given_back) == Result.of(text)


def test_result_can_always_be_written_as_json(folder: Path) -> None:
    assert OutputStore(folder).bounded_result(Result.of("file-\udcff")).model_dump_json()


def test_S33_what_was_cut_once_is_not_cut_again(folder: Path) -> None:
    store = OutputStore(folder)
    spool = store.spool()
    spool.write(b"0123456789" * 10_000)
    cut = Result(parts=(spool.part(),))
    assert store.bounded_result(cut) == cut
    assert len(files(folder)) == 1


def test_full_disk_costs_the_file_and_not_the_ends(folder: Path) -> None:
    spool = OutputStore(folder, limit=10).spool()
    spool._file.close()
    spool._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 - the spool closes it
    spool.write(b"0123456789abcdef")
    part = spool.part()
    assert part.text.startswith("01\n")
    assert part.text.endswith("\n89abcdef")
    assert "the rest could not be kept" in part.text
    assert OutputStore(folder, limit=10).bounded((part,)) == (part,)
    assert files(folder) == []
