"""Variables that change what a command runs: setting one makes everything after it unknown."""

from __future__ import annotations

import re

_DANGEROUS_NAMES = frozenset(
    [
        "PATH",
        "IFS",
        "ENV",
        "PS0",
        "PS1",
        "PS2",
        "PS3",
        "PS4",
        "PROMPT_COMMAND",
        "SHELLOPTS",
        "SHELL",
        "HOME",
        "CDPATH",
        "GLOBIGNORE",
        "EXECIGNORE",
        "FIGNORE",
        "FUNCNEST",
        "HISTFILE",
        "HOSTFILE",
        "INPUTRC",
        "TMOUT",
        "TMPDIR",
        "POSIXLY_CORRECT",
        "TEXTDOMAIN",
        "TEXTDOMAINDIR",
        "EDITOR",
        "VISUAL",
        "FCEDIT",
        "PAGER",
        "BROWSER",
        "LESS",
        "LESSOPEN",
        "LESSCLOSE",
        "LESSKEY",
        "LESSKEYIN",
        "TERMINFO",
        "TERMCAP",
        "NODE_OPTIONS",
        "NODE_PATH",
        "CLASSPATH",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "JAVA_HOME",
        "RUBYOPT",
        "RUBYLIB",
        "MAKEFLAGS",
        "MAKEFILES",
        "MAKE",
        "CC",
        "CXX",
        "LD",
        "AR",
        "GREP_OPTIONS",
        "RIPGREP_CONFIG_PATH",
        "OPENSSL_CONF",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "LOCPATH",
        "NLSPATH",
        "SSH_ASKPASS",
        "SUDO_ASKPASS",
        "KUBECONFIG",
        "DOCKER_HOST",
        "DOCKER_CONFIG",
        "ZDOTDIR",
        "GEM_HOME",
        "GOFLAGS",
        "RUSTFLAGS",
        "RUSTC",
        "TAR_OPTIONS",
    ]
)
_DANGEROUS_PARTS = re.compile(
    r"(npm_config|LD|DYLD|BASH|GIT|XDG|PYTHON|PERL|PERL5|NPM|PIP|CARGO|UV|LUA|PHP|ZSH|SUDO|AWK|_JAVA|CMAKE|CURL|WGET|SSH|TAR|NODE)_"
    r"|(BASH|PYTHON|PERL|LUA|GIT|AWK)[A-Z0-9_]*$"
    r"|.*(COMMAND|PROGRAM|PAGER|EDITOR|WRAPPER|HELPER|PRELOAD|STARTUP|_PATH|_OPTIONS|_OPTS|_CONFIG|_RC|SHELL)$"
)
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_dangerous(name: str) -> bool:
    """Whether setting it may change which program runs, or make one run another."""
    return name in _DANGEROUS_NAMES or _DANGEROUS_PARTS.match(name) is not None


def explain_dangerous(name: str | None) -> str | None:
    """Why a variable may not be set silently; None when it may."""
    if name is None or VARIABLE_NAME.fullmatch(name) is None:
        return "it sets a variable whose name is not known"
    return f"setting {name} can change which programs run" if is_dangerous(name) else None
