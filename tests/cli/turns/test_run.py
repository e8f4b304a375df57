"""`holdfast run`: one question of a script; the answer on standard output, the rest in the exit code."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from tests.cli.screens import KEYS, ended, terminal
from tests.cli.support import COMMAND, Home, call
from tests.cli.turns.test_chat import said, script

ASKS = {"text": "I try.", "calls": [call("shell", command="echo ran > ran.txt")]}
TRIED = {"text": "I could not \x1b[31mdo it."}


def test_the_answer_alone_is_on_standard_output(home: Home) -> None:
    file = script(home, "plainly", {"text": "Let me look.", "calls": [call("list_directory")]}, {"text": "Two files."})
    done = home.run("run", "How many?", "--script", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Two files.\n", "")
    told = home.run("run", "-", "--script", file, "--verbose", stdin="How many?\n")
    assert (told.returncode, told.stdout) == (0, "Two files.\n")
    assert "model answered: Two files." in told.stderr
    assert "b1c1" in told.stderr


def test_S27_what_would_be_asked_is_denied_unless_somebody_says_otherwise(home: Home) -> None:
    file = script(home, "denied-run", ASKS, TRIED)
    done = home.run("run", "Do it", "--script", file)
    assert (done.returncode, done.stdout) == (0, "I could not do it.\n")
    found = home.json("run", "Do it", "--script", file, "--session", "denied-run")
    assert (found["session"], found["turn"]) == ("denied-run", "denied-run~1")
    assert (found["status"], found["text"], found["reason"]) == ("completed", TRIED["text"], None)
    assert found["usage"] == {"input_tokens": 0, "output_tokens": 0}
    [response] = home.json("sessions", "show", "denied-run", "--all")["messages"][2]["responses"]
    assert (response["status"], response["error"]["type"]) == ("error", "denied")
    assert "in this turn nobody can be asked" in response["error"]["message"]
    assert not (home.workspace / "ran.txt").exists()


def test_S27_a_turn_has_the_tools_that_were_named_and_no_other(home: Home) -> None:
    calls = [call("list_directory"), call("read_file", path="a")]
    file = script(home, "named-tools", {"calls": calls}, {"text": "Done."}, {"calls": calls}, {"text": "Done again."})
    home.run("run", "Look", "--script", file, "--tool", "list_*", "--tool", "glob", "--session", "named-tools")
    [one, other] = home.json("sessions", "show", "named-tools", "--all")["messages"][2]["responses"]
    assert (one["error"], other["error"]["type"]) == (None, "tool_not_available")
    shown = home.run("turn", "show", "named-tools~1").stdout
    assert "started with these tools: list_*, glob" in shown
    done = home.run("run", "Look", "--tool", "shell", "--session", "named-tools")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--tool is only for a new session: 'named-tools' exists" in done.stderr
    asked = home.run("run", "Look", "--confirm", "always", "--session", "named-tools")
    assert (asked.returncode, asked.stdout) == (0, "Done again.\n")
    [one, other] = home.json("sessions", "show", "named-tools", "--all")["messages"][-2]["responses"]
    assert (one["error"]["type"], other["error"]["type"]) == ("denied", "tool_not_available")


def test_S27_a_tool_that_there_is_not_ends_the_turn_with_what_may_have_been_meant(home: Home) -> None:
    file = script(home, "misspelt-tool", {"text": "Done."})
    done = home.run("run", "Look", "--script", file, "--tool", "read_fil")
    assert (done.returncode, done.stdout) == (1, "")
    assert "its list of tools has unknown names: 'read_fil'. Did you mean \"read_file\"" in done.stderr
    done = home.run("run", "Look", "--script", file, "--tool", "read file")
    assert done.returncode == 2
    assert "--tool takes the name of a tool, or a pattern such as github__*" in done.stderr


def test_somebody_at_the_terminal_is_asked_when_that_is_wanted(home: Home) -> None:
    file = script(
        home, "asked-run", {"calls": [call("write_file", path="asked-run.txt", content="hi\n")]}, {"text": "OK."}
    )
    with terminal(home, "run", "Write", "--script", file, "--ask") as child:
        child.expect("Approve call 1 of 1")
        child.expect(r"\+hi")
        child.expect(KEYS)
        child.send("y")
        child.expect("OK.\n")
        assert ended(child) == 0
    assert (home.workspace / "asked-run.txt").read_text() == "hi\n"


def test_somebody_elsewhere_is_waited_for_when_that_is_wanted(home: Home) -> None:
    file = script(home, "elsewhere", {"calls": [call("shell", command="echo ran")]}, {"text": "It ran."})
    command = [*COMMAND, "run", "Do it", "--script", file, "--session", "elsewhere", "--ask"]
    with subprocess.Popen(
        command, env=home.env, cwd=home.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr
        assert running.stdout
        assert running.stderr.readline() == "waits: holdfast approve 'elsewhere~1/b1c1/1'\n"
        assert home.run("approve", "elsewhere~1/b1c1/1").returncode == 0
        assert running.stdout.read() == "It ran.\n"
        assert running.wait(30) == 0


def test_a_question_is_part_of_a_session_that_is_there_or_is_made(home: Home) -> None:
    file = script(home, "part", {"text": "One."}, {"text": "Two."})
    assert home.json("run", "First", "--session", "part", "--script", file)["turn"] == "part~1"
    assert home.run("run", "Second", "--session", "part").stdout == "Two.\n"
    again = home.json("run", "Third", "--session", "part", "--script", file, "--mode", "plan")
    assert (again["turn"], again["text"]) == ("part~3", "One.")
    assert said(home, "part")[2:] == ["user: Second", "assistant: Two.", "user: Third", "assistant: One."]
    assert home.json("sessions", "show", "part")["mode"] == "plan"


def test_a_turn_that_does_not_complete_makes_the_exit_code_one(home: Home) -> None:
    file = script(home, "short", {"calls": [call("list_directory")]}, {"text": "Never said."})
    limited = home.run("run", "Look", "--script", file, "--max-steps", "1", "--json")
    assert limited.returncode == 1
    found = json.loads(limited.stdout)
    assert (found["status"], found["text"]) == ("stopped", None)
    assert "limit of 1 model steps" in found["reason"]
    assert "holdfast: the turn was stopped: The turn reached its limit of 1 model steps" in limited.stderr
    unknown = home.run("run", "Hello", "--model", "nobody:knows-it")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "holdfast: the turn failed: " in unknown.stderr
    assert "nobody" in unknown.stderr


def test_a_turn_that_takes_too_long_is_cancelled(home: Home) -> None:
    file = script(home, "long-run", {"text": "At last.", "seconds": 600})
    done = home.run("run", "Hurry", "--script", file, "--timeout", "1s", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["status"], found["text"]) == ("cancelled", None)
    assert "took longer than 1 seconds" in done.stderr


def test_a_message_whose_turn_did_not_come_in_time_is_taken_back(home: Home) -> None:
    file = script(home, "busy-run", {"text": "At last.", "seconds": 600}, {"text": "Never."})
    with subprocess.Popen(
        [*COMMAND, "run", "Take long", "--script", file, "--session", "busy", "--verbose"],
        env=home.env,
        cwd=home.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr
        assert any("model thinking" in line for line in running.stderr)
        late = home.run("run", "And then", "--session", "busy", "--timeout", "1s", "--json")
        found = json.loads(late.stdout)
        assert (late.returncode, found["status"]) == (1, "cancelled")
        assert "withdrawn before its turn started" in found["reason"]
        assert home.json("sessions", "show", "busy")["waiting"] == []
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    shown = home.json("sessions", "show", "busy")
    assert (shown["turns"], shown["last"]["id"]) == (2, "busy~1")


def test_ctrl_c_cancels_the_turn(home: Home) -> None:
    file = script(home, "ended-run", {"text": "At last.", "seconds": 600})
    command = [*COMMAND, "run", "Hurry", "--script", file, "--verbose", "--json"]
    with subprocess.Popen(
        command, env=home.env, cwd=home.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr
        assert running.stdout
        assert any("model thinking" in line for line in running.stderr)
        running.send_signal(signal.SIGINT)
        found: dict[str, Any] = json.loads(running.stdout.read())
        assert running.wait(30) == 130
    assert found["status"] == "cancelled"
    assert home.json("turn", "show", found["turn"])["result"]["status"] == "cancelled"


def test_the_model_of_the_settings_file_answers_when_none_is_named(home: Home) -> None:
    file = home.folder / "with-default.toml"
    file.write_text('[models]\ndefault = "nobody:by-default"\n')
    done = home.run("--config", str(file), "run", "Hello")
    assert done.returncode == 1
    assert "nobody" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Hello"], "no model is set: give --model PROVIDER:MODEL or --script FILE"),
        ([" ", "--model", "a:b"], "the prompt is empty"),
        (["-", "--model", "a:b"], "the prompt is empty"),
        (["\udcff", "--model", "a:b"], "the prompt is not UTF-8"),
        (["-", "--script", "-"], "can be read from standard input"),
        (["Hello", "--model", "a:"], "'a:' is not a model"),
        (["Hello", "--model", "a:b", "--fallback", "c"], "'c' is not a model"),
        (["Hello", "--model", "a:b", "--instructions", "@missing"], "no file is called 'missing'"),
        (["Hello", "--model", "a:b", "--max-seconds", "0"], "is not a duration between a second and a year"),
        (["Hello", "--model", "a:b", "--timeout", "soon"], "must be a duration"),
        (["Hello", "--model", "a:b", "--max-steps", "0"], "'--max-steps': Input should be greater"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_before_any_server_is(
    arguments: list[str], words: str, empty: Home
) -> None:
    done = empty.run("run", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
