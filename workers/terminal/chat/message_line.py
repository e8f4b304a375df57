"""Help for typing a message: the messages of earlier chats, and the completion of commands and files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from holdfast.errors import HoldfastError
from holdfast.workers.runtime.data_folder import prepare_folder

HISTORY_LIMIT = 1_000_000
"""Most bytes of the file; of a larger one only the newest messages are kept when a chat starts."""
KEPT_MESSAGES = 500
_COMMAND = re.compile(r"/\w*")
_ARGUMENT = re.compile(r"(/\w+) +(\w*)")
_FILE = re.compile(r"(?:^|\s)@(\S*)$")


def open_history(file: Path | None) -> History:
    """The messages of earlier chats, from a file that only its owner can read.

    Without a file, or with one that cannot be written, they are remembered until the process ends.
    """
    if file is None:
        return InMemoryHistory()
    try:
        prepare_folder(file.parent)
        with open(file, "ab", opener=_open_private) as opened:
            os.fchmod(opened.fileno(), 0o600)
            size = opened.tell()
    except (OSError, HoldfastError):
        return InMemoryHistory()
    history = _PrivateHistory(file)
    if size > HISTORY_LIMIT:
        newest = [text for text, _ in zip(history.load_history_strings(), range(KEPT_MESSAGES), strict=False)]
        os.truncate(file, 0)
        for text in reversed(newest):
            history.store_string(text)
    return history


class ChatCompleter(Completer):
    """Completes `/commands`, their arguments, and the names of files after an `@`."""

    def __init__(self, commands: Mapping[str, str], arguments: Mapping[str, Iterable[str]], folder: Path) -> None:
        """`commands`: what each does. `arguments`: what may follow it. `folder`: where the names of files begin."""
        self._commands = commands
        self._arguments = arguments
        self._paths = PathCompleter(get_paths=lambda: [str(folder)])

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The completions of the word before the cursor."""
        text = document.text_before_cursor
        if _COMMAND.fullmatch(text):
            found = {name: about for name, about in self._commands.items() if name.startswith(text)}
            return [Completion(name, -len(text), display_meta=about) for name, about in found.items()]
        if argument := _ARGUMENT.fullmatch(text):
            known = self._arguments.get(argument[1], ())
            return [Completion(word, -len(argument[2])) for word in known if word.startswith(argument[2])]
        if name := _FILE.search(text):
            with suppress(OSError):
                return list(self._paths.get_completions(Document(name[1]), complete_event))
        return []


class _PrivateHistory(FileHistory):
    """A history that ignores write errors, for example of a full disk."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
