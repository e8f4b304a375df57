"""`holdfast policy …` on the real command line: what is checked, explained, tested and shown, and the exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.support import Home

GIT = '[[rule]]\nname = "git"\ndecision = "allow"\ncommand = "git status"\n'
EVIL = "\\u001b]0;owned\\u0007\\u202e"


def write(home: Home, name: str, text: str) -> Path:
    file = home.folder / name
    file.write_text(text)
    file.chmod(0o644)
    return file


def explain(command: str) -> tuple[str, ...]:
    return ("policy", "explain", "--tool", "shell", "--args", json.dumps({"command": command}))


def test_a_good_file_is_said_to_be_so(empty: Home) -> None:
    file = write(empty, "p.toml", GIT + '[[rule]]\ndecision = "deny"\ntool = "x"\nexpires = 2020-01-01\n')
    done = empty.run("policy", "check", "p.toml")
    assert (done.returncode, done.stdout) == (0, f"{file}: ok (2 rules, user)\n")
    assert done.stderr == f"{file}, line 5: the rule has expired and has no effect any more\n"
    found = empty.json("policy", "check", "p.toml")
    assert (found["ok"], found["files"][0]["rules"], len(found["files"][0]["warnings"])) == (True, 2, 1)
    assert "defaults.toml: ok" in empty.run("policy", "check").stdout


def test_S29_every_mistake_of_every_file_is_told_and_the_exit_code_is_2(empty: Home) -> None:
    one = write(empty, "a.toml", '[[rule]]\ndecision = "deny"\ntol = "x"\n')
    other = write(empty, "b.toml", GIT + 'match = [{ command = "git push" }]\n' + GIT)
    done = empty.run("policy", "check", "a.toml", "b.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"holdfast: {one}, line 3: `rule.1.tol` is not a setting; did you mean `tool`?",
        f"{other}, line 5: the rule does not match this example: not every program of the call is `git status`",
        f"{other}, line 7: `name` is taken: another rule is called 'git'",
    ]
    done = empty.run("policy", "check", "a.toml", "b.toml", "--json")
    files = json.loads(done.stdout)["files"]
    assert (done.returncode, [len(file["problems"]) for file in files]) == (2, [1, 2])


def test_a_workspaces_file_is_checked_as_such(empty: Home) -> None:
    write(empty, "p.toml", GIT)
    done = empty.run("policy", "check", "p.toml", "--tier", "workspace")
    assert (done.returncode, "may only tighten" in done.stderr) == (2, True)
    assert empty.run("policy", "check", "p.toml", "--tier", "admin").returncode == 0


@pytest.mark.needs("git")
def test_what_decides_is_explained(empty: Home) -> None:
    file = write(empty, "p.toml", "\n" + GIT)
    done = empty.run(*explain("git status"), "--policy", "p.toml")
    assert done.stdout == f"allow: by rule 'git' (user tier, {file}:2)\n"
    done = empty.run(*explain("git status; git push"), "--policy", "p.toml")
    assert done.stdout.splitlines()[0].startswith("ask: by rule 'changes-ask' (default tier, ")
    assert "  a person is asked about: shell git status; git push" in done.stdout
    assert re.search(r"allow +user +git +not every program of the call is `git status`\n", done.stdout)
    done = empty.run(*explain("git push"), "--mode", "plan")
    assert done.stdout.splitlines()[:3] == [
        done.stdout.splitlines()[0],
        "  reason: In plan mode only tools that merely read proceed.",
        "  the model reads: Plan mode: only tools that merely read may run. Read what you need, then say what you "
        "would change.",
    ]
    assert empty.run("policy", "explain", "--tool", "weather").stdout.startswith("No rule matches")


def test_an_explanation_in_json_holds_the_ruling_and_the_rules_passed_over(empty: Home) -> None:
    found = empty.json(*explain("rm -rf build"), "--mode", "yolo")
    assert (found["ruling"]["decision"], found["ruling"]["rule"]) == ("ask", "destructive-commands-ask")
    assert [one["rule"] for one in found["passed"]] == ["questions-ask", "plan-only-reads", "what-runs-later-asks"]
    assert found["subject"]["command"] == "rm -rf build"


def test_S27_yolo_asks_about_what_destroys_unless_the_settings_lift_that(empty: Home) -> None:
    file = str(write(empty, "lifted.toml", 'modes = ["yolo"]\nyolo_asks = false\n'))
    usual = str(write(empty, "usual.toml", 'modes = ["yolo"]\n'))
    for command in ("rm -rf build", "$TOOL", "ls"):
        asked = empty.json("--config", usual, *explain(command), "--mode", "yolo")
        lifted = empty.json("--config", file, *explain(command), "--mode", "yolo")
        assert asked["ruling"]["decision"] == ("allow" if command == "ls" else "ask")
        assert (lifted["ruling"]["decision"], lifted["ruling"]["rule"]) == ("allow", "yolo-commands-proceed")
    denied = write(empty, "deny.toml", '[[rule]]\ndecision = "deny"\ncommand = "rm"\n')
    for command, expected in (("rm -rf build", "deny"), ("$TOOL -rf build", "ask")):
        found = empty.json("--config", file, *explain(command), "--mode", "yolo", "--policy", str(denied))
        assert found["ruling"]["decision"] == expected


def test_S27_where_every_call_is_asked_about_that_is_explained(empty: Home) -> None:
    file = str(write(empty, "strict.toml", 'confirm = "always"\n'))
    done = empty.run("--config", file, "policy", "explain", "--tool", "read_file", "--args", '{"path": "a"}')
    assert done.stdout.startswith("ask: ")
    assert "Every call is asked about here" in done.stdout
    shown = empty.json("--config", file, "config", "show")["settings"]
    assert shown["confirm"] == {"value": "always", "from": "file"}
    assert shown["yolo_asks"] == {"value": True, "from": "default"}


@pytest.mark.needs("git")
def test_tiers_are_named_with_the_files(empty: Home) -> None:
    write(empty, "deny.toml", '[[rule]]\ndecision = "deny"\nanything = true\n')
    write(empty, "allow.toml", GIT)
    both = ("--policy", "admin=deny.toml", "--policy", "user=allow.toml")
    assert empty.run(*explain("git status"), *both).stdout.startswith("deny: by rule ")
    other = ("--policy", "workspace=deny.toml", "--policy", "allow.toml")
    assert empty.run(*explain("git status"), *other).stdout.startswith("allow: by rule 'git'")


@pytest.mark.parametrize("kind", ["toml", "json"])
def test_expectations_that_fail_are_told_with_their_line_and_exit_code_1(kind: str, empty: Home) -> None:
    write(empty, "p.toml", GIT)
    items = [("git status", "allow"), ("git push", "allow")]
    if kind == "toml":
        text = "".join(
            f'[[expect]]\ntool = "shell"\nargs.command = "{one}"\ndecision = "{two}"\n' for one, two in items
        )
    else:
        lines = [json.dumps({"tool": "shell", "args": {"command": one}, "decision": two}) for one, two in items]
        text = '{"expect": [' + ",\n".join(lines) + "]}"
    file = write(empty, f"e.{kind}", text)
    done = empty.run("policy", "test", file.name, "--policy", "p.toml")
    line = 5 if kind == "toml" else 2
    told = 'shell {"command": "git push"} in mode default: expected allow, got ask by \'changes-ask\' (default)'
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [f"{file}, line {line}: {told}", "1 of 2 expectations are met."]
    found = json.loads(empty.run("policy", "test", file.name, "--policy", "p.toml", "--json").stdout)
    assert (found["ok"], found["expectations"], found["failures"]) == (False, 2, [{"line": line, "message": told}])
    file.write_text(text.replace("push", "status"))
    assert empty.run("policy", "test", file.name, "--policy", "p.toml").returncode == 0


def test_the_rules_are_shown_in_the_order_in_which_they_decide(empty: Home) -> None:
    write(empty, "p.toml", GIT)
    shown = empty.json("policy", "show", "--policy", "p.toml")
    assert [one["name"] for one in shown["rules"]][:2] == ["git", "questions-ask"]
    assert len(shown["digest"]) == 64
    done = empty.run("policy", "show", "--mode", "plan")
    assert "plan-only-reads" in done.stdout
    assert "everything-proceeds" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "missing.toml"], "missing.toml: there is no such file"),
        (["check", ""], "the file's name is empty"),
        (["check", "--tier", "default"], "no tier is called 'default'"),
        (["explain", "--tool", "x", "--mode", "yollo"], 'Did you mean "yolo"?'),
        (["explain", "--tool", "x", "--args", "[]"], "must be an object of arguments"),
        (["explain", "--tool", "x", "--policy", "admin="], "the file's name is empty"),
        (["test", "missing.toml"], "there is no such file"),
        (["show", "--policy", "workspace"], "is a folder, not a file"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(arguments: list[str], words: str, empty: Home) -> None:
    done = empty.run("policy", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_others_may_write_is_refused(empty: Home) -> None:
    write(empty, "p.toml", GIT).chmod(0o666)
    for arguments in (["check", "p.toml"], ["show", "--policy", "p.toml"]):
        done = empty.run("policy", *arguments)
        assert (done.returncode, "chmod go-w" in done.stderr) == (2, True)


def test_escape_codes_reach_no_terminal(empty: Home) -> None:
    good = f'[[rule]]\ndecision = "deny"\ntool = ["shell", "{EVIL}"]\nreason = "{EVIL}"\nmessage = "{EVIL}"\n'
    for name, text in (("good.toml", good), ("bad.toml", good.replace("tool", f'"{EVIL}"') + f'name = "{EVIL}"\n')):
        write(empty, name, text)
        for arguments in (["check", name], ["show", "--policy", name], [*explain("\x1b[31m")[1:], "--policy", name]):
            for more in ([], ["--json"]):
                done = empty.run("policy", *arguments, *more)
                assert not {"\x1b", "\x07", "\u202e"} & {*done.stdout, *done.stderr}
                assert "Traceback" not in done.stderr


def test_every_command_of_policy_has_an_example(empty: Home) -> None:
    for command in ("check", "explain", "test", "show", "diff"):
        done = empty.run("policy", command, "--help")
        assert f"  holdfast policy {command}" in done.stdout
        assert "Exit codes:" in done.stdout


# Another policy for what was done

HISTORIES = Path(__file__).parents[2] / "replay" / "histories"
STRICT = '[[rule]]\nname = "silence"\ndecision = "deny"\ntool = "echo"\n'


def test_recorded_calls_that_another_policy_decides_differently_are_told(empty: Home) -> None:
    write(empty, "p.toml", STRICT)
    history = str(HISTORIES / "model_turn.json")
    done = empty.run("policy", "diff", "--with", "p.toml", "--history", history)
    assert (done.returncode, done.stderr) == (1, "")
    turn = json.loads(Path(history).read_text())["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    assert done.stdout.splitlines() == [
        f"{turn} b1c1  echo {{'say': 1}}",
        "  the tool's own wish -> deny by 'silence' (user)",
        f"{turn} b2c1  echo {{'say': 3}}",
        "  the tool's own wish -> deny by 'silence' (user)",
        "2 of 3 calls in 1 turn would be decided differently.",
    ]
    done = empty.run("policy", "diff", "--with", "p.toml", "--history", history, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["same"], found["calls"], found["unreadable"]) == (1, False, 3, 0)
    assert [one["call"] for one in found["differences"]] == ["b1c1", "b2c1"]
    assert (found["differences"][0]["before"], found["differences"][0]["after"]["rule"]) == (None, "silence")


def test_a_file_may_take_the_place_of_those_of_its_tier_and_the_same_is_0(empty: Home) -> None:
    write(empty, "old.toml", STRICT)
    write(empty, "new.toml", STRICT.replace("silence", "hush"))
    write(empty, "none.toml", "")
    history = ("--history", str(HISTORIES / "ten_calls.json"), "--policy", "old.toml")
    assert empty.run("policy", "diff", "--with", "new.toml", "--replace", *history).returncode == 0
    assert empty.run("policy", "diff", "--with", "none.toml", *history).returncode == 0
    done = empty.run("policy", "diff", "--with", "none.toml", "--replace", *history)
    assert done.returncode == 1
    assert "deny by 'silence' (user) -> the tool's own wish" in done.stdout
    assert done.stdout.endswith("10 of 10 calls in 1 turn would be decided differently.\n")


def test_payloads_that_are_not_here_are_said_so(empty: Home) -> None:
    write(empty, "p.toml", STRICT)
    large = ("--with", "p.toml", "--history", str(HISTORIES / "large_payloads.json"))
    done = empty.run("policy", "diff", *large)
    assert (done.returncode, "could not be read" in done.stderr) == (0, True)
    assert empty.run("policy", "diff", *large, "--data", str(HISTORIES)).stderr == ""


def test_turns_of_a_server_are_compared_too(home: Home) -> None:
    file = write(home, "no-echo.toml", '[[rule]]\nname = "no-echo"\ndecision = "deny"\ncommand = "echo"\n')
    for name in ("diffed-1", "diffed-2"):
        home.start(name, {"tool": "shell", "arguments": {"command": f"echo {name}"}})
        home.listed(name)
    done = home.run("policy", "diff", "--with", str(file), "--turn", "diffed-1")
    assert done.returncode == 1
    assert "ask by 'changes-ask' (default) -> deny by 'no-echo' (user)" in done.stdout
    assert done.stdout.endswith("1 of 1 call in 1 turn would be decided differently.\n")
    found = json.loads(home.run("policy", "diff", "--with", str(file), "--limit", "2", "--json").stdout)
    assert {one["turn"] for one in found["differences"]} == {"diffed-1", "diffed-2"}
    missing = home.run("policy", "diff", "--with", str(file), "--turn", "no-such-turn")
    assert (missing.returncode, "no turn is called 'no-such-turn'" in missing.stderr) == (1, True)
    for name in ("diffed-1", "diffed-2"):
        home.run("turn", "cancel", name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--turn", "a", "--limit", "5"], "not several of them"),
        (["--history", "missing.json"], "cannot be read"),
        (["--history", "p.toml"], "is not the history of a turn"),
        (["--history", "x", "--tier", "default"], "no tier is called 'default'"),
        (["--limit", "0"], "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(arguments: list[str], words: str, empty: Home) -> None:
    write(empty, "p.toml", STRICT)
    done = empty.run("policy", "diff", "--with", "p.toml", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_server_the_exit_code_is_3(empty: Home) -> None:
    write(empty, "p.toml", STRICT)
    done = empty.run("policy", "diff", "--with", "p.toml", "--address", "127.0.0.1:1")
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)


@pytest.mark.needs("git")
def test_an_explanation_tells_how_a_person_is_asked_and_what_may_be_answered(empty: Home) -> None:
    rule = '[[rule]]\ndecision = "ask"\ncommand = "git push"\nrole = "release"\nnot_requester = true\ndeadline = "7d"\n'
    write(empty, "p.toml", rule)
    done = empty.run(*explain("git push"), "--policy", "p.toml")
    assert done.stdout.splitlines()[1:4] == [
        "  a person is asked about: shell git push",
        "  asked: by the role 'release', not by whoever started the turn, within 7 d, else deny",
        "  grant offered: `git push`, exactly these words (proceed_always)",
    ]
    found = empty.json(*explain("git push"), "--policy", "p.toml")
    assert found["ruling"]["needs"] == {"role": "release", "approvals": 1, "not_requester": True}
    assert found["offers"][0]["scope"] == {"tool": "shell", "server": "", "command": ["git push $"]}
    assert empty.json(*explain("git push"), "--mode", "plan")["offers"] == []
    assert 'deadline = "7d"' in empty.run("policy", "show", "--policy", "p.toml").stdout


def test_an_explanation_knows_what_sends(empty: Home) -> None:
    write(empty, "p.toml", '[[rule]]\nname = "out"\ndecision = "deny"\ntainted = true\nsends = true\n')
    told = [
        empty.run(*explain(command), "--tainted", *more, "--policy", "p.toml").stdout.split(":")[0]
        for command, more in (("curl x", []), ("ls", []), ("ls", ["--sends"]))
    ]
    assert told == ["deny", "ask", "deny"]
