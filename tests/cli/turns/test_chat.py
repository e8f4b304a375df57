"""`holdfast chat` on a terminal of its own: conversations, approvals, interruptions, and coming back (S18, S24)."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.screens import KEYS, Terminal, ended, terminal
from tests.cli.support import Home, call

IDLE = "Tab completes /commands"
SLOW = "one two three four five six seven eight nine ten"


def script(home: Home, name: str, *replies: dict[str, Any]) -> str:
    file = f"{name}.json"
    (home.folder / file).write_text(json.dumps(replies))
    return file


@contextmanager
def chat(home: Home, session: str, *replies: dict[str, Any], options: tuple[str, ...] = ()) -> Iterator[Terminal]:
    """A conversation with a scripted model; with no replies, in a session that is there."""
    new = ("--script", script(home, session, *replies)) if replies else ()
    with terminal(home, "chat", "--session", session, *new, *options, NO_COLOR="1") as child:
        yield child


def say(child: Terminal, text: str) -> None:
    """Once no turn runs."""
    child.until(IDLE)
    child.send(f"{text}\r")


def leave(child: Terminal) -> None:
    child.until(IDLE)
    child.send("\x04")
    assert ended(child) == 0


def said(home: Home, session: str) -> list[str]:
    """What was said in a session, in short."""
    lines = []
    for message in home.json("sessions", "show", session, "--all")["messages"]:
        told = message.get("text") or "; ".join(one["status"] for one in message.get("responses", ()))
        lines.append(f"{message['kind']}: {told}")
    return lines


def test_a_reply_is_seen_while_it_is_written_and_printed_once_when_it_is_complete(home: Home) -> None:
    long = "\n".join(f"line {number} of it" for number in range(60))
    replies = ({"text": long}, {"text": "Second \x1b]0;owned\x07answer."}, {"text": SLOW, "seconds": 600})
    with chat(home, "talk", *replies) as child:
        child.expect("Session talk, model scripted")
        child.expect("Come back with: holdfast chat --resume --session talk")
        say(child, "First")
        child.expect("line 59 of it")
        say(child, "Second")
        assert "line 59 of it" not in child.before
        child.expect("Second ␛.*answer")
        assert "\x1b]0;owned" not in child.raw
        say(child, "Third")
        child.expect("one t")
        child.until("Enter adds a message  Esc stops the turn  Ctrl-D leaves")
        child.sendintr()
        child.expect("one t.* …")
        child.expect("The turn was cancelled")
        leave(child)
    assert said(home, "talk")[:3] == ["user: First", f"assistant: {long}", "user: Second"]


def test_a_diff_is_shown_and_approved_by_a_key_and_the_answer_follows(home: Home) -> None:
    write = call("write_file", path="chat.txt", content="fresh line\n")
    with chat(home, "diffs", {"text": "I write.", "calls": [write]}, {"text": "Written."}) as child:
        say(child, "Write it")
        child.expect("I write.")
        child.expect("Approve call 1 of 1")
        child.expect(r"\+fresh line")
        child.expect(KEYS)
        child.send("y")
        child.expect("Approved")
        child.expect("b1c1 1/1.*success")
        child.expect("Written.")
        leave(child)
    assert (home.workspace / "chat.txt").read_text() == "fresh line\n"


def test_S24_always_says_how_far_it_goes_and_the_next_turn_is_not_asked(home: Home) -> None:
    run = {"calls": [call("shell", command="echo again")]}
    with chat(home, "always", run, {"text": "Done."}, run, {"text": "Done again."}) as child:
        say(child, "Run it")
        child.expect(KEYS)
        child.send("a")
        child.expect(r"1\. .*--always")
        child.expect("from now on, as 1")
        child.send("y")
        child.expect("allows from now on: .*until the session ends")
        child.expect("Done.")
        say(child, "Run it again")
        child.expect("Done again.")
        assert "Approve call" not in child.before
        say(child, "/grants")
        child.expect("g1.*allows")
        leave(child)


def test_a_refusal_with_words_reaches_the_model_and_the_conversation_goes_on(home: Home) -> None:
    run = {"calls": [call("shell", command="rm -rf build")]}
    with chat(home, "refused-chat", run, {"text": "Then not."}) as child:
        say(child, "Clean up")
        child.expect(KEYS)
        child.send("r")
        child.expect("why> ")
        child.sendline("I need the build")
        child.expect("Refused, and the model reads why")
        child.expect("Then not.")
        leave(child)
    told = home.json("sessions", "show", "refused-chat", "--all")["messages"]
    assert "I need the build" in json.dumps(told)


def test_S18_ctrl_c_stops_the_turn_and_the_conversation_goes_on(home: Home) -> None:
    wait = {"calls": [call("shell", command="sleep 600")]}
    with chat(home, "stopped-chat", wait, {"text": "Still here."}) as child:
        say(child, "Wait")
        child.expect(KEYS)
        child.send("y")
        child.expect("executing")
        child.sendintr()
        child.expect("Stopping the turn")
        child.expect("The turn was cancelled")
        say(child, "Are you there?")
        child.expect("Still here.")
        leave(child)


def test_S18_messages_are_typed_while_a_turn_runs_and_interrupt_or_wait(home: Home) -> None:
    wait = {"calls": [call("shell", command="echo begun; while [ ! -e go ]; do sleep 0.05; done")]}
    replies = (wait, {"calls": [call("shell", command="echo later")]}, {"text": "After that."}, {"text": "At last."})
    with chat(home, "steered", *replies) as child:
        say(child, "Begin")
        child.expect(KEYS)
        child.send("/queue Later\r")
        child.expect("Queued: Later")
        child.until(KEYS)
        child.send("y")
        child.expect("│ begun")
        child.send("By the way\r")
        child.expect("› By the way")
        child.send("/interrupt Stop that\r")
        child.expect("interrupts: Stop that")
        (home.workspace / "go").touch()
        child.expect("Approve call 1 of 1")
        child.expect(KEYS)
        child.send("y")
        child.expect("After that.")
        child.expect("› Later")
        child.expect("At last.")
        leave(child)
    assert said(home, "steered") == [
        "user: Begin",
        "assistant: ",
        "tool: success",
        "user: By the way",
        "user: Stop that",
        "assistant: ",
        "tool: success",
        "assistant: After that.",
        "user: Later",
        "assistant: At last.",
    ]


@pytest.mark.parametrize("how", ["left", "killed"])
def test_an_approval_waits_for_whoever_comes_back_to_the_conversation(how: str, home: Home) -> None:
    session = f"back-{how}"
    ask = {"calls": [call("shell", command="echo waited")]}
    with chat(home, session, {"text": "Hello."}, ask, {"text": "It ran."}) as child:
        say(child, "Hi")
        child.expect("Hello.")
        say(child, "Run it")
        child.expect("Approve call 1 of 1. ([^\n]*)\n")
        title = child.match[1]
        child.expect(KEYS)
        if how == "left":
            child.send("\x04")
            child.expect(f"Left; the turn goes on. Come back with: holdfast chat --resume --session {session}")
            assert ended(child) == 0
        else:
            child.kill()
    [waiting] = home.json("sessions", "show", session)["pending"]
    assert waiting == f"{session}~2/b1c1/1"
    with chat(home, session, options=("--resume",)) as child:
        child.expect("waiting for confirmation of 1")
        child.expect("› Hi")
        child.expect("Hello.")
        child.expect("› Run it")
        child.expect(f"Approve call 1 of 1. {re.escape(title)}")
        child.expect(KEYS)
        child.send("y")
        child.expect("It ran.")
        leave(child)


def test_the_newest_open_session_is_resumed_and_without_one_there_is_nothing_to_go_on_with(empty: Home) -> None:
    with empty.up("--no-gateway"):
        with terminal(empty, "chat", "--resume") as child:
            child.expect("no session is open: start one with `holdfast chat`")
            assert ended(child) == 1
        with terminal(empty, "chat", "--script", script(empty, "newest", {"text": "Hello."})) as child:
            child.expect("Session (session-[0-9a-f]+), model scripted")
            session = child.match[1]
            say(child, "Hi")
            child.expect("Hello.")
            leave(child)
        with terminal(empty, "chat", "--resume", NO_COLOR="1") as child:
            child.expect(f"session .*{session}.*idle")
            child.expect("› Hi")
            say(child, "/close")
            child.expect(f"Session {session} is closed")
            assert ended(child) == 0
        with chat(empty, session, options=("--resume",)) as child:
            child.expect(f"session '{session}' was closed: start another")
            assert ended(child) == 1


def test_what_is_typed_at_the_prompt(home: Home) -> None:
    with chat(home, "typed", {"text": "Read."}, {"text": "Read too."}) as child:
        say(child, "/help")
        child.expect("/mode MODE")
        child.expect("Esc or Ctrl-C stops the turn")
        say(child, "/nonsense")
        child.expect("no command is called /nonsense. /help lists the commands; // sends it as a message")
        child.until("› /nonsense$")
        child.send("\x15/mode plan\r")
        child.expect("The next turns run in mode plan")
        say(child, "/status")
        child.expect("No message was sent yet")
        child.send("half a line")
        child.until("› half a line")
        child.sendintr()
        child.until("›$")
        child.send("\x1b[200~pasted\r\nlines\x1b[201~ and \\\r")
        child.until("… lines and\n…$")
        child.send("the rest\x1b\rof it\r")
        child.expect("Read.")
        child.until(IDLE)
        child.sendintr()
        child.expect("Ctrl-C again leaves")
        say(child, "//slashed")
        child.expect("Read too.")
        say(child, "/status")
        child.expect("model scripted, 2 turns, 4 messages")
        child.expect("mode plan")
        child.sendintr()
        child.expect("Ctrl-C again leaves")
        child.sendintr()
        child.expect("Left. Come back with: holdfast chat --resume --session typed")
        assert ended(child) == 130
    assert said(home, "typed")[0] == "user: pasted\nlines and \nthe rest\nof it"
    assert said(home, "typed")[2] == "user: /slashed"


def test_a_key_answers_only_where_nothing_is_being_typed(home: Home) -> None:
    """A word that begins with y is not a yes."""
    with chat(home, "typing", {"calls": [call("shell", command="echo careful")]}, {"text": "Done."}) as child:
        say(child, "Run it")
        child.until("executing|validating|awaiting|thinks")
        child.send("x")
        child.until("send or clear your message")
        child.send("yes, no")
        child.until("› xyes, no$")
        [waiting] = home.listed("typing~1")
        child.send("\x15")
        child.until(KEYS)
        child.send("y")
        child.expect("Approved")
        child.expect("Done.")
        leave(child)
    assert waiting["approval_id"] == "typing~1/b1c1/1"


def test_S18_escape_stops_the_turn_and_what_was_typed_stays(home: Home) -> None:
    with chat(home, "escaped", {"calls": [call("shell", command="sleep 600")]}, {"text": "Here."}) as child:
        say(child, "Wait")
        child.expect(KEYS)
        child.send("y")
        child.expect("executing")
        child.send("Are you there?")
        child.until("› Are you there[?]")
        child.send("\x1b")
        child.expect("Stopping the turn")
        child.expect("The turn was cancelled")
        child.until(IDLE)
        child.send("\r")
        child.expect("Here.")
        leave(child)
    assert said(home, "escaped")[-2:] == ["user: Are you there?", "assistant: Here."]


def test_messages_are_kept_for_the_next_chat_in_a_private_file_and_commands_and_files_are_completed(home: Home) -> None:
    (home.workspace / "a-long-name.txt").touch()
    with chat(home, "first-chat", {"text": "One."}) as child:
        say(child, "Something to find again")
        child.expect("One.")
        leave(child)
    assert stat.S_IMODE((home.data / "chat_history").stat().st_mode) == 0o600
    with chat(home, "second-chat", {"text": "Two."}) as child:
        child.until(IDLE)
        child.send("\x1b[A")
        child.until("› Something to find again$")
        child.send("\x15/sta")
        child.until("^ /status  the state of the session$")
        child.send("\t")
        child.until("› /status$")
        child.send("\x15Read @a-lo")
        child.until("^ a-long-name.txt$")
        child.send("\t")
        child.until("› Read @a-long-name.txt$")
        child.send("\r")
        child.expect("Two.")
        leave(child)
    assert said(home, "second-chat")[0] == "user: Read @a-long-name.txt"


def test_S31_a_killed_worker_only_delays_the_conversation(empty: Home) -> None:
    wait = {"calls": [call("shell", command="echo begun; while [ ! -e go ]; do sleep 0.05; done")]}
    with empty.up("--no-gateway") as up, chat(empty, "survives", wait, {"text": "All the same."}) as child:
        say(child, "Begin")
        child.expect(KEYS)
        child.send("y")
        child.expect("│ begun")
        os.kill(up.where["worker"], signal.SIGKILL)
        (empty.workspace / "go").touch()
        child.expect("All the same.")
        leave(child)


def test_the_screen_says_that_it_waits_for_a_worker_and_goes_on_when_one_is_back(empty: Home) -> None:
    wait = {"calls": [call("shell", command="echo begun; while [ ! -e go ]; do sleep 0.05; done")]}
    with empty.up("--no-gateway") as up, chat(empty, "deserted", wait, {"text": "Back."}) as child:
        say(child, "Begin")
        child.expect(KEYS)
        child.send("y")
        child.expect("│ begun")
        os.kill(up.where["worker"], signal.SIGSTOP)
        try:
            child.expect("no worker answers: waiting for one")
        finally:
            os.kill(up.where["worker"], signal.SIGCONT)
        (empty.workspace / "go").touch()
        child.expect("Back.")
        leave(child)


def test_a_second_ctrl_c_leaves_a_turn_that_does_not_stop(empty: Home) -> None:
    wait = {"calls": [call("shell", command="echo begun; sleep 600")]}
    with empty.up("--no-gateway") as up, chat(empty, "hanging", wait) as child:
        say(child, "Begin")
        child.expect(KEYS)
        child.send("y")
        child.expect("│ begun")
        os.kill(up.where["worker"], signal.SIGSTOP)
        try:
            child.sendintr()
            child.expect("Stopping the turn; Ctrl-C again leaves")
            child.sendintr()
            child.expect("Left; the turn goes on. Come back with: holdfast chat --resume --session hanging")
            assert ended(child) == 130
        finally:
            os.kill(up.where["worker"], signal.SIGCONT)


def test_a_message_that_nobody_takes_is_offered_again(empty: Home) -> None:
    with empty.up("--no-gateway") as up:
        os.kill(up.where["worker"], signal.SIGSTOP)
        try:
            with chat(empty, "offered", {"text": "Heard."}) as child:
                say(child, "Anybody?")
                child.expect("Not sent: no worker answered")
                child.until("› Anybody[?]$")
                os.kill(up.where["worker"], signal.SIGCONT)
                child.send("\r")
                child.expect("Heard.")
                leave(child)
        finally:
            os.kill(up.where["worker"], signal.SIGCONT)
        assert said(empty, "offered") == ["user: Anybody?", "assistant: Heard."]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--model", "nonsense"], 2, "'nonsense' is not a model: give PROVIDER:MODEL"),
        (["--model", "scripted"], 2, "a scripted model needs its replies: give --script FILE"),
        (["--model", "a:b", "--script", "c"], 2, "give --model or --script, not both"),
        (["--script", "missing.json"], 2, "no file is called 'missing.json'"),
        (["--script", "typed.json", "--fallback", "a:b"], 2, "--fallback needs --model"),
        ([], 2, "no model is set: give --model PROVIDER:MODEL or --script FILE"),
        (["--session", "unknown-one", "--resume"], 1, "no session is called 'unknown-one'"),
        (["--session", "never-begun", "--max-steps", "3"], 2, "no model is set"),
        (["--session", "a~1"], 2, "a session's id has between 1 and 400 characters, and no ~"),
        (["--session", " "], 2, "the session's id is empty"),
    ],
)
def test_a_conversation_that_cannot_begin_says_why(options: list[str], code: int, words: str, home: Home) -> None:
    with terminal(home, "chat", *options) as child:
        child.expect_exact(words)
        assert ended(child) == code


def test_without_a_terminal_there_is_no_conversation(empty: Home) -> None:
    done = empty.run("chat", stdin="Hello\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "a chat needs a terminal: to ask one question, use `holdfast run`" in done.stderr


def test_what_a_delegated_task_asks_is_asked_in_the_same_conversation(home: Home) -> None:
    task = {"calls": [call("delegate", prompt="Write it")]}
    inner = [{"calls": [call("write_file", path="delegated.txt", content="by another\n")]}, {"text": "It is written."}]
    file = home.folder / "delegating.json"
    file.write_text(json.dumps({"script": [task, {"text": "All done."}], "delegated": {"Write it": inner}}))
    with terminal(home, "chat", "--session", "delegating", "--script", file.name, NO_COLOR="1") as child:
        say(child, "Have it written")
        child.expect("Approve call 1 of 1, of a delegated task")
        child.expect(r"\+by another")
        child.expect(KEYS)
        child.send("y")
        child.expect("Approved")
        child.expect("All done.")
        leave(child)
    assert (home.workspace / "delegated.txt").read_text() == "by another\n"
