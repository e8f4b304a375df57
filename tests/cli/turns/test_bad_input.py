"""What cannot be read is refused in one sentence, with exit code 2, before any server is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import BadInput
from holdfast.workers.terminal import input_files
from tests.cli.support import Home

CALLS: dict[str, tuple[bytes, str]] = {
    "broken": (b'{"tool":', "is not JSON: Expecting value at line 1, column 9"),
    "broken later": (b'[\n  {"tool": "a"}\n  {"tool": "b"}\n]', "at line 3, column 3"),
    "nothing": (b"", "is empty"),
    "white space": (b" \n ", "is empty"),
    "no calls": (b"[]", "holds no calls: the array is empty"),
    "text": (b'"hello"', "holds text; an array of calls is expected"),
    "another object": (b'{"a": 1}', "holds an object with 'a'; an array of calls is expected"),
    "a number for a call": (b'[{"tool": "a"}, 3]', "call 2 of 'calls.json' is a number; an object is expected"),
    "no tool": (b'[{"arguments": {}}]', "call 1 of 'calls.json' has no field 'tool'"),
    "a number for a tool": (b'[{"tool": 5}]', "has a number in the field 'tool' where text is expected"),
    "a misspelt field": (b'[{"tool": "a", "argumnts": {}}]', "has an unknown field 'argumnts'"),
    "not UTF-8": (b"\xff\xfe", "is not UTF-8 text: byte 0 cannot be read"),
    "not a number": (b'[{"tool": "a", "arguments": NaN}]', "NaN is not a JSON value"),
    "too deep": (b"[" * 100_000 + b"]" * 100_000, "is nested too deeply"),
    "half a character": (b'[{"tool": "a", "arguments": {"b": "\\ud800"}}]', "holds half a character"),
}


@pytest.mark.parametrize("name", CALLS)
def test_unreadable_calls_are_refused_with_what_is_wrong_and_where(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, expected = CALLS[name]
    monkeypatch.chdir(tmp_path)
    Path("calls.json").write_bytes(content)
    with pytest.raises(BadInput) as refusal:
        input_files.read_calls("calls.json")
    assert expected in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert "pydantic" not in str(refusal.value)


def test_a_file_over_the_limit_is_refused_without_reading_all_of_it(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.touch()
    os.truncate(large, 100 * 1024**3)
    with pytest.raises(BadInput, match="is over 64 MB: split it"):
        input_files.read_calls(str(large))


def test_one_call_a_list_and_an_object_of_calls_are_all_read(tmp_path: Path) -> None:
    file = tmp_path / "calls.json"
    for text in ('{"tool": "a"}', '[{"name": "a", "args": {}}]', '{"calls": [{"tool": "a"}]}', '﻿[{"tool": "a"}]'):
        file.write_text(text, "utf-8")
        assert [request.tool for request in input_files.read_calls(str(file))] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["turn", "start", "--calls", "missing.json"], 2, "no file is called 'missing.json'"),
        (["turn", "start", "--calls", "."], 2, "'.' is a folder, not a file"),
        (["turn", "start", "--calls", "-"], 2, "standard input is empty"),
        (["turn", "start"], 2, "nothing to do: give --calls FILE"),
        (["turn", "start", "--calls", "a", "--script", "b"], 2, "not both"),
        (["turn", "start", "--prompt", "hello"], 2, "--prompt needs --script"),
        (["turn", "start", "--calls", "a", "--early"], 2, "--early needs --schedule streaming"),
        (
            ["turn", "start", "--calls", "a", "--early", "--schedule", "streaming"],
            2,
            "--early needs a reply that grows",
        ),
        (["turn", "start", "--calls", "a", "--schedule", "soon"], 2, "'soon' is not one of 'all_ready', 'streaming'"),
        (["turn", "start", "--calls", "a", "--on-error", "cry"], 2, "'cry' is not one of 'isolate', 'abort'"),
        (["turn", "start", "--calls", "a", "--parallel", "0"], 2, "'--parallel': Input should be greater"),
        (["turn", "start", "--calls", "a", "--parallel", "51"], 2, "'--parallel': Input should be less"),
        (["turn", "add", "t", "reply"], 2, "nothing to add: give --calls FILE, or --complete"),
        (["turn", "add", "t", "reply", "--calls", "missing.json"], 2, "no file is called 'missing.json'"),
        (["turn", "add", "t", "reply", "--calls", "-"], 2, "standard input is empty"),
        (["turn", "add", "t", "reply", "--calls", "-", "--at", "-1"], 2, "'--at': Input should be greater"),
        (["turn", "add", "t", "reply", "--complete", "--attempt", "0"], 2, "'--attempt': Input should be greater"),
        (["turn", "add", "t", "reply", "--complete", "--reason", "why"], 2, "give --attempt 2 or higher"),
        (["turn", "add", "t", "", "--complete"], 2, "STREAM must be a name of 1 to 200 printable characters"),
        (["turn", "add", "t", "r" * 201, "--complete"], 2, "STREAM must be a name of 1 to 200 printable characters"),
        (["turn", "add", "t", "two\nlines", "--complete"], 2, "printable characters"),
        (["turn", "add", "t", "half \udcff", "--complete"], 2, "printable characters"),
        (["turn", "interrupt", "t", " "], 2, "the message is empty"),
        (["turn", "interrupt", "t", "-"], 2, "the message is empty"),
        (["turn", "cancel", "t", "--call", "b1c1", "--batch", "b1"], 2, "give --call or --batch, not both"),
        (["turn", "cancel", "t", "--batch", "half \udcff"], 2, "--batch is not UTF-8 text"),
        (["turn", "cancel", "t", "--call", "b1c1", "--reason", "half \udcff"], 2, "--reason is not UTF-8 text"),
        (["turn", "cancel", "t", "--reason", "why"], 2, "--reason needs --call or --batch"),
        (["turn", "cancel", "t", "--batch", "b1", "--reason", "x" * 2_001], 2, "--reason has at most 2,000 characters"),
        (["approve", "nonsense"], 2, "'nonsense' is not an approval id"),
        (["approve"], 2, "approval ids, or --turn TURN"),
        (["approve", "a/b1c1/1", "--turn", "a"], 2, "not both"),
        (["respond", "a/b1c1/1", "--content", ""], 2, "--content is empty"),
        (["inbox", "--data", ""], 2, "the folder's name is empty"),
        (["up", "--workspace", ""], 2, "the folder's name is empty"),
        (["--show-completion", "zsh"], 2, "takes no argument"),
        (["turn", "nonsense"], 2, "No such command 'nonsense'"),
        (["up", "--workspace", "missing"], 2, "is not a folder"),
        (["inbox"], 3, "start one with `holdfast up`"),
        (["worker"], 3, "start one with `holdfast up`"),
        (["inbox", "--address", "127.0.0.1:1"], 3, "no Temporal server answers at '127.0.0.1:1': Connection refused"),
        (["tools", "show", "fetc"], 1, 'Did you mean "fetch"?'),
    ],
)
def test_a_command_that_cannot_do_its_work_says_why_in_a_sentence(
    arguments: list[str], code: int, words: str, empty: Home
) -> None:
    done = empty.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_temporal_configuration_that_cannot_be_read_is_named(empty: Home) -> None:
    done = empty.run("inbox", TEMPORAL_PROFILE="nowhere")
    assert done.returncode == 2
    assert "Profile 'nowhere' not found" in done.stderr
