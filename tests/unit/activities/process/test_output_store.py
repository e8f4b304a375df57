"""Long outputs: the model reads two ends of them, the whole is kept in a file named by its hash."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.process.output_store import BLOB_LIMIT, OutputStore, find_suffix
from holdfast.domain.content import BlobPart, DataPart, Part, Result, TextPart

NOTE = re.compile(r"\n… \[([\d,]+) characters left out; read_output reads the whole, by the name ([0-9a-f]{32})\] …\n")


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
    spool = OutputStore(folder, limit=100).open_spool()
    for piece in (b"one\n", b"two\n"):
        spool.write(piece)
    assert spool.build_part().text == "one\ntwo\n"
    assert files(folder) == []


def test_output_of_exactly_the_limit_is_short(folder: Path) -> None:
    spool = OutputStore(folder, limit=100).open_spool()
    spool.write(b"x" * 100)
    assert spool.build_part().text == "x" * 100
    assert files(folder) == []


def test_no_output_is_the_empty_text(folder: Path) -> None:
    assert OutputStore(folder).open_spool().build_part().text == ""
    assert files(folder) == []


def test_discarded_spool_leaves_no_file(folder: Path) -> None:
    spool = OutputStore(folder, limit=10).open_spool()
    spool.write(b"x" * 1_000)
    spool.discard()
    assert files(folder) == []


def test_S33_long_output_is_cut_to_its_two_ends_and_kept_whole(folder: Path) -> None:
    content = "".join(f"{number:07}\n" for number in range(1_000)).encode()
    spool = OutputStore(folder, limit=100).open_spool()
    spool.write(content)
    text = spool.build_part().text
    note = NOTE.search(text)
    assert note
    assert text[: note.start()] == content[:20].decode()
    assert text[note.end() :] == content[-80:].decode()
    assert note[1] == "7,900"
    [whole] = files(folder)
    assert whole.name.startswith(note[2])
    check_whole(whole, content)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@given(pieces=st.lists(st.binary(max_size=40), max_size=30), limit=st.integers(5, 60))
def test_S33_however_it_is_written_the_ends_are_the_ends(
    pieces: list[bytes], limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("outputs")
    spool = OutputStore(folder, limit=limit).open_spool()
    for piece in pieces:
        spool.write(piece)
    content = b"".join(pieces)
    characters = content.decode("utf-8", "replace")
    text = spool.build_part().text
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
        spool = OutputStore(folder, limit=50).open_spool()
        content = "x" * shift + "日本語😀é" * 100
        spool.write(content.encode())
        text = spool.build_part().text
        assert "\ufffd" not in text
        note = NOTE.search(text)
        assert note
        assert content.startswith(text[: note.start()])
        assert content.endswith(text[note.end() :])


def test_S33_limit_of_a_spool_is_in_characters(folder: Path) -> None:
    spool = OutputStore(folder, limit=100).open_spool()
    spool.write(("é" * 100).encode())
    assert spool.build_part().text == "é" * 100


def test_S33_memory_stays_small_however_much_is_written(folder: Path) -> None:
    spool = OutputStore(folder).open_spool()
    chunk = b"0123456789abcdef" * 4_096
    tracemalloc.start()
    try:
        for _ in range(800):
            spool.write(chunk)
        _, peak = tracemalloc.get_traced_memory()
        text = spool.build_part().text
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
    assert OutputStore(folder, limit=100).bound_result(result) == result
    assert files(folder) == []


def test_S33_limit_is_over_all_parts_together(folder: Path) -> None:
    result = Result(parts=tuple(TextPart(text=letter * 60) for letter in "ab"), display="d" * 1_000)
    bounded = OutputStore(folder, limit=100).bound_result(result)
    [part] = bounded.parts
    note = NOTE.search(part.text)
    assert note
    assert note[1] == "21"
    [whole] = files(folder)
    assert whole.name.startswith(note[2])
    check_whole(whole, b"a" * 60 + b"\n" + b"b" * 60)
    assert bounded.display is not None
    assert len(bounded.display) < 200


@pytest.mark.parametrize(
    ("given_back", "text"), [(None, "None"), ("text", "text"), (7, "7"), ({"a": 1}, "{'a': 1}"), (b"x", "b'x'")]
)
def test_what_is_no_result_becomes_text(given_back: object, text: str, folder: Path) -> None:
    assert OutputStore(folder).bound_result(given_back) == Result.from_text(text)


def test_result_can_always_be_written_as_json(folder: Path) -> None:
    assert OutputStore(folder).bound_result(Result.from_text("file-\udcff")).model_dump_json()


def test_S33_what_was_cut_once_is_not_cut_again(folder: Path) -> None:
    store = OutputStore(folder)
    spool = store.open_spool()
    spool.write(b"0123456789" * 10_000)
    cut = Result(parts=(spool.build_part(),))
    assert store.bound_result(cut) == cut
    assert len(files(folder)) == 1


def test_full_disk_costs_the_file_and_not_the_ends(folder: Path) -> None:
    spool = OutputStore(folder, limit=10).open_spool()
    spool._file.close()
    spool._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 - the spool closes it
    spool.write(b"0123456789abcdef")
    part = spool.build_part()
    assert part.text.startswith("01\n")
    assert part.text.endswith("\n89abcdef")
    assert "the rest could not be kept" in part.text
    assert OutputStore(folder, limit=10).bound_parts((part,)) == (part,)
    assert files(folder) == []


# All kinds of parts


def total(parts: tuple[Part, ...]) -> int:
    return sum(len(part.text) for part in parts)


def test_S33_limit_is_over_parts_of_every_kind(folder: Path) -> None:
    parts = (TextPart(text="a" * 60), DataPart(value=["b" * 60]), BlobPart.from_bytes(b"png", "image/png"))
    [text, blob] = OutputStore(folder, limit=100).bound_parts(parts)
    assert isinstance(text, TextPart)
    assert text.text.startswith("a" * 20 + "\n… [")
    assert isinstance(blob, BlobPart)
    assert text.whole
    whole = Path(text.whole).read_text()
    assert whole.startswith("a" * 60 + '\n["' + "b" * 60 + '"]\n[image/png, 3 bytes, kept in ')


def test_S33_long_data_becomes_the_two_ends_of_its_text(folder: Path) -> None:
    value = [f"item {number}" for number in range(10_000)]
    [part] = OutputStore(folder).bound_parts((DataPart(value=list(value)),))
    assert isinstance(part, TextPart)
    assert len(part.text) < 40_300
    assert part.whole
    assert json.loads(Path(part.whole).read_text()) == value


def test_S33_short_data_stays_data(folder: Path) -> None:
    parts = (DataPart(value={"a": 1}), DataPart(value=None))
    assert OutputStore(folder).bound_parts(parts) == parts


def test_S34_bytes_are_kept_in_a_file_of_their_owner_and_travel_by_reference(folder: Path) -> None:
    blob = BlobPart.from_bytes(b"\x89PNG\0", "Image/PNG; x=y", name="../../etc/passwd")
    [kept] = OutputStore(folder).bound_parts((blob,))
    assert isinstance(kept, BlobPart)
    [file] = files(folder)
    assert (kept.whole, kept.data, kept.digest, kept.size) == (str(file), None, blob.digest, 5)
    assert file.read_bytes() == b"\x89PNG\0"
    assert file.name == f"{blob.digest}.png"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert OutputStore(folder).bound_parts((kept,)) == (kept,)


def test_S34_bytes_that_only_people_are_shown_are_kept_and_said_where(folder: Path) -> None:
    made = Result(
        parts=(TextPart(text="done"),), shown=(TextPart(text="Look:"), BlobPart.from_bytes(b"\x89PNG", "image/png"))
    )
    bounded = OutputStore(folder).bound_result(made)
    [file] = files(folder)
    assert bounded == Result.from_text("done", display=f"Look:\n[image/png, 4 bytes, kept in {file}]")
    assert file.read_bytes() == b"\x89PNG"
    assert "shown" not in bounded.model_dump()
    long = Result(shown=(TextPart(text="x" * 1_000),) * 3)
    assert len(OutputStore(folder, limit=100).bound_result(long).display or "") < 300


@pytest.mark.parametrize("media_type", ["text/plain", "Text/CSV; charset=utf-8", "text/html", "text/x-anything"])
def test_S34_text_that_came_as_bytes_is_kept_as_text(folder: Path, media_type: str) -> None:
    OutputStore(folder).bound_parts((BlobPart.from_bytes(b"words", media_type),))
    [file] = files(folder)
    assert file.suffix == ".txt"


def test_S34_same_bytes_are_kept_once(folder: Path) -> None:
    one, two = OutputStore(folder).bound_parts(
        (BlobPart.from_bytes(b"x", "image/png"), BlobPart.from_bytes(b"x", "image/png"))
    )
    assert one == two
    assert len(files(folder)) == 1


@pytest.mark.parametrize("media_type", ["../../x", "image/x-new", "", "application/x/../../y", "\0", "image/svg+xml"])
def test_S33_nothing_of_a_name_comes_from_a_tool(media_type: str) -> None:
    assert find_suffix(media_type) == ".bin"


def test_S34_bytes_over_the_limit_are_described_and_not_kept(folder: Path) -> None:
    [part] = OutputStore(folder).bound_parts((BlobPart.from_bytes(b"x" * (BLOB_LIMIT + 10_000_000), "video/mp4"),))
    assert isinstance(part, BlobPart)
    assert (part.whole, part.data) == ("", None)
    assert part.text == "[video/mp4, 60,000,000 bytes, not kept]"
    assert files(folder) == []


@pytest.mark.parametrize("many", [101, 5_000])
def test_S33_many_parts_become_one(folder: Path, many: int) -> None:
    bounded = OutputStore(folder).bound_parts(tuple(TextPart(text=f"{number}") for number in range(many)))
    assert bounded == (TextPart(text="\n".join(map(str, range(many)))),)


def test_S33_many_blobs_are_bounded_in_number(folder: Path) -> None:
    bounded = OutputStore(folder).bound_parts(
        tuple(BlobPart.from_bytes(b"%d" % number, "image/png") for number in range(150))
    )
    assert len(bounded) <= 101


GIANT = "x" * 1_000_000


@pytest.mark.parametrize(
    "parts",
    [
        (TextPart(text=GIANT, whole="/somewhere"),),
        (TextPart(text=GIANT, whole=""),),
        tuple(TextPart(text="x" * 1_390, whole="/somewhere") for _ in range(100)),
        tuple(TextPart(text="x" * 1_390, whole="") for _ in range(100)),
        (BlobPart.from_bytes(b"x", "image/png", name=GIANT),),
        (BlobPart.from_bytes(b"x", GIANT),),
        (BlobPart(media_type="image/png", size=1, digest="d", whole=GIANT),),
        tuple(BlobPart.from_bytes(b"x", "image/png", name="n" * 1_000) for _ in range(100)),
        (TextPart(text=""), DataPart(value=GIANT)),
    ],
    ids=["whole", "lost", "many whole", "many lost", "name", "media type", "place", "names", "data"],
)
def test_S33_no_part_smuggles_in_a_giant(folder: Path, parts: tuple[Part, ...]) -> None:
    assert total(OutputStore(folder).bound_parts(parts)) < 45_000


@given(
    parts=st.lists(
        st.builds(TextPart, text=st.text(max_size=300), whole=st.none() | st.just("") | st.just("/x"))
        | st.builds(DataPart, value=st.text(max_size=300))
        | st.builds(BlobPart.from_bytes, st.binary(max_size=5), st.just("image/png"), name=st.text(max_size=300)),
        max_size=6,
    )
)
def test_S33_whatever_the_parts_are_they_respect_the_limit_and_say_all_when_they_fit(
    parts: list[Part], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = OutputStore(tmp_path_factory.mktemp("outputs"), limit=1_000)
    bounded = store.bound_parts(tuple(parts))
    assert total(bounded) <= 1_000 + 1_000 + 500 * sum(isinstance(part, BlobPart) for part in parts)
    assert store.bound_parts(bounded) == bounded, "what is bounded stays as it is"


def test_S33_output_over_what_is_saved_is_cut_and_says_so(folder: Path) -> None:
    store = OutputStore(folder, limit=10, max_bytes=100)
    result = store.bound_result(Result.from_text("x" * 101))
    [part] = result.parts
    assert "the rest could not be kept" in part.text
    assert isinstance(part, TextPart)
    assert part.whole == ""
    assert files(folder) == []
    assert store.bound_result(Result.from_text("x" * 100)).parts[0].text.count("by the name ") == 1


def test_S34_bytes_over_what_is_saved_are_not_kept(folder: Path) -> None:
    [part] = OutputStore(folder, max_bytes=3).bound_parts((BlobPart.from_bytes(b"four", "image/png"),))
    assert isinstance(part, BlobPart)
    assert (part.whole, files(folder)) == ("", [])


def test_result_keeps_what_it_saw_within_reason(folder: Path) -> None:
    seen = {f"file {number}": "d" for number in range(1_000)}
    assert len(OutputStore(folder).bound_result(Result(seen=seen)).seen) == 100


@pytest.mark.parametrize(
    "result",
    [Result.from_text("x" * 100), Result(parts=(BlobPart.from_bytes(b"x", "image/png"),)), Result.from_text("short")],
    ids=["text", "blob", "short"],
)
def test_folder_that_cannot_be_written_costs_the_file_and_not_the_result(tmp_path: Path, result: Result) -> None:
    (tmp_path / "file").touch()
    bounded = OutputStore(tmp_path / "file", limit=50).bound_result(result)
    assert len(bounded.parts) == 1
    assert not getattr(bounded.parts[0], "whole", None)


class Closed:
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize("given_back", [Closed(), 10**5_000], ids=["closed", "number"])
def test_S7_what_is_no_result_and_cannot_be_shown_is_a_result_all_the_same(folder: Path, given_back: object) -> None:
    assert OutputStore(folder).bound_result(given_back).parts
