"""The settings file on the real command line: which one counts, who trusts it, what is said about it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import pexpect  # type: ignore[import-untyped]
import pytest

from tests.cli.support import COMMAND, SECONDS, Home, call

DISCOVERY = '[[discovery]]\nname = "project"\ndiscovery_command = "./tools.py list"\ncall_command = "./tools.py call"\n'


@pytest.fixture
def place(empty: Home) -> Home:
    """A current folder, with folders of the user's own and no variable that says where things are."""
    empty.env["XDG_STATE_HOME"] = str(empty.folder / "state")
    for name in ("HOLDFAST_DATA", "HOLDFAST_WORKSPACE"):
        empty.env.pop(name)
    empty.env["XDG_DATA_HOME"] = str(empty.folder / "share")
    return empty


def write(place: Home, text: str, name: str = "holdfast.toml") -> Path:
    file = place.folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o644)
    return file


def shown(place: Home, *options: str, **env: str) -> dict[str, tuple[object, str]]:
    done = place.run(*options, "config", "show", "--json", **env)
    assert done.returncode == 0, done.stderr
    return {name: (item["value"], item["from"]) for name, item in json.loads(done.stdout)["settings"].items()}


# Which file, and what wins


def test_options_win_over_the_environment_the_environment_over_the_file_and_the_file_over_defaults(place: Home) -> None:
    file = write(
        place, 'workspace = "w"\ndata = "d"\ntask_queue = "filed"\n[limits]\nconcurrent_calls = 3\n', "any.toml"
    )
    found = shown(place, "--config", str(file), HOLDFAST_TASK_QUEUE="said")
    assert found["workspace"] == (str(place.folder / "w"), "file")
    assert found["task_queue"] == ("said", "environment")
    assert found["limits.concurrent_calls"] == (3, "file")
    assert found["limits.output_characters"] == (40_000, "default")
    done = place.run("--config", "any.toml", "config", "show", "--data", "given", HOLDFAST_DATA="/said")
    assert f"option        {place.folder}/given\n" in done.stdout
    assert f"file, line 1  {place.folder}/w\n" in done.stdout
    assert shown(place)["data"] == (str(place.folder / "share" / "holdfast"), "default")


def test_a_named_file_comes_before_one_that_is_found_and_that_before_the_users_own(place: Home) -> None:
    own = write(place, 'task_queue = "own"', "config/holdfast/holdfast.toml")
    assert place.run("config", "path").stdout == f"{own}\n"
    assert shown(place)["task_queue"] == ("own", "file")
    here = write(place, 'task_queue = "here"')
    place.run("config", "trust", "--yes")
    assert place.json("config", "path") == {"file": str(here), "origin": "folder", "trusted": True}
    assert shown(place)["task_queue"] == ("here", "file")
    named = write(place, 'task_queue = "named"', "sub/named.toml")
    assert shown(place, HOLDFAST_CONFIG="sub/named.toml")["task_queue"] == ("named", "file")
    assert shown(place, "--config", str(named), HOLDFAST_CONFIG="missing")["task_queue"] == ("named", "file")
    assert shown(place, "--no-config", HOLDFAST_CONFIG="missing")["task_queue"] == ("holdfast", "default")


def test_without_a_file_the_defaults_are_used_and_that_is_said(place: Home) -> None:
    done = place.run("config", "check")
    assert (done.returncode, done.stdout) == (0, "No settings file: the environment and the defaults are used.\n")
    assert place.json("config", "check") == {"file": None, "ok": True, "problems": [], "warnings": []}
    done = place.run("config", "path")
    assert (done.returncode, done.stdout) == (0, "")


# Trust


def test_a_file_that_is_merely_found_stops_what_would_run_it_until_it_is_trusted(place: Home) -> None:
    file = write(place, DISCOVERY)
    for arguments in (["tools"], ["up"], ["worker"]):
        done = place.run(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr.startswith(f"holdfast: {file} was found here and is not trusted")
        assert all(way in done.stderr for way in ("holdfast config trust", "--config", "--no-config"))
    for arguments in (["version"], ["--help"], ["demo", "--help"], ["config", "show"], ["config", "check"]):
        assert place.run(*arguments).returncode == 0
    for arguments in (["inbox"], ["turn", "list"], ["approve", "a/b1c1/1"]):
        done = place.run(*arguments)
        assert done.returncode == 3, "they only talk to a server, and there is none"
        assert done.stderr.startswith(f"Ignored the settings file: {file} was found here and is not trusted")
    assert place.run("--no-config", "inbox").returncode == 3
    assert place.run("--config", "holdfast.toml", "inbox").returncode == 3

    done = place.run("config", "trust", "--yes")
    assert done.returncode == 0, done.stderr
    assert str(file) in done.stdout
    assert "  runs at start   ./tools.py list" in done.stdout
    assert place.run("tools").returncode == 0
    [record] = (place.folder / "state" / "holdfast" / "trusted").iterdir()
    assert [path.stat().st_mode & 0o077 for path in (record, record.parent)] == [0, 0]

    file.write_text(DISCOVERY.replace("list", "lost"))
    done = place.run("tools")
    assert (done.returncode, "has changed since it was trusted" in done.stderr) == (2, True)
    file.write_text(DISCOVERY)
    assert place.run("tools").returncode == 0, "the very content that was trusted"
    assert "no longer trusted" in place.run("config", "distrust").stdout
    assert place.run("tools").returncode == 2
    assert "was not trusted" in place.run("config", "distrust").stdout


def test_a_record_that_somebody_else_could_have_written_is_none(place: Home) -> None:
    write(place, "")
    place.run("config", "trust", "--yes")
    [record] = (place.folder / "state" / "holdfast" / "trusted").iterdir()
    record.chmod(0o666)
    assert place.run("tools").returncode == 2
    record.chmod(0o600)
    record.write_text('["nonsense"')
    assert place.run("tools").returncode == 2


def test_a_linked_file_is_trusted_where_the_link_is_and_as_long_as_its_target_stays_the_same(place: Home) -> None:
    target = write(place, 'workspace = "w"', "elsewhere/target.toml")
    link = place.folder / "holdfast.toml"
    link.symlink_to(target)
    assert place.run("tools").returncode == 2
    assert place.json("config", "trust", "--yes") == {"file": str(link), "trusted": True}
    assert shown(place)["workspace"] == (str(place.folder / "w"), "file")
    link.unlink()
    link.symlink_to(write(place, 'workspace = "/"', "elsewhere/other.toml"))
    assert "has changed since it was trusted" in place.run("tools").stderr
    link.unlink()
    link.symlink_to("nowhere")
    done = place.run("tools")
    assert (done.returncode, done.stderr) == (2, f"holdfast: {link}: there is no such file\n")


def test_trust_is_asked_for_on_a_terminal_and_not_given_without_an_answer(place: Home) -> None:
    write(place, DISCOVERY)
    done = place.run("config", "trust", stdin="y\n")
    assert (done.returncode, "give --yes" in done.stderr) == (2, True)
    for answer, code in (("n", 1), ("y", 0)):
        child = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], "config", "trust"],
            env=place.env,
            cwd=str(place.folder),
            encoding="utf-8",
            timeout=SECONDS,
        )
        child.expect("tools.py list")
        child.expect("Trust it?")
        child.sendline(answer)
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == code
        assert place.run("tools").returncode == (0 if answer == "y" else 2)


def test_a_file_with_mistakes_cannot_be_trusted(place: Home) -> None:
    write(place, "oops = 1")
    done = place.run("config", "trust", "--yes")
    assert (done.returncode, "`oops` is not a setting" in done.stderr) == (2, True)
    assert not (place.folder / "state").exists()


def test_a_file_that_others_may_write_is_refused_however_it_is_named(place: Home) -> None:
    file = write(place, "", "any.toml")
    file.chmod(0o666)
    done = place.run("--config", "any.toml", "inbox")
    assert (done.returncode, f"chmod go-w {file}" in done.stderr) == (2, True)


# What is said about it


def test_a_good_file_is_outlined(place: Home) -> None:
    file = write(place, 'workspace = "w"\n[tools]\nmodules = ["a.b:c"]\n[mcp.servers.x]\ncommand = "npx"\n' + DISCOVERY)
    done = place.run("config", "check")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"{file}: ok")
    for words in ("  imports         a.b:c", "./tools.py call TOOL", "  MCP server      x: npx"):
        assert words in done.stdout
    assert "is not trusted" in done.stderr
    assert place.json("config", "check", str(file)) == {"file": str(file), "ok": True, "problems": [], "warnings": []}


def test_S29_a_hook_whose_tools_are_probably_misspelt_is_warned_of_with_its_line(place: Home) -> None:
    hook = '[[hooks]]\nname = "{}"\nwhen = "before"\ncommand = "true"\n'
    file = write(place, f'{hook.format("a")}{hook.format("b")}tools = ["shel"]\n')
    words = "no built-in tool is called 'shel': do you mean 'shell'? It is right for a tool of your own"
    done = place.run("config", "check", str(file))
    assert (done.returncode, f"{file}, line 9: {words}" in done.stderr) == (0, True)
    found = place.json("config", "check", str(file))
    assert (found["ok"], found["warnings"]) == (True, [{"line": 9, "path": "hooks.2.tools", "message": words}])


def test_values_of_variables_are_not_shown(place: Home) -> None:
    file = write(
        place, '[tools.shell]\nenvironment = { TOKEN = "secret" }\n[mcp.servers.x]\ncommand = "a"\nenv.K = "secret"'
    )
    for more in ([], ["--json"]):
        done = place.run("--config", str(file), "config", "show", *more)
        assert "TOKEN" in done.stdout
        assert "secret" not in done.stdout


def test_every_mistake_is_told_with_its_line_and_exit_code_2(place: Home) -> None:
    file = write(place, 'tols = 1\n\n[limits]\nconcurrent_calls = "x"\n')
    told = [
        f"holdfast: {file}, line 1: `tols` is not a setting; did you mean `tools`?",
        f"{file}, line 4: `limits.concurrent_calls` must be a whole number, not text",
    ]
    for arguments in (["config", "check"], ["--config", str(file), "inbox"], ["--config", str(file), "up"]):
        done = place.run(*arguments)
        assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", told)
    done = place.run("config", "check", "--json")
    problems = json.loads(done.stdout)["problems"]
    assert (done.returncode, [(item["line"], item["path"]) for item in problems]) == (
        2,
        [(1, "tols"), (4, "limits.concurrent_calls")],
    )


def test_of_a_thousand_mistakes_twenty_are_told(place: Home) -> None:
    file = write(place, "".join(f"wrong{number} = 1\n" for number in range(1_000)))
    done = place.run("--config", str(file), "inbox")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 21)
    assert done.stderr.endswith(f"{file}: and 980 more; --json lists all\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "missing.toml", "inbox"], "missing.toml: there is no such file"),
        (["--config", "workspace", "inbox"], "workspace: is a folder, not a file"),
        (["--config", "/dev/null", "inbox"], "/dev/null: is not a regular file"),
        (["--config", "", "inbox"], "the settings file's name is empty"),
        (["config", "check", ""], "the settings file's name is empty"),
        (["--config", "a", "--no-config", "inbox"], "not both"),
        (["config", "trust", "--yes"], "holdfast.toml: there is no such file"),
        (["config", "check", "~nobody-at-all/x"], "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(arguments: list[str], words: str, place: Home) -> None:
    done = place.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_workspace_that_is_not_there_is_told_only_where_it_is_needed(place: Home) -> None:
    file = write(place, '\nworkspace = "gone"')
    assert place.run("--config", str(file), "inbox").returncode == 3
    done = place.run("--config", str(file), "up")
    assert done.stderr == f"holdfast: {file}, line 2: the workspace '{place.folder}/gone' is not a folder\n"
    done = place.run("--config", str(file), "up", "--workspace", "given")
    assert done.stderr == f"holdfast: the workspace '{place.folder}/given' is not a folder\n"


def test_escape_codes_in_the_file_reach_no_terminal(place: Home) -> None:
    evil = "\\u001b]0;owned\\u0007\\u001b[31m\\u202e\\n"
    good = f'task_queue = "{evil}"\n[tools]\ndisable = ["fetch"]\n' + DISCOVERY.replace("list", evil)
    for text in (good, f'"{evil}" = 1\n[tools]\nmodules = ["{evil}"]\n[limits."{evil}"]\n', '\x1b[31m = "'):
        write(place, text)
        for arguments in (["check"], ["show"], ["trust", "--yes"], ["check", "--json"], ["show", "--json"]):
            done = place.run("config", *arguments)
            assert not {"\x1b", "\x07", "\u202e"} & {*done.stdout, *done.stderr}
            assert "Traceback" not in done.stderr
    write(place, good)
    assert "␛]0;owned" in place.run("config", "check").stdout, "written out, not left out"


# Processes


def test_the_worker_of_up_reads_what_up_read_and_nothing_else(empty: Home) -> None:
    empty.env["XDG_STATE_HOME"] = str(empty.folder / "state")
    file = write(empty, 'task_queue = "filed"\n')
    empty.run("config", "trust", "--yes")
    with empty.up() as up:
        assert (up.where["task_queue"], up.where["config"]) == ("filed", str(file))
        command = Path(f"/proc/{up.where['worker']}/cmdline").read_text().split("\0")
        assert command[command.index("--config") + 1] == str(file)
        assert hashlib.sha256(file.read_bytes()).hexdigest() in command
        empty.start("filed", call("list_directory"))
        empty.seen("filed", kind="turn", after="completed")
        file.write_text(DISCOVERY)
        os.kill(up.where["worker"], signal.SIGKILL)
        up.wait_for(f"{file}, or a file that it names, has changed since `holdfast up` read it")
    assert empty.all_gone()


def test_every_command_of_config_has_an_example(place: Home) -> None:
    for command in ("check", "show", "path", "trust", "distrust"):
        done = place.run("config", command, "--help")
        assert f"  holdfast config {command}" in done.stdout
        assert "Exit codes:" in done.stdout
