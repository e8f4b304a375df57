"""Variables that decide which programs run: a command that sets one may run anything after it."""

from __future__ import annotations

import re

from holdfast.activities.shell.programs.program_tables import DANGEROUS_VARIABLES

_DANGEROUS_PARTS = re.compile(
    r"(npm_config|LD|DYLD|BASH|GIT|XDG|PYTHON|PERL|PERL5|NPM|PIP|CARGO|UV|LUA|PHP|ZSH|SUDO|AWK|_JAVA|CMAKE|CURL|WGET|SSH|TAR|NODE)_"
    r"|(BASH|PYTHON|PERL|LUA|GIT|AWK)[A-Z0-9_]*$"
    r"|.*(COMMAND|PROGRAM|PAGER|EDITOR|WRAPPER|HELPER|PRELOAD|STARTUP|_PATH|_OPTIONS|_OPTS|_CONFIG|_RC|SHELL)$"
)
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_dangerous(name: str) -> bool:
    """May setting this variable change which program runs, or make a program run another one?"""
    return name in DANGEROUS_VARIABLES or _DANGEROUS_PARTS.match(name) is not None


def explain_dangerous(name: str | None) -> str | None:
    """Explain why setting this variable (None: an unknown one) is a doubt about the command; None when it is not."""
    if name is None or VARIABLE_NAME.fullmatch(name) is None:
        return "it sets a variable whose name is not known"
    return f"setting {name} can change which programs run" if is_dangerous(name) else None
