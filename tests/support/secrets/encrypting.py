"""Settings with encryption keys, and looking for words where nobody should find them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload

from holdfast.config.sections import EncryptionSettings, KeySettings
from holdfast.payloads.keyring import generate_key


def encryption(monkeypatch: pytest.MonkeyPatch, *ids: str, **more: Any) -> EncryptionSettings:
    """Keys by these ids in the environment, the first to write with. The same id is the same key in one test."""
    import os

    for name in ids:
        if variable(name) not in os.environ:
            monkeypatch.setenv(variable(name), generate_key())
    return EncryptionSettings(keys=tuple(KeySettings(id=name, env=variable(name)) for name in ids), **more)


def variable(name: str) -> str:
    return f"HOLDFAST_TEST_KEY_{name.upper().replace('-', '_')}"


def settings_text(*ids: str, more: str = "") -> str:
    """The same as a settings file has it."""
    tables = [f'[[encryption.keys]]\nid = "{name}"\nenv = "{variable(name)}"\n' for name in ids]
    return "".join(tables) + more


def payloads_in(message: Message) -> Iterator[Payload]:
    """Every payload in a message of Temporal's, however deep."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        values: Iterable[Any] = value if field.is_repeated else [value]
        if field.message_type.GetOptions().map_entry:
            values = value.values()
        for one in values:
            if isinstance(one, Message):
                yield from payloads_in(one)


def found_in(data: bytes, words: Iterable[str]) -> list[str]:
    """Those of the words that can be read in some bytes: as they are, as JSON or base64 writes them, in UTF-16."""
    return [word for word in words if any(form in data for form in forms(word))]


def forms(word: str) -> list[bytes]:
    """How a word may be written down."""
    plain = word.encode()
    shifted = [base64.b64encode(b"x" * place + plain)[4:-4] for place in range(3)]
    return [plain, json.dumps(word)[1:-1].encode(), plain.hex().encode(), word.encode("utf-16-le"), *shifted]


def files_of(*folders: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below some folders."""
    for folder in folders:
        for path in folder.rglob("*") if folder.is_dir() else [folder]:
            if path.is_file():
                yield str(path), path.read_bytes()
