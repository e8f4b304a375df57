"""`read_output` without an engine: ranges, patterns, and whose outputs a name leads to."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.activities.builtin.read_output import ReadOutput
from holdfast.activities.process.output_store import OutputStore
from holdfast.domain.calls.tool import ToolFailure
from holdfast.domain.content import BlobPart, Part, Result, TextPart, format_output_name
from holdfast.payloads import shared_outputs
from holdfast.payloads.encryption import EncryptingCodec
from holdfast.payloads.keyring import Key, Keyring
from holdfast.payloads.shared_outputs import FolderObjects, SharedOutputs
from holdfast.testing import FakeRun

LINES = "".join(f"line {number}\n" for number in range(1, 1_001))
TURN = "talk~2"


def outputs_at(folder: Path, *, namespace: str = "default", codec: PayloadCodec | None = None) -> OutputStore:
    """A host's outputs: `folder` is shared by all hosts."""
    made = OutputStore(folder / "host", limit=2_000)
    made.shared_outputs = SharedOutputs([FolderObjects(folder / "payloads")], codec, namespace)
    return made


async def saved(outputs: OutputStore, text: str = LINES, turn: str = TURN) -> str:
    """The name of an output of a turn, as its model reads it."""
    [part] = outputs.bound_parts((TextPart(text=text),))
    await outputs.share_parts(turn, [part])
    assert isinstance(part, TextPart)
    assert part.whole
    name = format_output_name(part.whole)
    assert f"read_output reads the whole, by the name {name}]" in part.text
    return name


async def result_of(outputs: OutputStore, name: str, turn: str = TURN, **arguments: Any) -> Result:
    invocation = ReadOutput(outputs).build(ReadOutput.Parameters(name=name, **arguments), Path())
    result = await invocation.execute(FakeRun(key=f"{turn}/b1c1"))
    assert isinstance(result, Result)
    return result


async def read(outputs: OutputStore, name: str, turn: str = TURN, **arguments: Any) -> str:
    [part] = (await result_of(outputs, name, turn, **arguments)).parts
    return part.text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"start_line": 501, "line_count": 2}, "line 501\nline 502\n"),
        ({"start_line": 1_000}, "line 1000\n"),
        ({"start_character": 6, "character_count": 6}, "1\nline"),
        ({"character_count": 4}, "line"),
        ({"pattern": r"9[0-9]9$"}, "\n".join(f"{n}:line {n}" for n in range(909, 1_000, 10))),
        ({"pattern": "LINE 77$", "ignore_case": True, "context": 1}, "76-line 76\n77:line 77\n78-line 78"),
        ({"pattern": "00$", "start_line": 150, "line_count": 200}, "200:line 200\n300:line 300"),
        ({"pattern": "^(1|500)$|e (10|20)$", "context": 0}, "10:line 10\n20:line 20"),
        ({"pattern": "nowhere"}, "No matches."),
    ],
)
async def test_S33_an_output_is_read_by_lines_characters_or_a_pattern(
    tmp_path: Path, arguments: dict[str, Any], text: str
) -> None:
    outputs = outputs_at(tmp_path)
    assert await read(outputs, await saved(outputs), **arguments) == text


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.text(alphabet="aé日\r😀", max_size=1_200), min_size=8, max_size=30))
async def test_S33_an_output_is_read_to_its_end_by_going_on_where_it_says(tmp_path: Path, lines: list[str]) -> None:
    """Nothing is cut a second time, and nothing is left out."""
    outputs = outputs_at(tmp_path)
    text = "\n".join(["x" * 300, *lines, "y" * 3_000, "z" * 300])
    name = await saved(outputs, text)
    whole, arguments = "", dict[str, Any]()
    for _ in range(100):
        found = await read(outputs, name, **arguments)
        assert len(found) <= outputs.limit
        kept, more, place = found.rpartition("[there is more: go on with ")
        if not more:
            break
        key, _, number = place.removesuffix("]").partition(" ")
        whole += kept if key == "start_line" else kept.removesuffix("\n")
        arguments = {key: int(number)}
    assert whole + found == text


async def test_S33_matches_that_do_not_fit_are_had_by_going_on(tmp_path: Path) -> None:
    outputs = outputs_at(tmp_path)
    name = await saved(outputs)
    first = await read(outputs, name, pattern="line")
    assert len(first) <= outputs.limit
    last, note = first.splitlines()[-2:]
    number = int(last.partition(":")[0])
    assert note == f"[there are more matches: go on with start_line {number + 1}]"
    assert (await read(outputs, name, pattern="line", start_line=number + 1)).startswith(f"{number + 1}:line")


@pytest.mark.parametrize(
    "turn",
    ["other~2", "other", "talk-2", "Talk~2", "alk~2"],
)
async def test_S33_an_output_of_another_session_is_not_there(tmp_path: Path, turn: str) -> None:
    outputs = outputs_at(tmp_path)
    name = await saved(outputs)
    with pytest.raises(ToolFailure, match="has no saved output") as failure:
        await read(outputs, name, turn)
    assert failure.value.type == "no_such_output"


async def test_S33_an_output_of_another_namespace_is_not_there(tmp_path: Path) -> None:
    name = await saved(outputs_at(tmp_path))
    with pytest.raises(ToolFailure, match="has no saved output"):
        await read(outputs_at(tmp_path, namespace="other"), name)


@pytest.mark.parametrize("turn", [TURN, "talk~1", "talk~7~b1c2", "talk~2~b1c1~b2c2"])
async def test_S33_turns_of_a_session_and_those_they_delegate_read_each_others_outputs(
    tmp_path: Path, turn: str
) -> None:
    outputs = outputs_at(tmp_path)
    assert await read(outputs, await saved(outputs, turn="talk~2~b1c1"), turn, line_count=1) == "line 1\n"


@pytest.mark.parametrize(
    "name",
    ["../" * 6 + "etc/passwd", "0" * 31, "0" * 33, "0" * 32 + "\n", "A" * 32, f"{'0' * 32}/../x", "*", "0" * 32 + ".0"],
)
def test_S33_a_name_that_the_engine_never_gave_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is no name of an output"):
        ReadOutput(outputs_at(tmp_path)).build(ReadOutput.Parameters(name=name), Path())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start_character": 1, "start_line": 1}, "goes with neither lines nor a pattern"),
        ({"character_count": 1, "pattern": "x"}, "goes with neither lines nor a pattern"),
        ({"pattern": "a\nb"}, "for one line"),
    ],
)
def test_S6_arguments_that_make_no_sense_together_are_refused(
    tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        ReadOutput(outputs_at(tmp_path)).build(ReadOutput.Parameters(name="0" * 32, **arguments), Path())


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"start_line": 1_001}, "no_such_place"),
        ({"start_character": len(LINES) + 1}, "no_such_place"),
        ({"pattern": "("}, "invalid_pattern"),
    ],
)
async def test_a_place_that_is_not_there_is_an_error_that_says_what_there_is(
    tmp_path: Path, arguments: dict[str, Any], kind: str
) -> None:
    outputs = outputs_at(tmp_path)
    with pytest.raises(ToolFailure) as failure:
        await read(outputs, await saved(outputs), **arguments)
    assert failure.value.type == kind
    assert kind != "no_such_place" or f"1,000 lines and {len(LINES):,} characters" in str(failure.value)


async def test_S34_bytes_are_given_again_by_the_file_that_their_description_names(tmp_path: Path) -> None:
    outputs = outputs_at(tmp_path)
    [blob] = outputs.bound_parts((BlobPart.from_bytes(b"\x89PNG\r\n\x1a\n...", "image/png", name="p.png"),))
    await outputs.share_parts(TURN, [blob])
    assert isinstance(blob, BlobPart)
    assert blob.whole
    assert f"kept in {blob.whole}]" in blob.text
    [again] = (await result_of(outputs, blob.whole)).parts
    assert isinstance(again, BlobPart)
    assert (again.data, again.media_type, again.digest) == (b"\x89PNG\r\n\x1a\n...", "image/png", blob.digest)


async def test_S34_text_that_came_as_bytes_is_read_as_text(tmp_path: Path) -> None:
    outputs = outputs_at(tmp_path)
    [blob] = outputs.bound_parts((BlobPart.from_bytes(b'{\n"a": 1\n}', "application/json; charset=utf-8"),))
    await outputs.share_parts(TURN, [blob])
    assert isinstance(blob, BlobPart)
    assert await read(outputs, blob.whole or "", start_line=2, line_count=1) == '"a": 1\n'


async def test_S33_of_what_is_too_long_the_beginning_is_read_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_outputs, "SHARED_BYTES", 5_000)
    outputs = outputs_at(tmp_path)
    name = await saved(outputs)
    found = await read(outputs, name, start_character=4_990)
    assert found.startswith(LINES[4_989:5_000] + "\n[only the first ")


async def test_S45_what_is_shared_is_encrypted_as_payloads_are(tmp_path: Path) -> None:
    codec = EncryptingCodec(Keyring(keys=(Key("a", bytes(32)),)))
    outputs = outputs_at(tmp_path, codec=codec)
    name = await saved(outputs, LINES.replace("line", "canary"))
    [file] = [path for path in (tmp_path / "payloads").rglob("*") if path.is_file()]
    assert b"canary" not in file.read_bytes()
    assert file.stat().st_mode & 0o077 == 0
    assert await read(outputs, name, line_count=1) == "canary 1\n"
    other = outputs_at(tmp_path, codec=EncryptingCodec(Keyring(keys=(Key("b", bytes(31) + b"b"),))))
    with pytest.raises(ToolFailure, match="cannot be read: a payload cannot be read: it is encrypted") as failure:
        await read(other, name)
    assert failure.value.type == "output_not_readable"


OTHER = Payload(metadata={"media-type": b"text/plain"}, data=b"something else").SerializeToString()


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x0a\xff", OTHER])
async def test_what_was_changed_where_it_is_kept_is_an_error_and_no_trace(tmp_path: Path, data: bytes) -> None:
    outputs = outputs_at(tmp_path)
    name = await saved(outputs)
    [file] = [path for path in (tmp_path / "payloads").rglob("*") if path.is_file()]
    file.write_bytes(data)
    with pytest.raises(ToolFailure, match="cannot be read: the stored output was changed"):
        await read(outputs, name)


async def test_S33_nothing_is_shared_that_was_not_cut_or_is_no_saved_output(tmp_path: Path) -> None:
    outputs = outputs_at(tmp_path)
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    digest = hashlib.sha256(b"x").hexdigest()
    parts: list[Part] = [
        TextPart(text="short"),
        TextPart(text="elsewhere", whole=str(secret)),
        TextPart(text="outside", whole=f"{tmp_path}/{digest}.txt"),
        TextPart(text="not kept", whole=""),
    ]
    await outputs.share_parts(TURN, parts)
    assert not (tmp_path / "payloads").exists()
