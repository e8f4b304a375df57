"""`holdfast mcp …` as a user types it: lists, tests, logs in with a browser, logs out, and says what is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pexpect  # type: ignore[import-untyped]
import pytest

from holdfast.config.schema import parse_configuration
from holdfast.config.toml_document import FileContent
from holdfast.workers.mcp.progress import format_waiting
from tests.cli.screens import ended, terminal
from tests.cli.support import COMMAND, SECONDS, Home
from tests.support.mcp.mcp_guarded import SECRET, Guarded, guarded_server
from tests.support.mcp.mcp_servers import OURS
from tests.support.pages import read_blocks

ROOT = Path(__file__).resolve().parents[3]
BROWSER = """
import sys, httpx2
answer = httpx2.get(sys.argv[1], follow_redirects=True, timeout=20)
open(sys.argv[2], "w").write(f"{answer.status_code} {answer.text}")
"""


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    """A server that wants OAuth."""
    async with guarded_server(tmp_path / "guarded") as made:
        yield made


def configure(home: Home, text: str) -> None:
    """The settings file of whoever types."""
    file = Path(home.env["XDG_CONFIG_HOME"]) / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def guarding(home: Home, guarded: Guarded, more: str = "") -> None:
    """With the server that wants OAuth, and a browser that does not wait for anybody."""
    configure(home, f'[mcp.servers.g]\nurl = "{guarded.url}"\n{more}')
    (home.folder / "browser.py").write_text(BROWSER)
    home.env["BROWSER"] = f"{sys.executable} {home.folder}/browser.py %s {home.folder}/page"


def ours(home: Home, name: str = "s", *arguments: str) -> str:
    """A table with our own server, which has one tool."""
    folder = home.folder / name
    folder.mkdir(exist_ok=True)
    return (
        f"[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps([str(OURS), str(folder)])}\n"
    )


def test_without_servers_it_says_how_to_name_some(empty: Home) -> None:
    configure(empty, "")
    assert "[mcp.servers.NAME]" in empty.run("mcp", "list").stdout
    assert empty.json("mcp", "list") == {"servers": [], "problems": []}


def test_S39_servers_are_listed_with_what_they_have_and_what_is_wrong(empty: Home) -> None:
    down = '[mcp.servers.down]\nurl = "http://127.0.0.1:9/mcp?key=${THEIR_KEY}"\n'
    lacking = '[mcp.servers.lacking]\ncommand = "x"\nenv = { A = "${NOT_SET_ANYWHERE}" }\n'
    gone = '[mcp.servers.gone]\ncommand = "/nonexistent/server"\n'
    configure(empty, '[mcp]\nfiles = ["none.json"]\n' + ours(empty) + down + lacking + gone)
    done = empty.run("mcp", "list", THEIR_KEY="canary-in-the-url")
    assert done.returncode == 0
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[1:] if line.strip()}
    assert rows["s"][:5] == ["connected", "2025-06-18", "1", "1", "once"]
    assert rows["down"][0] == "waiting"
    assert rows["lacking"][0] == "refused"
    assert "lacking: it needs the environment variable 'NOT_SET_ANYWHERE'" in done.stderr
    assert "gone: its command does not exist: '/nonexistent/server'" in done.stderr
    assert "none.json" in done.stderr
    assert "canary" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    found = empty.json("mcp", "list")
    [one] = [server for server in found["servers"] if server["name"] == "s"]
    assert one["tools"] == [{"name": "s__act", "own_name": "act", "effect": "once", "asks": True, "changed": False}]
    assert one["place"].startswith(f"{sys.executable} ")
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]
    assert [problem["source"].split()[0] for problem in found["problems"]] == ["MCP"]
    assert not empty.processes()


TESTS: dict[str, tuple[str, int, str]] = {
    "s": ("", 0, "1 tool (1 once).\ntool  effect  asks\nact   once    yes\n"),
    "down": ('[mcp.servers.down]\nurl = "http://127.0.0.1:9/mcp"\n', 3, "cannot be reached"),
    "gone": ('[mcp.servers.gone]\ncommand = "/nonexistent/server"\n', 3, "its command does not exist"),
    "dies": ('[mcp.servers.dies]\ncommand = "/bin/false"\n', 3, "exited with code 1"),
    "lacking": ('[mcp.servers.lacking]\nurl = "${NOT_SET}"\n', 1, "the environment variable 'NOT_SET'"),
    "ss": ("", 2, 'Did you mean "s"?'),
    "a b\x1b": ("", 2, "no MCP server is called"),
}


@pytest.mark.parametrize("name", TESTS)
def test_S39_one_server_is_tested_and_says_what_is_wrong(empty: Home, name: str) -> None:
    more, code, words = TESTS[name]
    configure(empty, ours(empty) + more)
    done = empty.run("mcp", "test", name)
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    if code in (0, 1, 3):
        again = empty.run("mcp", "test", name, "--json")
        assert again.returncode == code
        assert json.loads(again.stdout)["ok"] is (code == 0)


def test_S39_tools_are_listed_by_the_servers_own_names_with_effect_and_whether_they_ask(empty: Home) -> None:
    more = 'trust = true\neffects = { "set.all" = "idempotent" }\n'
    configure(empty, ours(empty, "shelf") + more)
    long = "a-name-that-is-rather-long-but-still-one-that-servers-have"
    hints = {"name": "look", "annotations": {"readOnlyHint": True}}
    tools = [{"inputSchema": {"type": "object"}, **tool} for tool in (hints, {"name": "set.all"}, {"name": long})]
    (empty.folder / "shelf" / "tools.json").write_text(json.dumps(tools))
    lines = empty.run("mcp", "test", "shelf").stdout.splitlines()
    assert lines[1:3] == ["3 tools (1 idempotent, 1 once, 1 read).", f"tool{' ' * 56}effect      asks  called here"]
    assert [line.split()[:3] for line in lines[3:]] == [
        [long, "once", "yes"],
        ["look", "read", "no"],
        ["set.all", "idempotent", "yes"],
    ]
    assert re.fullmatch(r"set\.all +idempotent  yes   shelf__set_all_[0-9a-f]{8}", lines[5])
    assert len(lines[3].split()[3]) == 64
    with terminal(empty, "mcp", "test", "shelf", columns=80) as child:
        assert ended(child) == 0
        shown = child.before.splitlines()
    assert long in "".join(line.split("  ")[0] for line in shown)  # wrapped, and whole
    assert max(map(len, shown)) <= 80
    (empty.folder / "shelf" / "tools.json").write_text(json.dumps([{**tools[0], "description": "Another."}]))
    assert "look  read    yes, it was changed" in empty.run("mcp", "test", "shelf").stdout


def test_on_a_terminal_it_says_which_servers_it_waits_for_and_takes_that_back(empty: Home) -> None:
    configure(empty, ours(empty) + '[mcp.servers.hang]\ncommand = "sleep"\nargs = ["600"]\nstart_seconds = 3\n')
    with terminal(empty, "mcp", "list") as child:
        child.expect("(?m)waiting for: hang$")
        child.expect("hang: it was not ready within 3 seconds")
        assert ended(child) == 0
        assert not child.shows("waiting for")
    piped = empty.run("mcp", "list")
    assert "waiting for" not in piped.stdout + piped.stderr
    assert not empty.processes()


@pytest.mark.parametrize(
    ("names", "room", "words"),
    [
        ((), 80, "stopping the servers"),
        (("a",), 80, "waiting for: a"),
        (("a", "b", "c"), 80, "waiting for: a, b, c"),
        (("alpha", "beta", "gamma-delta"), 35, "waiting for: alpha, beta and 1 more"),
        (("a" * 40, "b" * 40), 30, "waiting for 2 servers"),
    ],
)
def test_what_is_waited_for_fits_on_a_line(names: tuple[str, ...], room: int, words: str) -> None:
    assert format_waiting(names, room) == words


async def test_S39_login_opens_a_browser_and_logout_forgets(empty: Home, guarded: Guarded) -> None:
    guarding(empty, guarded)
    before = empty.run("mcp", "test", "g")
    assert before.returncode == 1
    assert "log in with `holdfast mcp login g`" in before.stderr
    done = empty.run("mcp", "login", "g")
    assert done.returncode == 0, done.stderr
    assert "Logged in to g, for" in done.stdout
    assert "2 tools (2 once).\ntool    effect  asks\nact     once    yes\nwhoami  once    yes\n" in done.stdout
    assert re.search(r"a token until [0-9-]{10} [0-9:]{8} [+-]\d\d:\d\d, renewed automatically, for read", done.stdout)
    assert (empty.folder / "page").read_text().startswith("200")
    assert f"{guarded.issuer}/authorize?" in done.stderr
    assert empty.run("mcp", "test", "g").returncode == 0
    [one] = empty.json("mcp", "list")["servers"]
    assert (one["state"], one["login"]["renewable"]) == ("connected", True)
    gone = {"server": "g", "logged_out": True, "revocation": "its tokens were revoked"}
    assert empty.json("mcp", "logout", "g") == gone
    assert empty.run("mcp", "test", "g").returncode == 1
    assert empty.run("mcp", "logout", "g").stdout == "There is no login at g.\n"
    told = done.stdout + done.stderr + (empty.folder / "page").read_text()
    assert not [secret for secret in guarded.secrets if secret in told]


async def test_S39_logging_in_without_a_browser_takes_a_pasted_address(empty: Home, guarded: Guarded) -> None:
    guarding(empty, guarded)
    command = [*COMMAND, "mcp", "login", "g", "--no-browser"]
    child = pexpect.spawn(
        command[0], command[1:], env=empty.env, cwd=str(empty.folder), timeout=SECONDS, dimensions=(50, 4_000),
        encoding="utf-8",
    )  # fmt: skip
    try:
        child.expect(r"(http://localhost:\d+/authorize\S+)")
        address = child.match[1]
        child.expect("paste here")
        child.sendline("http://127.0.0.1/callback?code=a&state=b")
        child.expect("not the final address")
        async with httpx2.AsyncClient() as client:
            away = (await client.get(address)).headers["location"]
        child.sendline(away)
        child.expect("Logged in to g, for")
        child.expect(pexpect.EOF)
    finally:
        child.close()
    assert child.exitstatus == 0


async def test_a_login_can_be_interrupted(empty: Home, guarded: Guarded) -> None:
    guarding(empty, guarded)
    child = pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], "mcp", "login", "g", "--no-browser"],
        env=empty.env, cwd=str(empty.folder), timeout=SECONDS, encoding="utf-8",
    )  # fmt: skip
    try:
        child.expect("paste here")
        child.sendintr()
        child.expect("interrupted")
        child.expect(pexpect.EOF)
    finally:
        child.close()
    assert child.exitstatus == 130
    assert not list((empty.data / "mcp" / "tokens").glob("*.json"))


async def test_S39_a_login_that_fails_says_why(empty: Home, guarded: Guarded) -> None:
    guarding(empty, guarded)
    guarded.does(denies=True)
    done = empty.run("mcp", "login", "g")
    assert done.returncode == 1
    assert "holdfast: not logged in to 'g': access_denied: Not today" in done.stderr
    guarded.does()
    late = empty.run("mcp", "login", "g", "--no-browser", "--timeout", "1s")
    assert late.returncode == 1
    assert "no answer came from the browser within 1 seconds" in late.stderr


LOGINS: dict[str, tuple[str, str]] = {
    "s": ("", "is started by a command: there is nothing to log in to"),
    "h": ('[mcp.servers.h]\nurl = "http://127.0.0.1:9/"\nheaders = { authorization = "x" }\n', "Authorization header"),
    "nobody": ("", "no MCP server is called 'nobody'"),
    "v": ('[mcp.servers.v]\nurl = "${NOT_SET}"\n', "'NOT_SET'"),
}


@pytest.mark.parametrize("name", LOGINS)
def test_where_there_is_nothing_to_log_in_to_it_is_said(empty: Home, name: str) -> None:
    more, words = LOGINS[name]
    configure(empty, ours(empty) + more)
    done = empty.run("mcp", "login", name)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_cannot_be_reached_cannot_be_logged_in_to(empty: Home) -> None:
    configure(empty, '[mcp.servers.down]\nurl = "http://127.0.0.1:9/mcp"\n')
    done = empty.run("mcp", "login", "down")
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr


async def test_S39_credentials_of_the_settings_are_tried(empty: Home, guarded: Guarded) -> None:
    more = f"""[mcp.servers.g.oauth]
grant = "client_credentials"
client_id = "configured"
client_secret = "${{THEIR_SECRET}}"
issuer = "{guarded.issuer}"
"""
    guarding(empty, guarded, more)
    wrong = empty.run("mcp", "login", "g", THEIR_SECRET="canary-wrong-secret")
    assert wrong.returncode == 1
    assert "invalid_client" in wrong.stderr
    assert "canary" not in wrong.stderr
    right = empty.run("mcp", "login", "g", THEIR_SECRET=SECRET)
    assert right.returncode == 0, right.stderr
    assert empty.run("mcp", "test", "g", THEIR_SECRET=SECRET).returncode == 0


@pytest.mark.parametrize("name", ["..", "a/b", "../../etc/passwd", "", "x" * 300])
def test_no_name_leads_out_of_the_folder(empty: Home, name: str) -> None:
    configure(empty, ours(empty))
    done = empty.run("mcp", "logout", "--", name)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_login_at_a_server_that_is_no_more_is_forgotten_all_the_same(empty: Home) -> None:
    configure(empty, "")
    folder = empty.data / "mcp" / "tokens"
    folder.mkdir(parents=True)
    (folder / "old.json").write_text("garbage")
    assert "Logged out of old" in empty.run("mcp", "logout", "old").stdout
    assert not (folder / "old.json").exists()


def test_shells_complete_the_names_of_servers(empty: Home) -> None:
    configure(empty, ours(empty, "search") + '[mcp.servers.tracker]\nurl = "http://127.0.0.1:9/"\n')
    for typed, expected in (("test ", {"search", "tracker"}), ("login t", {"tracker"}), ("logout ", set())):
        assert completed(empty, f"holdfast mcp {typed}") & {"search", "tracker"} == expected


def completed(home: Home, words: str) -> set[str]:
    """What a shell would offer to somebody who typed this."""
    program = "import sys; sys.argv[0] = 'holdfast'; from holdfast.workers.cli import main; main()"
    env = {
        **home.env, "_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }  # fmt: skip
    child = pexpect.spawn(sys.executable, ["-c", program], env=env, cwd=str(home.folder), timeout=SECONDS)
    return set(child.read().decode().split())


def test_shells_complete_the_names_of_tools_and_start_nothing_for_it(empty: Home) -> None:
    discovery = "[[discovery]]\nname = 'd'\ndiscovery_command = ['touch', 'ran']\ncall_command = ['false']\n"
    modules = "[tools]\nmodules = ['nobody.has:this']\ndisable = ['read_file']\n"
    configure(empty, ours(empty, "reader") + 'exclude = ["hidden"]\n' + discovery + modules)
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("act", "hidden")]
    (empty.folder / "reader" / "tools.json").write_text(json.dumps(tools))
    assert completed(empty, "holdfast tools show re") == {"read_output"}
    assert empty.run("mcp", "test", "reader").returncode == 0
    (empty.folder / "ran").unlink(missing_ok=True)
    effects = empty.folder / "reader" / "effects"
    assert completed(empty, "holdfast tools show re") == {"read_output", "reader__act"}
    assert completed(empty, "holdfast tools call l") == {"list_directory"}
    assert not (empty.folder / "ran").exists()
    assert not effects.exists()
    configure(empty, "nonsense")
    assert completed(empty, "holdfast tools show re") == set()


def test_help_has_examples_and_exit_codes(empty: Home) -> None:
    for command in ("list", "test", "login", "logout"):
        shown = empty.run("mcp", command, "--help").stdout
        assert f"holdfast mcp {command}" in shown
        assert "Exit codes:" in shown
    assert "exit code is 0 even if" in " ".join(empty.run("mcp", "list", "--help").stdout.split())


# The docs

DOCS = read_blocks("mcp")


async def test_the_commands_of_the_docs_do_what_they_say(empty: Home, guarded: Guarded) -> None:
    guarding(empty, guarded)
    configure(empty, f'[mcp.servers.tracker]\nurl = "{guarded.url}"\n')
    guarded.does(open=True)
    assert "tracker" in shell(empty, DOCS["look"])
    assert "No tool has changed." in shell(empty, DOCS["changes"])
    guarded.does()
    said = shell(empty, DOCS["login"])
    assert "Logged in to tracker, for" in said
    assert "Logged out of tracker; its tokens were revoked." in said


@pytest.mark.parametrize(("block", "grant"), [("oauth", "authorization_code"), ("credentials", "client_credentials")])
def test_the_settings_of_the_docs_are_read(block: str, grant: str) -> None:
    content = FileContent(Path("/project/holdfast.toml"), DOCS[block].encode())
    oauth = parse_configuration(content).get_value().mcp.servers["tracker"].oauth
    assert oauth
    assert oauth.grant == grant


def shell(home: Home, script: str) -> str:
    """What a user sees who types this."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{home.env['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script],
        env={**home.env, "PATH": path},
        cwd=home.workspace,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_S29_rules_on_servers_tools_are_explained_as_a_worker_would_take_them(empty: Home) -> None:
    """By either name, with the server and the effect that the settings and the server's last words give."""
    configure(empty, ours(empty) + 'effects = { act = "read" }\n' + ours(empty, "t"))
    (empty.folder / "p.toml").write_text('[[rule]]\ndecision = "deny"\nserver = "t"\ntool = "a*"\n')
    explain = ("policy", "explain", "--policy", "p.toml", "--tool")
    done = empty.run(*explain, "t__act")
    assert done.stdout.startswith("deny: by rule ")
    assert "'act' of the MCP server 't', which was never connected here: its effect is once." in done.stderr
    assert empty.run("mcp", "test", "t").returncode == 0
    assert "as of its last connection here" in empty.run(*explain, "t__act").stderr
    assert empty.run(*explain, "act", "--server", "t").stdout.startswith("deny: by rule ")
    assert empty.json(*explain, "s__act")["subject"]["effect"] == "read"
    unknown = empty.run(*explain, "act", "--server", "u")
    assert "No MCP server is called 'u' in the settings" in unknown.stderr


def changed_tool(home: Home) -> None:
    """The tool of our own server, as it was and as it is."""
    tool = {"name": "act", "description": "Acts.", "inputSchema": {"type": "object"}}
    (home.folder / "s" / "tools.json").write_text(json.dumps([tool]))
    assert home.run("mcp", "test", "s").returncode == 0
    (home.folder / "s" / "tools.json").write_text(json.dumps([{**tool, "description": "Acts.\x1b[31m And more."}]))


def test_S39_a_changed_tool_is_shown_and_accepted_without_a_call(empty: Home) -> None:
    configure(empty, ours(empty))
    changed_tool(empty)
    shown = empty.run("mcp", "changes")
    assert shown.returncode == 1
    assert "s__act: The server has changed this tool since it was first seen" in shown.stdout
    assert "+description: Acts." in shown.stdout
    assert "\x1b" not in shown.stdout
    [one] = json.loads(empty.run("mcp", "changes", "s", "--json").stdout)["changed"]
    assert (one["server"], one["tool"], one["name"]) == ("s", "act", "s__act")
    refused = empty.run("mcp", "accept", "s")
    assert (refused.returncode, "there is no terminal to ask on" in refused.stderr) == (2, True)
    other = empty.run("mcp", "accept", "s", "akt", "--yes")
    assert (other.returncode, 'Did you mean "act"' in other.stderr) == (2, True)
    assert empty.run("mcp", "changes").returncode == 1
    done = empty.run("mcp", "accept", "s", "act", "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "Accepted: s__act.")
    after = empty.run("mcp", "changes")
    assert (after.returncode, after.stdout) == (0, "No tool has changed.\n")


def test_a_changed_tool_of_a_server_that_is_away_is_not_accepted(empty: Home) -> None:
    configure(empty, '[mcp.servers.down]\nurl = "http://127.0.0.1:9/mcp"\n')
    for command in (("changes",), ("accept", "down", "--yes")):
        done = empty.run("mcp", *command)
        assert done.returncode == 3
        assert "down could not be reached: it cannot be reached" in done.stderr


def test_S39_what_a_file_of_servers_would_run_is_shown_before_the_settings_are_trusted(empty: Home) -> None:
    servers = {"git": {"command": "uvx", "args": ["mcp-server-git"]}, "far": {"url": "https://example.com/key-123"}}
    (empty.folder / "mcp.json").write_text(json.dumps({"mcpServers": {**servers, "bad": {"comand": "x"}}}))
    (empty.folder / "holdfast.toml").write_text('mcp.files = ["mcp.json"]\n')
    shown = empty.run("config", "check", "holdfast.toml").stdout
    assert "git: uvx" in shown
    assert "far: example.com" in shown
    assert "key-123" not in shown
    assert 'bad, invalid: it has neither a `command` nor a `url`. Did you mean "command"?' in shown


def test_a_file_of_servers_that_is_not_named_is_pointed_out(empty: Home) -> None:
    (empty.workspace / ".mcp.json").write_text('{"mcpServers": {"off": {"command": "x", "disabled": true}}}')
    done = empty.run("mcp", "list")
    assert 'which is not read unless the settings name it: mcp.files = [".mcp.json"]' in done.stdout
    configure(empty, f'mcp.files = ["{empty.workspace}/.mcp.json"]\n')
    switched_off = empty.run("mcp", "test", "off")
    assert (switched_off.returncode, "'off' is switched off in" in switched_off.stderr) == (2, True)


def test_S39_settings_about_no_tool_are_told(empty: Home) -> None:
    configure(empty, ours(empty) + 'exclude = ["akt"]\n')
    done = empty.run("mcp", "test", "s")
    assert done.returncode == 0
    assert "`exclude` has 'akt', which matches none of its tools. Did you mean \"act\"?" in done.stderr
