"""What an outside review tried with commands: ways to run, write, send or read more than a rule allows (S29, S30, S32).

Each line of the tables is one try. `evasions.txt` has those against a deny rule, one command per line. What the tables
say of programs is shown with the programs themselves, as far as they are installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import JsonValue

from holdfast.activities.files.diff import build_diff
from holdfast.activities.mcp.server.definition_pins import PinnedDefinitions
from holdfast.activities.mcp.server.definitions import Definition
from holdfast.activities.mcp.tools.mcp_tool import McpTool
from holdfast.activities.policy.protected_files import ProtectedFiles
from holdfast.activities.shell.analyze import analyse_command
from holdfast.config.schema import McpServerSettings
from holdfast.domain.calls.verdicts import Allow, Ask
from holdfast.domain.modes import Mode
from holdfast.util.text import escape_controls
from tests.security.test_git_configuration import Repository
from tests.security.test_git_configuration import repository as repository  # a fixture
from tests.support.policies import policy, rule, run, said
from tests.unit.activities.mcp.tools.test_mcp_tool import a_server

# Allow rules, and `harmless`

FURTHER = r"""
tar -tMf a.tar
tar -tf a.tar -M
tar -tf a.tar --multi-vol
tar tMf a.tar
tar -tf a.tar -L 5
curl {file,http}:///etc/passwd
curl f[i-i]le:///etc/passwd
curl {file:,http:}//etc/passwd
curl --url {file}:///etc/passwd
curl --proto-default file /etc/passwd
curl --proto-default=file /etc/passwd
curl -L --proto-redir =all https://example.com/
curl -L --proto-redir +file https://example.com/
curl --etag-compare /etc/passwd https://example.com/
curl gopher://localhost:6379/_FLUSHALL
curl dict://localhost:11211/stats
curl telnet://localhost:25
curl scp://h/etc/passwd
curl smb://h/share
curl ldap://h/x
curl tftp://h/x
yq -s .a f
yq e env(HOME)
yq e strenv(HOME)
yq ea load_str("x") f
zstdcat -o out f
man -r x$-oout$ ls
man --prompt=x ls
7z u -u!new.7z a.7z
7z a b.7z -ir@list
git push origin +main
git push origin :main
git credential fill
git credential-store get
sqlite3 a.db data|from|fsdir("/etc/passwd")
"""

HARMLESS = (
    "jq -n '$ ENV.KEY'",
    "jq -n '$\nENV'",
    "jq -n '$# a comment\nENV'",
    "env -C / sort f",
    "env --chdir=/ cat f",
    "sed 'w /dev/stdout ' f",
    "cat < /proc/1/environ",
    "tr a b 0< /proc/1/environ",
    "{ cat; } < /proc/1/environ",
    "cat /dev/fd/../environ",
    "cat /dev/fd/../../1/environ",
    "cat < /dev/stdin/../environ",
    "grep -ra KEY / --include=environ",
    "grep -ra KEY //. --include=environ",
    "rg -uua KEY ../../../../.. -g environ",
    "diff -r a /",
    "cd / && grep -ra KEY .",
)

SENT_COMMANDS = (
    "echo '!x' | vim -es f",
    "vim -es f < script",
    "vim f <<< ':!x'",
    "ex f <<< '!x'",
    "echo '!x' | ed",
    "ed f < script",
    "{ ed f; } < script",
    "ed f 0<> script",
    "echo '.shell x' | sqlite3",
    "sqlite3 a.db < script",
    "timeout 5 sqlite3 a.db < script",
    "psql <<< '\\! x'",
    "mysql < script",
    "echo x | m4",
    "mail -s x y <<< '~!x'",
    "echo x | crontab -",
    "exec < script; cat",
    "exec > out; ls",
)


def line_words(line: str) -> str:
    """Words that a shell takes as they stand."""
    return " ".join("'" + word + "'" for word in line.split())


@pytest.mark.parametrize("line", FURTHER.strip().splitlines())
def test_S30_option_that_goes_further_is_not_covered_by_a_rule_on_the_program(line: str) -> None:
    command = line_words(line)
    program = line.split()[0]
    assert said(policy(rule(f"command = '{program}'")), run(command)) is None
    assert said(policy(rule(f"command = '{program} **'")), run(command)) == "allow"


@pytest.mark.parametrize("command", HARMLESS)
def test_S30_what_reads_the_environment_or_moves_elsewhere_is_not_harmless(command: str) -> None:
    assert said(policy(rule("harmless = true")), run(command)) is None


@pytest.mark.parametrize("command", SENT_COMMANDS)
def test_S30_program_that_is_sent_commands_is_a_doubt(command: str) -> None:
    names = [
        "echo",
        "vim",
        "ex",
        "ed",
        "sqlite3",
        "psql",
        "mysql",
        "m4",
        "mail",
        "crontab",
        "cat",
        "exec",
        "ls",
        "timeout",
    ]
    assert analyse_command(command).uncertain
    assert said(policy(*[rule(f"command = '{name} **'") for name in names]), run(command)) is None


@pytest.mark.parametrize(
    "command",
    ["vim f", "ed f", "sqlite3 a.db 'select 1'", "sqlite3 a.db 'select 1' < /dev/null", "curl 'https://h/[1-3]'",
     "tar -tf a",
     "curl -sSL http://h:80/x", "curl h:8080/x", "curl h/x", "curl --proto '=https' -sSf https://h", "yq .env f",
     "curl --proto-redir '-all,https' https://h", "exec ls"],
)  # fmt: skip
def test_S30_ordinary_forms_of_these_programs_stay_covered(command: str) -> None:
    first = command.split()[0]
    covered = said(policy(rule(f"command = ['{first}', 'ls']")), run(command))
    assert covered == (None if "-all" in command else "allow")


@pytest.mark.parametrize(
    "further",
    ["https://evil.example/?x", "evil.example", "--url https://evil.example", "-L evil.example", "-- evil.example"],
)
def test_S30_rule_on_one_address_covers_no_other(further: str) -> None:
    rules = policy(rule("command = ['curl https://example.com/*', 'wget https://example.com/*']"))
    for program in ("curl", "wget"):
        assert said(rules, run(f"{program} https://example.com/a {further}")) is None
        assert said(rules, run(f"{program} https://example.com/a -q")) == "allow"


# Deny rules

EVASIONS = (Path(__file__).with_name("evasions.txt")).read_text().splitlines()


@pytest.mark.parametrize("command", EVASIONS)
def test_S30_denied_program_never_proceeds_unasked_however_it_is_run(command: str) -> None:
    rules = policy(rule("command = ['rm', 'git push', 'unlink']", "deny"), rule("anything = true\nmodes = ['yolo']"))
    assert said(rules, run(command), Mode.YOLO) in ("ask", "deny")


@pytest.mark.parametrize("command", ["mytool x y", "ls rm", "grep rm f", "echo rm x", "npm rm x", "mytool --rm"])
def test_S30_words_of_known_programs_are_not_taken_for_programs(command: str) -> None:
    rules = policy(rule("command = 'rm'", "deny"), rule("anything = true\nmodes = ['yolo']"))
    assert said(rules, run(command), Mode.YOLO) == "allow"


# With the programs themselves


def real(command: str, folder: Path, sent: str = "") -> str:
    """What bash prints."""
    words = ["bash", "-c", command]
    environment = {**os.environ, "SHELL": "/bin/sh", "TERM": "dumb"}
    done = subprocess.run(
        words,
        cwd=folder,
        input=sent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        errors="replace",
    )
    return done.stdout


@pytest.mark.parametrize(
    ("program", "command", "sent"),
    [
        ("vim", "vim -es f", "!touch mark\n"),
        ("ed", "ed -s f", "!touch mark\n"),
        ("sqlite3", "sqlite3", ".shell touch mark\n"),
        ("tar", "tar -tMf short.tar", "!\n" + "\n" * 8190 + "touch mark\n"),
    ],
)
def test_S30_these_programs_do_run_what_they_are_sent(program: str, command: str, sent: str, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / "f").write_text("x\n" * 20_000)
    real("tar cf whole.tar f && head -c 20000 whole.tar > short.tar", tmp_path)
    (tmp_path / "sent").write_text(sent)
    real(f"{command} < sent > /dev/null 2>&1", tmp_path)
    assert (tmp_path / "mark").exists()


@pytest.mark.needs("curl")
@pytest.mark.parametrize(
    "command",
    [
        "curl -sS '{file,http}://'$PWD/secret",
        "curl -sS 'f[i-i]le://'$PWD/secret",
        "curl -sS --proto-default file $PWD/secret",
    ],
)
def test_S30_curl_does_read_files_by_these_addresses(command: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden-1")
    assert real(command, tmp_path) == "hidden-1"


# Files that decide what runs

CHANGES = r"""
wget https://example.com/.envrc
wget -q https://example.com/x/.envrc
wget example.com/.envrc
wget -qO.envrc https://example.com/x
wget -r https://example.com/.git/config
curl -O https://example.com/.envrc
curl -OL https://example.com/x/%2eenvrc
curl -so.envrc https://example.com/x
gzip -d .envrc.gz
unxz .envrc.xz
echo x > ~+/.envrc
echo .envrc | xargs tee
for f in .envrc; do tee $f; done
for f in .envrc; do echo x > "$f"; done
F=.envrc; echo x > $F
F=.envrc; cp a $F
cp a $(echo .envrc)
cp {a,.envrc}
env -C .git tee config
git log --output=.envrc
sed -n 'w .envrc' a
sed 's/a/b/w .envrc' a
awk '{ print > ".envrc" }' a
python3 -c 'open(".envrc", "w")'
echo x > x.pth
echo x > .hg/hgrc
echo x > rust-toolchain.toml
echo x > .latexmkrc
tee .config/nvim/init.lua
tee .tmux.conf
"""


@pytest.mark.parametrize("command", CHANGES.strip().splitlines())
def test_S29_command_that_would_change_what_runs_later_is_known(command: str, tmp_path: Path) -> None:
    assert ProtectedFiles(tmp_path).find(run(command))


@pytest.mark.parametrize(
    "command",
    ["grep -rl x . --exclude-dir=.git | xargs sed -i s/x/y/", "find . -path ./.git -prune -o -print | xargs touch",
     'git commit -m "$(cat .gitattributes)"', "cat .envrc | grep $x", "wget https://example.com/a.tgz", "gzip -d a.gz",
     "curl https://example.com/.git/config", "tar xf $x"],
)  # fmt: skip
def test_S29_command_that_only_speaks_of_them_is_no_change(command: str, tmp_path: Path) -> None:
    assert not ProtectedFiles(tmp_path).find(run(command))


# Repositories of the workspace


@pytest.mark.parametrize(
    ("command", "configured"),
    [
        ("git push ./evil.git HEAD:refs/heads/x", None),
        ("git send-pack evil HEAD:refs/heads/x", None),
        ("git push origin HEAD:refs/heads/x", ("remote.origin.pushurl", "evil.git")),
    ],
)
async def test_S30_push_into_a_repository_of_the_workspace_is_asked_about(
    repository: Repository, command: str, configured: tuple[str, str] | None
) -> None:
    """Its hooks run, and nothing that we tell git keeps them from it."""
    repository.git("init", "-q", "--bare", "evil.git")
    hook = repository.workspace / "evil.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(repository.program.read_text())
    hook.chmod(0o755)
    if configured:
        repository.configure(*configured)
    assert repository.runs_without_us(command)
    verdict = await repository.judge(command)
    assert isinstance(verdict, Ask)
    assert any("whose hooks run programs" in doubt for doubt in verdict.confirmation.doubts)


async def test_S30_git_after_an_archive_is_asked_about(repository: Repository) -> None:
    """The archive may bring a configuration, which nobody could look at before."""
    repository.settings.policy[0].write_text(rule("command = ['git **', 'tar', 'unzip']"))
    for command in ("tar -xf a.tar && git diff", "tar xzf a.tgz; git status", "unzip a.zip && git diff"):
        verdict = await repository.judge(command)
        assert isinstance(verdict, Ask)
        assert any("before git runs" in doubt for doubt in verdict.confirmation.doubts), command
    for command in ("tar -tf a.tar && git diff", "git diff && tar -xf a.tar"):
        assert isinstance(await repository.judge(command), Allow), command


@pytest.mark.parametrize("url", ["https://example.invalid/x.git", "git@example.invalid:x.git", "../elsewhere.git"])
async def test_S30_push_to_elsewhere_stays_allowed(repository: Repository, url: str) -> None:
    repository.git("init", "-q", "--bare", "unrelated.git")
    repository.git("init", "-q", "--bare", "../elsewhere.git")
    repository.configure("remote.origin.url", url)
    assert isinstance(await repository.judge("git push origin HEAD"), Allow)


# What a person is shown


@pytest.mark.parametrize(
    "code",
    [0xAD, 0x34F, 0x115F, 0x1160, 0x17B4, 0x180B, 0x180F, 0x206A, 0x206F, 0x2800, 0x3164, 0xFE00, 0xFE0F, 0xFFA0,
     0xFFF9, 0x1BCA0, 0x1D173, 0xE0080, 0xE0100, 0xE01EF, 0xA0, 0x2000, 0x200A, 0x202F, 0x205F, 0x1680],
)  # fmt: skip
def test_S32_character_that_cannot_be_seen_is_written_out_for_who_decides(code: int) -> None:
    assert escape_controls(f"ls{chr(code)}x") == f"ls⟨U+{code:04X}⟩x"


def test_S20_name_of_a_file_draws_no_diff_of_its_own() -> None:
    name = "a\n@@ -1 +1 @@\n-x\n+harmless\n"
    assert len(build_diff(name, b"x\n", b"y\n").splitlines()) == 5


def test_S39_what_a_server_says_of_a_tool_holds_nothing_that_only_a_model_reads(tmp_path: Path) -> None:
    hidden = "\U000e0041\u200b\x1b[8m\U000e0101"
    words: dict[str, JsonValue] = {"title": f"a{hidden}", "description": f"b{hidden}", "const": f"c{hidden}"}
    parameters: dict[str, JsonValue] = {"properties": {"x": {"items": [words]}}, "description": f"d{hidden}"}
    definition = Definition(name="act", description=f"Acts.{hidden}", parameters=parameters)
    declared = McpTool(
        a_server(McpServerSettings(command="git")), definition, PinnedDefinitions(tmp_path, "git")
    ).build_declaration()
    assert declared.description == "Acts."
    assert declared.parameters["description"] == "d"
    assert declared.parameters["properties"] == {"x": {"items": [{**words, "title": "a", "description": "b"}]}}


def test_S32_emoji_stay_as_they_are() -> None:
    assert escape_controls("❤️ ok") == "❤️ ok"
    assert "U+FE0F" in escape_controls("❤️️")
