"""Calls that come while a model writes, on the command line: planned, added, interrupted, stopped, watched."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from holdfast.domain.calls import scheduling
from holdfast.workers.cli import turn_options
from holdfast.workers.cli.commands.turns import turn_streams
from tests.cli.screens import ended, terminal
from tests.cli.support import Home, call
from tests.cli.turns.test_terminal import calls_file

LOOK, FIND = call("list_directory"), call("glob", pattern="*")
BUILD, NEXT = call("shell", command="sleep 60; echo built"), call("shell", command="echo next")


def script(home: Home, name: str, *replies: dict[str, Any]) -> str:
    (home.folder / name).write_text(json.dumps(replies))
    return name


def add(home: Home, turn: str, stream: str, *calls: dict[str, Any], options: tuple[str, ...] = ()) -> Any:
    return home.json("turn", "add", turn, stream, "--calls", "-", *options, stdin=json.dumps(calls))


def open_turn(home: Home, turn: str, *options: str) -> None:
    assert home.json("turn", "start", "--keep-open", "--id", turn, *options) == {"turn": turn}


def messages(home: Home, turn: str) -> dict[str, str | None]:
    """What each call's answer says of its end."""
    batches = home.json("turn", "show", turn)["result"]["batches"]
    responses = [response for batch in batches for response in batch["responses"]]
    return {one["call_id"]: one["error"] and one["error"]["message"] for one in responses}


def test_S12_a_streamed_turn_is_watched_with_its_discarded_attempt(home: Home) -> None:
    slow = {"text": "I look.", "calls": [LOOK, FIND], "seconds": 2, "breaks": [1]}
    file = script(home, "streamed.json", slow, {"text": "Seen."})
    options = ("--script", file, "--prompt", "Look", "--schedule", "streaming", "--id", "streamed")
    assert home.run("turn", "start", *options).returncode == 0
    home.seen("streamed", kind="turn", after="completed")

    shown = home.run("turn", "watch", "streamed").stdout
    assert "\x1b" not in shown
    lines = [line.partition("  ")[2] for line in shown.splitlines()]
    assert "b1c1   1/1+  validating         list_directory  while the model still writes" in lines
    [discarding] = [line for line in lines if line.startswith("batch b1 discarding")]
    assert discarding.startswith("batch b1 discarding 1 call: The model's reply broke off, and it begins anew: ")
    assert "batch b2 queued: attempt 2" in lines
    assert not [line for line in lines if "delivered" in line], "each was told when it ended"
    assert "batch b1: discarded, 1 call" in shown
    assert "  schedule streaming\n" in shown

    watched = home.run("turn", "watch", "streamed", "--json").stdout.splitlines()
    events = [item["event"] for item in map(json.loads, watched) if "event" in item]
    results = [event for event in events if event["kind"] == "result"]
    assert [(one["call"], one["place"], one["after"]) for one in results] == [
        ("b1c1", 1, "success"),
        ("b2c1", 1, "success"),
        ("b2c2", 2, "success"),
    ]
    assert events.index(results[1]) < next(place for place, one in enumerate(events) if one["after"] == "asked")
    assert home.json("turn", "show", "streamed")["schedule"] == "streaming"


def test_S11_the_live_board_shows_that_the_model_still_writes(home: Home) -> None:
    file = script(home, "board.json", {"calls": [LOOK], "seconds": 2}, {"text": "Seen."})
    options = ("--script", file, "--prompt", "Look", "--schedule", "streaming", "--id", "board", "--wait")
    with terminal(home, "turn", "start", *options) as child:
        child.expect("the model thinks")
        child.expect(r"b1c1 1/1\+")
        child.expect("the model still writes")
        child.expect("Seen")
        assert ended(child) == 0


def test_S13_the_live_board_shows_what_is_held_back_discarded_and_interrupted(home: Home) -> None:
    open_turn(home, "drawn", "--schedule", "streaming")
    with terminal(home, "turn", "watch", "drawn") as child:
        child.expect("waiting for a worker")
        add(home, "drawn", "reply", LOOK)
        child.expect(r"b1c1 1/1\+")
        child.expect("delivered when the reply is complete: .*List")
        add(home, "drawn", "reply", FIND, options=("--attempt", "2", "--reason", "The line broke"))
        child.expect("batch b1 is discarded: The line broke")
        child.expect(r"b2c1 1/1\+")
        assert home.run("turn", "interrupt", "drawn", "Enough", "--by", "ana").returncode == 0
        child.expect("ana interrupts: Enough")
        child.expect(r"b2c1 1/1[^+]")
        home.json("turn", "finish", "drawn")
        child.expect("batch b1: discarded, 1 call")
        assert ended(child) == 0


def test_S11_calls_are_added_as_they_come_and_what_comes_twice_counts_once(home: Home) -> None:
    open_turn(home, "added", "--schedule", "streaming")
    first = {"turn": "added", "stream": "reply", "attempt": 1, "batch": "b1", "calls": 1}
    assert add(home, "added", "reply", LOOK) == first
    assert add(home, "added", "reply", LOOK) == first
    home.seen("added", call="b1c1", after="success")
    shown = home.run("turn", "show", "added").stdout
    assert "waits for more calls; to end it: holdfast turn add added reply --complete" in shown
    told = home.run("turn", "add", "added", "reply", "--calls", "-", "--at", "1", stdin=json.dumps(FIND))
    assert told.stdout == "Batch b1 of turn added, reply, has 2 calls so far; add the next ones with --at 2.\n"
    told = home.run("turn", "add", "added", "reply", "--complete")
    assert told.stdout == "Batch b1 of turn added, reply, has 2 calls and is complete.\n"
    home.seen("added", kind="result", call="b1c2")
    home.json("turn", "finish", "added")
    home.seen("added", kind="turn", after="completed")
    assert messages(home, "added") == {"b1c1": None, "b1c2": None}


def test_S12_another_attempt_discards_the_one_before_for_the_reason_that_is_given(home: Home) -> None:
    open_turn(home, "again", "--schedule", "streaming", "--early")
    add(home, "again", "reply", BUILD, NEXT)
    home.seen("again", call="b1c2", after="awaiting_approval")
    assert home.run("approve", "again/b1c1/1").returncode == 0
    home.seen("again", call="b1c1", after="executing")
    why = ("--attempt", "2", "--reason", "The line broke", "--complete")
    assert add(home, "again", "reply", LOOK, options=why)["batch"] == "b2"
    assert home.seen("again", kind="batch", after="discarding")["note"] == "The line broke"
    home.seen("again", kind="result", call="b2c1")

    late = home.run("turn", "add", "again", "reply", "--calls", "-", "--at", "2", stdin=json.dumps(LOOK))
    assert (late.returncode, late.stdout) == (1, "")
    assert "attempt 1 of 'reply' was discarded: begin a new attempt (give --attempt 2 or higher)" in late.stderr
    home.json("turn", "finish", "again")
    home.seen("again", kind="turn", after="completed")
    assert messages(home, "again") == {"b1c1": "The line broke", "b1c2": "The line broke", "b2c1": None}
    assert "batch b1: discarded, 2 calls: The line broke\n" in home.run("turn", "show", "again").stdout


def test_calls_that_fit_nowhere_are_refused_with_what_to_do(home: Home) -> None:
    open_turn(home, "fitting", "--schedule", "streaming")
    add(home, "fitting", "reply", LOOK)
    add(home, "fitting", "over", LOOK, options=("--complete",))
    calls = json.dumps(FIND)
    for stream, options, words in (
        ("reply", (), "has other calls where these would be (--at is the number of calls before these; it was 0)"),
        ("reply", ("--at", "5"), "has 1 calls: call 5 cannot be the next (send the calls before them first"),
        ("reply", ("--at", "1", "--attempt", "2"), "attempt 2 of 'reply' does not begin with call 0"),
        ("over", ("--at", "1"), "stream 'over' is complete: use another name for further calls"),
        ("over", ("--attempt", "2"), "'over' is complete"),
    ):
        done = home.run("turn", "add", "fitting", stream, "--calls", "-", *options, stdin=calls)
        assert (done.returncode, done.stdout) == (1, ""), (stream, options)
        assert words in done.stderr
    assert home.run("turn", "cancel", "fitting").returncode == 0


def test_turns_that_take_nothing_say_why(home: Home) -> None:
    home.start("quite-over", LOOK)
    home.seen("quite-over", kind="turn")
    file = script(home, "asks.json", {"calls": [NEXT]}, {"text": "Done."})
    home.json("turn", "start", "--script", file, "--prompt", "Go", "--id", "modelled")
    home.seen("modelled", after="awaiting_approval")
    calls, large = json.dumps(LOOK), "x" * 1_000_001
    for arguments, stdin, code, words in (
        (("add", "nobodys", "reply", "--calls", "-"), calls, 1, "no turn is called 'nobodys'"),
        (("add", "quite-over", "reply", "--calls", "-"), calls, 1, "turn 'quite-over' has ended"),
        (
            ("add", "modelled", "reply", "--calls", "-"),
            calls,
            1,
            "only turns that were started with --keep-open accept calls",
        ),
        (("interrupt", "nobodys", "Stop"), "", 1, "no turn is called 'nobodys'"),
        (("interrupt", "quite-over", "Stop"), "", 1, "turn 'quite-over' has ended"),
        (("interrupt", "modelled", "-"), large, 2, "has 1,000,001 characters, over the limit of 1,000,000"),
        (("cancel", "nobodys", "--batch", "b1"), "", 1, "no turn is called 'nobodys'"),
        (("cancel", "quite-over", "--batch", "b1"), "", 1, "turn 'quite-over' has ended"),
        (("cancel", "modelled", "--batch", "b7"), "", 1, "batch 'b7' is not active; withdraw a queued one"),
    ):
        done = home.run("turn", *arguments, stdin=stdin)
        assert (done.returncode, done.stdout) == (code, ""), arguments
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert home.run("turn", "cancel", "modelled").returncode == 0


def test_S18_a_message_stops_what_has_not_begun_and_the_model_goes_on_with_it(home: Home) -> None:
    first = {"calls": [call("shell", command="while [ ! -e built ]; do sleep 0.1; done; echo built"), NEXT]}
    file = script(home, "heard.json", first, {"text": "As you wish."})
    options = ("--script", file, "--prompt", "Build", "--schedule", "streaming", "--id", "heard")
    assert home.run("turn", "start", *options).returncode == 0
    home.seen("heard", call="b1c2", after="awaiting_approval")
    home.run("approve", "heard/b1c1/1")
    home.seen("heard", call="b1c1", after="executing")
    assert "  not interruptible: " in home.run("turn", "show", "heard").stdout
    told = home.json("turn", "interrupt", "heard", "-", "--by", "ana", stdin="Do not \x1b[31mpublish\n")
    assert told == {"turn": "heard", "message": "Do not \x1b[31mpublish", "by": "ana"}
    home.seen("heard", call="b1c2", after="cancelled")
    (home.workspace / "built").touch()

    watched = home.run("turn", "watch", "heard").stdout
    assert "turn interrupted: Do not ␛[31mpublish  (by ana)\n" in watched
    assert "behind b1c1\n" in watched
    assert "As you wish." in watched
    assert messages(home, "heard") == {"b1c1": None, "b1c2": "The user interrupted with a new message"}


def test_S16_a_batch_is_stopped_and_the_turn_goes_on(home: Home) -> None:
    open_turn(home, "batchwise")
    home.json("turn", "submit", "batchwise", "--calls", "-", stdin=json.dumps([BUILD, NEXT]))
    home.json("turn", "submit", "batchwise", "--calls", "-", stdin=json.dumps([LOOK]))
    home.seen("batchwise", call="b1c2", after="awaiting_approval")
    found = home.json("turn", "cancel", "batchwise", "--batch", "b1", "--reason", "Not now")
    assert found == {"turn": "batchwise", "call": None, "batch": "b1"}
    home.seen("batchwise", kind="batch", batch="b2", after="done")
    home.json("turn", "finish", "batchwise")
    home.seen("batchwise", kind="turn", after="completed")
    assert messages(home, "batchwise") == {"b1c1": "Not now", "b1c2": "Not now", "b2c1": None}


@pytest.mark.parametrize(("on_error", "second"), [("isolate", "awaiting_approval"), ("abort", "cancelled")])
def test_S15_a_turn_says_what_a_failure_does_to_the_calls_beside_it(on_error: str, second: str, home: Home) -> None:
    turn = f"failing-{on_error}"
    options = ("--schedule", "streaming", "--on-error", on_error, "--parallel", "1")
    home.start(turn, call("shell", command="exit 3"), NEXT, options=options)
    home.seen(turn, call="b1c2", after="awaiting_approval")
    home.run("approve", f"{turn}/b1c1/1")
    home.seen(turn, call="b1c1", after="error")
    if second == "cancelled":
        home.seen(turn, kind="turn", after="completed")
        assert messages(home, turn)["b1c2"] == "Cancelled: parallel tool call shell(exit 3) errored"
    else:
        assert home.json("turn", "show", turn)["batch"]["calls"][1]["status"] == second
        assert home.run("turn", "cancel", turn).returncode == 0


def test_the_options_are_those_of_a_turn() -> None:
    """Written out once more, since help must not load pydantic."""
    assert get_args(get_args(turn_options.When)[0]) == tuple(schedule.value for schedule in scheduling.Schedule)
    assert get_args(get_args(get_args(turn_options.OnError)[0])[0]) == get_args(scheduling.OnError)
    assert turn_options.PARALLEL_LIMIT == scheduling.MAX_EXECUTING


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("turn start --schedule s", {"streaming"}),
        ("turn start --on-error ", {"isolate", "abort"}),
        ("turn start --ear", {"--early"}),
        ("turn cancel hello --b", {"--batch"}),
        ("turn add hello reply --a", {"--at", "--attempt", "--address"}),
        ("turn in", {"interrupt"}),
    ],
)
def test_a_shell_completes_the_options(words: str, expected: set[str], empty: Home) -> None:
    line = f"holdfast {words}"
    place = len(line.split()) - (0 if line.endswith(" ") else 1)
    done = empty.run(_HOLDFAST_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(place))
    assert set(done.stdout.split()) == expected


@pytest.mark.parametrize("command", ["start", "add", "interrupt", "cancel"])
def test_every_command_has_an_example_and_its_exit_codes(command: str, empty: Home) -> None:
    shown = empty.run("turn", command, "--help").stdout
    assert "Example:" in shown
    assert f"holdfast turn {command} " in shown
    assert "Exit codes:" in shown


def test_the_help_of_add_streams_a_reply_into_a_turn(home: Home) -> None:
    """Its examples, as they stand."""
    from tests.cli.test_readme import _shell

    shown = home.run("turn", "add", "--help").stdout
    lines = [line.strip().replace("hello", "helped") for line in shown.splitlines() if line.startswith("    ")]
    commands = [line for line in lines if line.startswith(("echo", "holdfast"))]
    assert len(commands) == 4
    (home.workspace / "calls.json").write_text(json.dumps([LOOK]))
    told = _shell(home, "\n".join(commands))
    assert "Batch b1 of turn helped, reply-1, has 2 calls and is complete.\n" in told
    assert "Batch b2 of turn helped, reply-2, has 1 call so far; add the next ones with --at 1.\n" in told
    assert home.run("turn", "cancel", "helped").returncode == 0


def test_limits_are_those_of_the_messages() -> None:
    from holdfast.domain.turn.update_bodies import AddCalls, Interruption
    from holdfast.workers.cli.commands.turns import turn_control

    stream = AddCalls.model_json_schema()["properties"]
    assert stream["stream"]["maxLength"] == turn_streams.STREAM_LIMIT
    assert stream["attempt"]["maximum"] == turn_streams.ATTEMPT_LIMIT
    assert stream["reason"]["anyOf"][0]["maxLength"] == turn_control.REASON_LIMIT
    assert Interruption.model_json_schema()["properties"]["message"]["maxLength"] == turn_streams.MESSAGE_LIMIT


def test_an_unsuitable_terminal_reads_lines(home: Home) -> None:
    """What is held back is told on a terminal that cannot be drawn on, too."""
    file = calls_file(home, "dumb.json", LOOK, FIND)
    with terminal(home, "turn", "start", "--calls", file, "--id", "dumb", "--wait", TERM="dumb") as child:
        child.expect("batch b1 done")
        assert ended(child) == 0
