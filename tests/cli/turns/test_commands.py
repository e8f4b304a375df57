"""The commands on a running server: what they answer, as text and as JSON, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import COMMAND, Home, call

SCRIPT = [
    {"text": "Let me look.", "calls": [call("list_directory", path=".")]},
    {"text": "All is well."},
]


def test_a_scripted_turn_completes_and_its_result_is_one_json_document(home: Home) -> None:
    (home.folder / "script.json").write_text(json.dumps(SCRIPT))
    found = home.json("turn", "start", "--script", "script.json", "--prompt", "How is it?", "--id", "story", "--wait")
    assert found["turn"] == "story"
    assert found["result"]["status"] == "completed"
    assert found["result"]["text"] == "All is well."
    [batch] = found["result"]["batches"]
    assert [response["status"] for response in batch["responses"]] == ["success"]


def test_S41_what_waits_is_in_the_inbox_and_is_approved_by_its_id_alone(home: Home) -> None:
    home.start("flow", call("write_file", path="flow.txt", content="hi\n"), call("shell", command="echo ran"))
    home.seen("flow", call="b1c2", after="awaiting_approval")
    waiting = home.listed("flow", 2)
    assert [item["approval_id"] for item in waiting] == ["flow/b1c1/1", "flow/b1c2/1"]
    assert waiting[0]["diff"].endswith("+hi\n")
    assert waiting[1]["command"] == "echo ran"

    shown = home.run("inbox")
    assert "flow/b1c2/1" in shown.stdout
    assert "$ echo ran" in shown.stdout
    assert "\x1b" not in shown.stdout

    done = home.run("approve", "flow/b1c1/1", "flow/b1c2/1", "--by", "tester")
    assert done.returncode == 0
    assert "flow/b1c2/1: decided; the call is scheduled." in done.stdout
    ended = home.run("turn", "watch", "flow")
    assert ended.returncode == 0
    assert "turn completed" in ended.stdout
    assert (home.workspace / "flow.txt").read_text() == "hi\n"
    whole = home.json("turn", "show", "flow", "--call", "b1c2")
    assert whole["decision"]["by"] == "tester"
    assert whole["response"]["parts"][0]["text"].strip() == "ran"

    again = home.run("approve", "flow/b1c1/1")
    assert again.returncode == 1
    assert "has ended" in again.stderr


def test_a_refusal_reaches_the_turn_with_its_note_and_can_stop_it(home: Home) -> None:
    home.start("refused", call("shell", command="echo never"), call("shell", command="echo neither"))
    home.seen("refused", call="b1c2", after="awaiting_approval")
    found = home.json("deny", "refused/b1c1/1", "--note", "not today", "--stop-turn")
    assert [(item["status"], item["by_signal"]) for item in found["decisions"]] == [("cancelled", False)]
    home.seen("refused", kind="turn")
    view = home.json("turn", "show", "refused")
    assert view["result"]["status"] == "stopped"
    [first, second] = view["result"]["batches"][0]["responses"]
    assert first["error"]["message"].endswith("not today")
    assert second["status"] == "cancelled"


def test_S21_a_person_answers_in_the_tools_place(home: Home) -> None:
    home.start("answered", call("shell", command="curl weather"))
    home.seen("answered", after="awaiting_approval")
    assert home.run("respond", "answered/b1c1/1", "--content", "-", stdin="It is 21 degrees.").returncode == 0
    home.seen("answered", kind="turn", after="completed")
    [response] = home.json("turn", "show", "answered")["result"]["batches"][0]["responses"]
    assert response["parts"][0]["text"] == "It is 21 degrees."


def test_of_several_decisions_one_that_is_refused_keeps_none_back(home: Home) -> None:
    home.start("several", call("shell", command="true"))
    home.seen("several", after="awaiting_approval")
    done = home.run("approve", "several/b1c9/1", "nowhere/b1c1/1", "several/b1c1/1", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)["decisions"]
    assert [item["counted"] for item in told] == [False, False, True]
    assert "no turn is called 'nowhere'" in done.stderr


def test_S14_a_turn_that_is_kept_open_is_fed_and_finished(home: Home) -> None:
    home.start("open", call("shell", command="true"), options=("--keep-open",))
    home.seen("open", after="awaiting_approval")
    batch = json.dumps([call("list_directory")])
    assert home.json("turn", "submit", "open", "--calls", "-", stdin=batch) == {"turn": "open", "batch": "b2"}
    assert home.json("turn", "submit", "open", "--calls", "-", stdin=batch)["batch"] == "b3"
    assert home.json("turn", "withdraw", "open", "b2")["batch"]["status"] == "withdrawn"
    home.json("turn", "cancel", "open", "--call", "b1c1", "--reason", "no need")
    home.json("turn", "finish", "open")
    home.seen("open", kind="turn", after="completed")
    found = home.json("turn", "show", "open")["result"]
    assert [found_batch["status"] for found_batch in found["batches"]] == ["done", "withdrawn", "done"]
    late = home.run("turn", "submit", "open", "--calls", "-", stdin=batch)
    assert late.returncode == 1
    assert "has ended" in late.stderr


def test_S16_a_cancelled_turn_makes_a_waiting_start_exit_with_one(home: Home) -> None:
    command = [*COMMAND, "turn", "start", "--calls", "-", "--id", "stopped", "--wait"]
    with subprocess.Popen(
        command, env=home.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdin
        waiting.stdin.write(json.dumps([call("shell", command="sleep 600")]))
        waiting.stdin.close()
        assert waiting.stdout
        assert any("waits: holdfast approve stopped/b1c1/1" in line for line in waiting.stdout)
        assert home.run("turn", "cancel", "stopped").returncode == 0
        shown = waiting.stdout.read()
        assert waiting.wait(30) == 1
    assert "turn stopped: cancelled" in shown


def test_an_id_that_is_taken_and_a_turn_that_is_not_there_are_refused(home: Home) -> None:
    home.start("taken", call("list_directory"))
    done = home.run("turn", "start", "--calls", "-", "--id", "taken", stdin='{"tool": "list_directory"}')
    assert done.returncode == 1
    assert "the turn id 'taken' is in use" in done.stderr
    for arguments in (["turn", "show", "nobody"], ["turn", "watch", "nobody"], ["turn", "cancel", "nobody"]):
        done = home.run(*arguments)
        assert (done.returncode, done.stderr) == (1, "holdfast: no turn is called 'nobody'\n")
    home.json_once(lambda found: "taken" in [turn["id"] for turn in found["turns"]], "turn", "list")


def test_S32_escape_codes_of_a_tool_reach_no_terminal_and_no_pipe(home: Home) -> None:
    (home.workspace / "escapes.txt").write_text("\x1b]0;owned\x07 \x1b[31mred [bold]literal[/bold]\n")
    home.start("escapes", call("read_file", path="escapes.txt"))
    home.seen("escapes", kind="turn")
    shown = home.run("turn", "show", "escapes", "--call", "b1c1").stdout
    assert "\x1b" not in shown
    assert "red [bold]literal[/bold]" in shown


def test_tools_and_version_need_no_server(empty: Home) -> None:
    names = [tool["name"] for tool in empty.json("tools")["tools"]]
    assert {"read_file", "list_directory", "write_file", "shell"} <= set(names)
    assert empty.json("tools", "show", "shell")["effect"] == "once"
    assert "command" in empty.run("tools", "show", "shell").stdout
    assert empty.json("version")["holdfast"]


@pytest.mark.alone
def test_every_command_has_an_example_in_its_help(empty: Home) -> None:
    assert empty.run("--help").returncode == 0
    for command in (
        ["up"],
        ["worker"],
        ["demo"],
        ["chat"],
        ["run"],
        ["sessions"],
        ["sessions", "send"],
        ["inbox"],
        ["approve"],
        ["deny"],
        ["modify"],
        ["grants"],
        ["grants", "revoke"],
        ["config"],
        ["keys"],
        ["mcp"],
        ["policy"],
        ["tokens"],
        ["tools"],
        ["turn"],
        ["turn", "add"],
        ["turn", "interrupt"],
        ["turn", "mode"],
        ["turn", "start"],
        ["turn", "watch"],
    ):
        shown = empty.run(*command, "--help").stdout
        assert "Example:" in shown
        assert "Exit codes:" in shown


def test_help_loads_neither_temporal_nor_pydantic() -> None:
    code = "import sys, holdfast.workers.cli; print({'temporalio', 'pydantic', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "set()"


def test_the_installed_script_is_the_same_command(empty: Home) -> None:
    script = Path(sys.executable).with_name("holdfast")
    done = subprocess.run([script, "version"], capture_output=True, text=True, timeout=30, check=True, env=empty.env)
    assert done.stdout.startswith("holdfast ")


def test_everything_that_waits_in_a_turn_is_listed_and_approved_as_shown(home: Home) -> None:
    home.start("whole", call("shell", command="echo one | cat"), call("write_file", path="whole.txt", content="hi\n"))
    home.start("beside", call("shell", command="echo beside"))
    home.seen("whole", call="b1c2", after="awaiting_approval")
    home.seen("beside", after="awaiting_approval")
    home.listed("whole", 2)
    found = home.json("inbox", "--turn", "whole", "--limit", "1")
    assert (len(found["approvals"]), found["total"], found["turns"]) == (1, 2, 1)
    shown = home.run("inbox", "--turn", "whole").stdout
    assert shown.rstrip().endswith("2 pending in 1 turn")
    assert "runs: echo, cat" in shown
    assert "beside" not in shown

    done = home.run("approve", "--turn", "whole")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("$ echo one | cat") < done.stdout.index("whole/b1c1/1: decided")
    assert "whole/b1c2/1: decided; the call is scheduled." in done.stdout
    assert home.seen("whole", kind="turn")["after"] == "completed"
    late = home.run("approve", "--turn", "whole")
    assert (late.returncode, late.stdout) == (1, "")
    assert "turn 'whole' has ended" in late.stderr

    denied = home.json("deny", "--turn", "beside", "--stop-turn")
    assert [item["status"] for item in denied["decisions"]] == ["cancelled"]


def test_all_calls_of_a_turn_are_refused_before_it_stops(home: Home) -> None:
    home.start("alltold", call("shell", command="echo one"), call("shell", command="echo two"))
    home.seen("alltold", call="b1c2", after="awaiting_approval")
    denied = home.json("deny", "--turn", "alltold", "--stop-turn")
    assert [item["counted"] for item in denied["decisions"]] == [True, True]
    assert home.seen("alltold", kind="turn")["after"] == "stopped"


def test_a_call_is_shown_by_its_place_or_by_an_option(home: Home) -> None:
    home.start("placed", call("list_directory"), call("list_directory", path="."))
    home.seen("placed", kind="turn")
    by_place = home.run("turn", "show", "placed", "b1c2")
    assert by_place.stdout == home.run("turn", "show", "placed", "--call", "b1c2").stdout
    assert by_place.stdout.startswith("call b1c2 list_directory success\n")
    both = home.run("turn", "show", "placed", "b1c2", "--call", "b1c1")
    assert (both.returncode, "give b1c2 or --call b1c1, not both" in both.stderr) == (2, True)


def test_no_line_of_a_table_or_a_turn_ends_in_blanks_when_it_is_piped(home: Home) -> None:
    home.start("narrow-1", call("shell", command="true"), call("list_directory"))
    home.start("a-turn-with-a-rather-longer-id", call("list_directory"))
    home.seen("narrow-1", after="awaiting_approval")
    home.seen("a-turn-with-a-rather-longer-id", kind="turn")
    for arguments in (
        ("turn", "list"),
        ("turn", "show", "narrow-1"),
        ("turn", "show", "a-turn-with-a-rather-longer-id"),
        ("turn", "watch", "a-turn-with-a-rather-longer-id"),
        ("tools",),
        ("policy", "show"),
        ("inbox",),
    ):
        lines = home.run(*arguments).stdout.splitlines()
        assert lines
        assert [line for line in lines if line != line.rstrip()] == [], arguments
    assert home.run("turn", "cancel", "narrow-1").returncode == 0


def test_an_ended_turn_is_not_cancelled(home: Home) -> None:
    home.start("over", call("list_directory"))
    home.seen("over", kind="turn")
    for more in ([], ["--call", "b1c1"]):
        done = home.run("turn", "cancel", "over", *more)
        assert (done.returncode, done.stdout) == (1, "")
        assert "turn 'over' has ended" in done.stderr


def test_a_long_command_is_cut_in_its_middle_and_the_listing_says_where_all_of_it_is(home: Home) -> None:
    command = "echo begin; " + "true; " * 3_000 + "echo end"
    home.start("it's long", call("shell", command=command))
    home.seen("it's long", after="awaiting_approval")
    home.listed("it's long")
    for arguments in (["inbox", "--turn", "it's long"], ["turn", "show", "it's long"]):
        shown = home.run(*arguments).stdout
        assert "$ echo begin" in shown
        assert "echo end\n" in shown
        assert """cut: see all with `holdfast turn show 'it'"'"'s long' --call b1c1`""" in shown
    assert "b1c1 1/1" in home.run("turn", "show", "it's long").stdout
    assert command in home.run("turn", "show", "it's long", "--call", "b1c1").stdout


def test_what_the_output_cannot_say_is_written_out(home: Home) -> None:
    home.start("ünïcode", call("shell", command="echo ☃"))
    home.seen("ünïcode", after="awaiting_approval")
    done = home.run("turn", "show", "ünïcode", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "$ echo \\u2603" in done.stdout


def test_the_list_of_turns_tells_how_they_ended(home: Home) -> None:
    home.start("good", call("list_directory"))
    home.start("halted", call("shell", command="true"))
    home.seen("good", kind="turn")
    home.seen("halted", after="awaiting_approval")
    home.json("deny", "--turn", "halted", "--stop-turn")
    home.seen("halted", kind="turn")
    wanted = {("good", "completed"), ("halted", "stopped")}
    home.json_once(lambda found: wanted <= {(turn["id"], turn["state"]) for turn in found["turns"]}, "turn", "list")
