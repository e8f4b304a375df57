"""What a shell command would run: every program in it by its own words, or the reason why that is not known."""

from __future__ import annotations

import time

import pytest

from holdfast.activities.shell.analyze import analyse_command, rebuild_command
from holdfast.activities.shell.programs.program import Analysis, Program

Words = tuple[str | None, ...]


def words(command: str) -> list[Words]:
    return [program.words for program in analyse_command(command).programs]


def known(command: str) -> Analysis:
    analysis = analyse_command(command)
    assert analysis.uncertain == (), command
    return analysis


def only(command: str) -> Program:
    [program] = analyse_command(command).programs
    return program


CHAINS = {
    "ls": [("ls",)],
    "ls -la /tmp": [("ls", "-la", "/tmp")],
    "a; b": [("a",), ("b",)],
    "a && b || c": [("a",), ("b",), ("c",)],
    "a | b |& c": [("a",), ("b",), ("c",)],
    "a & b": [("a",), ("b",)],
    "a\nb": [("a",), ("b",)],
    "a # b\nc": [("a",), ("c",)],
    "a;#b": [("a",)],
    "(a; b)": [("a",), ("b",)],
    "{ a; b; }": [("a",), ("b",)],
    "! a": [("a",)],
    "if a; then b; elif c; then d; else e; fi": [("a",), ("b",), ("c",), ("d",), ("e",)],
    "while a; do b; done": [("a",), ("b",)],
    "until a; do b; done": [("a",), ("b",)],
    "for x in 1 2; do a; done": [("a",)],
    "for x; do a; done": [("a",)],
    "case x in a|b) c;; (d) e;& *) f; esac": [("c",), ("e",), ("f",)],
    "[[ -f x && a == b ]] && c": [("c",)],
    "[ -f x ] && c": [("[", "-f", "x", "]"), ("c",)],
    "time a | b": [("a",), ("b",)],
    "echo a=b c": [("echo", "a=b", "c")],
    "A=1 B=2 a": [("a",)],
    "> f a b": [("a", "b")],
    "a > f b": [("a", "b")],
    "a 1234> f b": [("a", "b")],
    "a b1> f": [("a", "b1")],
    "": [],
    "# nothing": [],
    "A=1": [],
}


@pytest.mark.parametrize(("command", "programs"), CHAINS.items(), ids=CHAINS)
def test_S30_every_program_of_a_chain_is_listed(command: str, programs: list[Words]) -> None:
    assert [program.words for program in known(command).programs] == programs


QUOTED = {
    "r\\m": "rm",
    "'r'm": "rm",
    '"rm"': "rm",
    "r''m": "rm",
    "$'\\x72m'": "rm",
    "$'\\162\\u006d'": "rm",
    "\\rm": "rm",
    "'if'": "if",
    "/bin/rm": "/bin/rm",
}


@pytest.mark.parametrize(("command", "first"), QUOTED.items(), ids=QUOTED)
def test_S30_quotes_in_a_name_hide_nothing(command: str, first: str) -> None:
    [program] = known(f"{command} x").programs
    assert program.words == (first, "x")
    assert program.texts == (command, "x")
    assert program.name == first.rpartition("/")[2]


LITERAL = {
    "'a b'": "a b",
    '"a b"': "a b",
    "a\\ b": "a b",
    '"a\\"b"': 'a"b',
    '"a\\b"': "a\\b",
    "'a\\b'": "a\\b",
    "$'a\\tb'": "a\tb",
    '"$"': "$",
    "a$": "a$",
    "a#b": "a#b",
    "HEAD~1": "HEAD~1",
    "HEAD@{1}": "HEAD@{1}",
    "{}": "{}",
    "''": "",
    '"a\\\nb"': "ab",
    "'a\nb'": "a\nb",
    "é": "é",
}


@pytest.mark.parametrize(("text", "value"), LITERAL.items(), ids=LITERAL)
def test_S30_literal_words_are_what_bash_passes_on(text: str, value: str) -> None:
    assert known(f"a {text}").programs[0].words == ("a", value)


@pytest.mark.parametrize(
    "text", ["$x", '"$x"', "${x}", "${x:-d}", "*", "f?", "[ab]", "{a,b}", "{1..3}", "~", "A=~", "$((1+2))", "a$x", "$@"]
)
def test_S30_words_that_only_running_tells_are_marked(text: str) -> None:
    assert known(f"rm {text}").programs[0].words == ("rm", None)


SUBSTITUTED = [
    "echo $(rm x)",
    'echo "$(rm x)"',
    "echo `rm x`",
    'echo "a `rm x` b"',
    "echo ${y:-$(rm x)}",
    'echo "${y:-$(rm x)}"',
    "echo a$(rm x)b",
    "echo <(rm x)",
    "echo >(rm x)",
    "echo > $(rm x)",
    "echo <<< $(rm x)",
    'echo <<< "$(rm x)"',
    "A=$(rm x) echo",
    "A=(a $(rm x)); echo",
    "export A=$(rm x); echo",
    "for i in $(rm x); do echo; done",
    "case $(rm x) in *) echo;; esac",
    "[[ -n $(rm x) ]] && echo",
    "echo $(echo $(rm x))",
    "echo $(cat < f; rm x)",
    "echo <<E\n$(rm x)\nE",
    "echo <<E\n`rm x` 'quoted'\nE",
    "echo $(rm x <<'E'\na\nE\n)",
    "echo <<-E\n\ta\n\t${y:-$(rm x)}\n\tE",
]


@pytest.mark.parametrize("command", SUBSTITUTED)
def test_S30_substitutions_are_found_in_every_quoting(command: str) -> None:
    found = [program.words for program in known(command).programs]
    assert ("rm", "x") in found
    assert "echo" in [program[0] for program in found]


@pytest.mark.parametrize(
    "command",
    [
        "echo '$(rm x)'",
        "echo \\$\\(rm x\\)",
        'echo "\\$(rm x)"',
        "echo <<'E'\n$(rm x)\nE",
        'echo <<"E"\n`rm x`\nE',
        "echo '; rm x'",
        "echo a # ; rm x",
    ],
)
def test_S30_quoted_text_runs_nothing(command: str) -> None:
    assert [program.name for program in known(command).programs] == ["echo"]


WRAPPED: dict[str, tuple[list[Words], tuple[str, ...]]] = {
    "env A=1 rm x": ([("rm", "x")], ("env",)),
    "env -i -u B --unset=C A=1 rm x": ([("rm", "x")], ("env",)),
    "/usr/bin/env rm x": ([("rm", "x")], ("env",)),
    "nice -n 5 rm x": ([("rm", "x")], ("nice",)),
    "nice -10 rm x": ([("rm", "x")], ("nice",)),
    "timeout -k 5 --signal=KILL 10s rm x": ([("rm", "x")], ("timeout",)),
    "nohup setsid -w stdbuf -oL rm x": ([("rm", "x")], ("nohup", "setsid", "stdbuf")),
    "command rm x": ([("rm", "x")], ("command",)),
    "exec rm x": ([("rm", "x")], ("exec",)),
    "time rm x": ([("rm", "x")], ("time",)),
    "xargs -0 -n 1 rm -f": ([("rm", "-f", None)], ("xargs",)),
    "xargs -I{} rm a/{} b": ([("rm", None, "b")], ("xargs",)),
    "xargs": ([("echo", None)], ("xargs",)),
    "bash -c 'rm x'": ([("rm", "x")], ("bash -c",)),
    "bash -lc 'rm x'": ([("rm", "x")], ("bash -c",)),
    "bash -euo pipefail -c 'rm x'": ([("rm", "x")], ("bash -c",)),
    "bash -c -e -- 'rm x' name": ([("rm", "x")], ("bash -c",)),
    "sh -ec 'rm x'": ([("rm", "x")], ("sh -c",)),
    "eval rm x": ([("rm", "x")], ("eval",)),
    "eval 'a; rm x'": ([("a",), ("rm", "x")], ("eval",)),
    "trap 'rm x' EXIT": ([("rm", "x")], ("trap",)),
    "bash -c \"bash -c 'rm x'\"": ([("rm", "x")], ("bash -c", "bash -c")),
    "env A=1 bash -c 'nice xargs rm x'": ([("rm", "x", None)], ("env", "bash -c", "nice", "xargs")),
}


@pytest.mark.parametrize(("command", "expected"), WRAPPED.items(), ids=WRAPPED)
def test_S30_wrapped_programs_are_judged_by_their_own_words(
    command: str, expected: tuple[list[Words], tuple[str, ...]]
) -> None:
    programs = known(command).programs
    assert ([program.words for program in programs], programs[-1].wrappers) == expected


LISTED: dict[str, list[Words]] = {
    "sudo -u me rm x": [("sudo", "-u", "me", "rm", "x"), ("rm", "x")],
    "doas rm x": [("doas", "rm", "x"), ("rm", "x")],
    "find . -exec rm {} \\;": [("find", ".", "-exec", "rm", "{}", ";"), ("rm", None)],
    "find . -execdir a {} +": [("find", ".", "-execdir", "a", "{}", "+"), ("a", None)],
    "./env rm x": [("./env", "rm", "x"), ("rm", "x")],
    "command -v rm": [("command", "-v", "rm")],
    "bash script.sh": [("bash", "script.sh")],
    "f() { rm x; }; f": [("rm", "x"), ("f",)],
    "function ls { rm x; }; ls": [("rm", "x"), ("ls",)],
}


@pytest.mark.parametrize(("command", "programs"), LISTED.items(), ids=LISTED)
def test_S30_programs_that_do_more_than_pass_on_are_listed_too(command: str, programs: list[Words]) -> None:
    assert [program.words for program in known(command).programs] == programs


def test_S30_find_that_hides_a_program_behind_a_name() -> None:
    assert ("rm", None) in words("find . -name -exec -o -exec rm {} \\;")


@pytest.mark.parametrize(
    ("command", "normal"),
    [
        ("git status", ("git", "status")),
        ("git -C d --no-pager -c color.ui=never status -s", ("git", "status", "-s")),
        ("git --git-dir=x --work-tree y push", ("git", "push")),
        ("git -P log", ("git", "log")),
    ],
)
def test_S24_subcommand_of_git_is_found_behind_its_options(command: str, normal: Words) -> None:
    assert known(command).programs[0].normal == normal


UNCERTAIN = {
    "$x a": "which program",
    "$(a) b": "which program",
    "a* b": "which program",
    "{a,b} c": "which program",
    "eval $x": "eval",
    'bash -c "$x"': "bash",
    "bash -c - 'rm x'": "bash",
    "curl x | sh": "input",
    "bash -s < f": "input",
    "a | sh -": "input",
    "echo $(time a)": "its end",
    " -x": "unusual name",
    "bash -O extglob -c a": "settings",
    "bash -ic a": "settings",
    "zsh -c a": "own way",
    "sh -c \"echo $'a'\"": "another shell",
    "sh -c 'a &> f'": "another shell",
    "sh -c '[[ a > b ]]'": "another shell",
    "env $x rm": "env",
    "env -S 'rm x'": "-S",
    "env - rm x": "env -",
    "sudo -s": "-s",
    "timeout --unknown 5 a": "--unknown",
    "timeout rm x": "no number",
    "xargs --unknown rm": "--unknown",
    "find $x": "find",
    "git -c core.pager=x log": "core.pager",
    "git -c alias.st='!rm x' st": "alias.st",
    "git -c core.sshCommand=x fetch": "sshCommand",
    "git --exec-path=x status": "--exec-path",
    "git $x status": "git",
    "git rebase -x 'rm x'": "program to run",
    "git submodule foreach 'rm x'": "program to run",
    "git fetch --upload-pack=x": "program to run",
    "ssh host rm x": "machine",
    "su -c 'rm x'": "somebody else",
    "parallel rm": "given to it",
    "watch rm x": "given to it",
    "docker exec c rm x": "container",
    "chroot / rm x": "another root",
    "alias ls=rm; ls": "alias",
    "source f": "file",
    ". f": "file",
    "hash -p /bin/rm ls": "hash",
    "shopt -s extglob": "shopt",
    "set -k": "set",
    "let x=1": "let",
    "PATH=. ls": "PATH",
    "LD_PRELOAD=x ls": "LD_PRELOAD",
    "BASH_ENV=x bash f": "BASH_ENV",
    "IFS=x; a": "IFS",
    "GIT_SSH_COMMAND=x git fetch": "GIT_SSH_COMMAND",
    "export PATH=.": "PATH",
    "export $x": "name is not known",
    "env LD_PRELOAD=x ls": "LD_PRELOAD",
    "for PATH in a; do b; done": "PATH",
    "read PATH < f": "PATH",
    "printf -v PATH x": "PATH",
    "echo ${PATH:=x}": "PATH",
    "declare -n x=y": "name is not known",
    "echo $((x))": "evaluates",
    "((x))": "evaluates",
    "[[ $x -eq 1 ]]": "evaluates",
    "[[ -v $x ]]": "evaluates",
    "[ -v 'a[$(rm)]' ]": "evaluates",
    "[ $x = y ]": "test",
    "echo ${x@P}": "evaluated",
    "echo ${!x}": "another variable",
    "echo ${x[$(rm)]}": "cannot be read",
    "x[$(rm)]=1": "cannot be read",
    "echo `echo \\`rm x\\``": "backslash",
    "echo 'a": "not closed",
    'echo "a': "not closed",
    "echo $(a": "missing",
    "(a": "not closed",
    "a |": "cannot be read",
    "a && ": "nothing follows",
    "if a; then b": "missing",
    "a; fi": "not clear",
    "a <<E\nb": "here-document",
    "a <<E": "here-document",
    "echo $(cat <<E\nE)": "here-document",
    "echo $(cat <<E\nE\na; b)": "its own way",
    "echo $(cat <<E\nE\na <(b); c)": "its own way",
    "A=(a b)#x": "without a blank",
    "git pu\\\nsh": "line continues",
    "l\\\ns": "line continues",
    'echo "$\\\nx"': "line continues",
    "a\rb": "control",
    "a \x1b[0m": "control",
    "a\0b": "control",
    "ls\u00a0-l": "U+00A0",
    "l\u200bs": "U+200B",
    "ls \u202ecod": "U+202E",
    "ls \u3164": "U+3164",
    "\u0455h": "unusual name",
    "ｌｓ": "unusual name",
    "%1": "unusual name",
    "\ud800": "U+D800",
    "a" * 20_001: "20,000",
    "coproc a": "coprocess",
    "cat < /dev/tcp/host/80": "another machine",
    "{fd}> f a": "cannot be read",
    "a >&-b": "closed",
    "sh -c 'a 12> f'": "another shell",
    "a 12345678901> f": "too large",
    "echo @(a|b)": "parenthesis",
    "$(((a)))": "too complicated",
    "(" * 100 + "a" + ")" * 100: "cannot be read",
    "sudo " * 50 + "a": "too much",
    'echo $"a"': "translated",
}


@pytest.mark.parametrize(("command", "reason"), UNCERTAIN.items(), ids=[ascii(command[:30]) for command in UNCERTAIN])
def test_S30_what_is_not_known_is_said(command: str, reason: str) -> None:
    analysis = analyse_command(command)
    assert any(reason in each for each in analysis.uncertain), analysis.uncertain
    assert not analysis.steps
    assert rebuild_command(analysis) is None


def test_S30_programs_are_named_even_where_reading_fails() -> None:
    assert ("rm", "x") in words("rm x; echo ${a[$b]}")
    assert ("rm", "-rf", "x") in words("x[1]=2; rm -rf x")


REDIRECTIONS = {
    "a > f": ("write", "f"),
    "a 2> 'f g'": ("write", "f g"),
    "a >| f": ("write", "f"),
    "a &> f": ("write", "f"),
    "a >& f": ("write", "f"),
    "a >&'-'": ("write", "-"),
    "a >> f": ("append", "f"),
    "a &>> f": ("append", "f"),
    "a > $x": ("write", None),
    "a >& $x": ("write", None),
    "a > ~/f": ("write", None),
    "(a) > f": ("write", "f"),
    "{ a; } >> f": ("append", "f"),
    "while a; do break; done > f": ("write", "f"),
    "bash -c a > f": ("write", "f"),
    "bash -c 'a > f'": ("write", "f"),
    "xargs a > f": ("write", "f"),
}


@pytest.mark.parametrize(("command", "expected"), REDIRECTIONS.items(), ids=REDIRECTIONS)
def test_S30_redirections_to_files_are_told(command: str, expected: tuple[str, str | None]) -> None:
    analysis = analyse_command(command)
    [redirection] = analysis.programs[0].redirections
    assert (redirection.kind, redirection.target) == expected
    assert analysis.writes == (expected[1],)
    assert not analysis.steps


@pytest.mark.parametrize(
    ("command", "kind", "target"),
    [
        ("a < f", "read", "f"),
        ("a <<< b", "herestring", "b"),
        ("a <<E\nb\nE", "heredoc", None),
        ("a 2>&1", "duplicate", "1"),
        ("a >&-", "duplicate", "-"),
        ("a <&3", "duplicate", "3"),
        ("a > /dev/null", "write", "/dev/null"),
    ],
)
def test_S30_redirections_that_write_no_file(command: str, kind: str, target: str | None) -> None:
    analysis = known(command)
    [redirection] = analysis.programs[0].redirections
    assert (redirection.kind, redirection.target) == (kind, target)
    assert analysis.writes == ()


def test_S30_file_is_written_without_any_program() -> None:
    assert analyse_command("> f").writes == ("f",)
    assert analyse_command("> f").programs == ()


def test_context_of_a_program_is_told() -> None:
    first, second, third = known("A=1 B=$x a | b & c").programs
    assert first.assignments == (("A", "1"), ("B", None))
    assert (first.background, first.reads_pipe) == (True, False)
    assert (second.background, second.reads_pipe) == (True, True)
    assert (third.background, third.reads_pipe) == (False, False)


CANONICAL = {
    "ls   -la": "ls -la",
    "r\\m 'a b' \"c\"": "rm 'a b' c",
    "a|b&&c||d;e\nf": "a | b && c || d ; e ; f",
    "a |& b": "a |& b",
    "A='x y' a": "A='x y' a",
    "a 2>&1 | b >/dev/null": "a 2>&1 | b >/dev/null",
    "2>/dev/null a b": "a b 2>/dev/null",
    "a &>/dev/null": "a &>/dev/null",
    "a >&2 2>>/dev/null": "a >&2 2>>/dev/null",
    "'if' x": "'if' x",
    "\\time x": "'time' x",
    "a '' '$x' '*'": "a '' '$x' '*'",
    "a \\\n  b": "a b",
    "ls # list": "ls",
    "sudo ls": "sudo ls",
    "git -C d status": "git -C d status",
    "a 'x\ny'": "a 'x\ny'",
}


@pytest.mark.parametrize(("command", "rebuilt"), CANONICAL.items(), ids=CANONICAL)
def test_S30_simple_command_is_rebuilt_from_its_words(command: str, rebuilt: str) -> None:
    analysis = known(command)
    assert analysis.steps
    assert rebuild_command(analysis) == rebuilt
    again = analyse_command(rebuilt)
    assert rebuild_command(again) == rebuilt
    assert [program.words for program in again.programs] == [program.words for program in analysis.programs]


@pytest.mark.parametrize(
    "command", ["", "a &", "a $x", "a > f", "a < f", "(a)", "! a", "a=1", "bash -c a", "f() { a; }", "a *", "a <<< b"]
)
def test_S30_what_is_not_simple_is_not_rebuilt(command: str) -> None:
    assert rebuild_command(known(command)) is None


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("python3 -c 'x'", True),
        ("python3.11 -Ic 'x'", True),
        ("python", True),
        ("python -", True),
        ("perl -e x", True),
        ("perl -ne x f", True),
        ("node -e x", True),
        ("node --eval=x", True),
        ("ruby -e x", True),
        ("php -r x", True),
        ("awk 'BEGIN { system(\"rm x\") }'", True),
        ("awk '{ print > \"f\" }'", False),
        ("awk -f script f", True),
        ("sed 's/a/b/e' f", True),
        ("sed -i 's/a/b/' f", False),
        ("sed '1w out' f", False),
        ("env python3 -c x", True),
        ("python3 script.py -c", False),
        ("python3 --version", False),
        ("awk '{ print $1 }' f", False),
        ("awk -F: '{ print $1 }' $x", False),
        ("sed -n '1,20p' f", False),
        ("sed 's/a/b/g' f", False),
        ("ls -e", False),
    ],
)
def test_S30_code_of_other_languages_is_told(command: str, code: bool) -> None:
    assert only(command).interprets_code is code


def test_fuzzed_text_never_raises() -> None:
    for text in (
        "((((",
        "${",
        "`",
        "$(",
        "<<",
        "a<<b",
        "[[",
        "case",
        "'\\",
        "\\",
        "$'",
        "a=(",
        "{",
        "}",
        ")",
        ";;",
        "&",
        "!",
    ):
        for more in ("", "\n", " ", "x", "(", text):
            assert analyse_command(text + more).command == text + more


ORDINARY = (
    "git status",
    "ls -la | wc -l",
    "cd src && make test 2>&1 | tail -20",
    "sudo -u x env A=1 timeout 5 rm -rf x",
    "bash -lc 'rm x; ls'",
    'for f in *.py; do wc -l "$f"; done',
    "find . -name '*.py' -exec grep -n foo {} +",
)


def test_ordinary_commands_are_analysed_quickly() -> None:
    began = time.perf_counter()
    for _ in range(50):
        for command in ORDINARY:
            known(command)
    seconds = time.perf_counter() - began
    print(f"{50 * len(ORDINARY) / seconds:,.0f} commands per second")
