"""Protected files: those that decide what runs, and the calls that would change one of them (S29).

Three kinds: files that the settings in effect name (settings, policy files, scripts, modules, lists of servers, the
data folder, keys); what git takes for a repository, or would after the call; and files that other programs run or obey
by their names (`code_files`). Only an allow rule that names the very file covers such a call (see `conditions`).

For a command: the targets of its redirections, and the words of its programs unless these only read. A path that only
running the command tells is not found, nor is what a program does by itself.

Why: docs/decisions/0012-protected-files.md.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import JsonValue

from holdfast.activities.policy.code_files import explain_code_file
from holdfast.activities.policy.command_reading import CommandReading
from holdfast.activities.policy.conditions import may_send
from holdfast.activities.policy.subject import FOLDER_ARGUMENT, Subject
from holdfast.activities.shell.programs.option_effects import find_effects, may_run_unseen
from holdfast.activities.shell.programs.program import NOWHERE, Program, find_reached_folders
from holdfast.activities.shell.programs.program_effects import is_harmless
from holdfast.activities.shell.programs.program_tables import split_names
from holdfast.domain.calls.tool import Effect

MAX_FILES = 2_000
"""Files of a copied folder, matches of a pattern, or texts among arguments that are examined."""
REPOSITORY_REASON = "git takes the folder that it is in for a repository, and runs programs by its configuration"
IMPORT_REASON = "a script that the settings name would import it in the place of a module of Python's"
_REPOSITORIES = (frozenset(["HEAD", "objects", "refs"]), frozenset(["HEAD", "commondir"]))
"""Names in a folder by which git takes it for a repository."""
_MAX_LENGTH = 4_096
"""Characters of a path."""
_PATTERN = re.compile(r"[^$`{}<>()|&;\\'\"~]*[*?\[][^$`{}<>()|&;\\'\"~]*")
_HOME = ("~", "$HOME", "${HOME}")
_BELOW = re.compile(r'"?(~\+?|\$HOME|\$\{HOME\}|\$PWD|\$\{PWD\})/([A-Za-z0-9_./+@-]+)"?')
_COPYING = frozenset(["cp", "install", "ln", "mv", "rsync", "scp"])
_REMOVING = frozenset(["mv", "rm", "rmdir", "rsync"])
_LETTERS = re.compile(r"-[A-Za-z]{1,6}")
_LOADING = frozenset(["aria2c", "axel", "curl", "wget", "wget2"])
"""Programs that write a file with the last name of a url, or folders as in its path."""
_UNPACKING = split_names("bunzip2 bzip2 gunzip gzip lz4 lzip pigz uncompress unlzma unxz unzstd xz zstd")
"""Programs that write a file with the name of their operand, without its suffix."""
_MENTIONED = re.compile(r"[A-Za-z0-9_./+@-]{2,}")
_LEAVES_FILES = frozenset(
    ["add", "blame", "cat-file", "commit", "diff", "grep", "log", "ls-files", "ls-tree", "push", "rev-parse", "show",
     "status"]
)  # fmt: skip
"""Subcommands of git that change no file among their operands."""
_ASKS_CONFIGURATION = frozenset(["--get", "--get-all", "--get-regexp", "--get-urlmatch", "--list", "-l", "get", "list"])
_CHANGES_CONFIGURATION = re.compile(r"--(add|unset|unset-all|replace-all|edit|rename-section|remove-section)|-e")


@dataclass(frozen=True)
class ProtectedFiles:
    """Files that are protected beside those with listed names. Without a workspace, nothing is read from the disk."""

    workspace: Path | None = None
    named: Mapping[Path, str] | None = None
    """Files and folders by their real path, with the reason. A folder includes everything in it."""
    imports: frozenset[Path] = frozenset()
    """Folders from which a script of the settings imports modules."""

    def find(self, subject: Subject) -> dict[str, str]:
        """The protected files that a call would change, by their paths for rules, with the reasons."""
        if subject.effect is Effect.READ:
            return {}
        return {self._format_path(path): why for path, why in self._list_candidates(subject) if why}

    def _list_candidates(self, subject: Subject) -> Iterator[tuple[Path, str | None]]:
        if subject.command is not None:
            yield from self._list_command_targets(subject)
            return
        texts = subject.paths or islice(_list_texts(subject.arguments), MAX_FILES)
        for text in texts:
            for path in self._resolve_text(text, self._root):
                yield path, self.explain_protection(path)

    def explain_protection(self, path: Path) -> str | None:
        """Explain why a file is protected; None when it is not. `path` is absolute, with links resolved or not."""
        inside = path.is_relative_to(self._root)
        for named, reason in (self.named or {}).items():
            around = inside and self._root.is_relative_to(named)  # a workspace may be in the data folder
            if not around and (path == named or named in path.parents):
                return reason
        if path.parent in self.imports and path.name.partition(".")[0] in sys.stdlib_module_names:
            return IMPORT_REASON
        return explain_code_file(str(path.relative_to(self._root) if inside else path)) or self._explain_repository(
            path
        )

    def _explain_repository(self, path: Path) -> str | None:
        """The reason for a file in a repository without `.git`, or one that would make a folder a repository."""
        if self.workspace is None or not path.is_relative_to(self._root):
            return None
        inner = path
        while inner != self._root:
            inner, name = inner.parent, inner.name
            names = {*_list_marks(inner), name}
            if any(marks <= names for marks in _REPOSITORIES):
                return REPOSITORY_REASON
        return None

    @cached_property
    def _root(self) -> Path:
        return self.workspace.resolve() if self.workspace else Path("/")

    def _format_path(self, path: Path) -> str:
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def _resolve_text(self, text: str, folder: Path) -> Iterator[Path]:
        """The paths that a text may name: as it is written, and with links resolved."""
        if not text or len(text) > _MAX_LENGTH or "\0" in text or "\n" in text:
            return
        plain = Path(os.path.normpath(folder / text))
        yield plain
        if self.workspace is not None:
            real = Path(os.path.realpath(folder / text))
            if real != plain:
                yield real

    def _list_command_targets(self, subject: Subject) -> Iterator[tuple[Path, str | None]]:
        reading = CommandReading(subject.command or "")
        place = subject.arguments.get(FOLDER_ARGUMENT)
        start = self._root / place if isinstance(place, str) else self._root
        for folder in find_reached_folders(reading.programs, Path(os.path.normpath(start))).known:
            for target, text in reading.written_files:
                for path in self._resolve_word(target, text, folder):
                    yield path, self.explain_protection(path)
            for program in reading.programs:
                if not is_harmless(program):
                    yield from self._list_program_targets(program, folder)
            if _may_make_names(reading):
                yield from self._list_mentioned(reading.command, folder)

    def _list_mentioned(self, command: str, folder: Path) -> Iterator[tuple[Path, str | None]]:
        """The listed files whose names are anywhere in a command, when its programs write to unknown files."""
        for text in islice(dict.fromkeys(_MENTIONED.findall(command)), MAX_FILES):
            if os.path.basename(os.path.normpath(text)) != ".git":  # mostly named to exclude it
                for path in self._resolve_text(text, folder):
                    yield path, explain_code_file(self._format_path(path))

    def _list_program_targets(self, program: Program, folder: Path) -> Iterator[tuple[Path, str | None]]:
        given = program.normal[1:]
        if program.name == "git":
            if given[:1] == ("config",) and _is_configuring(given[1:]):
                yield folder / ".git" / "config", explain_code_file(".git")
            if _LEAVES_FILES.intersection(given[:1]) and not find_effects(program):
                return
        for word, text in zip(given, program.texts[len(program.texts) - len(given) :], strict=True):
            for path in self._resolve_word(word, text, folder):
                yield path, self.explain_protection(path)
                if program.name in _REMOVING:
                    yield from self._list_named_below(path)
                if program.name in _UNPACKING and path.suffix:
                    yield path.with_suffix(""), self.explain_protection(path.with_suffix(""))
            if word and _may_load_files(program):
                for path in _list_downloads(word, folder):
                    yield path, self.explain_protection(path)
        if program.name in _COPYING:
            for path in self._list_copies(program, folder):
                yield path, self.explain_protection(path)

    def _resolve_word(self, word: str | None, text: str, folder: Path) -> Iterator[Path]:
        """The paths that a word may name, also as the value of an option; for a glob, its present matches."""
        if word is None:
            if known := _BELOW.fullmatch(text):
                yield from self._resolve_text(known[2], Path.home() if known[1] in _HOME else folder)
            elif self.workspace is not None and _PATTERN.fullmatch(text):
                for found in islice(glob.iglob(text, root_dir=folder, include_hidden=True), MAX_FILES):
                    yield from self._resolve_text(found, folder)
            return
        letters = _LETTERS.match(word)
        attached = [word[at:] for at in range(2, letters.end() + 1)] if letters else []
        for one in dict.fromkeys((word, word.partition("=")[2], *attached)):
            if one and one != NOWHERE and "://" not in one:
                yield from self._resolve_text(one, folder)

    def _list_named_below(self, path: Path) -> Iterator[tuple[Path, str | None]]:
        """The named files below a folder that is removed or moved."""
        yield from ((named, reason) for named, reason in (self.named or {}).items() if path in named.parents)

    def _list_copies(self, program: Program, folder: Path) -> Iterator[Path]:
        """The files that copying, moving or linking would create."""
        if self.workspace is None:
            return
        words = [word for word in program.words[1:] if word is not None]
        operands = [word for word in words if not word.startswith("-")]
        into = next((word.partition("=")[2] for word in words if word.startswith("--target-directory=")), None)
        if "-t" in words[:-1]:
            into = words[words.index("-t") + 1]
        target = into if into is not None else operands[-1] if len(operands) > 1 else None
        if target is None:
            return
        for source in operands if into is not None else operands[:-1]:
            name = os.path.basename(source)
            renamed = name in ("", ".", "..") or not (folder / target).is_dir()
            place = folder / target if renamed else folder / target / name
            yield from self._resolve_text(str(place), folder)
            for name in islice(_walk_folder(folder / source), MAX_FILES):
                yield from self._resolve_text(str(place / name), folder)


def _may_make_names(reading: CommandReading) -> bool:
    """Does a command write files, or run programs that may, whose names are unknown?"""
    if any(target is None for target, _ in reading.written_files):
        return True
    return any(
        None in program.words or may_run_unseen(program) or any(one.effect == "writes" for one in find_effects(program))
        for program in reading.programs
        if not (is_harmless(program) or (program.name == "git" and _LEAVES_FILES.intersection(program.normal[1:2])))
    )


def _may_load_files(program: Program) -> bool:
    """Does a program download files? curl prints them unless an option says otherwise."""
    writes = program.name != "curl" or any(one.effect == "writes" for one in find_effects(program))
    return program.name in _LOADING and writes


def _list_downloads(address: str, folder: Path) -> Iterator[Path]:
    """The files that a download of this url may create."""
    try:
        found = urlsplit(address if "://" in address else f"//{address}")
        path = unquote(found.path)
    except ValueError:
        return
    if found.netloc and path.strip("/") and "\0" not in path and "\n" not in path and len(path) < _MAX_LENGTH:
        yield Path(os.path.normpath(folder / path.strip("/").rpartition("/")[2]))
        yield Path(os.path.normpath(folder / path.strip("/")))


def _walk_folder(folder: Path) -> Iterator[str]:
    """Every file below a folder, relative to it."""
    for place, _, names in os.walk(folder):
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in names)


def _list_marks(folder: Path) -> set[str]:
    try:
        return {name for name in ("HEAD", "objects", "refs", "commondir") if os.path.lexists(folder / name)}
    except (OSError, ValueError):
        return set()


def _is_configuring(words: Iterable[str | None]) -> bool:
    """Does `git config` with these words change the configuration?"""
    known = [word or "" for word in words]
    if any(_CHANGES_CONFIGURATION.fullmatch(word) for word in known):
        return True
    return _ASKS_CONFIGURATION.isdisjoint(known) and sum(not word.startswith("-") for word in known) > 1


def _list_texts(value: JsonValue) -> Iterator[str]:
    """All texts among the arguments of an unknown tool: each may be a path."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _list_texts(item)


def complete_subject(subject: Subject, declared: bool | None, protected: ProtectedFiles | None = None) -> Subject:
    """A described call with `sends`, derived when it is not declared, and with its protected files.

    Without `protected`, these are known by their names only.
    """
    found = (protected or ProtectedFiles()).find(subject)
    return subject.model_copy(update={"sends": may_send(subject) if declared is None else declared, "protected": found})
