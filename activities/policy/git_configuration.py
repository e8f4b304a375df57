"""Keeps git from running programs that the configuration of a repository names, unless somebody is asked (S30).

A repository is data that anybody may have written, and its configuration names programs: monitors, hooks, editors,
filters, drivers, aliases. Three measures:

- no command takes a folder that only looks like a repository for one (`safe.bareRepository`), or runs a monitor;
- a command that nobody was asked about runs no hook, and the programs of the user's own configuration instead of those
  of the repository, by settings that git reads last (`GIT_CONFIG_COUNT`);
- what git cannot be told to leave out (filters, drivers, aliases, transports) is a doubt about the command, so that it
  is asked about. Every key of the repository counts that is not known to be harmless.

git itself is asked which repository it would use, with the options and environment of the command, and what its
configuration is: `git config --list` runs nothing. Submodules are repositories of their own.

Why: docs/decisions/0011-git-is-asked-about-git.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from holdfast.activities.policy.command_reading import CommandReading
from holdfast.activities.policy.git_environment import (
    CREDENTIAL_HELPER,
    REPLACED_KEYS,
    GitSetting,
    guard_git,
    list_settings,
    run_git,
)
from holdfast.activities.shell.programs.program import Program, find_reached_folders
from holdfast.util.text import escape_controls, shorten_text

MAX_REPOSITORIES = 20
"""Repositories of one command, submodules included."""
_HARMLESS_KEYS = re.compile(
    r"""
    advice\..+ | apply\..+ | author\.(name|email) | blame\..+ | branch\.(?!.*\.mergeoptions$).+ | color\..+ | column\..+
    | commit\.(cleanup|gpgsign|status|template|verbose) | committer\.(name|email) | feature\..+ | fetch\..+
    | core\.(abbrev|attributesfile|autocrlf|bare|bigfilethreshold|checkstat|commentchar|commentstring|compression
      |deltabasecachelimit|eol|excludesfile|filemode|fsmonitorhookversion|hidedotfiles|ignorecase|ignorestat
      |logallrefupdates|longpaths|loosecompression|maxtreedepth|multipackindex|precomposeunicode|preferssymlinkrefs
      |preloadindex|protecthfs|protectntfs|quotepath|repositoryformatversion|safecrlf|sharedrepository|sparsecheckout
      |sparsecheckoutcone|splitindex|symlinks|trustctime|untrackedcache|warnambiguousrefs|whitespace)
    | diff\.(algorithm|autorefreshindex|colormoved|colormovedws|context|dirstat|ignoresubmodules|indentheuristic
      |interhunkcontext|mnemonicprefix|noprefix|orderfile|relative|renamelimit|renames|statgraphwidth|submodule
      |suppressblankempty|wserrorhighlight)
    | extensions\.(compatobjectformat|noop|objectformat|partialclone|preciousobjects|refstorage|relativeworktrees
      |worktreeconfig)
    | format\.pretty | gc\.(?!recentobjectshook$).+ | grep\..+ | gui\..+ | help\.autocorrect
    | http\.(.+\.)?(extraheader|lowspeedlimit|lowspeedtime|postbuffer|version) | i18n\..+ | index\..+
    | init\.defaultbranch | lfs\.(.+\.)?(access|repositoryformatversion) | log\..+
    | maintenance\.(auto|autodetach|repo|strategy|.+\.(enabled|schedule))
    | merge\.(autostash|branchdesc|conflictstyle|defaulttoupstream|directoryrenames|ff|log|renamelimit|renames
      |renormalize|stat|suppressdest|verbosity)
    | notes\.(displayref|mergestrategy|rewriteref|rewritemode) | pack\..+ | protocol\.version | pull\.(ff|rebase)
    | push\..+ | rebase\.(abbreviatecommands|autosquash|autostash|backend|forkpoint|maxlabellength
      |missingcommitscheck|rebasemerges|reschedulefailedexec|stat|updaterefs)
    | receive\.(autogc|deny.+|fsck.*|unpacklimit) | remote\.pushdefault
    | remote\..+\.(fetch|gh-resolved|partialclonefilter|promisor|prune|prunetags|push|pushurl|skipdefaultupdate
      |skipfetchall|tagopt|url)
    | rerere\..+ | showbranch\..+ | stash\..+ | status\..+ | submodule\.(active|fetchjobs|propagatebranches|recurse)
    | submodule\..+\.(active|branch|fetchrecursesubmodules|ignore|shallow|url) | tag\.(gpgsign|sort) | transfer\..+
    | user\..+ | versionsort\..+ | worktree\..+
    """,
    re.VERBOSE | re.DOTALL,
)
"""Keys, in lower case, by which git runs nothing. Any other key may name a program."""
_LFS_SETTINGS = frozenset(
    [
        ("filter.lfs.clean", "git-lfs clean -- %f"),
        ("filter.lfs.smudge", "git-lfs smudge -- %f"),
        ("filter.lfs.process", "git-lfs filter-process"),
        ("filter.lfs.required", "true"),
    ]
)
"""The settings of `git lfs install --local`: they name a program of the user."""
_TRANSPORT = re.compile(r"[A-Za-z0-9+.-]+::")
"""An address with a remote helper, such as `ext::sh -c …`."""
_PUSH_COMMANDS = frozenset(["push", "send-pack", "subtree"])
"""Subcommands by which another repository runs its hooks, where our settings do not apply."""
_ADDRESS_KEYS = re.compile(r"remote\.(?P<remote>.+)\.(url|pushurl)|branch\..+\.(remote|pushremote)|remote\.pushdefault")
_REPOSITORY_SUFFIXES = ("/.git", "", ".git/.git", ".git")
"""The suffixes that git tries for the path of a repository."""
_ARCHIVE_PROGRAMS = frozenset(["tar", "gtar", "bsdtar", "unzip", "7z", "7za", "7zr", "7zz", "cpio", "pax"])
_EXTRACT_OPTION = re.compile(r"-?[A-Za-z]*x[A-Za-z]*|--(e|extract.*|get?)")
_REPOSITORY_OPTIONS = ("-C", "--git-dir", "--work-tree", "--namespace")
"""Options of git that select a repository; `--bare` is another."""
_STAYING_WRAPPERS = frozenset(
    ["bash -c", "builtin", "command", "dash -c", "exec", "find -exec", "ionice", "nice", "nohup", "setsid", "sh -c",
     "stdbuf", "time", "timeout", "xargs"]
)  # fmt: skip
"""Wrappers that do not change the folder of a program."""
_SHALLOW_COMMANDS = frozenset(
    ["blame", "branch", "cat-file", "config", "for-each-ref", "log", "ls-tree", "merge-base", "name-rev", "remote",
     "rev-list", "rev-parse", "shortlog", "show", "tag"]
)  # fmt: skip
"""Subcommands that do not read submodules."""


def find_git_doubts(command: str, folder: Path, workspace: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Explain why git may run a program by the configuration of a repository, for a person; empty when it does not."""
    programs = CommandReading(command).programs
    gits = [program for program in programs if program.name and re.match(r"git(-|$)", program.name)]
    if not gits:
        return ()
    folders = find_reached_folders(programs, folder)
    if not folders.complete or any(not _is_staying(program) for program in gits):
        return ("it is not known in which folder git runs, and so not what is configured there",)
    looked = _RepositoryCheck(workspace.resolve(), guard_git(environment))
    if unpacking := next((one.name for one in programs[: _find_last_git(programs)] if _may_unpack(one)), None):
        looked.doubts.append(f"{unpacking} may change what is configured before git runs")
    for program in gits:
        for place in folders.known:
            looked.check_repository(program, place)
    return tuple(dict.fromkeys(looked.doubts))


def _find_last_git(programs: tuple[Program, ...]) -> int:
    """The index of the last git among the programs."""
    return max(place for place, program in enumerate(programs) if program.name and re.match(r"git(-|$)", program.name))


def _may_unpack(program: Program) -> bool:
    """May a program unpack an archive, and so create the files of a repository?"""
    if program.name not in _ARCHIVE_PROGRAMS:
        return False
    return "tar" not in program.name or any(
        word is None or _EXTRACT_OPTION.fullmatch(word) for word in program.words[1:]
    )


def _is_staying(program: Program) -> bool:
    return all(wrapper in _STAYING_WRAPPERS or wrapper.startswith("function ") for wrapper in program.wrappers)


@dataclass
class _RepositoryCheck:
    """Collects doubts about the repositories of one command."""

    workspace: Path
    environment: Mapping[str, str]
    doubts: list[str] = field(default_factory=list)
    _seen: set[tuple[str, ...]] = field(default_factory=set)

    def check_repository(self, program: Program, folder: Path) -> None:
        """Check the repository that this git would use in this folder, and its submodules."""
        options = _find_options(program)
        if options is None or not folder.is_dir():
            self.doubts.append("it is not known which repository git would use")
            return
        deeper = not _SHALLOW_COMMANDS.intersection(program.normal[1:2])
        pushes = bool(_PUSH_COMMANDS.intersection(program.normal[1:2]))
        self._check_folder(options, folder, deeper=deeper, program=program if pushes else None)

    def _check_folder(
        self, options: tuple[str, ...], folder: Path, *, deeper: bool, program: Program | None = None
    ) -> None:
        place = (str(folder), *options, str(deeper), *map(str, program.normal if program else ()))
        if place in self._seen:
            return
        if len(self._seen) >= MAX_REPOSITORIES:
            self.doubts.append(f"git would look into over {MAX_REPOSITORIES} repositories")
            return
        self._seen.add(place)
        settings = list_settings(options, folder, self.environment)
        if settings is None:
            self.doubts.append("git could not list its configuration")
            return
        if program is not None and self._may_push_here(program, options, folder, settings):
            self.doubts.append("git would push into a repository of the workspace, whose hooks run programs")
        for setting in settings:
            if setting.is_of_the_repository(folder, self.workspace) and self._may_run(setting, folder):
                self.doubts.append(
                    f"the repository's configuration ({_format_text(setting.origin)}) has "
                    f"{_format_text(setting.key)!r}, "
                    "by which git may run a program"
                )
        if deeper:
            for submodule in _list_submodules(options, folder, self.environment):
                self._check_folder((), submodule, deeper=True, program=program)

    def _may_push_here(
        self, program: Program, options: tuple[str, ...], folder: Path, settings: Iterable[GitSetting]
    ) -> bool:
        """May the target of a push be a repository in the workspace?"""
        words = program.normal[2:]
        if None in words:
            return True
        operands = [word.removeprefix("--repo=") for word in words if word]
        known = [(found["remote"], one.value) for one in settings if (found := _ADDRESS_KEYS.fullmatch(one.key))]
        named = {remote for remote, _ in known if remote is not None} & set(operands)
        configured = [value for remote, value in known if not named or remote in named]
        old = run_git(options, folder, self.environment, "rev-parse", "--git-common-dir")
        # Old versions of git kept addresses in files of these folders.
        if old and any(_has_files(folder / os.fsdecode(old.strip()) / one) for one in ("remotes", "branches")):
            return True
        moves = [options[at + 1] for at, option in enumerate(options) if option == "-C"]
        started = Path(os.path.normpath(folder.joinpath(*moves)))
        return any(
            self._is_here(value, base) for value in (*operands, *configured) for base in (started, *started.parents)
        )

    def _is_here(self, address: str, base: Path) -> bool:
        """Does an address lead from this folder to a repository in the workspace?"""
        if not base.is_relative_to(self.workspace) and not address.startswith(("/", "~", "file:")):
            return False
        path = unquote(re.sub(r"^file://[^/]*", "", address)) if address.startswith("file:") else address
        if path in ("", "."):
            return False
        try:
            places = [
                Path(os.path.realpath(base / os.path.expanduser(path + suffix))) for suffix in _REPOSITORY_SUFFIXES
            ]
            return any(
                place.is_relative_to(self.workspace) and (place.is_file() or (place / "HEAD").exists())
                for place in places
            )
        except (OSError, ValueError):
            return True

    def _may_run(self, setting: GitSetting, folder: Path) -> bool:
        key, value = setting.key, setting.value
        if key in REPLACED_KEYS or CREDENTIAL_HELPER.fullmatch(key) or (key, value) in _LFS_SETTINGS:
            return False
        if key == "core.worktree":  # of a submodule; any other value makes git write elsewhere
            return not (folder / setting.file.parent / value).resolve().is_relative_to(self.workspace)
        if key.startswith("remote.") and key.endswith("url") and _TRANSPORT.match(value):
            return True
        return _HARMLESS_KEYS.fullmatch(key) is None


def _has_files(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def _list_submodules(options: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """The checked-out submodules of a repository."""
    top = run_git(options, folder, environment, "rev-parse", "--show-toplevel")
    listed = run_git(options, folder, environment, "ls-files", "--stage", "--full-name", "-z", ":/") if top else None
    for line in (listed or b"").split(b"\0"):
        if line.startswith(b"160000 ") and top:
            place = Path(os.fsdecode(top.rstrip(b"\n")), os.fsdecode(line.partition(b"\t")[2]))
            if os.path.lexists(place / ".git"):
                yield place


def _find_options(program: Program) -> tuple[str, ...] | None:
    """The options of git that select its repository; None when one is unknown."""
    own = program.words[1 : len(program.words) - len(program.normal) + 1]
    found: list[str] = []
    words = iter(own)
    for word in words:
        if word is None:
            return None
        if word in _REPOSITORY_OPTIONS:
            value = next(words, None)
            if value is None:
                return None
            found += [word, value]
        elif word == "--bare" or word.startswith(_REPOSITORY_OPTIONS):
            found.append(word)
        elif word == "-c":
            next(words, None)
    return tuple(found)


def _format_text(text: str) -> str:
    return shorten_text(escape_controls(text.encode("utf-8", "replace").decode()).replace("\n", "␊"), 100)
