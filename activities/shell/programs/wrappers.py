"""Programs that run other programs: what they would run, by their own words.

A wrapper that only passes on (`env`, `timeout`, `xargs`) is not judged itself, what it runs is; one that gives rights
or leaves the machine (`sudo`, `ssh`) is judged as well. Options are known by table, and one that is not is a doubt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from holdfast.activities.shell.programs.interpreters import SHELLS, is_commanded
from holdfast.activities.shell.programs.option_tables import (
    Doubt,
    Options,
    ParsedOptions,
    cannot_be_option,
    parse_options,
)
from holdfast.activities.shell.programs.program import Program
from holdfast.activities.shell.programs.runners import read_runner


@dataclass(frozen=True)
class InnerProgram:
    """A program that another one runs."""

    wrapper: str
    words: tuple[str | None, ...]
    texts: tuple[str, ...]
    assignments: tuple[tuple[str, str | None], ...] = ()
    runner_at: int | None = None
    """Where in the words of a runner it begins: a rule may cover both by those words. None: no runner runs it."""


@dataclass(frozen=True)
class InnerCode:
    """Commands that are in the words of a program, to be read on their own."""

    wrapper: str
    text: str
    posix: bool = False
    """They are read by another shell than bash."""


@dataclass(frozen=True)
class UnwrapResult:
    """What a program would run."""

    inner: tuple[InnerProgram | InnerCode, ...] = ()
    listed: bool = True
    """It is judged itself."""
    doubts: tuple[str, ...] = ()
    normal: tuple[str | None, ...] | None = None


Unwrapper = Callable[[Program], UnwrapResult]
_PASSING: Mapping[str, Options] = {
    "env": Options("i0v", "uC", long=frozenset(["ignore-environment", "null", "debug"]),
                   long_valued=frozenset(["unset", "chdir"]), assigns=True),
    "nohup": Options(),
    "nice": Options(valued="n", long_valued=frozenset(["adjustment"]), numeric=True),
    "timeout": Options("v", "ks", long=frozenset(["preserve-status", "foreground", "verbose"]),
                       long_valued=frozenset(["kill-after", "signal"]), operands=1),
    "time": Options("pv", "f", long=frozenset(["portability", "verbose"]), long_valued=frozenset(["format"])),
    "stdbuf": Options(valued="ioe", long_valued=frozenset(["input", "output", "error"])),
    "setsid": Options("cfw", long=frozenset(["ctty", "fork", "wait"])),
    "ionice": Options("t", "cn", long=frozenset(["ignore"]), long_valued=frozenset(["class", "classdata"])),
    "chrt": Options("bfior", operands=1),
    "taskset": Options("c", operands=1),
    "command": Options("p"),
    "builtin": Options(),
    "exec": Options("cl", "a"),
}  # fmt: skip
_RAISING: Mapping[str, Options] = {
    "sudo": Options("AbBEHknPS", "CDghpRrTtuU", assigns=True, long_valued=frozenset(["user", "group", "prompt"]),
                    long=frozenset(["non-interactive", "stdin", "preserve-env", "set-home", "background"])),
    "doas": Options("n", "uC"),
}  # fmt: skip
_XARGS = Options(
    "0oprtx", "adEILnPs", "eil",
    long=frozenset(["null", "no-run-if-empty", "verbose", "exit", "interactive", "open-tty"]),
    long_valued=frozenset(["arg-file", "delimiter", "max-args", "max-lines", "max-procs", "max-chars"]),
)  # fmt: skip
_SHELL = Options("abcefhilmnpstuvxBCEHPT", "oO", long=frozenset(["norc", "noprofile", "login", "verbose"]))
_SAFE_SETTINGS = frozenset(["errexit", "nounset", "pipefail", "xtrace", "noglob", "noclobber", "verbose"])
_FOLDERS = ("", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
_VERSIONED = re.compile(r"-?[0-9][0-9.]*")
MAX_EXECUTED = 10
"""Programs of one `find`."""
_EXECUTES = frozenset(["-exec", "-execdir", "-ok", "-okdir"])
_ELSEWHERE = {
    **dict.fromkeys(["ssh", "rsh", "mosh"], "runs commands on another machine"),
    **dict.fromkeys(["docker", "podman", "kubectl", "nerdctl", "lxc"], "runs programs in a container"),
    **dict.fromkeys(["nix", "nix-shell"], "runs programs in another environment"),
    **dict.fromkeys(["chroot", "unshare", "nsenter", "bwrap", "firejail", "proot"], "runs a program in another world"),
    **dict.fromkeys(["su", "runuser", "pkexec", "machinectl", "systemd-run"], "runs commands as somebody else"),
    **dict.fromkeys(["at", "batch", "parallel", "entr", "tmux", "screen", "expect"], "runs commands given to it"),
    **dict.fromkeys(["watch", "script", "strace", "ltrace", "gdb", "flock", "rlwrap", "faketime", "busybox", "toybox",
                     "unbuffer", "numactl", "prlimit", "dbus-run-session", "xvfb-run", "setarch", "catchsegv",
                     "start-stop-daemon", "capsh", "setpriv", "cgexec", "valgrind", "perf", "fakeroot", "linux32",
                     "linux64", "i386", "x86_64", "runcon", "choom", "sg", "chpst", "softlimit", "setlock", "envdir",
                     "setuidgid", "daemonize", "trickle", "torify", "torsocks", "tsocks", "proxychains", "proxychains4",
                     "cpulimit", "hyperfine", "watchexec", "dbus-launch", "gosu", "su-exec", "tini", "dumb-init",
                     "schroot", "run-parts", "ifne", "ccache", "sccache", "distcc", "eatmydata", "nocache", "retry",
                     "systemd-inhibit", "systemd-cat", "sshpass", "aa-exec", "lxc-attach", "incus"],
                    "runs a program given to it"),
}  # fmt: skip
_CONTAINER_RUNS = frozenset(["develop", "shell", "exec", "run", "create", "compose", "cp", "start", "debug", "attach"])
_GIT = Options(
    "pPvh", "Cc",
    long=frozenset(["paginate", "no-pager", "no-replace-objects", "bare", "literal-pathspecs", "no-optional-locks",
                    "glob-pathspecs", "noglob-pathspecs", "icase-pathspecs", "no-lazy-fetch", "no-advice", "version",
                    "help"]),
    long_valued=frozenset(["git-dir", "work-tree", "namespace"]),
)  # fmt: skip
_GIT_SETTING = re.compile(
    r"(color\.[a-z.]+|advice\.[a-z]+|column\.[a-z]+|user\.(name|email)|core\.(quotepath|autocrlf|abbrev)"
    r"|init\.defaultbranch|commit\.gpgsign|safe\.directory|log\.(date|decorate)|pull\.(rebase|ff))=.*",
    re.IGNORECASE | re.DOTALL,
)
_GIT_RUNS = frozenset(["foreach", "run", "filter-branch", "-x", "-O", "difftool", "mergetool", "send-email", "daemon"])
_GIT_GIVEN = frozenset(
    ["remote-ext", "remote-fd", "merge-index", "for-each-repo", "hook", "shell", "instaweb", "web--browse", "p4", "svn",
     "imap-send", "cvsserver", "cvsimport", "cvsexportcommit", "archimport", "http-backend"]
)  # fmt: skip
"""Subcommands that are nothing else but a way to run a program, or to serve one."""
_GIT_RUNNING = (
    "--exec",
    "--upload-pack",
    "--receive-pack",
    "--extcmd",
    "--open-files-in-pager",
    "--config",
    "--ext-diff",
)
"""Options that name a program, or settings that may; git reads them shortened too."""


def unwrap_program(program: Program) -> UnwrapResult:
    """What a program would run, itself among it."""
    name = program.name
    if name is None:
        return UnwrapResult(doubts=(f"it is not known which program {program.texts[0][:40]!r} is",))
    if is_commanded(program):
        return UnwrapResult(doubts=(f"{name} takes its commands from its input",))
    if name not in SHELLS and _VERSIONED.sub("", name) in SHELLS:
        return UnwrapResult(doubts=(f"{name} reads commands in its own way",))
    try:
        unwrapped = (_unwrap_git_program if name.startswith("git-") else _UNWRAPPING.get(name, _unwrap_runner))(program)
    except Doubt as doubt:
        return UnwrapResult(doubts=(str(doubt),))
    return unwrapped if is_where_programs_are(program.words[0]) else replace(unwrapped, listed=True)


def is_where_programs_are(path: str | None) -> bool:
    """Whether a program of a known name surely is that program: `./env` may be anything."""
    return path is not None and path.rpartition("/")[0] in _FOLDERS


def _unwrap_runner(program: Program) -> UnwrapResult:
    """What a runner runs; nothing for every other program."""
    ran = read_runner(program)
    if ran is None:
        return UnwrapResult()
    code = [InnerCode(ran.wrapper, text, posix=True) for text in ran.code]
    texts = program.texts[ran.at :]
    texts = (*("python",) * (len(ran.words) - len(texts)), *texts)
    run = [InnerProgram(ran.wrapper, ran.words, texts, runner_at=ran.at)] if ran.words else []
    return UnwrapResult((*run, *code))


def _unwrap_git_program(program: Program) -> UnwrapResult:
    """`git-push` is `git push`."""
    words = ("git", (program.name or "")[4:], *program.words[1:])
    return _unwrap_git(replace(program, words=words, texts=("git", *program.texts)))


def _build_inner(
    program: Program, at: int, parsed: ParsedOptions, wrapper: str | None = None
) -> tuple[InnerProgram, ...]:
    if at >= len(program.words):
        return ()
    run = InnerProgram(wrapper or program.name or "", program.words[at:], program.texts[at:], tuple(parsed.assignments))
    return (run,)


def _unwrap_passing(program: Program) -> UnwrapResult:
    if program.name == "command" and program.words[1:2] in (("-v",), ("-V",)):
        return UnwrapResult()
    begun = parse_options(program.words, _PASSING[program.name or ""])
    if program.words[begun.at : begun.at + 1] == ("-",):
        raise Doubt("`env -` hides what it runs")
    inner = _build_inner(program, begun.at, begun)
    if program.name == "exec" and not inner and any(one.kind != "duplicate" for one in program.redirections):
        raise Doubt("exec changes where the input and the output of what follows are")
    elsewhere = program.name == "env" and begun.values.keys() & {"C", "chdir"}
    return UnwrapResult(inner, listed=not inner or bool(elsewhere))


def _unwrap_raising(program: Program) -> UnwrapResult:
    begun = parse_options(program.words, _RAISING[program.name or ""])
    return UnwrapResult(_build_inner(program, begun.at, begun))


def _unwrap_xargs(program: Program) -> UnwrapResult:
    begun = parse_options(program.words, _XARGS)
    words = program.words[begun.at :] or ("echo",)
    texts = program.texts[begun.at :] or ("echo",)
    marks = [mark or "{}" for mark in (*begun.values.get("I", ()), *begun.values.get("i", ()))]
    filled = tuple(None if word is None or any(mark in word for mark in marks) else word for word in words)
    if not marks or begun.values.keys() & {"n", "L", "l", "max-args", "max-lines"}:
        return UnwrapResult((InnerProgram("xargs", (*filled, None), (*texts, "…")),), listed=False)
    return UnwrapResult((InnerProgram("xargs", filled, texts),), listed=False)


def _unwrap_find(program: Program) -> UnwrapResult:
    words = program.words
    doubts = [
        "the words of find are not known"
        for word, text in zip(words, program.texts, strict=True)
        if word is None and not cannot_be_option(word, text)
    ]
    # Each is taken for a beginning, also one that is the value of another option: more is listed than runs, not less.
    beginnings = [place for place, word in enumerate(words) if word in _EXECUTES]
    if len(beginnings) > MAX_EXECUTED:
        raise Doubt("find is given too many programs to run")
    runs = (_build_executed(program, place) for place in beginnings)
    return UnwrapResult(tuple(run for run in runs if run.words), doubts=tuple(doubts[:1]))


def _build_executed(program: Program, place: int) -> InnerProgram:
    words, begin_at = program.words, place + 1
    end = next((at for at in range(begin_at, len(words)) if _is_end(words, at)), len(words))
    filled = tuple(None if word is None or "{}" in word else word for word in words[begin_at:end])
    return InnerProgram(f"find {words[place]}", filled, program.texts[begin_at:end])


def _is_end(words: tuple[str | None, ...], place: int) -> bool:
    return words[place] == ";" or (words[place] == "+" and words[place - 1] == "{}")


def _unwrap_shell(program: Program) -> UnwrapResult:
    begun = parse_options(program.words, _SHELL)
    _check_settings(program, begun)
    operand = program.words[begun.at] if begun.at < len(program.words) else None
    if "c" not in begun.values:
        if operand not in (None, "-") and "s" not in begun.values:
            return UnwrapResult()
        raise Doubt(f"{program.name} takes its commands from its input")
    if operand in (None, "-"):
        raise Doubt(f"the commands of {program.name} -c are not known")
    code = InnerCode(f"{program.name} -c", operand, program.name != "bash")
    if program.name in ("bash", "sh", "dash"):
        return UnwrapResult((code,), listed=False)
    return UnwrapResult((code,), doubts=(f"{program.name} reads commands in its own way",))


def _check_settings(program: Program, parsed: ParsedOptions) -> None:
    given = parsed.values
    if given.keys() & {"i", "O"} or not _SAFE_SETTINGS.issuperset(given.get("o", ())) or {"c", "s"} <= given.keys():
        raise Doubt(f"the settings of {program.name} change how it reads commands")
    if any(word is not None and word.startswith("+") for word in program.words[1 : parsed.at + 1]):
        raise Doubt(f"the settings of {program.name} change how it reads commands")


def _unwrap_eval(program: Program) -> UnwrapResult:
    words = program.words[2:] if program.words[1:2] == ("--",) else program.words[1:]
    known = [word for word in words if word is not None]
    if len(known) < len(words):
        raise Doubt("the commands of eval are not known")
    return UnwrapResult((InnerCode("eval", " ".join(known)),), listed=False)


def _unwrap_trap(program: Program) -> UnwrapResult:
    words = program.words[2:] if program.words[1:2] == ("--",) else program.words[1:]
    if len(words) < 2 or words[0] == "-":
        return UnwrapResult()
    if words[0] is None or words[0].startswith("-"):
        raise Doubt("the commands of trap are not known")
    return UnwrapResult((InnerCode("trap", words[0]),), listed=False)


def _unwrap_git(program: Program) -> UnwrapResult:
    begun = parse_options(program.words, _GIT)
    doubts = []
    for place, word in enumerate(program.words[: begun.at]):
        setting = program.words[place + 1] if word == "-c" else word[2:] if word and word.startswith("-c") else None
        if setting and not _GIT_SETTING.fullmatch(setting):
            doubts.append(f"the setting {setting[:40]!r} of git may run a program")
    normal = (program.words[0], *program.words[begun.at :])
    if any(_may_run_program(word) for word in normal if word is not None) or _GIT_GIVEN.intersection(normal[1:2]):
        doubts.append("git is given a program to run")
    return UnwrapResult(doubts=tuple(doubts), normal=normal)


def _may_run_program(word: str) -> bool:
    name = word.partition("=")[0]
    return word in _GIT_RUNS or (len(name) > 3 and any(option.startswith(name) for option in _GIT_RUNNING))


def _unwrap_elsewhere(program: Program) -> UnwrapResult:
    name = program.name or ""
    if name in ("docker", "podman", "kubectl", "nerdctl", "nix") and not _CONTAINER_RUNS.intersection(
        word for word in program.words if word is not None
    ):
        return UnwrapResult()
    return UnwrapResult(doubts=(f"{name} {_ELSEWHERE[name]}",))


_UNWRAPPING: Mapping[str, Unwrapper] = {
    **dict.fromkeys(_PASSING, _unwrap_passing),
    **dict.fromkeys(_RAISING, _unwrap_raising),
    **dict.fromkeys(_ELSEWHERE, _unwrap_elsewhere),
    **dict.fromkeys(SHELLS, _unwrap_shell),
    "xargs": _unwrap_xargs,
    "find": _unwrap_find,
    "eval": _unwrap_eval,
    "trap": _unwrap_trap,
    "git": _unwrap_git,
}
