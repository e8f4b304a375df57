"""Programs that run other programs, as data: their options, and where the command begins. `wrappers` has the functions.

An option that is not listed makes the command uncertain. Nothing of a program that runs commands elsewhere (another
machine, a container) is parsed: that is always uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.activities.shell.programs.option_parser import Options
from holdfast.activities.shell.programs.program_tables import split_names


def _build_options(flags: str = "", valued: str = "", long: str = "", long_valued: str = "") -> Options:
    return Options(flags, valued, long=split_names(long), long_valued=split_names(long_valued))


@dataclass(frozen=True)
class Runner:
    """A runner and the place of its command: a program that prepares an environment and may install what it runs."""

    options: Options = field(default_factory=Options)
    before: Options = field(default_factory=Options)
    """Options between the program and the words that make it a runner: `poetry -q run`."""
    skips: int = 0
    """Operands before the command: the folder of `direnv exec DIR`."""
    code: frozenset[str] = frozenset()
    """Options whose value is a command line of a shell."""
    versions: bool = False
    """The command may be a package with its version: `eslint@8`."""
    scripts: bool = False
    """The command may also be a file or a module of Python: `uv run x.py`, `uv run -m x`."""
    dashed: bool = False
    """The command comes after `--`, if there is one, whatever comes before."""


PASSING: Mapping[str, Options] = {
    "env": Options("i0v", "uC", long=frozenset(["ignore-environment", "null", "debug"]),
                   long_valued=frozenset(["unset", "chdir"]), assigns=True),
    "nohup": Options(),
    "nice": Options(valued="n", long_valued=frozenset(["adjustment"]), numeric=True),
    "timeout": Options("v", "ks", long=frozenset(["preserve-status", "foreground", "verbose"]),
                       long_valued=frozenset(["kill-after", "signal"]), operands=1),
    "time": _build_options("pv", "f", "portability verbose", "format"),
    "stdbuf": _build_options("", "ioe", "", "input output error"),
    "setsid": _build_options("cfw", "", "ctty fork wait"),
    "ionice": _build_options("t", "cn", "ignore", "class classdata"),
    "chrt": Options("bfior", operands=1),
    "taskset": Options("c", operands=1),
    "command": Options("p"),
    "builtin": Options(),
    "exec": Options("cl", "a"),
}  # fmt: skip
"""Programs that only pass on: what they run is judged, they themselves are not."""
RAISING: Mapping[str, Options] = {
    "sudo": Options("AbBEHknPS", "CDghpRrTtuU", assigns=True, long_valued=frozenset(["user", "group", "prompt"]),
                    long=frozenset(["non-interactive", "stdin", "preserve-env", "set-home", "background"])),
    "doas": Options("n", "uC"),
}  # fmt: skip
"""Programs that run another one as another user: both are judged."""
XARGS = Options(
    "0oprtx", "adEILnPs", "eil", split_names("null no-run-if-empty verbose exit interactive open-tty"),
    split_names("arg-file delimiter max-args max-lines max-procs max-chars"),
)  # fmt: skip
FIND_EXECUTES = frozenset(["-exec", "-execdir", "-ok", "-okdir"])
SHELL = _build_options("abcefhilmnpstuvxBCEHPT", "oO", "norc noprofile login verbose")
SAFE_SETTINGS = frozenset(["errexit", "nounset", "pipefail", "xtrace", "noglob", "noclobber", "verbose"])
ELSEWHERE = {
    **dict.fromkeys(["ssh", "rsh", "mosh"], "runs commands on another machine"),
    **dict.fromkeys(["docker", "podman", "kubectl", "nerdctl", "lxc"], "runs programs in a container"),
    **dict.fromkeys(["nix", "nix-shell"], "runs programs in another environment"),
    **dict.fromkeys(["chroot", "unshare", "nsenter", "bwrap", "firejail", "proot"],
                    "runs a program in another root or namespace"),
    **dict.fromkeys(["su", "runuser", "pkexec", "machinectl", "systemd-run"], "runs commands as somebody else"),
    **dict.fromkeys(["at", "batch", "parallel", "entr", "tmux", "screen", "expect"], "runs commands given to it"),
    **dict.fromkeys(split_names("""
        watch script strace ltrace gdb flock rlwrap faketime busybox toybox unbuffer numactl prlimit dbus-run-session
        xvfb-run setarch catchsegv start-stop-daemon capsh setpriv cgexec valgrind perf fakeroot linux32 linux64 i386
        x86_64 runcon choom sg chpst softlimit setlock envdir setuidgid daemonize trickle torify torsocks tsocks
        proxychains proxychains4 cpulimit hyperfine watchexec dbus-launch gosu su-exec tini dumb-init schroot run-parts
        ifne ccache sccache distcc eatmydata nocache retry systemd-inhibit systemd-cat sshpass aa-exec lxc-attach incus
        """), "runs a program given to it"),
}  # fmt: skip
"""Programs whose command is never known, with the doubt about it."""
CONTAINER_RUNS = frozenset(["develop", "shell", "exec", "run", "create", "compose", "cp", "start", "debug", "attach"])
"""Subcommands by which a container program runs something."""
GIT = _build_options(
    "pPvh", "Cc",
    "paginate no-pager no-replace-objects bare literal-pathspecs no-optional-locks glob-pathspecs noglob-pathspecs "
    "icase-pathspecs no-lazy-fetch no-advice version help", "git-dir work-tree namespace",
)  # fmt: skip
GIT_SETTING = re.compile(
    r"(color\.[a-z.]+|advice\.[a-z]+|column\.[a-z]+|user\.(name|email)|core\.(quotepath|autocrlf|abbrev)"
    r"|init\.defaultbranch|commit\.gpgsign|safe\.directory|log\.(date|decorate)|pull\.(rebase|ff))=.*",
    re.IGNORECASE | re.DOTALL,
)
"""Settings behind `git -c` that make git run nothing."""
GIT_RUNS = frozenset(["foreach", "run", "filter-branch", "-x", "-O", "difftool", "mergetool", "send-email", "daemon"])
GIT_GIVEN = split_names("""
remote-ext remote-fd merge-index for-each-repo hook shell instaweb web--browse p4 svn imap-send cvsserver cvsimport
cvsexportcommit archimport http-backend
""")
"""Subcommands of git that only run a program, or serve one."""
GIT_RUNNING = ("--exec", "--upload-pack", "--receive-pack", "--extcmd", "--open-files-in-pager", "--config",
               "--ext-diff")  # fmt: skip
"""Options of git that name a program, or settings that may; git also accepts them shortened."""

_NPX = _build_options(
    "yq", "pcw",
    "yes no no-install quiet silent prefer-offline offline workspaces ws include-workspace-root ignore-existing "
    "if-present",
    "package call workspace loglevel registry prefix cache userconfig",
)  # fmt: skip
_PNPM = _build_options("crw", "CF", "shell-mode recursive parallel silent workspace-root",
                       "package dir filter reporter")  # fmt: skip
_BUN = _build_options("y", "p", "bun yes silent")
_UV = _build_options(
    "qvnUms", "pPwiCf",
    "quiet verbose offline no-cache isolated active no-sync locked frozen all-extras no-dev only-dev dev no-project "
    "exact no-editable all-groups no-config no-progress all-packages no-default-groups upgrade refresh reinstall "
    "no-env-file no-index native-tls managed-python no-managed-python no-python-downloads",
    "with with-editable with-requirements python package extra group from directory project env-file index-url "
    "extra-index-url index default-index only-group no-group no-extra color config-file cache-dir constraints "
    "overrides find-links refresh-package",
)  # fmt: skip
_QUIET = _build_options("qvnC", "", "quiet verbose no-interaction no-ansi ansi no-plugins", "directory project")
RUNNERS: Mapping[str, Mapping[tuple[str, ...], Runner]] = {
    "npx": {(): Runner(_NPX, code=frozenset(["c", "call"]), versions=True)},
    "npm": {**{(word,): Runner(_NPX, _NPX, code=frozenset(["c", "call"]), versions=True) for word in ("exec", "x")},
            ("explore",): Runner(_NPX, _NPX, skips=1)},
    "pnpx": {(): Runner(_PNPM, versions=True)},
    "pnpm": {(word,): Runner(_PNPM, _PNPM, versions=True) for word in ("exec", "dlx")},
    "yarn": {(word,): Runner(_build_options("q", "p", "silent quiet", "package"), versions=True)
             for word in ("exec", "dlx")},
    "bunx": {(): Runner(_BUN, versions=True)},
    "bun": {("x",): Runner(_BUN, versions=True)},
    "uvx": {(): Runner(_UV, versions=True)},
    "uv": {("run",): Runner(_UV, _UV, scripts=True), ("tool", "run"): Runner(_UV, _UV, versions=True)},
    "pipx": {("run",): Runner(_build_options("v", "i", "no-cache pypackages verbose path",
                                             "spec python index-url pip-args with"), versions=True)},
    "poetry": {("run",): Runner(before=_QUIET)},
    "pdm": {("run",): Runner(_build_options("sl", "p", "site-packages list"), _QUIET)},
    "pipenv": {("run",): Runner(before=_QUIET)},
    "hatch": {("run",): Runner(before=_build_options("qv", "e", "", "env"))},
    "rye": {("run",): Runner()},
    **{name: {("run",): Runner(_build_options("v", "np", "no-capture-output live-stream", "name prefix cwd"))}
       for name in ("conda", "mamba", "micromamba")},
    "bundle": {("exec",): Runner(_build_options(long="keep-file-descriptors"))},
    "direnv": {("exec",): Runner(skips=1)},
    **{name: {("exec",): Runner()} for name in ("rbenv", "pyenv", "nodenv", "asdf", "goenv", "rvm")},
    "mise": {(word,): Runner(dashed=True) for word in ("exec", "x")},
    "ip": {("netns", "exec"): Runner(before=Options("46cdjnops"), skips=1)},
    "dotenv": {(): Runner(Options("o", "fe")), ("run",): Runner(before=Options("", "fe"))},
    **{name: {("run",): Runner(dashed=True)} for name in ("dotenvx", "doppler", "op", "infisical")},
    **{name: {("exec",): Runner(Options("ns", "d"), skips=1, dashed=True)} for name in ("aws-vault", "chamber")},
    **{name: {(): Runner(Options(assigns=True))}
       for name in ("chronic", "eatmydata", "torsocks", "proxychains", "proxychains4", "dumb-init", "tini", "cross-env",
                    "catatonit", "ccache", "sccache", "distcc")},
    **{name: {(): Runner(skips=1)} for name in ("gosu", "su-exec")},
}  # fmt: skip
"""The words that make each program a runner. Unlike `env` a runner is judged together with its command."""
LOADER = Runner(
    _build_options("", "", "inhibit-cache verify list list-tunables list-diagnostics",
                   "library-path inhibit-rpath audit preload argv0")
)  # fmt: skip
"""The loader of the system: `ld-linux-x86-64.so.2 PROGRAM`."""
