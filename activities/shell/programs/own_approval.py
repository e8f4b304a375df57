"""Programs that a yes to "every call of this tool" does not cover: each of them is asked about by itself.

Such an answer is given in passing, for commands that nobody has seen yet. What `_build_wide_offers` in
`policy.grant_matching` says to the person who gives it, this enforces: no interpreters, no programs by their path,
nothing as somebody else, nothing that is known to write. What a program does of which nothing is known here, nobody can
say.
"""

from __future__ import annotations

import re

from holdfast.activities.shell.programs.program import Program
from holdfast.activities.shell.programs.program_effects import is_harmless, is_known_to_look
from holdfast.activities.shell.programs.wrappers import is_where_programs_are

_INTERPRETERS = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|Rscript|R|tclsh|osascript|ipython|irb|ghci|java|jshell"
    r"|groovy|scala|elixir|iex|erl|julia|guile|racket|sbcl|clisp|emacs|sh|bash|dash|zsh|ksh|mksh|ash|fish|csh|tcsh|pwsh"
    r"|sqlite3|psql|mysql|bc|dc|m4|gdb|lldb|source|\.|eval)[\d.]*"
)
_AS_SOMEBODY_ELSE = frozenset(["sudo", "doas", "su", "runuser", "pkexec", "sudoedit", "setpriv", "capsh", "ssh", "rsh"])
_WRITERS = """
cp mv ln link unlink rm rmdir mkdir mktemp touch tee install dd split csplit truncate shred chmod chown chgrp chattr
setfacl setfattr mknod mkfifo rsync scp sftp ftp wget curl patch ed ex vi vim nvim nano sponge tar cpio ar zip unzip
7z gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd crontab mount umount ldconfig apt apt-get dpkg dnf yum rpm apk pacman
"""
_WRITING = frozenset(_WRITERS.split())


def needs_own_answer(program: Program) -> bool:
    """Does it interpret code, lie where no programs do, run as somebody else, or is it known to write files?"""
    name = program.name
    if name is None or program.interprets_code or not is_where_programs_are(program.words[0]):
        return True
    outer = [wrapper.split()[0].rpartition("/")[2] for wrapper in program.wrappers if wrapper.strip()]
    if any(one in _AS_SOMEBODY_ELSE for one in (name, *outer)):
        return True
    if _INTERPRETERS.fullmatch(name) or name in _WRITING:
        return True
    return is_known_to_look(name) and not is_harmless(program)
