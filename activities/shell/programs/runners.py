"""Runners: programs that run a command of their words in a prepared environment, such as `npx` and `uv run`.

Unlike `env` or `timeout` they may bring in what they run, so that a rule must cover the runner as well as the command.
Loaders (`ld-linux-x86-64.so.2 PROGRAM`) are here too. Options are known by table, and one that is not is a doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.activities.shell.programs.option_tables import Doubt, Options, parse_options
from holdfast.activities.shell.programs.program import Program

LOADER = re.compile(r"ld-linux.*\.so\.[0-9]+|ld-musl-.*\.so\.[0-9]+|ld(64)?\.so(\.[0-9]+)?|ld-[0-9.]+\.so")


@dataclass(frozen=True)
class Runner:
    """How a runner is given its command."""

    options: Options = field(default_factory=Options)
    before: Options = field(default_factory=Options)
    """What may stand between the program and the words that make it a runner: `poetry -q run`."""
    skips: int = 0
    """Operands before the command: the folder of `direnv exec DIR`."""
    code: frozenset[str] = frozenset()
    """Options whose value is a command line of a shell."""
    versions: bool = False
    """The command may be a package with its version: `eslint@8`."""
    scripts: bool = False
    """The command may also be a file or a module of Python: `uv run x.py`, `uv run -m x`."""
    dashed: bool = False
    """The command comes after `--`, if there is one, whatever stands before."""


@dataclass(frozen=True)
class RunnerCommand:
    """What a runner would run."""

    wrapper: str
    at: int
    """Where the command begins; the length of the words when it has none."""
    code: tuple[str, ...] = ()
    words: tuple[str | None, ...] = ()


_NPX = Options(
    "yq", "pcw",
    long=frozenset(["yes", "no", "no-install", "quiet", "silent", "prefer-offline", "offline", "workspaces", "ws",
    "include-workspace-root", "ignore-existing", "if-present"]),
    long_valued=frozenset(["package", "call", "workspace", "loglevel", "registry", "prefix", "cache", "userconfig"]),
)  # fmt: skip
_PNPM = Options("crw", "CF", long=frozenset(["shell-mode", "recursive", "parallel", "silent", "workspace-root"]),
                long_valued=frozenset(["package", "dir", "filter", "reporter"]))  # fmt: skip
_UV = Options(
    "qvnUms", "pPwiCf",
    long=frozenset([
        "quiet", "verbose", "offline", "no-cache", "isolated", "active", "no-sync", "locked", "frozen", "all-extras",
        "no-dev", "only-dev", "dev", "no-project", "exact", "no-editable", "all-groups", "no-config", "no-progress",
        "all-packages", "no-default-groups", "upgrade", "refresh", "reinstall", "no-env-file", "no-index",
        "native-tls", "managed-python", "no-managed-python", "no-python-downloads"
    ]),
    long_valued=frozenset([
        "with", "with-editable", "with-requirements", "python", "package", "extra", "group", "from", "directory",
        "project", "env-file", "index-url", "extra-index-url", "index", "default-index", "only-group", "no-group",
        "no-extra", "color", "config-file", "cache-dir", "constraints", "overrides", "find-links", "refresh-package"
    ]),
)  # fmt: skip
_QUIET = Options("qvnC", long=frozenset(["quiet", "verbose", "no-interaction", "no-ansi", "ansi", "no-plugins"]),
                 long_valued=frozenset(["directory", "project"]))  # fmt: skip
_RUNNERS: Mapping[str, Mapping[tuple[str, ...], Runner]] = {
    "npx": {(): Runner(_NPX, code=frozenset(["c", "call"]), versions=True)},
    "npm": {**{(word,): Runner(_NPX, _NPX, code=frozenset(["c", "call"]), versions=True) for word in ("exec", "x")},
            ("explore",): Runner(_NPX, _NPX, skips=1)},
    "pnpx": {(): Runner(_PNPM, versions=True)},
    "pnpm": {(word,): Runner(_PNPM, _PNPM, versions=True) for word in ("exec", "dlx")},
    "yarn": {(word,): Runner(Options("q", "p", long=frozenset(["silent", "quiet"]), long_valued=frozenset(["package"])),
                             versions=True) for word in ("exec", "dlx")},
    "bunx": {(): Runner(Options("y", "p", long=frozenset(["bun", "yes", "silent"])), versions=True)},
    "bun": {("x",): Runner(Options("y", "p", long=frozenset(["bun", "yes", "silent"])), versions=True)},
    "uvx": {(): Runner(_UV, versions=True)},
    "uv": {("run",): Runner(_UV, _UV, scripts=True), ("tool", "run"): Runner(_UV, _UV, versions=True)},
    "pipx": {("run",): Runner(Options("v", "i", long=frozenset(["no-cache", "pypackages", "verbose", "path"]),
                                      long_valued=frozenset(["spec", "python", "index-url", "pip-args", "with"])),
                              versions=True)},
    "poetry": {("run",): Runner(before=_QUIET)},
    "pdm": {("run",): Runner(Options("sl", "p", long=frozenset(["site-packages", "list"])), _QUIET)},
    "pipenv": {("run",): Runner(before=_QUIET)},
    "hatch": {("run",): Runner(before=Options("qv", "e", long_valued=frozenset(["env"])))},
    "rye": {("run",): Runner()},
    **{name: {("run",): Runner(Options("v", "np", long=frozenset(["no-capture-output", "live-stream"]),
                                       long_valued=frozenset(["name", "prefix", "cwd"])))}
       for name in ("conda", "mamba", "micromamba")},
    "bundle": {("exec",): Runner(Options(long=frozenset(["keep-file-descriptors"])))},
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
_LOADER = Runner(
    Options(long=frozenset(["inhibit-cache", "verify", "list", "list-tunables", "list-diagnostics"]),
            long_valued=frozenset(["library-path", "inhibit-rpath", "audit", "preload", "argv0"]))
)  # fmt: skip
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_HARMLESS_FLAGS = re.compile(r"-[bBdEIOPqRsSuvx]+|-[WX].+")
_MODULE = re.compile(r"-[bBdEIOPqRsSuvx]*m(.*)", re.DOTALL)
_VERSION = re.compile(r"(@?[^@]+)@[^/]*")


def read_runner(program: Program) -> RunnerCommand | None:
    """What a runner would run; None when the program, or what it is told to do, is no runner.

    Doubt when its options are not known.
    """
    name = program.name or ""
    if LOADER.fullmatch(name):
        return _build_command(program, "loader", _LOADER, 1)
    if _PYTHON.fullmatch(name):
        return _read_module(program)
    for told, runner in sorted(_RUNNERS.get(name, {}).items(), key=lambda one: -len(one[0])):
        at = _find_after(program.words, told, runner.before)
        if at is not None:
            return _build_command(program, " ".join((name, *told)), runner, at)
    return None


def _read_module(program: Program) -> RunnerCommand | None:
    """`python -m pip` is `pip`."""
    words = program.words
    for place, word in enumerate(words[1:], 1):
        if word is None or not word.startswith("-") or word in ("-W", "-X"):
            return None
        if option := _MODULE.fullmatch(word):
            command = (option[1], *words[place + 1 :]) if option[1] else words[place + 1 :]
            return RunnerCommand("python -m", len(words) - len(command), words=command)
        if not _HARMLESS_FLAGS.fullmatch(word):
            return None
    return None


def list_runner_phrases() -> Iterator[tuple[str, ...]]:
    """The words that make a runner of a program, for every one of them."""
    yield from (("python", "-m"), ("python3", "-m"))
    for name, tellings in _RUNNERS.items():
        yield from ((name, *told) for told in tellings)


def _find_after(words: tuple[str | None, ...], marks: tuple[str, ...], before: Options) -> int | None:
    """Behind the words that make it a runner; None when they are not there."""
    if not marks:
        return 1
    if marks[0] not in words:
        return None
    try:
        at = parse_options(words, before).at
    except Doubt:
        at = words.index(marks[0])
    return at + len(marks) if words[at : at + len(marks)] == marks else None


def _build_command(program: Program, wrapper: str, runner: Runner, at: int) -> RunnerCommand:
    words = program.words
    if runner.dashed and "--" in words[at:]:
        first = words.index("--", at) + 1
        return RunnerCommand(wrapper, first, words=words[first:])
    begun = parse_options((words[0], *words[at:]), runner.options)
    first = at + begun.at - 1 + runner.skips
    first += words[first : first + 1] == ("--",)
    code = tuple(value for option in runner.code for value in begun.values.get(option, ()))
    if any(begun.values.get(option) for option in ("preload", "audit")):
        raise Doubt(f"{program.name} is given code to load")
    command = words[first:]
    name = command[0] if command else None
    if name is not None and runner.versions and (named := _VERSION.fullmatch(name)):
        command = (named[1], *command[1:])
    if name is not None and runner.scripts and "m" in begun.values:
        command = ("python", "-m", *command)
    elif name is not None and runner.scripts and ("s" in begun.values or name.endswith(".py")):
        command = ("python", *command)
    return RunnerCommand(wrapper, first, code, command)
