"""What helps to type a message: earlier messages in a private file, and completion."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from holdfast.workers.terminal.chat import message_line
from holdfast.workers.terminal.chat.message_line import ChatCompleter, open_history

COMMANDS = {"/mode": "the mode", "/model": "the model", "/status": "the state"}


def completed(folder: Path, text: str) -> list[str]:
    """The line after each completion."""
    completer = ChatCompleter(COMMANDS, {"/mode": ["plan", "yolo"]}, folder)
    found = completer.get_completions(Document(text), CompleteEvent(completion_requested=True))
    return [text[: len(text) + one.start_position] + one.text for one in found]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("/", ["/mode", "/model", "/status"]),
        ("/mo", ["/mode", "/model"]),
        ("/mode p", ["/mode plan"]),
        ("/mode ", ["/mode plan", "/mode yolo"]),
        ("/status ", []),
        ("say /mo", []),
        ("look at @no", ["look at @notes.txt"]),
        ("@sub/", ["@sub/inner.py"]),
        ("mail ada@no", []),
        ("@nowhere/x", []),
        ("", []),
    ],
)
def test_commands_their_arguments_and_files_are_completed(text: str, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.py").touch()
    assert completed(tmp_path, text) == lines


def test_messages_are_remembered_in_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "data" / "chat_history"
    open_history(file).store_string("one\ntwo")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    assert list(open_history(file).load_history_strings()) == ["one\ntwo"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_long_file_keeps_its_newest_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_line, "HISTORY_LIMIT", 1_000)
    monkeypatch.setattr(message_line, "KEPT_MESSAGES", 3)
    file = tmp_path / "chat_history"
    history = open_history(file)
    for number in range(50):
        history.store_string(f"message {number}")
    kept = list(open_history(file).load_history_strings())
    assert kept == ["message 49", "message 48", "message 47"]
    assert file.stat().st_size < 1_000


@pytest.mark.parametrize("where", ["link", "folder", "none"])
def test_what_cannot_be_written_is_remembered_in_memory(where: str, tmp_path: Path) -> None:
    file = tmp_path / where
    if where == "link":
        file.symlink_to(tmp_path / "elsewhere")
    elif where == "folder":
        file.mkdir()
    history = open_history(None if where == "none" else file)
    history.append_string("said")
    assert history.get_strings() == ["said"]
    assert not (tmp_path / "elsewhere").exists()
