"""`holdfast tools`: what there is and where it comes from, what is not there and why, and one durable call."""

from __future__ import annotations

import json
import sys

from tests.cli.screens import ended, terminal
from tests.cli.support import SECONDS, Home

BROKEN = """
[tools]
modules = ["nobody.has:this"]
disable = ["fetch", "fetsh"]

[[discovery]]
name = "loud"
discovery_command = {command}
call_command = ["false"]
"""


def _with_settings(home: Home, printed: str) -> str:
    file = home.folder / "tools.toml"
    command = json.dumps([sys.executable, "-c", f"print({printed!r})"])
    file.write_text(BROKEN.format(command=command))
    return str(file)


def test_tools_are_listed_with_source_and_effect_and_what_is_missing_with_its_reason(empty: Home) -> None:
    file = _with_settings(empty, '[{"name": "shout", "effect": "read"}, {"name": "shell"}]')
    done = empty.run("--config", file, "tools")
    assert done.returncode == 0
    assert [line.split()[:2] for line in done.stdout.splitlines() if "shout" in line] == [["shout", "read"]]
    assert "discovery loud" in done.stdout
    assert "fetch " not in done.stdout
    assert "from module nobody.has:this: ModuleNotFoundError" in done.stderr
    assert "two tools are called 'shell', one from built in and one from discovery loud" in done.stderr
    assert "no tool is called 'fetsh'" in done.stderr


def test_the_catalogue_is_told_as_json_with_a_digest_and_its_problems(empty: Home) -> None:
    told = json.loads(empty.run("--config", _with_settings(empty, "no json"), "tools", "--json").stdout)
    assert len(told["digest"]) == 64
    assert {tool["source"] for tool in told["tools"]} == {"built in"}
    reasons = {problem["source"]: problem["reason"] for problem in told["problems"]}
    assert "no JSON" in reasons["discovery loud"]


def test_S36_a_call_of_one_tool_prints_what_a_model_would_read(home: Home) -> None:
    (home.workspace / "some.txt").write_text("one\ntwo\n")
    done = home.run("tools", "call", "read_file", "--args", '{"path": "some.txt", "start_line": 2}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "two\n", "")
    told = home.json("tools", "call", "read_file", "--args", "-", stdin='{"path": "some.txt"}')
    assert told["response"]["parts"] == [{"kind": "text", "text": "one\ntwo\n", "whole": None}]


def test_a_call_that_fails_says_why_and_its_exit_code_is_1(home: Home) -> None:
    done = home.run("tools", "call", "read_fil", "--args", '{"path": "x"}')
    assert (done.returncode, done.stdout) == (1, "")
    assert 'Did you mean "read_file"' in done.stderr
    done = home.run("tools", "call", "read_file", "--args", '{"pth": "x"}')
    assert 'pth: is not a parameter. Did you mean "path"?' in done.stderr


def test_arguments_that_are_no_object_are_wrong_usage(home: Home) -> None:
    for wrong in ("[1]", "7", "not json", ""):
        done = home.run("tools", "call", "read_file", "--args", wrong)
        assert done.returncode == 2, wrong
        assert "--args" in done.stderr


def test_a_call_that_needs_approval_is_asked_about_on_a_terminal(home: Home) -> None:
    with terminal(home, "tools", "call", "shell", "--args", '{"command": "echo $((6 * 7))"}') as child:
        child.expect("Approve call 1 of 1")
        child.expect(r"\[v\] view all")
        child.send("y")
        child.expect("(?m)^42$")
        assert ended(child) == 0


def test_S37_a_question_is_answered_on_a_terminal_by_number_or_in_words(home: Home) -> None:
    question = {"question": "Which one?\nThink.", "options": ["left", "right"]}
    with terminal(home, "tools", "call", "ask_user", "--args", json.dumps(question)) as child:
        child.expect("Call 1 of 1, ask_user, asks you:")
        child.expect("Think.")
        child.expect("2. right")
        child.expect("answer> ")
        child.send("2\n")
        child.expect("Answered.")
        child.expect("(?m)^right$")
        assert ended(child) == 0
    with terminal(home, "tools", "call", "ask_user", "--args", '{"question": "Name?"}') as child:
        child.expect("answer> ")
        child.send("Nancy, and no other\n")
        child.expect("Answered.")
        child.expect("(?m)^Nancy, and no other$")
        assert ended(child) == 0


def test_a_question_on_a_terminal_can_be_skipped_declined_and_decided_elsewhere(home: Home) -> None:
    home.start("shy", {"tool": "ask_user", "arguments": {"question": "Who?"}})
    home.seen("shy", call="b1c1", after="awaiting_approval")
    with terminal(home, "turn", "watch", "shy") as child:
        child.expect("answer> ")
        child.send("\n")
        child.expect("Skipped; later: holdfast respond shy/b1c1/1 --content ANSWER")
        child.expect("to be asked")
        child.send("a")
        child.expect("answer> ")
        assert home.run("respond", "shy/b1c1/1", "--content", "Me.", "--by", "another").returncode == 0
        child.expect("Decided elsewhere by another")
        assert ended(child) == 0
    with terminal(home, "tools", "call", "ask_user", "--args", '{"question": "Who?"}') as child:
        child.expect("answer> ")
        child.send("/no\n")
        child.expect("Refused.")
        assert ended(child) == 1


def test_an_option_is_chosen_by_its_number_from_another_terminal_too(home: Home) -> None:
    asked = {"question": "Which?", "options": ["red", "blue"], "allow_other": False}
    home.start("colour", {"tool": "ask_user", "arguments": asked})
    home.seen("colour", call="b1c1", after="awaiting_approval")
    refused = home.run("respond", "colour/b1c1/1", "--content", "3")
    assert (refused.returncode, "'red', 'blue'" in refused.stderr) == (1, True)
    assert home.run("respond", "colour/b1c1/1", "--content", "2").returncode == 0
    home.seen("colour", kind="turn")
    assert home.run("turn", "output", "colour", "b1c1").stdout == "blue\n"


def test_S41_a_question_in_the_inbox_says_how_to_answer_it(home: Home) -> None:
    call = {"tool": "ask_user", "arguments": {"question": "Why?"}}
    home.start("why", call)
    home.seen("why", call="b1c1", after="awaiting_approval", asks="question")
    home.listed("why")
    assert "holdfast respond why/b1c1/1 --content ANSWER" in home.run("inbox", "--turn", "why").stdout
    refused = home.run("approve", "why/b1c1/1")
    assert (refused.returncode, "this is a question" in refused.stderr) == (1, True)
    assert home.run("respond", "why/b1c1/1", "--content", "Because.").returncode == 0
    home.seen("why", kind="turn")
    assert home.run("turn", "output", "why", "b1c1").stdout == "Because.\n"


def test_S32_the_output_of_a_running_call_is_had_by_asking(home: Home) -> None:
    command = "seq 1 20000; touch said; sleep 60"
    home.start("speaking", {"tool": "shell", "arguments": {"command": command}})
    home.seen("speaking", call="b1c1", after="awaiting_approval")
    assert home.run("approve", "speaking/b1c1/1").returncode == 0
    home.seen("speaking", call="b1c1", after="executing")
    told = ""
    for _ in range(int(SECONDS)):
        told = home.run("turn", "output", "speaking", "b1c1").stdout
        if told.endswith("\n20000\n"):
            break
    assert len(told) > 50_000, "far more than a heartbeat carries"
    assert told.endswith("\n19999\n20000\n")
    assert home.run("turn", "cancel", "speaking").returncode == 0
