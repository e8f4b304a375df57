"""Tables of common programs, by their names and words. `program_effects` has the functions over it.

A program or a form that is in no table is left to rules and people; a form that is in doubt is not listed. The options
of programs are in `option_effects.toml`, the programs that run other programs in `wrapper_tables`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


def split_names(names: str) -> frozenset[str]:
    """The names in a text, separated by blanks and line breaks."""
    return frozenset(names.split())


INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|Rscript|R|tclsh|osascript|ipython|irb|ghci|tsx|ts-node"
    r"|julia|elixir|groovy|guile|racket|octave|pwsh|jshell|gnuplot|wish|scala|clojure|clj|jrunscript|erl|ocaml|ghc|maxima"
    r"|dc)[\d.]*"
)
"""Programs that run code in a language of their own, from a file, their words or their input."""
SHELLS = split_names("""
bash sh dash zsh ksh ash fish mksh rbash csh tcsh rksh pdksh oksh lksh posh yash osh ysh xonsh nu elvish
""")
COMMANDED = split_names("""
vim vi view nvim vimdiff gvim vim.tiny vim.basic rvim ex ed red emacs sqlite3 psql mysql mariadb m4 dc mail mailx
s-nail mutt ftp lftp sftp tnftp telnet crontab newgrp ocaml erl scala clj sbcl clisp ghc maxima gp
""")
"""Programs that read commands from their input, one of which runs programs: `!x` of ed, `.shell` of sqlite3."""
SCRIPTED = frozenset(["sed", "gsed", "awk", "gawk", "mawk", "nawk", "original-awk"])
"""Programs that run scripts of a language that `scripts` reads."""
LOOKING = split_names("""
ls cat pwd echo head tail wc true false : [ test basename dirname realpath readlink stat du df whoami id uname nl tac
rev cut paste fold comm cmp md5sum sha256sum seq sleep printf which type cd tr expand od nproc uptime free grep egrep
fgrep jq strings exit diff rg find sort date tree file uniq hostname ps sed
""")
"""Programs that only read and print, unless one of their words has an effect (`option_effects`)."""
GIT_LOOKING = frozenset([
    "diff", "log", "show", "diff-tree", "status", "rev-parse", "ls-files", "ls-tree", "describe", "shortlog", "blame",
    "rev-list", "merge-base", "name-rev", "for-each-ref", "cat-file", "grep",
])  # fmt: skip
"""Subcommands of git that only read."""
GIT_LISTING: Mapping[str, re.Pattern[str]] = {
    "branch": re.compile(r"-[avrl]+|--list|--show-current|--all|--verbose|--remotes"),
    "tag": re.compile(r"-l|--list"),
    "remote": re.compile(r"-v|--verbose"),
    "stash": re.compile(r"list"),
}
"""Subcommands of git that only read when no other words follow than these."""
INTO_FOLDERS = frozenset(["grep", "egrep", "fgrep", "rg", "diff", "cd"])
"""Programs that read everything below a folder, or make it the one that others read."""
NETWORK_PROGRAMS = split_names("""
curl wget wget2 aria2c http https xh lynx w3m links elinks ftp sftp tftp lftp ssh scp rsync mosh rsh rcp rlogin telnet
nc ncat netcat socat dig host nslookup whois gh glab hub aws gcloud gsutil az doctl s3cmd rclone npx bunx uvx pipx
youtube-dl yt-dlp svn psql mysql mongosh redis-cli kubectl helm mail mutt apt apt-get dnf yum apk pacman brew snap
flatpak
""")
"""Programs that read from or write to other machines."""
_INSTALLING = frozenset(["install", "i", "add", "ci", "update", "upgrade", "up", "download", "dlx", "exec", "view"])
NETWORK_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
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
"""Subcommands that do so."""
CODE_RUNNERS = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|Rscript|R|tclsh|osascript|ipython|irb|ghci|java|jshell"
    r"|groovy|scala|elixir|iex|erl|julia|guile|racket|sbcl|clisp|emacs|sh|bash|dash|zsh|ksh|mksh|ash|fish|csh|tcsh|pwsh"
    r"|sqlite3|psql|mysql|bc|dc|m4|gdb|lldb|source|\.|eval)[\d.]*"
)
"""Programs that run code, and so need an approval of their own (see `needs_own_approval`)."""
AS_SOMEBODY_ELSE = frozenset(["sudo", "doas", "su", "runuser", "pkexec", "sudoedit", "setpriv", "capsh", "ssh", "rsh"])
"""Programs that run others as another user, or on another machine."""
WRITING = split_names("""
cp mv ln link unlink rm rmdir mkdir mktemp touch tee install dd split csplit truncate shred chmod chown chgrp chattr
setfacl setfattr mknod mkfifo rsync scp sftp ftp wget curl patch ed ex vi vim nvim nano sponge tar cpio ar zip unzip
7z gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd crontab mount umount ldconfig apt apt-get dpkg dnf yum rpm apk pacman
""")
"""Programs that are known to write files."""
DANGEROUS_VARIABLES = split_names("""
PATH IFS ENV PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND SHELLOPTS SHELL HOME CDPATH GLOBIGNORE EXECIGNORE FIGNORE FUNCNEST
HISTFILE HOSTFILE INPUTRC TMOUT TMPDIR POSIXLY_CORRECT TEXTDOMAIN TEXTDOMAINDIR EDITOR VISUAL FCEDIT PAGER BROWSER
LESS LESSOPEN LESSCLOSE LESSKEY LESSKEYIN TERMINFO TERMCAP NODE_OPTIONS NODE_PATH CLASSPATH JAVA_TOOL_OPTIONS
JDK_JAVA_OPTIONS JAVA_HOME RUBYOPT RUBYLIB MAKEFLAGS MAKEFILES MAKE CC CXX LD AR GREP_OPTIONS RIPGREP_CONFIG_PATH
OPENSSL_CONF GCONV_PATH GLIBC_TUNABLES LOCPATH NLSPATH SSH_ASKPASS SUDO_ASKPASS KUBECONFIG DOCKER_HOST DOCKER_CONFIG
ZDOTDIR GEM_HOME GOFLAGS RUSTFLAGS RUSTC TAR_OPTIONS
""")
"""Variables that decide which programs run; `variables` adds patterns."""


class DestructiveForm(NamedTuple):
    """A form of a program that destroys something: each of the patterns matches one of its words."""

    reason: str
    patterns: tuple[re.Pattern[str], ...] = ()


def _build_form(reason: str, *patterns: str) -> DestructiveForm:
    return DestructiveForm(reason, tuple(re.compile(pattern, re.DOTALL) for pattern in patterns))


_ENDS = _build_form("it stops the machine")
WIPES = _build_form("it destroys what a disk or a file holds")
_REMOVES_ALL = _build_form("it removes without asking, or whole folders", r"-[a-zA-Z]*[rRf].*|--(r|f).*")
_ALL_BELOW = _build_form("it changes the rights of everything below", r"-[a-zA-Z]*R.*|--rec.*")
_NETWORK = _build_form("it changes what the network lets through")
DESTROYING: Mapping[str, tuple[DestructiveForm, ...]] = {
    "rm": (_REMOVES_ALL,),
    "dd": (_build_form("it overwrites a file or a disk", r"of=.*"),),
    **dict.fromkeys(["shred", "truncate", "wipefs", "fdisk", "sfdisk", "parted", "mkswap", "blkdiscard"], (WIPES,)),
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


def _compile_options(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.DOTALL)


_CHANGES = _compile_options(
    "--", "-[pswbzitR]", "-n?[0-9]+", "-n", "-U[0-9]+", "-[MC][0-9%]*", "-[SGL].*",
    "--(oneline|graph|all|branches|tags|remotes|decorate|merges|no-merges|first-parent|reverse|follow|topo-order)",
    "--(stat|shortstat|numstat|summary|name-only|name-status|patch|no-patch|raw|cached|staged|check|quiet|exit-code)",
    "--(word-diff|color-words|color|no-color|no-ext-diff|no-textconv|no-renames|abbrev-commit|merge-base|binary|text)",
    "--(minimal|patience|histogram|ignore-all-space|ignore-space-change|ignore-blank-lines|function-context)",
    "--(author|committer|grep|since|after|until|before|max-count|skip|date|format|pretty|diff-filter|unified)(=.*)?",
    "--(stat|color|word-diff|abbrev|diff-algorithm|decorate|find-renames|branches|tags|remotes)=.*",
)  # fmt: skip
_PLACES = _compile_options(
    "--", "-[adlqrtz]", "--(abbrev-ref|all|always|is-ancestor|long|name-only|short|show-toplevel|tags|verify)"
)
_BUILDING = _compile_options(
    "-[qrv]", "-vv", "-j[0-9]*", "-p", "--(all|workspace|all-targets|lib|bins|tests|examples|release)",
    "--(quiet|verbose|locked|offline|frozen|keep-going)", "--(package|exclude|jobs)(=.*)?",
)  # fmt: skip
_CONTAINERS = _compile_options(
    "-[aqlsftn0-9]+", "--(all|quiet|no-trunc|digests|size|latest|follow|timestamps|details)",
    "--(filter|format|last|since|tail|until)(=.*)?",
)  # fmt: skip
_PACKAGES = _compile_options("-[qvl]", "--(quiet|verbose|local|user|files|not-required)", "--format(=.*)?")
# For each program and first word, the options that a grant for both words covers. A plain word can then only be a name,
# or the value of such an option. So no listed option may name a program to run, a file to write, settings or a place to
# send to, nor run more than the first words say. Programs that run scripts or change a cluster are left out.
SUBCOMMANDS: Mapping[str, Mapping[str, re.Pattern[str]]] = {
    "git": {
        **dict.fromkeys(["diff", "log", "show"], _CHANGES),
        **dict.fromkeys(["describe", "ls-tree", "merge-base", "rev-parse"], _PLACES),
        "add": _compile_options("--", "-[AuvnN]", "--(all|update|verbose|dry-run|intent-to-add)"),
        "blame": _compile_options("--", "-[wselt]", "-L.*", "--date=.*"),
        "commit": _compile_options("--", "-[aqs]", "-a?m.*", "--(all|quiet|signoff|dry-run)", "--message(=.*)?"),
        "grep": _compile_options(
            "--", "-[niIlLwcvohHpqrWEFGPa]+", "-e", "-[ABCm][0-9]*",
            "--(line-number|ignore-case|files-with-matches|count|word-regexp|fixed-strings|extended-regexp|perl-regexp)",
            "--(and|or|not|all-match|cached|untracked|heading|break|show-function)", "--(context|max-depth)=.*",
        ),
        "ls-files": _compile_options(
            "--", "-[comdstuvz]+", "--(cached|others|modified|deleted|stage|exclude-standard|full-name|error-unmatch)"
        ),
        "status": _compile_options(
            "--", "-[sbvz]+", "-u(no|normal|all)?", "--(short|branch|verbose|long|show-stash|ignored)",
            "--porcelain(=v?[12])?", "--untracked-files(=(no|normal|all))?",
        ),
    },
    "cargo": {
        **dict.fromkeys(["build", "check", "clippy"], _BUILDING),
        "test": _compile_options(
            _BUILDING.pattern, "--", "--(doc|no-run|no-fail-fast|nocapture|exact|show-output)", "--test-threads=[0-9]+"
        ),
    },
    "go": {
        "doc": _compile_options("-(all|src|u|short)"),
        "test": _compile_options("-(v|race|short|cover|failfast|json)", "-(run|count|timeout)(=.*)?"),
        "vet": _compile_options("-(v|json)"),
    },
    "docker": dict.fromkeys(["images", "inspect", "logs", "ps"], _CONTAINERS),
    **dict.fromkeys(["pip", "pip3"], dict.fromkeys(["list", "show"], _PACKAGES)),
    "ruff": {
        "check": _compile_options(
            "--", "-[qve]", "--(quiet|verbose|exit-zero|diff|statistics|show-files|no-cache|no-fix)",
            "--(select|ignore|extend-select|output-format)(=.*)?",
        )
    },
}  # fmt: skip
