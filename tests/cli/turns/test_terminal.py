"""The terminal: calls with their states, live, and approvals asked in place."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from tests.cli.screens import KEYS, ended, terminal
from tests.cli.support import Home, call
from tests.support.mcp.mcp_servers import OURS


def calls_file(home: Home, name: str, *calls: dict[str, Any]) -> str:
    (home.folder / name).write_text(json.dumps(calls))
    return name


def test_approvals_are_asked_in_place_with_diff_and_command(home: Home) -> None:
    file = calls_file(
        home,
        "asked.json",
        call("write_file", path="asked.txt", content="new line\n"),
        call("shell", command="for n in 1 2 3; do echo live $n; sleep 0.4; done"),
    )
    with terminal(home, "turn", "start", "--calls", file, "--id", "asked", "--wait") as child:
        child.expect("Approve call 1 of 2")
        child.expect(r"\+new line")
        child.expect(KEYS)
        child.send("y")
        child.expect("Approved")
        child.expect("Approve call 2 of 2")
        child.expect(r"\$ for n in 1 2 3")
        child.expect(KEYS)
        child.send("y")
        child.expect("executing")
        child.expect("│ live")
        child.expect("completed")
        assert ended(child) == 0
    assert (home.workspace / "asked.txt").read_text() == "new line\n"


def test_an_approval_decided_elsewhere_is_no_longer_asked_and_a_skipped_one_can_be(home: Home) -> None:
    file = calls_file(home, "both.json", call("shell", command="echo one"), call("shell", command="echo two"))
    with terminal(home, "turn", "start", "--calls", file, "--id", "both", "--wait") as child:
        child.expect("Approve call 1 of 2")
        child.expect(KEYS)
        assert home.run("approve", "both/b1c1/1", "--by", "another").returncode == 0
        child.expect("Decided elsewhere by another")
        child.expect("Approve call 2 of 2")
        child.expect(KEYS)
        child.send("s")
        child.expect("Skipped; later: holdfast approve both/b1c2/1")
        child.expect("to be asked")
        child.send("a")
        child.expect("Approve call 2 of 2")
        child.expect(KEYS)
        child.send("n")
        child.expect("Refused")
        assert ended(child) == 0
    result = home.json("turn", "show", "both")["result"]
    assert [response["status"] for response in result["batches"][0]["responses"]] == ["success", "cancelled"]


def test_ctrl_c_detaches_and_the_turn_goes_on_until_it_is_stopped_from_the_next_terminal(home: Home) -> None:
    file = calls_file(home, "left.json", call("shell", command="echo never"))
    with terminal(home, "turn", "start", "--calls", file, "--id", "left", "--wait") as child:
        child.expect(KEYS)
        child.sendintr()
        child.expect("Detached; turn left goes on. Come back with: holdfast turn watch left")
        assert ended(child) == 130
    assert home.json("turn", "show", "left")["state"] == "awaiting_approval"
    with terminal(home, "turn", "watch", "left") as child:
        child.expect(KEYS)
        child.send("N")
        child.expect("and the turn stops")
        assert ended(child) == 0
    assert home.json("turn", "show", "left")["result"]["status"] == "stopped"


def test_S32_no_colour_is_respected_and_escape_codes_of_a_model_are_written_out(home: Home) -> None:
    file = calls_file(home, "harmless.json", call("shell", command="echo '\x1b]0;owned\x07\x1b[41m[red]x[/red]'"))
    with terminal(home, "turn", "start", "--calls", file, "--id", "harmless", "--wait", NO_COLOR="1") as child:
        child.expect(r"\$ echo '␛\]0;owned␇␛\[41m\[red\]x\[/red\]'")
        before = str(child.before)
        child.expect(KEYS)
        before += str(child.before)
        child.send("N")
        assert ended(child) == 1
    assert "\x1b]0" not in before
    assert not re.search(r"\x1b\[[0-9;]*[34][0-7]m", before)


def test_after_no_and_stop_nothing_more_is_asked_and_nothing_is_called_decided_elsewhere(home: Home) -> None:
    file = calls_file(home, "enough.json", *(call("shell", command=f"echo {n}") for n in range(3)))
    with terminal(home, "turn", "start", "--calls", file, "--id", "enough", "--wait") as child:
        child.expect("Approve call 1 of 3")
        child.expect(KEYS)
        child.send("N")
        child.expect("Refused, and the turn stops")
        assert ended(child) == 1
        assert "Approve call" not in child.before
        assert "elsewhere" not in child.before


def test_a_call_that_is_asked_about_when_the_turn_is_cancelled_elsewhere_says_so(home: Home) -> None:
    file = calls_file(home, "pulled.json", call("shell", command="echo one"))
    with terminal(home, "turn", "start", "--calls", file, "--id", "pulled", "--wait") as child:
        child.expect(KEYS)
        assert home.run("turn", "cancel", "pulled").returncode == 0
        child.expect("stopped with the turn")
        assert ended(child) == 1


def test_a_narrow_terminal_shows_which_call_is_asked_and_every_key(home: Home) -> None:
    file = calls_file(home, "narrow.json", call("list_directory"), call("write_file", path="one.txt", content="1\n"))
    with terminal(home, "turn", "start", "--calls", file, "--id", "narrow", "--wait", columns=80) as child:
        child.expect("▸ b1c2 2/2")
        child.expect("call 2 of 2, write_file one.txt:")
        child.expect(r"\[y\] yes  \[a\] always  \[e\] edit  \[n\] no  \[N\] no, stop  \[s\] skip  \[v\] view all")
        child.send("N")
        assert ended(child) == 1


def test_a_long_diff_shows_what_is_added_and_all_of_it_in_the_pager(home: Home) -> None:
    (home.workspace / "long.txt").write_text("".join(f"old {number}\n" for number in range(450)))
    file = calls_file(home, "long.json", call("write_file", path="long.txt", content="added \x1b[31m\n"))
    pager = "cat > pager.txt; echo paged"
    with terminal(home, "turn", "start", "--calls", file, "--id", "long", "--wait", PAGER=pager) as child:
        child.expect(r"\+1 −450")
        child.expect(r"\d+ lines left out")
        child.expect("-old 449")
        child.expect(r"\+added ␛")
        child.expect(r"cut: \[v\] shows all")
        child.expect(KEYS)
        child.send("v")
        child.expect("paged")
        child.expect(KEYS)
        child.send("y")
        child.expect("Approved")
        assert ended(child) == 0
    paged = (home.folder / "pager.txt").read_text()
    assert "-old 200\n" in paged
    assert "+added ␛[31m\n" in paged


def test_without_a_pager_all_of_a_command_is_printed(home: Home) -> None:
    command = "\n".join(f"echo {number} >/dev/null" for number in range(100))
    file = calls_file(home, "unpaged.json", call("shell", command=command))
    with terminal(home, "turn", "start", "--calls", file, "--id", "unpaged", "--wait", PAGER="") as child:
        child.expect("40 lines left out")
        child.expect(KEYS)
        child.send("v")
        child.expect("echo 50 >")
        child.expect("echo 99 >")
        child.expect(KEYS)
        child.send("N")
        assert ended(child) == 1


def test_S20_what_a_command_is_run_with_is_part_of_the_question(home: Home) -> None:
    hidden = call("shell", command="true", environment={"BASH_ENV": "evil.sh"}, directory=".")
    with terminal(home, "turn", "start", "--calls", calls_file(home, "with.json", hidden), "--wait") as child:
        child.expect(r"\$ true")
        child.expect(r'with \{"directory": ".", "environment": \{"BASH_ENV": "evil.sh"\}')
        child.expect(KEYS)
        child.send("N")
        assert ended(child) == 1


def test_S31_what_became_of_a_call_that_nobody_knows_is_asked_with_keys_of_its_own(home: Home) -> None:
    lost = call("shell", command="echo half of it; sleep 1; kill -9 $PPID; sleep 60")  # it kills its own supervisor
    file = calls_file(home, "lost.json", lost)
    for turn, key, told, text in (
        ("done", "d", "Recorded as done", "I looked: it is there"),
        ("failed", "n", "Recorded as failed", "took it as failed"),
    ):
        with terminal(home, "turn", "start", "--calls", file, "--id", turn, "--wait", columns=80) as child:
            child.expect(KEYS)
            child.send("y")
            child.expect("Unknown outcome of call 1 of 1")
            child.expect("half of it")
            child.expect(r"\[y\] run again  \[d\] done  \[n\] failed")
            child.expect(KEYS)
            child.send(key)
            if key == "d":
                child.expect("result> ")
                child.sendline(text)
            child.expect(told)
            child.expect("completed")
            assert ended(child) == 0
        assert text in json.dumps(home.json("turn", "show", turn, "--call", "b1c1"))


def test_S20_a_call_of_a_server_shows_its_arguments_once_and_all_of_the_definition_on_demand(empty: Home) -> None:
    file = empty.folder / "config" / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True)
    words = f"command = {json.dumps(sys.executable)}\nargs = {json.dumps([str(OURS), str(empty.folder)])}\n"
    file.write_text(f"[mcp.servers.notes]\n{words}")
    tool = {
        "name": "append-to-the-end-of-a-long-note",
        "description": "Append a line.\n\nIt cannot be \x1b[31mtaken back.",
        "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "annotations": {"idempotentHint": True},
    }
    (empty.folder / "tools.json").write_text(json.dumps([tool]))
    name = "notes__append-to-the-end-of-a-long-note"
    with empty.up("--no-gateway"):
        calls = calls_file(empty, "note.json", call(name, n=7))
        options = ("--calls", calls, "--id", "note", "--wait")
        with terminal(empty, "turn", "start", *options, columns=80, PAGER="cat > all.txt; echo paged") as child:
            child.expect(r"Approve call 1 of 1\? notes/append-to-the-end-of-a-long-note")
            child.expect(KEYS)
            asked = child.before
            assert f"b1c1 1/1  awaiting approval  {name}\n" in asked
            child.send("v")
            child.expect("paged")
            child.expect(KEYS)
            child.send("y")
            assert ended(child) == 0
        many = calls_file(empty, "many.json", *(call(name, n=number) for number in range(12)))
        options = ("--calls", many, "--id", "many", "--wait")
        with terminal(empty, "turn", "start", *options, columns=80, rows=20) as child:
            child.expect("12 awaiting approval")
            child.expect(name)
            child.expect(KEYS)
            child.send("N")
            assert ended(child) == 1
        empty.start("all", call(name, n=1), call(name, n=2))
        empty.seen("all", call="b1c2", after="awaiting_approval")
        told = empty.run("approve", "--turn", "all").stdout
        assert told.count("described as: Append a line. …") == 2
        assert told.count("  described as:\n    Append a line.\n\n    It cannot be ␛[31mtaken back.\n") == 1
    assert asked.split("\n")[1:4] == ['  with {"n": 7}', "  server notes", "  described as: Append a line. …"]
    assert (empty.folder / "all.txt").read_text() == (
        'notes/append-to-the-end-of-a-long-note\n\n{\n  "n": 7\n}\n\nserver notes\n'
        "effect once: the server is not trusted to say what its tools do\n"
        "the server's hints: idempotentHint true\ndescribed as:\n  Append a line.\n\n  It cannot be ␛[31mtaken back.\n"
    )
