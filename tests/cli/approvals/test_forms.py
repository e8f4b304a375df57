"""What MCP servers ask, on the command line and on a terminal: who asks, field by field, and nothing typed is lost."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.screens import ended, terminal
from tests.cli.support import Home, call
from tests.cli.turns.test_terminal import calls_file
from tests.support.mcp.mcp_servers import OURS, node_server

FIELDS: dict[str, Any] = {
    "name": {"type": "string", "minLength": 2},
    "age": {"type": "integer", "title": "Your \x1b[31mage", "maximum": 150},
    "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
    "seats": {"type": "integer", "default": 2},
}
SCHEMA = {"type": "object", "properties": FIELDS, "required": ["name"]}
URL = {"mode": "url", "message": "Pay", "url": "https://example.org/pay", "elicitationId": "1"}


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A running Holdfast with a server of ours that asks what a call tells it to."""
    made = Home(tmp_path_factory.mktemp("asking"))
    with _with_server(made, "s", sys.executable, [str(OURS), str(made.folder)], 'act = "read"'):
        yield made


@contextmanager
def _with_server(home: Home, name: str, command: str, arguments: list[str], effects: str) -> Iterator[None]:
    file = home.folder / "config" / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True)
    words = f"command = {json.dumps(command)}\nargs = {json.dumps(arguments)}\n"
    file.write_text(f"[mcp.servers.{name}]\n{words}effects = {{ {effects} }}\n")
    with home.up("--no-gateway"):
        yield


def _form(message: str = "Who are you?", schema: Any = SCHEMA) -> dict[str, Any]:
    return call("s__act", then="ask", value={"message": message, "requestedSchema": schema})


def _asked(home: Home, turn: str, question: dict[str, Any]) -> str:
    """A turn that waits for the answer to a question; the id of that."""
    home.start(turn, question)
    return str(home.seen(turn, after="awaiting_approval", asks="question")["approval_id"])


def _heard(home: Home) -> Any:
    """The last reply that our server was given."""
    lines = (home.folder / "effects").read_text().splitlines()
    return json.loads([line for line in lines if line.startswith("reply ")][-1].removeprefix("reply "))


def _type(child: Any, *entries: tuple[str, str]) -> None:
    """At each prompt, a line."""
    for prompt, text in entries:
        child.expect(f"{re.escape(prompt)}> ")
        child.sendline(text)


# On a terminal


def test_S39_each_field_of_a_form_is_checked_when_it_is_entered_and_the_rest_is_kept(asking: Home) -> None:
    calls = calls_file(asking, "form.json", _form("Who \x1b[41mare you?"))
    with terminal(asking, "turn", "start", "--calls", calls, "--id", "form", "--wait", NO_COLOR="1") as child:
        child.expect("Call 1 of 1, s__act: the MCP server 's' asks you:")
        child.expect(r"  Who are you\?\n  4 fields \(\* required\): name\*, age, size, seats\n")
        child.expect(r"\(1 of 4\) name, required\n  text of at least 2 characters\n")
        _type(child, ("name", ""))
        child.expect("name is required\n")
        _type(child, ("name", "A"))
        child.expect("name must have at least 2 characters\n")
        _type(child, ("name", "Ana"))
        child.expect(r"\(2 of 4\) age\n  Your ␛\[31mage\n  a whole number, at most 150; an empty line leaves it out")
        _type(child, ("age", "old"))
        child.expect("age must be a whole number\n")
        _type(child, ("age", "7"))
        child.expect(r"  1\. s \(Small\)\n  2\. l \(Large\)\n  one of these, by number or in words")
        _type(child, ("size", "XL"))
        child.expect("size must be one of these")
        _type(child, ("size", "2"))
        child.expect("an empty line takes 2; /none leaves it out")
        _type(child, ("seats", ""))
        child.expect(r"1\. name: Ana\n  2\. age: 7\n  3\. size: l \(Large\)\n  4\. seats: 2\n")
        _type(child, ("send", "age"))
        child.expect("an empty line keeps 7")
        _type(child, ("age", "8"), ("send", ""))
        child.expect("Answered.")
        assert ended(child) == 0
    assert "\x1b[41m" not in child.raw
    assert "\x1b[31m" not in child.raw
    assert _heard(asking) == {"action": "accept", "content": {"name": "Ana", "age": 8, "size": "l", "seats": 2}}


def test_S39_a_form_that_is_put_off_goes_on_where_it_was_and_says_respond(asking: Home) -> None:
    _asked(asking, "later", _form())
    with terminal(asking, "turn", "watch", "later", NO_COLOR="1") as child:
        _type(child, ("name", "Ana"), ("age", "/back"), ("name", "Bo"))
        child.expect("age> ")
        child.sendcontrol("d")
        child.expect("Skipped; later: holdfast respond later/b1c1/1 --content JSON")
        child.expect(r"1 waiting for an answer: press \[a\] to be asked, or use `holdfast respond`")
        child.send("a")
        child.expect(r"\(2 of 4\) age")
        _type(child, ("age", ""), ("size", "small"), ("seats", "/none"))
        child.expect(r"2\. age: left out\n  3\. size: s \(Small\)\n  4\. seats: left out")
        _type(child, ("send", ""))
        child.expect("Answered.")
        assert ended(child) == 0
    assert _heard(asking)["content"] == {"name": "Bo", "size": "s"}


def test_S39_ctrl_c_in_a_form_leaves_the_question_where_it_is(asking: Home) -> None:
    asked = _asked(asking, "left", _form())
    with terminal(asking, "turn", "watch", "left", NO_COLOR="1") as child:
        _type(child, ("name", "Ana"))
        child.expect("age> ")
        child.sendintr()
        child.expect("Detached; turn left goes on")
        assert ended(child) == 130
    assert [item["approval_id"] for item in asking.listed("left")] == [asked]
    with terminal(asking, "turn", "watch", "left", NO_COLOR="1") as child:
        _type(child, ("name", "/no"))
        child.expect("Refused.")
        assert ended(child) == 0
    assert _heard(asking) == {"action": "decline"}


def test_S39_an_address_is_agreed_to_on_a_terminal_with_done_alone(asking: Home) -> None:
    calls = calls_file(asking, "url.json", call("s__act", then="ask", value=URL))
    with terminal(asking, "turn", "start", "--calls", calls, "--id", "url", "--wait", NO_COLOR="1") as child:
        child.expect("https://example.org/pay\n")
        child.expect("the only answer is `done`")
        for text in ("no", "1", "what?"):
            _type(child, ("answer", text))
            child.expect("the only answer is `done`; /no declines")
        _type(child, ("answer", "Done"))
        child.expect("Answered.")
        assert ended(child) == 0
    assert _heard(asking) == {"action": "accept"}


# From the command line


def test_S41_a_question_says_who_asks_and_what_it_wants_wherever_it_is_shown(asking: Home) -> None:
    asked = _asked(asking, "who", _form())
    asking.listed("who")
    lines = (
        "The MCP server 's' asks:\n  Who are you?\n"
        "  name: text of at least 2 characters; required\n"
        "  age (Your ␛[31mage): a whole number, at most 150; may be left out\n"
        "  size: one of s (Small), l (Large); may be left out\n"
        "  seats: a whole number; default 2\n"
    )
    for words in (["inbox", "--turn", "who"], ["turn", "show", "who"], ["turn", "show", "who", "--call", "b1c1"]):
        shown = asking.run(*words).stdout
        assert re.search(rf"^{re.escape(asked)}   s__act(, \d+ s ago)?\n", shown, re.MULTILINE), words
        assert lines in shown, words
    refused = asking.run("respond", asked, "--content", '{"age": 7}')
    assert (refused.returncode, "'name' is missing" in refused.stderr) == (1, True)
    done = asking.run("respond", asked, "--content", '{"name": "Bo"}')
    assert (done.returncode, done.stdout) == (0, f"{asked}: answered; the tool goes on with it.\n")
    asking.seen("who", after="success")
    assert _heard(asking)["content"] == {"name": "Bo", "seats": 2}


def test_S41_of_a_long_form_the_inbox_says_how_many_fields_there_are_and_where(asking: Home) -> None:
    fields = {f"field{number}": {"type": "string", "description": "x" * 40} for number in range(60)}
    asked = _asked(asking, "long", _form("All of it", {"type": "object", "properties": fields}))
    asking.listed("long")
    assert "  All of it\n  60 fields: holdfast turn show long\n" in asking.run("inbox", "--turn", "long").stdout
    shown = asking.run("turn", "show", "long").stdout
    assert "  field49: text; may be left out. xxx" in shown
    assert "field50" not in shown
    assert "  … and 10 more: see all with `holdfast turn show long --call b1c1`\n" in shown
    assert "  field59: text" in asking.run("turn", "show", "long", "--call", "b1c1").stdout
    done = asking.run("deny", asked)
    assert done.stdout == f"{asked}: declined; the tool goes on without an answer.\n"
    asking.seen("long", after="success")
    assert _heard(asking) == {"action": "decline"}


def test_S39_only_done_is_consent_to_an_address_from_the_command_line(asking: Home) -> None:
    asked = _asked(asking, "pay", call("s__act", then="ask", value=URL))
    asking.listed("pay")
    shown = asking.run("inbox", "--turn", "pay").stdout
    assert f"Decide: holdfast respond {asked} --content done   or: holdfast deny {asked}" in shown
    for text in ("no", "1", "yes"):
        refused = asking.run("respond", asked, "--content", text)
        assert refused.returncode == 1
        assert "the only answer to this is `done`; to give no answer, use `holdfast deny`" in refused.stderr
    assert asking.run("respond", asked, "--content", " DONE ").returncode == 0
    asking.seen("pay", after="success")
    assert _heard(asking) == {"action": "accept"}


def test_S21_the_help_of_respond_tells_what_becomes_of_the_call(empty: Home) -> None:
    told = " ".join(empty.run("respond", "--help").stdout.split())
    assert "A tool that asks a question continues with your answer" in told
    assert "Any other call does not run" in told


# With a real server


def test_S39_the_form_of_server_everything_is_filled_in(tmp_path: Path) -> None:
    program = node_server("mcp-server-everything")
    home = Home(tmp_path / "home")
    with _with_server(home, "everything", program, ["stdio"], 'trigger-elicitation-request = "read"'):
        calls = calls_file(home, "all.json", call("everything__trigger-elicitation-request"))
        with terminal(home, "turn", "start", "--calls", calls, "--id", "e1", "--wait", NO_COLOR="1") as child:
            child.expect(
                r'everything__trigger-elicitation-request \("Trigger Elicitation Request Tool"\): the MCP server'
            )
            child.expect(r"13 fields \(\* required\): name\*, check, ")
            home.listed("e1")
            assert "  13 fields: holdfast turn show e1\n" in home.run("inbox").stdout
            _type(child, ("name", "Ana"), ("check", "yes"), ("firstLine", ""), ("email", "ana"))
            child.expect("email must be a mail address, as ana@example.org")
            _type(child, ("email", "ana@example.org"), ("homepage", "example.org"))
            child.expect("homepage must be an address, as https://example.org/page")
            _type(child, ("homepage", ""), ("birthdate", "2026-02-30"))
            child.expect("birthdate must be a date, as 2026-05-31")
            _type(child, ("birthdate", "1990-05-31"), ("integer", "101"))
            child.expect("integer must be at most 100")
            _type(child, ("integer", ""), ("number", "/none"), ("untitledSingleSelectEnum", "joey"))
            child.expect("1 to 3 of these, by numbers or words with commas between them; an empty line takes Guitar")
            _type(child, ("untitledMultipleSelectEnum", "2, bass"), ("titledSingleSelectEnum", "Wonder Woman"))
            _type(child, ("titledMultipleSelectEnum", "1,2,3,fish-4"))
            child.expect("and not 'fish-4'")
            _type(child, ("titledMultipleSelectEnum", "1,3"))
            child.expect(r"2\. pet-2 \(Dogs\)")
            _type(child, ("legacyTitledEnum", ""), ("send", ""))
            child.expect("Answered.")
            assert ended(child) == 0
        told = home.run("turn", "output", "e1", "b1c1").stdout
    raw = json.loads(told.partition("Raw result: ")[2])
    assert raw == {
        "action": "accept",
        "content": {
            "name": "Ana",
            "check": True,
            "firstLine": "It was a dark and stormy night.",
            "email": "ana@example.org",
            "birthdate": "1990-05-31",
            "integer": 42,
            "untitledSingleSelectEnum": "Joey",
            "untitledMultipleSelectEnum": ["Piano", "Bass"],
            "titledSingleSelectEnum": "hero-3",
            "titledMultipleSelectEnum": ["fish-1", "fish-3"],
            "legacyTitledEnum": "pet-1",
        },
    }
