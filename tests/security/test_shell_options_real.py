"""The table of options that go further, against the programs themselves: what it says they do, they really do.

Every example runs in a folder of its own. A program that is not installed is skipped. Scripts of sed and awk are made
at random: one that is found to be without effect must neither run nor write anything.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.activities.shell.analyze import analyse_command
from holdfast.activities.shell.programs.option_effects import find_effects
from holdfast.activities.shell.programs.scripts import find_script_effects
from tests.support.programs import PACKAGES, require_program

SECONDS = 20.0
PROGRAMS = os.pathsep.join([os.environ["PATH"], os.path.dirname(sys.executable)])
"""Those of the machine, then those of our packages: `rg`."""
SECRET = "a-secret-of-another-program"

EXECUTES = """
find . -name in -exec ./mark {} ;
sed -n '1e ./mark' in
sed 's/.*/.\\/mark/e' in
sed -f run.sed in
mawk 'BEGIN { system("./mark") }'
mawk '{ print | "./mark" }' in
mawk 'BEGIN { "./mark" | getline }'
mawk -f run.awk in
gawk -e 'BEGIN { system("./mark") }'
gawk 'BEGIN { f = "system"; @f("./mark") }'
sort -S 1b --compress-program=./mark big
sort -S1b --compr ./mark big
tar -cf x.tar --checkpoint=1 --checkpoint-action=exec=./mark big
tar -xf in.tar --to-command=./mark
tar xf in.tar --to-comm ./mark
tar -cf x.tar -I ./mark in
tar cfI x.tar ./mark in
make --eval 'all:; ./mark'
make -E 'all:; ./mark'
make -f run.mk
make -C sub all CC=../mark
rg --pre ./mark a in
rg --pre=./mark a in
git grep -O./mark a
git grep -nO./mark a
git grep --open=./mark a
git clone -u ./mark . copy
git clone --upload-pac=./mark . copy
git -c protocol.ext.allow=always clone 'ext::./mark' copy
git ls-remote --upload-pack=./mark .
git rebase -x ./mark --root
git diff --ext-diff HEAD~1
split --filter=./mark in
zip -T -TT ./mark x.zip in
install -s --strip-program=./mark in copy
rsync -e ./mark in h:x
rsync -ae./mark in h:x
scp -S ./mark in h:x
vim -es -c '!./mark' -c q in
vim -es +!./mark +q in
gcc -wrapper ./mark -c in.c
python3 -c 'import os; os.system("./mark")'
python3 -m marking
perl -e 'system("./mark")'
perl -ne 'system("./mark")' in
ruby -e 'system("./mark")'
node -e 'require("child_process").execFileSync("./mark")'
node -r ./mark.js nothing.js
php -r 'system("./mark");'
lua5.4 -e 'os.execute("./mark")'
sqlite3 x.db '.shell ./mark'
m4 -Dx=y run.m4
batcat --paging=always --pager=./mark in
fdfind in -x ./mark
npm exec -c ./mark --offline
"""
WRITES = """
find . -fprintf made x
find . -fprint made
find . -fls made
sed -n 'w made' in
sed 's/a/b/w made' in
sed -i s/a/b/ in
sed -ni 1p in
sed --in-pl=.old p in
mawk '{ print > "made" }' in
mawk '{ print $1, $2 >> "made" }' in
gawk -pmade 1 in
gawk --dump-variables=made 1 in
gawk -i inplace '{ print "x" }' in
git log --output=made
git diff --output=made HEAD~1
git show --output made
git rev-list --output=made HEAD
git shortlog --output=made HEAD
git blame --output=made in
git format-patch -omade HEAD~1
git archive -o made.tar HEAD
sort -o made in
sort -no made in
sort -omade in
sort --o=made in
shuf -o made in
shuf -eo made a
uniq in made
xxd in made
tree -o made
file -C -m magic
curl -s -o made file:///etc/hostname
curl -so made file:///etc/hostname
curl -s -D made file:///etc/hostname
curl -s --stderr made file:///nowhere
curl -sO file:///etc/hostname
wget -q -o made http://127.0.0.1:1/
tar -cf x.tar -g made in
tar -cvf x.tar --index-file=made in
zip -q in.zip -O made.zip in
unzip -q -o -d made in.zip
patch -i fine.patch -o made in
gcc -o made.o -c in.c
gcc -MMD -MFmade -E in.c
ld -o made in.o
openssl rand -out made 5
tcpdump -r in.pcap -w made
node --redirect-warnings=made -p 'process.emitWarning("x")'
perl -i -pe 's/a/b/' in
yq -iy .a=2 in.json
dd if=in of=made status=none
zstd -q --output-dir-flat folder in
vim -es -w made +q in
rsync -a --log-file=made in copy
pip list --log=made --disable-pip-version-check
"""
DELETES = """
find . -name victim -delete
tar -cf x.tar --remove-files victim
tar --delete -f in.tar in
zip -qm x.zip victim
rsync -a --remove-source-files victim copy
rsync -r --delete empty/ folder
zstd -q --rm victim
git clean -fq victim
git branch -D other
git tag -d v1
git reset --hard HEAD
cp --remove-destination in victim
"""
READS = """
tar -cvf x.tar -T secret
ps e -p PARENT
ps auxe
ps -auxe
ps -axe
ps -ef e
ps -eaux
jq -n env
jq -n '$ENV.KEY'
jq -n --arg a b env
mawk 'BEGIN { print ENVIRON["KEY"] }'
mawk 'BEGIN { while ((getline line < "secret") > 0) print line }'
mawk 'BEGIN { ARGV[1] = "secret"; ARGC = 2 } { print }'
sed '$r secret' in
sed -n '1R secret' in
strings @args
nm @args
gcc @args
sort --files0-from=names
wc --files0-from=names
du --files0-from=names
find -files0-from names -name secret
date -f secret
file -f secret
curl -s file://FOLDER/secret
git log --oneline --stdin
"""
SENDS = """
curl -s -T in http://HOST/
curl -s -d @in http://HOST/
curl -s -F f=@in http://HOST/
curl -s --json @in http://HOST/
curl -s http://127.0.0.1:1/ -: -s http://HOST/?text
curl -s -x http://HOST/ http://text.invalid/
wget -q -O- --post-file=in http://HOST/
wget -q -O- --post-data=text http://HOST/
"""


MADE_BY = {"in.zip": "zip", "in.o": "gcc"}
"""By file of a folder, the program that made it; without the program there is none."""


def is_installed(program: str) -> bool:
    return shutil.which(program, path=PROGRAMS) is not None


@dataclass(frozen=True)
class Folder:
    """Where an example runs."""

    path: Path

    def run(self, command: str, **environment: str) -> str:
        """What a command prints; never mind whether it fails."""
        words = shlex.split(command)
        for program in (words[0], *(MADE_BY[word] for word in words if word in MADE_BY)):
            if program in PACKAGES:
                require_program(program)
            elif not is_installed(program):
                pytest.skip(f"{program} is not installed")
        environment = {
            "PATH": PROGRAMS, "HOME": str(self.path / "home"), "LANG": "C", "KEY": SECRET, "TERM": "dumb",
            "GIT_CONFIG_GLOBAL": str(self.path / "gitconfig"), "GIT_EDITOR": "true", **environment,
        }  # fmt: skip
        done = subprocess.run(
            words, cwd=self.path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS
        )
        return (done.stdout + done.stderr).decode(errors="replace")

    def ran(self) -> bool:
        """Whether the program `mark` was started."""
        return any(self.path.rglob("ran-mark"))

    def state(self) -> dict[str, bytes | None]:
        """Every file but those of git, with what it holds."""
        files = (file for file in self.path.rglob("*") if ".git" not in file.parts)
        return {str(file): file.read_bytes() if file.is_file() else None for file in files}


FILES = {
    "in": "a secret line\nb\n", "in.json": '{"a": 1, "b": "x"}\n', "victim": "x\n", "secret": f"{SECRET}\n",
    "in.c": "int main(void) { return 0; }\n", "run.sed": "1e ./mark\n", "run.awk": 'BEGIN { system("./mark") }\n',
    "run.mk": "all:\n\t./mark\n", "sub/Makefile": "all:\n\t$(CC)\n", "run.m4": "syscmd(./mark)\n",
    "args": SECRET, "names": "secret\0",
    "marking.py": 'import os\nos.system("./mark")\n', "mark.js": 'require("child_process").execFileSync("./mark")\n',
    "nothing.js": "", "magic": "0 string x y\n", "big": "x y z\n" * 20_000,
    "fine.patch": "--- in\n+++ in\n@@ -1,2 +1,2 @@\n-a secret line\n+c\n b\n", "folder/victim": "x", "empty/.keep": "",
    "gitconfig": "[user]\nname = a\nemail = a@b\n[diff]\nexternal = ./mark\n[init]\ndefaultBranch = main\n",
    "home/.keep": "",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A repository with two commits, archives, and a program that leaves a file when it runs."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "empty" / ".keep").unlink()
    (tmp_path / "in.pcap").write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    mark = tmp_path / "mark"
    mark.write_text(f'#!/bin/sh\necho x >> "{tmp_path}/ran-mark"\nexit 1\n')
    mark.chmod(0o755)
    found = Folder(tmp_path)
    git = "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main -c commit.gpgsign=false"
    for command in (
        f"{git} init -q", f"{git} add in", f"{git} commit -qm one", f"{git} branch other", f"{git} tag v1",
        "tar -cf in.tar in big", f"{git} add in.json", f"{git} commit -qm two", "zip -q in.zip in",
        "gcc -c in.c -o in.o",
    ):  # fmt: skip
        words = shlex.split(command)
        if is_installed(words[0]):
            subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=SECONDS)
    return found


def effects_of(command: str) -> set[str]:
    """What the table says of a command."""
    return {
        one.effect
        for program in analyse_command(shlex.join(shlex.split(command))).programs
        for one in find_effects(program)
    }


def examples(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("command", examples(EXECUTES))
def test_S30_option_that_executes_runs_a_program(folder: Folder, command: str) -> None:
    folder.run(command)
    assert folder.ran()
    assert effects_of(command) & {"executes", "unknown"} or analyse_command(command).uncertain


@pytest.mark.parametrize("command", examples(WRITES))
def test_S30_option_that_writes_changes_a_file(folder: Folder, command: str) -> None:
    before = folder.state()
    folder.run(command)
    assert folder.state() != before
    assert effects_of(command) & {"writes", "executes", "unknown"}


@pytest.mark.parametrize("command", examples(DELETES))
def test_S30_option_that_deletes_removes_something(folder: Folder, command: str) -> None:
    (folder.path / "in").write_text("changed\n") if "reset" in command else None
    before = (folder.state(), folder.run("git for-each-ref"))
    folder.run(command)
    after = (folder.state(), folder.run("git for-each-ref"))
    assert before[1] != after[1] or any(after[0].get(file) != content for file, content in before[0].items())
    assert effects_of(command) & {"deletes"}


@pytest.mark.parametrize("command", examples(READS))
def test_S30_option_that_reads_elsewhere_shows_what_no_word_names(folder: Folder, command: str) -> None:
    other = subprocess.Popen(["sleep", "60"], env={"KEY": SECRET})
    try:
        text = command.replace("PARENT", str(other.pid)).replace("FOLDER", str(folder.path))
        if "--stdin" not in text:
            shown = folder.run(text, KEY=SECRET)
            assert SECRET in shown or "secret" in shown
        assert effects_of(text) & {"reads_elsewhere"}
    finally:
        other.kill()
        other.wait()


@pytest.fixture
def received() -> Iterator[tuple[str, list[bytes]]]:
    """A server on loopback, and what it is sent."""
    seen: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        timeout = 5

        def handle(self) -> None:
            text, length = b"", 0
            while b"\r\n\r\n" not in text and (line := self.rfile.readline()):
                text += line
                length = int(line.split(b":")[1]) if line.lower().startswith(b"content-length:") else length
                if line.lower().startswith(b"expect:"):
                    self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            seen.append(text + self.rfile.read(length))
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", seen
        server.shutdown()


@pytest.mark.parametrize("command", examples(SENDS))
def test_S30_option_that_sends_reaches_a_server(
    folder: Folder, received: tuple[str, list[bytes]], command: str
) -> None:
    host, seen = received
    text = command.replace("HOST", host)
    folder.run(text)
    assert any(b"secret" in one or b"text" in one for one in seen)
    assert effects_of(text) & {"sends"}


@pytest.mark.parametrize(
    "program", ["sort -{}o made in", "shuf -n3 -{}o made in", "curl -s{}o made file:///etc/hostname"]
)
def test_S30_letters_combine_as_the_program_combines_them(folder: Folder, program: str) -> None:
    """Before `-o`, every letter of the alphabet: where a file is written, the table has seen it."""
    for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0":
        command = program.format(letter)
        (folder.path / "made").unlink(missing_ok=True)
        folder.run(command)
        if (folder.path / "made").exists():
            assert effects_of(command) & {"writes", "unknown", "executes"}, command


SED_PIECES = [
    *"pdq=nNgGhHxzDPlF{};!,$ \n\\/|#1a-", "1e ./mark", "e ./mark", "w made", "W made", "r secret", "s/a/b/",
    "s/a/b/e", "s/./b/w made", "s|.*|./mark|", "e", "w", "/a/", "\\,a,", "[/]", "[\\/]", "[^]/]", "y/a/b/",
    "s/[/]/b/", "a\\", "a x", "i\\\n", "c\\", "b x", ":x", "t", "}", "1,2", "2~3", "$!", "0,/a/", "I", "M", "g", "1!",
    "s/a\\/b/c/", "s,a,b,", "#n",
]  # fmt: skip
AWK_PIECES = [
    "{", "}", "(", ")", ";", "\n", "/", " ", "print", "print ", "$1", "$0", "x", "1", '"', '"./mark"', "system(",
    'system("./mark")', "|", "| ", "||", ">", ">>", ' > "made"', ' "made"', "getline", "/a/", "/a|b/", '/"/', "/[/]/",
    "if (1) ", "~", "!", ",", "\\", "#", "+", "-", "++", "BEGIN", "END", "=", "==", "in", "return", "?", ":", "[",
    "]", '" | "', "&&", "printf", "substr($0, 1)", '"\\""', "/\\//", "%", "*",
]  # fmt: skip


@pytest.mark.parametrize(
    ("language", "program", "pieces"),
    [("sed", "sed", SED_PIECES), ("awk", "mawk", AWK_PIECES), ("awk", "gawk", AWK_PIECES)],
)
def test_S30_random_script_without_effect_runs_and_writes_nothing(
    folder: Folder, language: str, program: str, pieces: list[str]
) -> None:
    """What is found to be without effect is run for real, many at a time."""
    chance, ends, tried, dangerous = random.Random(20_300_101), time.monotonic() + 5, 0, 0
    while time.monotonic() < ends and tried < 1_500:
        script = "".join(chance.choice(pieces) for _ in range(chance.randint(1, 12)))
        if script.startswith("-") or not ("mark" in script or "made" in script):
            continue
        effects = find_script_effects(language, script)
        dangerous += bool(effects)
        if effects - {"reads_elsewhere"}:
            continue
        tried += 1
        try:
            folder.run(shlex.join([program, script, "in"]))
        except subprocess.TimeoutExpired:  # pragma: no cover - a loop without end harms nobody
            continue
        assert not folder.ran(), script
        assert not (folder.path / "made").exists(), script
    assert tried > 20
    assert dangerous > 20
