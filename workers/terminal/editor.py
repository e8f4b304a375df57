"""A person's own editor and pager. The text comes from a model: nothing here runs it.

The editor gets it in a private file, which is removed with its folder and any other file of the editor; unless the file
is kept after an error, so that no edit is lost.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import BadInput, HoldfastError
from holdfast.util.text import drop_surrogates
from holdfast.workers.runtime.child_processes import describe_exit

SIZE_LIMIT = 8_000_000
"""Most bytes of an edited text."""
VARIABLES = ("VISUAL", "EDITOR")
USUAL_EDITORS = ("editor", "vi", "nano")


def get_editor_command() -> list[str]:
    """The command of the editor: VISUAL, EDITOR, else a usual one that is installed. BadInput without any."""
    for name in VARIABLES:
        if given := os.environ.get(name, "").strip():
            try:
                return shlex.split(given)
            except ValueError as error:
                raise BadInput(f"{name} is not a command: {str(error).lower()}") from None
    found = next(filter(None, map(shutil.which, USUAL_EDITORS)), None)
    if found is None:
        raise BadInput("no editor is installed: set EDITOR, or give the change with --content or --arguments")
    return [found]


class EditorDraft:
    """A text in a file that an editor changes."""

    def __init__(self, folder: Path, name: str, text: str) -> None:
        self.file = folder / name
        self.is_kept = False
        text = drop_surrogates(text)
        # Editors end the last line with a newline: remove it again if the text had none.
        self._ended = bool(text) and not text.endswith("\n")
        self._write_text(f"{text}\n" if self._ended else text)
        self.before = self.read()

    def read(self) -> str:
        """The text of the file; HoldfastError when it cannot be sent."""
        try:
            with self.file.open("rb") as opened:
                data = opened.read(SIZE_LIMIT + 1)
        except OSError as error:
            raise HoldfastError(f"the edited file cannot be read ({error.strerror}): nothing was sent") from None
        if len(data) > SIZE_LIMIT:
            raise HoldfastError(f"the text is over {SIZE_LIMIT // 1_000_000} MB: nothing was sent")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise HoldfastError(f"the text is not UTF-8 (byte {error.start}): nothing was sent") from None
        return text.removesuffix("\n") if self._ended else text

    def keep_file(self) -> Path | None:
        """Keep the file, with the text that would be sent, if the text was changed; its path."""
        with suppress(HoldfastError):
            text = self.read()
            if text == self.before:
                return None
            self._write_text(text)
        self.is_kept = self.file.exists()
        return self.file if self.is_kept else None

    def _write_text(self, text: str) -> None:
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(text.encode())


@contextmanager
def open_draft(name: str, text: str) -> Iterator[EditorDraft]:
    """A text in a private file, until the end of the block."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
        made = EditorDraft(folder, name, text)
    except OSError as error:
        raise HoldfastError(f"the text cannot be written to a file: {error.strerror or error}") from None
    try:
        yield made
    finally:
        if not made.is_kept:
            shutil.rmtree(folder, ignore_errors=True)


async def run_editor(command: list[str], file: Path) -> None:
    """Run the editor to its end; BadInput when it cannot be started, HoldfastError when it fails."""
    try:
        process = await asyncio.create_subprocess_exec(*command, str(file))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"the editor {command[0]!r} cannot be started: {why}: set EDITOR to another one") from None
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    if code:
        raise HoldfastError(f"the editor {command[0]!r} {describe_exit(code)}: nothing was sent")


def find_pager() -> str:
    """The command that shows long text: PAGER, else `less`; empty without either."""
    return os.environ.get("PAGER", "less -R" if shutil.which("less") else "").strip()


async def show_in_pager(command: str, text: str) -> bool:
    """Show text in a pager; False when it could not be started."""
    process = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.PIPE)
    try:
        await process.communicate(text.encode("utf-8", "replace"))
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    return process.returncode not in (126, 127)
