"""Programs whose first words say what they do: what somebody may want to allow whatever harmless words follow.

Every word that follows is known: an option that is listed here, or a plain word, which can then only be a name, or the
value of such an option. So no listed option may name a program to run, a file to write, settings to use or somewhere
to send to, nor let anything else run than the first words say. In doubt an option is not listed, and a program is not
here: what a script is told, or a cluster, is anybody's guess. The exact words can always be allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.activities.shell.programs.option_effects import find_effects
from holdfast.activities.shell.programs.program import Program
from holdfast.activities.shell.programs.program_effects import explain_destructive


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
_SUBCOMMANDS: Mapping[str, Mapping[str, re.Pattern[str]]] = {
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
_ELSEWHERE = re.compile(r"[/~].*|(.*[/:=])?\.\.(/.*)?", re.DOTALL)
"""A path that leads out of the folder: `git diff` compares any two files of the machine."""
_READ_FROM = "@"
"""Programs read further words from the file behind it; to git it is a name."""


def find_subcommand(program: Program) -> tuple[str, ...] | None:
    """The first words of a program of which it is well known what they do, whatever it is given; None for any other."""
    return None if may_do_more(program) else tuple(word for word in program.words[:2] if word is not None)


def may_do_more(program: Program) -> bool:
    """May it do more than well-known first words say?"""
    words = [word for word in program.words if word is not None]
    if len(words) < len(program.words) or len(words) < 2:
        return True
    if program.interprets_code or program.wrappers or explain_destructive(program) or find_effects(program):
        return True
    options = _SUBCOMMANDS.get(words[0], {}).get(words[1])
    return options is None or not all(_is_known(word, options, words[0]) for word in words[2:])


def _is_known(word: str, options: re.Pattern[str], program: str) -> bool:
    if word.startswith("-"):
        return options.fullmatch(word) is not None
    return not _ELSEWHERE.fullmatch(word) and (program == "git" or not word.startswith(_READ_FROM))
