"""Keys from the environment, files and commands: what is read, and every way it can fail, without a word of a key."""

from __future__ import annotations

import base64
import os
import sys
import time
from pathlib import Path

import pytest

from holdfast.config.schema import parse_configuration
from holdfast.config.settings import Settings, load_settings
from holdfast.config.toml_document import FileContent
from holdfast.errors import BadInput
from holdfast.payloads.keyring import check_keys, generate_key, load_keyring

SECRET = generate_key()
OTHER = generate_key()
FILE = Path("/project/holdfast.toml")


def settings(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    return load_settings(file)


def private(file: Path, text: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(text)
    return file


def key(name: str, **way: str) -> str:
    return f'[[encryption.keys]]\nid = "{name}"\n' + "".join(f"{word} = {value}\n" for word, value in way.items())


def printing(text: str) -> str:
    return f'["{sys.executable}", "-c", "{text}"]'


def test_a_new_key_is_base64_of_32_bytes_and_never_the_same() -> None:
    made = {generate_key() for _ in range(100)}
    assert len(made) == 100
    assert {len(base64.b64decode(one, validate=True)) for one in made} == {32}


def test_keys_come_from_environment_file_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_K", f" {SECRET}\n")
    private(tmp_path / "old.key", OTHER.replace("+", "-").replace("/", "_").rstrip("=") + "\n")
    third = generate_key()
    text = (
        key("new", env='"HOLDFAST_K"') + key("old", file='"old.key"') + key("v", command=printing(f"print('{third}')"))
    )
    ring = load_keyring(settings(tmp_path, text))
    assert ring.active_key is ring.keys[0]
    assert [one.id for one in ring.keys] == ["new", "old", "v"]
    assert [one.secret for one in ring.keys] == [base64.b64decode(one) for one in (SECRET, OTHER, third)]
    assert not ring.refuses_plain
    assert SECRET not in repr(ring)
    assert repr(base64.b64decode(SECRET)) not in repr(ring)


def test_a_command_runs_in_the_files_folder_and_may_use_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private(tmp_path / "beside", SECRET)
    monkeypatch.setenv("HOLDFAST_NAME", "beside")
    text = key("a", command=printing("import os; print(open(os.environ['HOLDFAST_NAME']).read())"))
    assert len(load_keyring(settings(tmp_path, text)).keys) == 1


def test_without_a_table_there_are_no_keys(tmp_path: Path) -> None:
    ring = load_keyring(settings(tmp_path, ""))
    assert (ring.keys, ring.active_key, ring.refuses_plain) == ((), None, False)


BAD: dict[str, tuple[str, str]] = {
    "unset": (key("a", env='"HOLDFAST_NOT_SET"'), "from the variable HOLDFAST_NOT_SET: it is not set"),
    "blank": (key("a", env='"HOLDFAST_BLANK"'), "it is not set"),
    "no base64": (key("a", env='"HOLDFAST_WORDS"'), "its content is not base64"),
    "short": (key("a", env='"HOLDFAST_SHORT"'), "base64 of 16 bytes, and a key has 32"),
    "no file": (key("a", file='"none.key"'), "there is no such file"),
    "a folder": (key("a", file='"."'), "it is a folder, not a file"),
    "a pipe": (key("a", file='"pipe"'), "it is not a regular file"),
    "for all to read": (key("a", file='"open.key"'), "it may be read or written by other users"),
    "no program": (key("a", command='["./no-such-program"]'), "it does not start: no such file"),
    "a failing program": (key("a", command=printing("print('SECRETWORD'); exit('SECRETWORD')")), "code 1"),
    "a killed program": (key("a", command=printing("import os; os.kill(os.getpid(), 9)")), "was ended by signal 9"),
    "a silent program": (key("a", command=printing("")), "base64 of 0 bytes"),
    "a talkative program": (key("a", command=printing("print('SECRETWORD' * 99999)")), "it prints far more than a key"),
    "twice": (key("a", env='"HOLDFAST_GOOD"') + key("b", env='"HOLDFAST_GOOD"'), "it is the same as 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_key_that_cannot_be_had_is_told_with_its_line_and_without_what_was_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in {"BLANK": " ", "WORDS": "SECRETWORD!", "GOOD": SECRET}.items():
        monkeypatch.setenv(f"HOLDFAST_{variable}", value)
    monkeypatch.setenv("HOLDFAST_SHORT", base64.b64encode(b"SECRETWORD123456").decode())
    (tmp_path / "open.key").write_text(SECRET)
    os.mkfifo(tmp_path / "pipe", 0o600)
    text, words = BAD[name]
    with pytest.raises(BadInput, match=words) as refusal:
        load_keyring(settings(tmp_path, f"\n{text}"))
    told = str(refusal.value)
    line = 5 if name == "twice" else 2
    assert f"{tmp_path / 'holdfast.toml'}, line {line}: the encryption key " in told
    assert "SECRETWORD" not in told
    assert SECRET not in told


def test_a_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    text = key("a", command=printing("import time; time.sleep(600)"), timeout_seconds="1")
    began = time.monotonic()
    with pytest.raises(BadInput, match="it did not end within 1 seconds"):
        load_keyring(settings(tmp_path, text))
    assert time.monotonic() - began < 30


def test_every_key_is_looked_at_though_one_is_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_GOOD", SECRET)
    text = key("a", env='"HOLDFAST_NOT_SET"') + key("b", env='"HOLDFAST_GOOD"') + key("c", file='"none"')
    found = check_keys(settings(tmp_path, text))
    assert [(one.id, one.key is not None, one.problem is None) for one in found] == [
        ("a", False, False),
        ("b", True, True),
        ("c", False, False),
    ]
    with pytest.raises(BadInput) as refusal:
        load_keyring(settings(tmp_path, text))
    assert len(str(refusal.value).splitlines()) == 2


WRONG = {
    "no way": (key("a"), 1, "needs one of `env`, `file` and `command`"),
    "two ways": (key("a", env='"HOLDFAST_K"', file='"x"'), 1, "needs one of `env`, `file` and `command`"),
    "a key": (key("a", env=f'"{SECRET}"'), 3, "must be the name of a variable that begins with HOLDFAST_"),
    "a key by itself": (key("a", key=f'"{SECRET}"'), 3, "`encryption.keys.1.key` is not a setting"),
    "another's variable": (key("a", env='"AWS_KEY"'), 3, "commands do not inherit such variables"),
    "an id twice": (key("a", env='"HOLDFAST_K"') * 2, 5, "is taken: another [[encryption.keys]] is called 'a'"),
    "an id with blanks": (key("a b", env='"HOLDFAST_K"'), 2, "must be 1 to 40 letters"),
    "seconds for nothing": (key("a", env='"HOLDFAST_K"', timeout_seconds="5"), 1, "which is for a `command`"),
    "refusing all": ('[encryption]\nplain = "refuse"', 1, "needs `keys` to encrypt with"),
    "another word": ('[encryption]\nplain = "no"', 2, "must be 'accept' or 'refuse', not 'no'"),
    "another table": ("[encryption]\nkey = 1", 2, "did you mean `keys`?"),
    "a bucket for nothing": ('[storage]\nkind = "s3"', 1, "needs [storage.s3] with its `bucket`"),
    "a bucket with a path": ('[storage.s3]\nbucket = "s3://a/b"', 2, "must be the name of a bucket"),
    "no bucket": ('[storage.gcs]\nprefix = "a"', 1, "`bucket` is missing in `storage.gcs`"),
    "a prefix that leads out": ('[storage.gcs]\nbucket = "abc"\nprefix = "/a"', 3, "with `/` between parts"),
    "credentials": ('[storage.s3]\nbucket = "abc"\nsecret = "x"', 3, "`storage.s3.secret` is not a setting"),
    "no address": ('[storage.s3]\nbucket = "abc"\nendpoint = "minio:9000"', 3, "must begin with http:// or https://"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_told_with_its_line(name: str) -> None:
    text, line, words = WRONG[name]
    problems = parse_configuration(FileContent(FILE, text.encode())).problems
    assert words in " / ".join(problem.message for problem in problems)
    assert [problem.line for problem in problems] == [line]
    assert SECRET not in str(problems)


def test_a_prefix_ends_with_a_slash() -> None:
    for given in ("a/b", "a/b/"):
        text = f'[storage.s3]\nbucket = "abc"\nprefix = "{given}"\n'
        found = parse_configuration(FileContent(FILE, text.encode())).get_value()
        assert found.storage.s3
        assert found.storage.s3.prefix == "a/b/"
