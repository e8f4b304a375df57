"""The codec: what is encrypted comes back, and whatever cannot be opened is a payload that nobody can read."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, PayloadCodec

from holdfast.domain.base import UnreadablePayload
from holdfast.errors import BadInput, KeyMissing, PayloadUnreadable
from holdfast.payloads.converter import HoldfastPayloadConverter, TolerantConverter, build_data_converter
from holdfast.payloads.encryption import CIPHER, ENCRYPTED, KEY_ID, LARGE, LOCKED, VOUCHED, EncryptingCodec, find_key_id
from holdfast.payloads.file_store import MISSING
from holdfast.payloads.keyring import Key, Keyring
from tests.support.secrets.encrypting import files_of

OLD, NEW, OTHER = (Key(name, bytes([number]) * 32) for number, name in enumerate(("old", "new", "other")))
WORD = "a-word-that-nobody-reads"


def payload(data: bytes = WORD.encode(), **metadata: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain", **metadata}, data=data)


def codec(*keys: Key, refuses_plain: bool = False) -> EncryptingCodec:
    return EncryptingCodec(Keyring(keys, refuses_plain))


async def encrypted(given: Payload, *keys: Key) -> Payload:
    [found] = await codec(*keys).encode([given])
    return found


async def opened(given: Payload, *keys: Key) -> Payload:
    [found] = await codec(*keys).decode([given])
    return found


def check_locked(found: Payload, words: str) -> None:
    assert found.metadata["encoding"] == LOCKED
    assert words in found.data.decode()
    with pytest.raises(PayloadUnreadable, match="a payload cannot be read"):
        HoldfastPayloadConverter().from_payloads([found], [str])
    [untyped] = HoldfastPayloadConverter().from_payloads([found])
    assert isinstance(untyped, UnreadablePayload)
    assert untyped.gone


async def test_S45_what_is_encrypted_shows_its_key_and_nothing_else_and_comes_back_whole() -> None:
    given = [payload(), payload(b"", secret=b"in the metadata"), Payload(), payload(b"x" * (LARGE + 1))]
    found = await codec(NEW).encode(given)
    for one in found:
        assert dict(one.metadata) == {"encoding": ENCRYPTED, "encryption-cipher": CIPHER, KEY_ID: b"new"}
        assert find_key_id(one) == "new"
        assert WORD.encode() not in one.SerializeToString()
        assert b"in the metadata" not in one.SerializeToString()
    assert await codec(NEW).decode(found) == given
    assert await codec(OLD, NEW).decode(found) == given


async def test_the_same_payload_is_never_encrypted_the_same_way() -> None:
    found = {(await encrypted(payload(), NEW)).data for _ in range(100)}
    assert len(found) == len({data[:12] for data in found}) == 100


async def test_what_was_written_before_encryption_is_still_read() -> None:
    assert await opened(payload(), NEW) == payload()


async def test_without_keys_nothing_is_encrypted_and_what_is_says_so() -> None:
    assert await encrypted(payload()) == payload()
    check_locked(await opened(await encrypted(payload(), NEW)), "the key 'new', which this process does not have")
    check_locked(await opened(await encrypted(payload(), NEW)), "--config")


async def test_what_is_not_encrypted_can_be_refused() -> None:
    strict = codec(NEW, refuses_plain=True)
    [plain, ours] = await strict.decode([payload(), await encrypted(payload(), NEW)])
    check_locked(plain, "it is not encrypted, and the settings refuse that")
    assert ours == payload()


@given(place=st.integers(0), bit=st.integers(0, 7))
async def test_S45_a_changed_bit_anywhere_is_found(place: int, bit: int) -> None:
    data = bytearray((await encrypted(payload(), NEW)).data)
    data[place % len(data)] ^= 1 << bit
    changed = Payload(metadata={"encoding": ENCRYPTED, KEY_ID: b"new"}, data=bytes(data))
    check_locked(await opened(changed, NEW), "it was changed")


@given(data=st.binary(max_size=200), name=st.binary(max_size=20), marks=st.binary(max_size=100))
async def test_S45_whatever_is_forged_is_a_payload_nobody_can_read(data: bytes, name: bytes, marks: bytes) -> None:
    forged = Payload(metadata={"encoding": ENCRYPTED, KEY_ID: name, VOUCHED: marks}, data=data)
    check_locked(await opened(forged, NEW, OLD), "")


@pytest.mark.parametrize("size", [0, 11, 12, 27])
async def test_a_truncated_payload_is_not_opened(size: int) -> None:
    whole = await encrypted(payload(), NEW)
    check_locked(await opened(Payload(metadata=whole.metadata, data=whole.data[:size]), NEW), "and is truncated")


async def test_a_payload_under_the_id_of_another_key_is_not_opened() -> None:
    whole = await encrypted(payload(), NEW)
    renamed = Payload(metadata={**whole.metadata, KEY_ID: b"old"}, data=whole.data)
    check_locked(await opened(renamed, NEW, OLD), "it cannot be decrypted with the key 'old'")
    impostor = Key("new", OLD.secret)
    check_locked(await opened(whole, impostor), "that key was another")


async def test_a_key_of_ours_that_is_missing_here_fails_and_is_told_without_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A worker that is behind with its keys must not drop what others take."""
    caplog.set_level(logging.DEBUG)
    rotated = await encrypted(payload(), NEW, OLD)
    with pytest.raises(KeyMissing, match="the key 'new', which this process does not have"):
        await opened(rotated, OLD)
    assert "the key 'new'" in caplog.text
    assert WORD not in caplog.text
    check_locked(await opened(rotated, OTHER), "the key 'new'")
    assert await opened(rotated, OTHER, NEW) == payload()


async def test_the_word_for_a_key_cannot_be_taken_for_another() -> None:
    rotated = await encrypted(payload(), NEW, OLD)
    forged = Payload(metadata={**rotated.metadata, KEY_ID: b"made-up"}, data=rotated.data)
    check_locked(await opened(forged, OLD), "the key 'made-up'")


async def test_S45_the_word_for_a_key_is_for_one_payload_and_ends_with_the_key() -> None:
    """Whoever saw a payload cannot make another that turns wait for; and nobody waits for a key that is over."""
    seen = await encrypted(payload(), OLD, NEW)
    forged = Payload(metadata=dict(seen.metadata), data=b"garbage" * 10)
    check_locked(await opened(forged, NEW), "the key 'old'")
    with pytest.raises(KeyMissing):
        await opened(seen, NEW)
    [found] = await EncryptingCodec(Keyring((NEW,), retired=frozenset({"old"}))).decode([seen])
    check_locked(found, "the key 'old'")


async def test_what_is_missing_is_told_as_missing_where_plain_payloads_are_refused() -> None:
    missing = Payload(metadata={"encoding": MISSING}, data=b"a file")
    assert await codec(NEW, refuses_plain=True).decode([missing]) == [missing]


@pytest.mark.parametrize("name", [b"\x1b[31mred", b"a\nb", b"\xff", b"x" * 10_000])
async def test_an_id_that_is_no_text_for_a_log_is_not_shown(name: bytes, caplog: pytest.LogCaptureFixture) -> None:
    await opened(Payload(metadata={"encoding": ENCRYPTED, KEY_ID: name}, data=b"x" * 40), NEW)
    assert "\x1b" not in caplog.text
    assert max(map(len, caplog.text.splitlines())) < 400


# In a converter


def converter(tmp_path: Path, *keys: Key) -> DataConverter:
    return build_data_converter(None, tmp_path, keyring=Keyring(keys))


async def test_S42_S45_what_lies_in_external_storage_is_encrypted(tmp_path: Path) -> None:
    ours = converter(tmp_path, NEW)
    [reference] = await ours.encode([WORD * 10_000])
    [(_, stored)] = files_of(tmp_path)
    assert WORD.encode() not in stored
    assert Payload.FromString(stored).metadata["encoding"] == ENCRYPTED
    assert await ours.decode([reference], [str]) == [WORD * 10_000]
    with pytest.raises(PayloadUnreadable, match="the key 'new'"):
        await converter(tmp_path).decode([reference], [str])


async def test_words_and_traces_of_failures_are_encrypted(tmp_path: Path) -> None:
    from temporalio.api.failure.v1 import Failure
    from temporalio.exceptions import ApplicationError

    ours, failure = converter(tmp_path, NEW), Failure()
    try:
        try:
            raise LookupError(f"inner {WORD}")
        except LookupError as error:
            raise ApplicationError(f"outer {WORD}", WORD, type="refused") from error
    except ApplicationError as error:
        await ours.encode_failure(error, failure)
    assert WORD.encode() not in failure.SerializeToString()
    assert failure.application_failure_info.type == "refused"
    found = await ours.decode_failure(failure)
    assert str(found) == f"refused: outer {WORD}"
    assert WORD in str(found.__cause__)


MARK = {"__temporal_external_storage_reference": b"true"}


@pytest.mark.parametrize("keys", [(), (NEW,)], ids=["plain", "encrypted"])
@pytest.mark.parametrize("metadata", [{}, {"encoding": b"json/plain"}, {"encoding": ENCRYPTED, KEY_ID: b"new"}])
async def test_a_mark_of_a_reference_on_what_is_none_stops_nothing(
    tmp_path: Path, keys: tuple[Key, ...], metadata: dict[str, bytes]
) -> None:
    """Temporal's own converter fails, and a workflow task that fails is tried for ever."""
    forged = Payload(metadata={**MARK, **metadata}, data=b"x" * 40)
    ours = converter(tmp_path, *keys)
    assert isinstance(ours, TolerantConverter)
    [found] = await ours.unmark_references([forged])
    assert found.metadata["encoding"] == MISSING


async def test_a_reference_that_a_later_temporal_encodes_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("temporalio.converter._extstore._ENCODE_STORAGE_REFERENCES", True)
    ours = converter(tmp_path, NEW, OLD)
    [reference] = await ours.encode([WORD * 10_000])
    assert reference.metadata["encoding"] == ENCRYPTED
    assert await ours.decode([reference], [str]) == [WORD * 10_000]
    with pytest.raises(KeyMissing):
        await converter(tmp_path, OLD).decode([reference], [str])


class _Theirs(PayloadCodec):
    async def encode(self, payloads):  # type: ignore[no-untyped-def]
        return list(payloads)

    decode = encode


def test_a_codec_of_the_applications_own_stays_and_is_not_doubled(tmp_path: Path) -> None:
    theirs = DataConverter(payload_codec=_Theirs())
    assert build_data_converter(theirs, tmp_path).payload_codec is theirs.payload_codec
    with pytest.raises(BadInput, match="a payload codec of its own"):
        build_data_converter(theirs, tmp_path, keyring=Keyring((NEW,)))
    own = build_data_converter(DataConverter(), tmp_path, keyring=Keyring((NEW,)))
    assert isinstance(own.payload_codec, EncryptingCodec)
    assert not isinstance(own, TolerantConverter)
