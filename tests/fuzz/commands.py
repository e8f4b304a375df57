"""Fuzzing the reader of commands: what it says a command runs, beside what bash really runs.

Every program is a stub that notes its words.

Commands are made at random from a grammar, and then damaged. For each one the analysis calls fully known, whatever ran
must be among the programs it listed; and the rebuilt form of a simple one must run the very same words.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.activities.shell.analyze import analyse_command, rebuild_command
from holdfast.activities.shell.programs.program import Analysis, Program
from tests.fuzz.found import Found

TRIES = 5
PATIENCE = 5.0
"""Seconds a command may take before it is left out."""
STUBS = ("aa", "bb", "cc", "rm", "git", "o1", "no", "if", "a-b", "x.y")
WRAPPERS = ("env", "nice", "nohup", "timeout", "setsid", "stdbuf", "xargs", "find", "bash", "sh")
STUB = """#!/bin/sh
trap '' PIPE
printf '%s\\0' "${{0##*/}}" "$#" "$@" >> {log}
echo o1 o2
[ "${{0##*/}}" != no ]
"""

Record = tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """A folder of stubs, a folder to run in, and the notes of what ran."""

    bin: Path
    folder: Path
    log: Path

    def run(self, command: str) -> list[Record] | None:
        """What a command runs in bash; None when it does not end."""
        self.log.write_bytes(b"")
        reading, sending = os.pipe()
        environment = {"PATH": str(self.bin), "HOME": str(self.folder), "FUNCNEST": "4", "v": "w1 w2", "e": ""}
        process = subprocess.Popen(
            ["/bin/bash", "--norc", "--noprofile", "-c", command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[sending],
            start_new_session=True,
        )
        os.close(sending)
        try:
            process.wait(PATIENCE)
            os.set_blocking(reading, False)
            return self._records() if self._ended(reading) else None
        except subprocess.TimeoutExpired:
            return None
        finally:
            os.close(reading)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _ended(self, reading: int) -> bool:
        """Whether nothing that was started holds the pipe any more."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                return os.read(reading, 1) == b""
            except BlockingIOError:
                time.sleep(0.002)
        return False

    def _records(self) -> list[Record]:
        fields = self.log.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
        records = []
        while fields:
            count = int(fields[1])
            records.append((fields[0], *fields[2 : 2 + count]))
            fields = fields[2 + count :]
        return sorted(records)


def make_stage(folder: Path) -> Stage:
    made = Stage(folder / "bin", folder / "folder", folder / "log")
    made.bin.mkdir()
    made.folder.mkdir()
    first = made.bin / STUBS[0]
    first.write_text(STUB.format(log=made.log))
    first.chmod(0o755)
    for name in STUBS[1:]:
        (made.bin / name).hardlink_to(first)
    for name in WRAPPERS:
        if real := shutil.which(name):
            (made.bin / name).symlink_to(real)
    return made


# fmt: off
NAMES = (
    "aa", "bb", "cc", "rm", "no", "a-b", "x.y", "r\\m", "'r'm", '"rm"', "$'\\x72m'", "\\aa", "'if'", "[ x ] &&", "true",
    ":", "eval aa", "command rm", "exec cc", "builtin :", "git", "cc", "aa", "bb", "b\\b", "a''a", 'c"c"', "$'aa'",
)
ODD_NAMES = ("$v", "a{a,b}", "$(aa)", "`bb`", "[ x", "\\if", "%", "a?", "~", "1", "{", "in", "#", "''")
WORDS = (
    "a", "-x", "--y=z", "'q w'", '"d e"', '"d $v e"', "$v", "$e", "${v}", "${v:-d}", "${e:-$(bb in)}", "*", "f?",
    "{1,2}", "{a..c}", "~", "a~", "X=~", "\\$v", "\\;", "'\\'", '"\\""', '"\\\\"', "'a'\"b\"c", "$'\\n'", "$'a\\'b'",
    "a\\ b", "a#b", "\\#", "''", '""', "$", "a$", "$((1+2))", '"$(aa "in $(bb)")"', '"`cc`"', "HEAD@{1}", "a=b", "if",
    "then", "{", "}", "!", "[", "]", "é", "1", "2", '"$"', "%1", "a\\\nb", '"a\\\nb"', "'a\\\nb'", "^", "a:b", "@", "+",
    "-", "--", "a,b", "{}", "{a}", "$#", "$?", "${#v}", "${v%1}", "$'\\101'", "\\'", "a'b'", "c d", "$'\\x{41}'",
    '"$\\\nv"', "${v/w/x}", "${v:0:1}", "a\\",
)
ASSIGNMENTS = ("A=1", "B='x y'", "C=$v", "D=", "E+=1", 'F="$(aa f)"', "G=(a b)", "H=~")
SEPARATORS = (";", " && ", " || ", "\n", " & ", ";\n", "&&\n", " \\\n && ", "; # c\n")
REDIRECTS = (">", "2>", "123>", ">>", "<", "&>", ">|", "<>", "2>&", ">&", "<<<", "<&")
TARGETS = ("f1", "1", "2", "'f 2'", "$v", "$(aa r)", "f3", "-")
SUBSTITUTIONS = (
    "$(%s)", '"$(%s)"', "<(%s)", "a$(%s)b", "${e:-$(%s)}", "`%s`", '"x`%s`y"', "$( %s )", "$(%s\n)", ">(%s)",
)
GROUPS = ("(%s)", "( %s )", "{ %s; }", "{ %s\n}", "{ (%s) }", "(%s) 2>f1", "{ %s; }>f2", "( (%s) )")
TESTS = (
    "[ x = x ]", "[[ a == b ]]", '[ -n "$v" ]', "[[ -n $(aa t) && a < b ]]", "no 1", "((1))", "[[ a =~ b ]]", "! no",
)
LOOPS = (
    "for i in %s; do %s; done", "for i in %s\ndo %s\ndone", "while no %s; do %s; done", "until aa %s; do %s; done",
    "for i in a %s; do %s; done | bb",
)
PATTERNS = ("a", "(a|b", "*", "'x'", "$v", "[ab]", "$(aa p)")
FUNCTIONS = ("%s() { %s; }", "%s () ( %s )", "function %s { %s; }", "%s()\n{ %s\n}")
WRAPPINGS = (
    "env %w", "env -v A=1 %w", "nice -n 5 %w", "timeout 60 %w", "nohup %w", "aa | xargs %w", "aa | xargs -I{} %w {}",
    "aa | xargs -n1 -I % %w %", "find . -maxdepth 0 -exec %w {} \\;", "bash -c %q", "find . -maxdepth 0 -exec %w {} +",
    "bash -ec %q x y", "sh -c %q", "eval %q", "eval %w", "stdbuf -oL %w", "setsid -w %w", "env -u A nice %w",
    "trap %q EXIT", "bash -euo pipefail -c %q", "env --unset=A -- %w", "timeout -s TERM 60 env %w", "sh -ec %q",
    "command %w", "export Q=1 %w", "bash -c -x %q", "find . -maxdepth 0 -name -exec -o -exec %w {} +",
    "aa | xargs -L1 %w", "time -p %w", "bash -c %q -- y", "sh -c %q sh z", "bash -c - %q", "eval -- %q",
    "aa | xargs -i %w", "nice -5 %w", "exec -a z %w",
)
DELIMITERS = ("EOF", "'EOF'", '"EOF"', "-EOF", "- 'EOF'")
AFTER_DELIMITERS = ("", " | bb", "; cc", " >f1", " && cc", " b", " <<E2")
BODIES = (
    "plain", "$v $(aa in)", '`bb` "q"', "it's", "\\$v \\$(rm)", "a\n\nb", '$(cc "$(aa)")', "'$(rm q)'", "EOFx",
    "${e:-$(bb)}", "a\\",
)
DAMAGE = (*"'\"\\$`(){}[]<>;&|#!=~*? \n\t\r-1a", "\\\n", "$(", "((", "))", "<<", "; ", "${", "]]", "[[", "")
# fmt: on


class Maker:
    """Commands at random."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._pick = self._random.choice

    def command(self) -> str:
        text = self._list(3)
        return self._damaged(text) if self._chance(0.4) else text

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _list(self, depth: int) -> str:
        parts = [self._pipeline(depth)]
        for _ in range(self._random.randrange(3)):
            parts += [self._pick(SEPARATORS), self._pipeline(depth)]
        return "".join(parts)

    def _pipeline(self, depth: int) -> str:
        commands = [self._command(depth) for _ in range(self._pick((1, 1, 1, 2, 3)))]
        return self._pick(("", "", "", "", "! ", "time ")) + self._pick((" | ", "|", " |& ", " |\n")).join(commands)

    def _command(self, depth: int) -> str:
        if depth <= 0 or self._chance(0.6):
            return self._simple(depth)
        makers = (self._group, self._if, self._loop, self._case, self._function, self._wrapped, self._heredoc)
        return self._pick(makers)(depth - 1)

    def _simple(self, depth: int) -> str:
        words = [self._pick(ODD_NAMES if self._chance(0.02) else NAMES)]
        words += [self._word(depth) for _ in range(self._random.randrange(4))]
        if self._chance(0.2):
            words.insert(0, self._pick(ASSIGNMENTS))
        if self._chance(0.2):
            redirect = self._pick(REDIRECTS) + self._pick(("", " ")) + self._pick(TARGETS)
            words.insert(self._random.randrange(len(words) + 1), redirect)
        return self._pick((" ", " ", " ", "  ", "\t", " \\\n")).join(words)

    def _word(self, depth: int) -> str:
        if depth > 0 and self._chance(0.2):
            return self._pick(SUBSTITUTIONS) % self._list(depth - 1)
        return self._pick(WORDS[:2] if self._chance(0.3) else WORDS)

    def _group(self, depth: int) -> str:
        return self._pick(GROUPS) % self._list(depth)

    def _if(self, depth: int) -> str:
        otherwise = self._pick(("", f"else {self._simple(depth)}; ", f"elif no; then {self._simple(depth)}; "))
        return f"if {self._pick((*TESTS, self._simple(depth)))}; then {self._list(depth)}; {otherwise}fi"

    def _loop(self, depth: int) -> str:
        return self._pick(LOOPS) % (self._word(0), self._list(depth))

    def _case(self, depth: int) -> str:
        items = f"{self._pick(PATTERNS)}) {self._list(depth)};; *) {self._simple(depth)} ;;"
        return f"case {self._word(0)} in {items} esac"

    def _function(self, depth: int) -> str:
        name = self._pick(("ff", "aa", "rm"))
        return self._pick(FUNCTIONS) % (name, self._list(depth)) + self._pick(("", f"; {name} x"))

    def _wrapped(self, depth: int) -> str:
        inner = self._simple(depth)
        quoted = "'" + inner.replace("'", "'\\''") + "'"
        return self._pick(WRAPPINGS).replace("%w", inner).replace("%q", quoted)

    def _heredoc(self, depth: int) -> str:
        delimiter, after = self._pick(DELIMITERS), self._pick(AFTER_DELIMITERS)
        tab = "\t" if delimiter.startswith("-") else ""
        second = f"\n{self._pick(BODIES)}\nE2" if after.endswith("E2") else ""
        return (
            f"aa <<{delimiter}{after}\n{self._pick(BODIES)}\n{tab}EOF{second}\n{self._pick(('', self._simple(depth)))}"
        )

    def _damaged(self, text: str) -> str:
        for _ in range(self._random.randrange(1, 4)):
            place = self._random.randrange(len(text) + 1)
            text = text[:place] + self._pick(DAMAGE) + text[place + self._pick((0, 0, 1, 1, 2)) :]
        return text


def may_run(command: str) -> bool:
    """Whether a command stays in its folder: a damaged one could name any file."""
    return "/" not in command and ".." not in command.replace("{a..c}", "")


def matches(words: Sequence[str | None], record: Sequence[str]) -> bool:
    """Whether words, of which None is any number, are those of a record."""
    if not words:
        return not record
    if words[0] is None:
        return any(matches(words[1:], record[count:]) for count in range(len(record) + 1))
    return bool(record) and words[0] == record[0] and matches(words[1:], record[1:])


def is_listed(record: Record, programs: Sequence[Program]) -> bool:
    """Whether a program is listed, or a shell that runs it as a script: a stub is one."""
    return any(
        matches((program.name, *program.words[1:]), record)
        or (program.name in ("bash", "sh") and matches(program.words[1:], record))
        for program in programs
    )


def compare(stage: Stage, command: str, analysis: Analysis) -> str | None:
    """How bash contradicts the analysis."""
    ran = stage.run(command)
    if ran is None:
        return None
    if missed := [record for record in ran if not is_listed(record, analysis.programs)]:
        return f"{command!r} ran {missed} that is not in {[program.words for program in analysis.programs]}"
    rebuilt = rebuild_command(analysis)
    # A program may end because the one it writes to has: what runs is then a matter of luck, and so tried again.
    if rebuilt is None or any(stage.run(rebuilt) in (stage.run(command), None) for _ in range(TRIES)):
        return None
    return f"{command!r} ran {ran}, rebuilt as {rebuilt!r} it ran {stage.run(rebuilt)}"


def fuzz_commands(folder: Path, seed: int, seconds: float) -> Found:
    """What bash contradicts of the analysis, and how many commands were fully known."""
    stage, maker, found = make_stage(folder), Maker(seed), Found()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        command = maker.command()
        found.tried += 1
        if may_run(command) and not (analysis := analyse_command(command)).uncertain:
            found.telling += 1
            if problem := compare(stage, command, analysis):
                found.problems.append(problem)
            for left in stage.folder.iterdir():
                left.unlink(missing_ok=True)
    return found
