"""What is known of common programs: forms that only look, and forms that destroy.

Both tables are short on purpose. A form that is in neither is a matter for rules and people. Harmless means that it
changes nothing, runs nothing else and shows no environment of another program, not that its output may be shown to
everybody; options that go further are in `option_effects`. Whoever asks has seen that the analysis is certain, and what
redirections write that belong to no program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.activities.shell.programs.option_effects import find_effects
from holdfast.activities.shell.programs.program import Program
from holdfast.activities.shell.programs.variables import is_dangerous
from holdfast.activities.shell.programs.wrappers import is_where_programs_are

_LOOKING = frozenset([
    "ls", "cat", "pwd", "echo", "head", "tail", "wc", "true", "false", ":", "[", "test", "basename", "dirname",
    "realpath", "readlink", "stat", "du", "df", "whoami", "id", "uname", "nl", "tac", "rev", "cut", "paste", "fold",
    "comm", "cmp", "md5sum", "sha256sum", "seq", "sleep", "printf", "which", "type", "cd", "tr", "expand", "od",
    "nproc", "uptime", "free", "grep", "egrep", "fgrep", "jq", "strings", "exit", "diff", "rg", "find", "sort",
    "date", "tree", "file", "uniq", "hostname", "ps", "sed",
])  # fmt: skip
_GIT_LOOKING = frozenset([
    "diff", "log", "show", "diff-tree", "status", "rev-parse", "ls-files", "ls-tree", "describe", "shortlog", "blame",
    "rev-list", "merge-base", "name-rev", "for-each-ref", "cat-file", "grep",
])  # fmt: skip
_GIT_LISTING: Mapping[str, re.Pattern[str]] = {
    "branch": re.compile(r"-[avrl]+|--list|--show-current|--all|--verbose|--remotes"),
    "tag": re.compile(r"-l|--list"),
    "remote": re.compile(r"-v|--verbose"),
    "stash": re.compile(r"list"),
}
"""Subcommands that only look with just these words."""
_PROCESSES = re.compile(r"(.*[/=])?proc(/.*)?|(.*[/=])?(fd|std(in|out|err))/+\.\.(/.*)?", re.DOTALL)
"""Files that show the environment and the memory of other programs, also by way of `/dev/fd`."""
_ROOT = re.compile(r"/[./]*|([./]*\.\.){3}[./]*")
"""The folder that those are below, or one that may be it."""
_INTO_FOLDERS = frozenset(["grep", "egrep", "fgrep", "rg", "diff", "cd"])
"""They look into what is below a folder, or make it the one that others look into."""


def is_harmless(program: Program) -> bool:
    """Whether a program surely only looks."""
    first = program.words[0] if program.words else None
    if first is None or program.interprets_code or any(is_dangerous(name) for name, _ in program.assignments):
        return False
    if not is_where_programs_are(first):
        return False
    if any(redirection.is_writing for redirection in program.redirections) or explain_destructive(program):
        return False
    if find_effects(program) or any(
        word is not None and _may_show_programs(program, word) for word in _list_given(program)
    ):
        return False
    if program.name == "command":
        return program.words[1:2] in (("-v",), ("-V",))
    return _is_git_looking(program) if program.name == "git" else program.name in _LOOKING


def _list_given(program: Program) -> Iterator[str | None]:
    """Its words, and what it reads."""
    yield from program.words[1:]
    yield from (one.target for one in program.redirections if one.kind in ("read", "read_write"))


def _may_show_programs(program: Program, word: str) -> bool:
    into = program.name in _INTO_FOLDERS and _ROOT.fullmatch(word) is not None
    return into or _PROCESSES.fullmatch(word) is not None


def is_known_to_look(name: str) -> bool:
    """Is it a program whose harmless forms are known, so that any other form does more?"""
    return name == "git" or name in _LOOKING


def _is_git_looking(program: Program) -> bool:
    words = program.normal[1:]
    subcommand = (words[0] or "") if words else ""
    if listing := _GIT_LISTING.get(subcommand):
        shown = words[1:] or ([None] if subcommand == "stash" else [])
        return all(word is not None and listing.fullmatch(word) for word in shown)
    return subcommand in _GIT_LOOKING


@dataclass(frozen=True)
class DestructiveForm:
    """A form of a program that destroys: all of its patterns are found among the words."""

    reason: str
    words: tuple[re.Pattern[str], ...] = ()


def _build_form(reason: str, *patterns: str) -> DestructiveForm:
    return DestructiveForm(reason, tuple(re.compile(pattern, re.DOTALL) for pattern in patterns))


_ENDS = _build_form("it stops the machine")
_WIPES = _build_form("it destroys what a disk or a file holds")
_REMOVES_ALL = _build_form("it removes without asking, or whole folders", r"-[a-zA-Z]*[rRf].*|--(r|f).*")
_ALL_BELOW = _build_form("it changes the rights of everything below", r"-[a-zA-Z]*R.*|--rec.*")
_NETWORK = _build_form("it changes what the network lets through")
_DESTROYING: Mapping[str, tuple[DestructiveForm, ...]] = {
    "rm": (_REMOVES_ALL,),
    "dd": (_build_form("it overwrites a file or a disk", r"of=.*"),),
    **dict.fromkeys(["shred", "truncate", "wipefs", "fdisk", "sfdisk", "parted", "mkswap", "blkdiscard"], (_WIPES,)),
    **dict.fromkeys(["shutdown", "reboot", "halt", "poweroff"], (_ENDS,)),
    "systemctl": (_build_form("it stops the machine", r"poweroff|reboot|halt|kexec|suspend|hibernate"),),
    "init": (_build_form("it stops the machine", r"[06]"),),
    **dict.fromkeys(["chmod", "chown", "chgrp"], (_ALL_BELOW,)),
    **dict.fromkeys(["iptables", "ip6tables", "nft", "ufw"], (_NETWORK,)),
    "kill": (_build_form("it ends every process", r"-1", r"-(9|15|KILL|SIGKILL|TERM|SIGTERM|s|-)"),),
    "killall": (_build_form("it ends processes by their name"),),
    "pkill": (_build_form("it ends processes by their name"),),
    "find": (_build_form("it removes what it finds", r"-delete"),),
    "history": (_build_form("it clears the history", r"-[a-z]*c.*"),),
    "crontab": (_build_form("it removes every planned job", r"-[a-z]*r.*"),),
    "userdel": (_build_form("it removes a user"),),
    "docker": (
        _build_form("it removes what containers keep", r"system|volume|image|container|builder|network", r"prune|rm"),
        _build_form("it removes what containers keep", r"rm|rmi"),
    ),
    "kubectl": (_build_form("it removes what a cluster runs", r"delete|drain"),),
    "helm": (_build_form("it removes what a cluster runs", r"uninstall|delete"),),
    "terraform": (_build_form("it removes what was built", r"destroy|-destroy"),),
    "tofu": (_build_form("it removes what was built", r"destroy|-destroy"),),
    "git": (
        _build_form(
            "it overwrites what others have pushed", r"push", r"-[a-zA-Z]*f.*|--fo(r.*)?|--mirror|--delete|-d|\+.+|:.+"
        ),
        _build_form("it throws away changes", r"reset", r"--hard|--h.*"),
        _build_form("it removes files that are not kept", r"clean", r"-[a-zA-Z]*f.*|--f.*"),
        _build_form("it throws away changes", r"checkout|restore", r"\.|--|-f|--force|--worktree"),
        _build_form("it removes a branch that is not merged", r"branch", r"-[a-zA-Z]*D.*"),
        _build_form("it throws away stashed changes", r"stash", r"drop|clear"),
        _build_form("it rewrites history", r"filter-branch|filter-repo"),
    ),
}
_DEVICE = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|loop|mapper/|dm-|md).*|/dev/(mem|kmem|port)|/proc/sys.*")
_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "ash", "fish"])


def explain_destructive(program: Program) -> str | None:
    """Why a program may destroy what nobody can bring back; None when nothing says so."""
    name = program.known_name or ""
    if name.startswith("mkfs"):
        return _WIPES.reason
    if f"function {name}" in program.wrappers and (program.background or program.reads_pipe):
        return "a function starts itself again and again"
    if name in _SHELLS and program.reads_pipe and all(word and word.startswith("-") for word in program.words[1:]):
        return "it runs whatever another program sends it"
    for redirection in program.redirections:
        if redirection.is_writing and (reason := explain_destructive_write(redirection.target)):
            return reason
    words = [word for word in program.normal[1:] if word is not None]
    return next((form.reason for form in _DESTROYING.get(name, ()) if _is_form(form, words)), None)


def explain_destructive_write(target: str | None) -> str | None:
    """Why a file that a redirection writes may not be written; None when nothing says so."""
    return "it writes to a device" if target is not None and _DEVICE.fullmatch(target) else None


def _is_form(form: DestructiveForm, words: list[str]) -> bool:
    return all(any(pattern.fullmatch(word) for word in words) for pattern in form.words)
