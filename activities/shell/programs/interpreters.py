"""Programs that run other code, and programs that use the network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holdfast.activities.shell.programs.option_effects import find_effects
from holdfast.activities.shell.programs.program import NOWHERE, Program

_INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|Rscript|R|tclsh|osascript|ipython|irb|ghci|tsx|ts-node"
    r"|julia|elixir|groovy|guile|racket|octave|pwsh|jshell|gnuplot|wish|scala|clojure|clj|jrunscript|erl|ocaml|ghc|maxima"
    r"|dc)[\d.]*"
)
_INLINE = re.compile(r"--?(eval|print|command|run|exec|code).*|-[A-Za-z0-9]*[ceEpr].*", re.DOTALL)
_EVALUATES = frozenset(["eval", "repl"])
"""What deno and bun are told."""
_INFORMATION_OPTIONS = frozenset(["-V", "-v", "--version", "-h", "--help"])
SHELLS = frozenset([
    "bash", "sh", "dash", "zsh", "ksh", "ash", "fish", "mksh", "rbash", "csh", "tcsh", "rksh", "pdksh", "oksh", "lksh",
    "posh", "yash", "osh", "ysh", "xonsh", "nu", "elvish",
])  # fmt: skip
_COMMANDED = frozenset([
    "vim", "vi", "view", "nvim", "vimdiff", "gvim", "vim.tiny", "vim.basic", "rvim", "ex", "ed", "red", "emacs",
    "sqlite3", "psql", "mysql", "mariadb", "m4", "dc", "mail", "mailx", "s-nail", "mutt", "ftp", "lftp", "sftp",
    "tnftp", "telnet", "crontab", "newgrp", "ocaml", "erl", "scala", "clj", "sbcl", "clisp", "ghc", "maxima", "gp",
])  # fmt: skip
"""Programs that have a command for running programs, and read commands from their input: `!x` of ed, `.shell` of
sqlite3."""
_SCRIPTED = frozenset(["sed", "gsed", "awk", "gawk", "mawk", "nawk", "original-awk"])


def may_run_files(name: str) -> bool:
    """Whether a program of this name runs the code of any file that it is given."""
    return name in SHELLS or _INTERPRETER.fullmatch(name) is not None


def is_commanded(program: Program) -> bool:
    """Whether a program is sent commands, of which nobody knows what they run."""
    if program.name not in _COMMANDED:
        return False
    return program.reads_pipe or any(
        one.kind in ("read", "read_write", "heredoc", "herestring") and one.target != NOWHERE
        for one in program.redirections
    )


def may_interpret_code(program: Program) -> bool:
    """Whether a program runs code from its words or its input, rather than from a file with a name.

    Scripts of awk and sed that surely run nothing are no code in this sense.
    """
    name, words = program.name or "", program.words[1:]
    if name in _SCRIPTED:
        return not {one.effect for one in find_effects(program)}.isdisjoint(["executes", "unknown"])
    return _INTERPRETER.fullmatch(name) is not None and _is_given_code(words)


def _is_given_code(words: Sequence[str | None]) -> bool:
    """Inline, or from the input when no file is named; options of the program it runs come after that file."""
    for word in words:
        if word in _EVALUATES:
            return True
        if word is None or word == "-" or _INLINE.fullmatch(word):
            return True
        if not word.startswith("-") or word in ("-m", *_INFORMATION_OPTIONS):
            return False
    return True


_ALWAYS = frozenset([
    "curl", "wget", "wget2", "aria2c", "http", "https", "xh", "lynx", "w3m", "links", "elinks", "ftp", "sftp", "tftp",
    "lftp", "ssh", "scp", "rsync", "mosh", "rsh", "rcp", "rlogin", "telnet", "nc", "ncat", "netcat", "socat", "dig",
    "host", "nslookup", "whois", "gh", "glab", "hub", "aws", "gcloud", "gsutil", "az", "doctl", "s3cmd", "rclone",
    "npx", "bunx", "uvx", "pipx", "youtube-dl", "yt-dlp", "svn", "psql", "mysql", "mongosh", "redis-cli", "kubectl",
    "helm", "mail", "mutt", "apt", "apt-get", "dnf", "yum", "apk", "pacman", "brew", "snap", "flatpak",
])  # fmt: skip
_INSTALLING = frozenset(["install", "i", "add", "ci", "update", "upgrade", "up", "download", "dlx", "exec", "view"])
_SOMETIMES: Mapping[str, frozenset[str]] = {
    "git": frozenset(["clone", "fetch", "pull", "push", "ls-remote", "submodule", "remote", "archive", "svn", "lfs"]),
    "hg": frozenset(["clone", "pull", "push", "incoming", "outgoing"]),
    **dict.fromkeys(["npm", "pnpm", "yarn", "bun", "deno"], _INSTALLING),
    **dict.fromkeys(["pip", "pip3", "conda", "mamba", "poetry", "pdm", "gem", "bundle", "composer"], _INSTALLING),
    "uv": _INSTALLING | {"pip", "sync", "lock", "run", "tool", "python"},
    "cargo": frozenset(["install", "fetch", "update", "add", "search", "publish"]),
    "go": frozenset(["get", "install", "mod"]),
    **dict.fromkeys(["docker", "podman", "nerdctl"], frozenset(["pull", "push", "build", "buildx", "search", "login"])),
    **dict.fromkeys(["terraform", "tofu"], frozenset(["init", "plan", "apply", "get"])),
    "openssl": frozenset(["s_client"]),
}  # fmt: skip
_CODE = re.compile(r"(sed|gsed|[gmn]?awk)")
"""Languages in which nobody fetches anything."""


def may_bring_in(program: Program) -> bool:
    """Is it known to read from elsewhere, or given code that may? Also one of which the name is not known."""
    name = program.known_name
    if name is None or name in _ALWAYS:
        return True
    if program.interprets_code and not _CODE.fullmatch(name):
        return True
    told = _SOMETIMES.get(name, frozenset())
    return bool(told) and any(word is None or word in told for word in program.normal[1:])
