"""The vocabulary of decisions on the command line: from now on, not any more, otherwise, in time (S21 to S28)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Home, call

TWIN = "`echo twin`, exactly these words"
RULES = """
[[rule]]
name = "releases"
decision = "ask"
command = "echo release"
role = "release"
approvals = 2
not_requester = true
deadline = "2h"
on_deadline = "deny"

[[rule]]
name = "soon"
decision = "ask"
command = "echo soon"
deadline = "1h"
warning = "59m59s"
on_deadline = "allow"
"""
TOOLS = '''
from holdfast import tool

@tool
async def publish(title: str, copies: int) -> str:
    """Publish.

    Args:
        title: Its title.
        copies: How many.
    """
    return f"{copies} of {title}"

tools = [publish]
'''


def asked(home: Home, turn: str, *calls: dict[str, Any], options: tuple[str, ...] = ()) -> None:
    """A turn of which the last call waits for a decision."""
    home.start(turn, *calls, options=options)
    home.seen(turn, call=f"b1c{len(calls)}", after="awaiting_approval")


def waiting(home: Home, turn: str) -> list[str]:
    return [item["approval_id"] for item in home.json("turn", "show", turn)["approvals"]]


def told(home: Home, *arguments: str, **env: str) -> dict[str, Any]:
    """What became of one decision that counts."""
    done = home.run(*arguments, "--json", **env)
    assert done.returncode == 0, done.stderr
    [item] = json.loads(done.stdout)["decisions"]
    return dict(item)


def whole(home: Home, turn: str, name: str = "b1c1") -> dict[str, Any]:
    return dict(home.json("turn", "show", turn, "--call", name))


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A running `holdfast up` where only signed decisions count, and where some calls need two people."""
    made = Home(tmp_path_factory.mktemp("strict"))
    folder = made.folder / "config" / "holdfast"
    keys = [made.run("keys", "create", name).stdout + 'roles = ["release"]\n' for name in ("ada", "ben")]
    (folder / "rules.toml").write_text(RULES)
    (folder / "strict_tools.py").write_text(TOOLS)
    settings = 'policy = ["rules.toml"]\n[tools]\nmodules = ["strict_tools:tools"]\n'
    (folder / "holdfast.toml").write_text(settings + "".join(keys))
    (folder / "holdfast.toml").chmod(0o600)
    made.env["HOLDFAST_KEY"] = "ada"
    with made.up("--no-gateway"):
        yield made


def test_S24_always_says_what_it_covers_before_and_answers_what_waits_beside_it(home: Home) -> None:
    asked(home, "twins", *(call("shell", command=f"echo {word}") for word in ("twin", "twin", "other")))
    shown = home.run("turn", "show", "twins").stdout
    assert f"    1. {TWIN}  (--always)" in shown
    assert "    2. every call of `shell`, but not commands that are known to destroy" in shown

    done = home.run("approve", "twins/b1c1/1", "--always", "--by", "ana")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith(f"twins/b1c1/1: allows from now on: {TWIN}; until the turn ends")
    assert second == (
        "twins/b1c1/1: decided; the call is scheduled. Gave grant twins/g1 (holdfast grants revoke twins/g1)."
    )
    assert home.seen("twins", call="b1c2", after="scheduled")["by"] == "ana"
    assert waiting(home, "twins") == ["twins/b1c3/1"]
    shown = home.run("turn", "show", "twins").stdout
    assert "approved from now on by ana (rule default: changes-ask)" in shown
    assert f"let run by ana (grant g1: {TWIN})" in shown
    assert "1 grant: holdfast grants --turn twins" in shown
    home.json("deny", "twins/b1c3/1")


@pytest.mark.needs("git")
def test_S21_another_answer_is_chosen_by_its_number_and_the_decision_names_its_scope(home: Home) -> None:
    asked(home, "numbered", call("shell", command="git status -s"))
    found = told(home, "approve", "numbered/b1c1/1", "--scope", "2")
    assert (found["grant"], found["counted"]) == ("numbered/g1", True)
    assert found["covers"] == "`git status` with further words that are known to be harmless"
    decision = whole(home, "numbered")["decision"]
    assert decision["outcome"] == "proceed_always"
    assert decision["scope"]["command"] == ["git status"]


@pytest.mark.parametrize(
    ("option", "covers"), [("--always-tool", "every call of `write_file`"), ("--always", "edits of `w--always.txt`")]
)
def test_S21_the_kinds_of_standing_answers_have_options_of_their_own(home: Home, option: str, covers: str) -> None:
    turn = f"kind{option}"
    asked(home, turn, call("write_file", path=f"w{option}.txt", content="w\n"))
    assert told(home, "approve", f"{turn}/b1c1/1", option)["covers"].startswith(covers)
    missing = home.run("approve", f"{turn}/b1c1/1", "--always-server")
    assert (missing.returncode, missing.stdout) == (1, "")


def test_S24_an_answer_for_a_while_and_a_number_of_calls_says_so_and_goes_no_further(home: Home) -> None:
    asked(home, "bounded", *(call("shell", command="echo twin") for _ in range(4)))
    options = ("--always", "--uses", "2", "--expires", "1h", "--for", "turn")
    done = home.run("approve", "bounded/b1c1/1", *options)
    assert done.returncode == 0, done.stderr
    assert "; for 2 more calls; until " in done.stdout
    assert re.search(r"\(in (1 h|5\d min)\); until the turn ends", done.stdout), "seconds have passed meanwhile"
    home.seen("bounded", call="b1c3", after="scheduled")
    assert waiting(home, "bounded") == ["bounded/b1c4/1"]
    [grant] = home.json("grants", "--turn", "bounded")["grants"]
    assert (grant["uses_left"], grant["for"], grant["stands"]) == (0, "turn", False)
    left = datetime.fromisoformat(grant["expires"]) - datetime.now(UTC)
    assert timedelta(minutes=55) < left <= timedelta(hours=1)
    assert "used up; expires in 59 min" in home.run("grants", "--turn", "bounded").stdout
    home.json("deny", "--turn", "bounded")


def test_S24_of_a_turns_calls_those_that_an_answer_covers_need_no_further_one(home: Home) -> None:
    asked(home, "several-twins", *(call("shell", command="echo twin") for _ in range(4)))
    done = home.run("approve", "--turn", "several-twins", "--always")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"allows from now on: {TWIN}") == 4
    home.seen("several-twins", kind="turn", after="completed")


def test_S24_a_refusal_is_remembered_and_refuses_what_waits_beside_it(home: Home) -> None:
    asked(home, "never", *(call("shell", command=f"echo {word}") for word in ("twin", "twin", "other")))
    done = home.run("deny", "never/b1c1/1", "--remember", "--by", "ana", "--note", "not here")
    assert done.returncode == 0, done.stderr
    assert f"never/b1c1/1: refuses from now on: {TWIN}" in done.stdout
    refused = home.seen("never", call="b1c2", after="cancelled")
    assert (refused["by"], "not here" in refused["error"]) == ("ana", True)
    assert waiting(home, "never") == ["never/b1c3/1"]
    home.json("deny", "never/b1c3/1", "--stop-turn")


def test_S25_a_call_is_changed_shown_again_and_the_model_is_told(home: Home) -> None:
    asked(home, "changed", call("write_file", path="changed.py", content="one = 1\n"))
    (home.folder / "better.py").write_text("two = 2\n")
    done = home.run("modify", "changed/b1c1/1", "--content", "better.py", "--by", "ben")
    assert done.returncode == 0, done.stderr
    assert "changed/b1c1/2" in done.stdout
    assert "+two = 2" in done.stdout
    assert "arguments changed by ben" in done.stdout
    assert done.stdout.endswith("it needs approval again: holdfast approve changed/b1c1/2\n")

    same = home.run("modify", "changed/b1c1/2", "--content", "-", stdin="two = 2\n")
    assert (same.returncode, "no change, so nothing was sent" in same.stdout) == (0, True)
    old = home.run("modify", "changed/b1c1/1", "--content", "better.py")
    assert (old.returncode, "look at 'changed/b1c1/2'" in old.stderr) == (1, True)

    arguments = json.dumps({"path": "../out.py", "content": "x"})
    bad = home.run("modify", "changed/b1c1/2", "--arguments", arguments)
    assert bad.returncode == 1
    assert "the change was refused: Invalid arguments" in bad.stderr
    assert "the last change was refused: Invalid arguments" in home.run("turn", "show", "changed").stdout

    (home.folder / "arguments.json").write_text(json.dumps({"path": "other.py", "content": "three = 3\n"}))
    found = home.json("modify", "changed/b1c1/2", "--arguments", "@arguments.json", "--approve")
    assert (found["changed"], found["asked"]) == (True, None)
    home.seen("changed", kind="turn", after="completed")
    assert (home.workspace / "other.py").read_text() == "three = 3\n"
    assert not (home.workspace / "changed.py").exists()
    [response] = home.json("turn", "show", "changed")["result"]["batches"][0]["responses"]
    assert response["note"].startswith("ben and ")
    shown = home.run("turn", "show", "changed").stdout
    assert "approved by " in shown
    assert "; arguments changed by ben and " in shown


def test_S25_an_approval_may_bring_other_content_in_one_step(home: Home) -> None:
    asked(home, "instead", call("shell", command="echo asked"), call("shell", command="echo same"))
    assert told(home, "approve", "instead/b1c1/1", "--arguments", '{"command": "echo instead"}')["counted"]
    (home.folder / "same.sh").write_text("echo same")
    assert told(home, "approve", "instead/b1c2/1", "--content", "same.sh")["counted"]
    home.seen("instead", kind="turn", after="completed")
    first, second = home.json("turn", "show", "instead")["result"]["batches"][0]["responses"]
    assert (first["parts"][0]["text"], "echo instead" in first["note"]) == ("instead\n", True)
    assert (second["parts"][0]["text"], second["note"]) == ("same\n", None)


def test_S27_the_mode_of_a_running_turn_is_changed_and_what_waits_is_judged_again(home: Home) -> None:
    asked(home, "modes", call("write_file", path="modes.txt", content="m\n"), call("shell", command="echo m"))
    done = home.run("turn", "mode", "modes", "auto_edit", "--by", "ana")
    assert (done.returncode, done.stdout.startswith("Turn modes is in mode auto_edit")) == (0, True)
    assert home.seen("modes", kind="turn", after="mode")["by"] == "ana"
    home.seen("modes", call="b1c1", after="scheduled")
    assert waiting(home, "modes") == ["modes/b1c2/1"]
    shown = home.run("turn", "show", "modes").stdout
    assert "  mode auto_edit" in shown
    assert "let run by policy: default: edits-proceed" in shown
    home.json("deny", "--turn", "modes")
    home.seen("modes", kind="turn", after="completed")
    late = home.run("turn", "mode", "modes", "plan")
    assert (late.returncode, "has ended" in late.stderr) == (1, True)


def test_S28_a_deadline_is_shown_and_its_default_is_the_runtimes_word(home: Home) -> None:
    asked(home, "hour", call("shell", command="echo late"), options=("--approval-deadline", "1h"))
    home.listed("hour")
    for arguments in (["inbox", "--turn", "hour"], ["turn", "show", "hour"]):
        assert "  deadline in 59 min, then denied" in home.run(*arguments).stdout
    home.json("deny", "--turn", "hour")
    home.start("second", call("shell", command="echo late"), options=("--approval-deadline", "1s"))
    ended = home.seen("second", call="b1c1", after="error")
    assert (ended["actor"], ended["error"].partition(":")[0]) == ("runtime", "expired")
    shown = home.run("turn", "show", "second").stdout
    assert "denied, since nobody answered before the deadline" in shown
    assert "(by runtime: deadline)" in home.run("turn", "watch", "second").stdout


def test_two_signatures_are_told_and_neither_can_be_for_good(strict: Home) -> None:
    asked(strict, "release", call("shell", command="echo release"), options=("--requester", "cid"))
    shown = strict.run("turn", "show", "release").stdout
    assert "0 of 2 approvals; from somebody with the role release; not from the person who started the turn" in shown
    assert "deadline in 1 h 59 min, then denied" in shown
    always = strict.run("approve", "release/b1c1/1", "--always")
    assert (always.returncode, always.stdout) == (1, "")
    assert "'release/b1c1/1' offers no grants" in always.stderr

    first = strict.run("approve", "release/b1c1/1")
    assert first.stdout == "release/b1c1/1: decided; the call needs another approver too.\n"
    assert "1 of 2 approvals (ada)" in strict.run("turn", "show", "release").stdout
    again = strict.run("approve", "release/b1c1/1")
    assert (again.returncode, "'ada' has already approved this call" in again.stderr) == (1, True)
    assert told(strict, "approve", "release/b1c1/1", HOLDFAST_KEY="ben")["counted"]
    strict.seen("release", kind="turn", after="completed")
    shown = strict.run("turn", "show", "release", "--call", "b1c1").stdout
    assert "approved  ada, ben" in shown


def test_S41_what_has_its_deadline_near_leads_the_inbox(strict: Home) -> None:
    asked(strict, "soon", call("shell", command="echo soon"))
    asked(strict, "later", call("shell", command="echo later"))
    strict.seen("soon", call="b1c1", before="awaiting_approval", after="awaiting_approval")
    wanted = [("soon/b1c1/1", True), ("later/b1c1/1", False)]

    def so(found: dict[str, Any]) -> bool:
        order = [(item["approval_id"], item["urgent"]) for item in found["approvals"]]
        return [item for item in order if item in wanted] == wanted

    strict.json_once(so, "inbox")
    assert "  deadline in 59 min, then denied" in strict.run("inbox").stdout, "keys: a deadline only denies"
    strict.json("deny", "soon/b1c1/1", "later/b1c1/1")


def test_S22_a_signed_standing_answer_counts(strict: Home) -> None:
    asked(strict, "signed", *(call("shell", command="echo twin") for _ in range(2)))
    assert told(strict, "approve", "signed/b1c1/1", "--always")["grant"] == "signed/g1"
    strict.seen("signed", kind="turn", after="completed")
    assert whole(strict, "signed", "b1c2")["actor"] == {"kind": "person", "name": "ada"}


def test_S25_a_tool_without_a_text_of_its_own_is_changed_by_its_arguments(strict: Home) -> None:
    asked(strict, "publish", call("publish", title="News", copies=1))
    content = strict.run("modify", "publish/b1c1/1", "--content", "-", stdin="x")
    assert (content.returncode, "give new `arguments` instead" in content.stderr) == (1, True)
    same = strict.json("modify", "publish/b1c1/1", "--arguments", '{"copies": 1, "title": "News"}')
    assert (same["counted"], same["changed"]) == (False, False)
    changed = strict.json("modify", "publish/b1c1/1", "--arguments", '{"copies": 2, "title": "News"}')
    assert changed["asked"]["approval_id"] == "publish/b1c1/2"
    strict.json("approve", "publish/b1c1/2")
    strict.seen("publish", kind="turn", after="completed")


ID = "some/b1c1/1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["approve", ID, "--uses", "0", "--always"], "--uses"),
        (["approve", ID, "--uses", "2"], "--uses, --for and --save are options of a grant: add --always"),
        (["approve", ID, "--save"], "are options of a grant"),
        (["approve", ID, "--always", "--save", "--uses", "2"], "leave out --uses or --save"),
        (["approve", ID, "--expires", "soon", "--always"], "'soon' must be a duration such as 90s"),
        (["approve", ID, "--expires", "9999d", "--always"], "at most a year"),
        (["approve", ID, "--expires", "\x1b[31m", "--always"], "must be a duration"),
        (["approve", ID, "--for", "ever", "--always"], "ever"),
        (["approve", ID, "--scope", "0"], "--scope"),
        (["approve", ID, "--scope", "one"], "--scope"),
        (["approve", ID, "--scope", "2", "--always-tool"], "each is another grant"),
        (["approve", ID, "--always", "--always-tool"], "each is another grant"),
        (["approve", ID, "other/b1c1/1", "--scope", "2"], "give one approval id"),
        (["approve", "--turn", "some", "--scope", "1"], "give one approval id"),
        (["approve", ID, "--always", "--content", "text"], "change one call: give one approval id"),
        (["approve", ID, "other/b1c1/1", "--content", "text"], "give one approval id"),
        (["approve", ID, "--content", "text", "--arguments", "{}"], "not both"),
        (["deny", ID, "--save"], "add --remember"),
        (["deny", ID, "--expires", "1h"], "add --remember"),
        (["modify", "nonsense"], "is not an approval id"),
        (["modify", ID], "an editor needs a terminal"),
        (["modify", ID, "--arguments", '{"a": '], "the value of --arguments is not JSON: Expecting value"),
        (["modify", ID, "--arguments", "[1]"], "is an array, and must be an object of arguments"),
        (["modify", ID, "--arguments", '{"a": NaN}'], "NaN is not a JSON value"),
        (["modify", ID, "--arguments", '{"a": "\\ud800"}'], "holds half a character"),
        (["modify", ID, "--arguments", "[" * 100_000], "is nested too deeply"),
        (["modify", ID, "--arguments", "@missing.json"], "no file is called 'missing.json'"),
        (["modify", ID, "--arguments", "-"], "is empty"),
        (["modify", ID, "--content", "missing.txt"], "no file is called 'missing.txt'"),
        (["modify", ID, "--content", "."], "'.' is a folder, not a file"),
        (["modify", ID, "--content", "bytes"], "is not UTF-8 text: byte 1"),
        (["modify", ID, "--content", "long"], "the text has 1,000,001 characters, over the limit of 1,000,000"),
        (["modify", ID, "--content", "giant"], "over the limit of 1,000,000"),
        (["modify", ID, "--content", "text", "--arguments", "{}"], "not both"),
        (["turn", "mode", "some", "fast"], "fast"),
        (["turn", "start", "--calls", "text", "--approval-deadline", "1"], "'1' must be a duration"),
        (["turn", "start", "--calls", "text", "--requester", "x" * 501], "at most 500 characters"),
        (["grants", "revoke"], "Missing argument"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_server_is_asked(
    arguments: list[str], words: str, empty: Home
) -> None:
    files = {"text": b"text", "bytes": b"a\xff", "long": b"x" * 1_000_001, "giant": b"x" * 8_000_001}
    for name, data in files.items():
        if name in arguments:
            (empty.folder / name).write_bytes(data)
    done = empty.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["approve", "odd/b1c1/1", "--scope", "9"], "'odd/b1c1/1' offers 2 grants, not 9"),
        (["approve", "odd/b1c1/2", "--always"], "the latest is revision 1"),
        (["approve", "odd/b1c7/1", "--always"], "no pending approval 'odd/b1c7/1'"),
        (["approve", "nowhere/b1c1/1", "--always"], "no turn is called 'nowhere'"),
        (["approve", "odd/b1c1/1", "--always-server"], "offers no such grant, only --always, --always-tool"),
        (["modify", "odd/b1c1/1", "--arguments", '{"commnd": "x"}'], "the change was refused"),
        (["modify", "odd/b1c1/1", "--content", "blank"], "the change was refused"),
        (["modify", "odd/b1c2/1", "--content", "blank"], "this is a question: holdfast respond odd/b1c2/1"),
        (["modify", "nowhere/b1c1/1", "--content", "blank"], "no turn is called 'nowhere'"),
    ],
)
def test_what_a_turn_does_not_take_is_refused_and_changes_nothing(arguments: list[str], words: str, odd: Home) -> None:
    done = odd.run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert waiting(odd, "odd") == ["odd/b1c1/1", "odd/b1c2/1"]


@pytest.fixture(scope="module")
def odd(home: Home) -> Home:
    """A turn with a command and a question that wait."""
    (home.folder / "blank").write_text(" ")
    asked(home, "odd", call("shell", command="echo odd"), call("ask_user", question="Why?"))
    return home


def test_a_change_of_a_megabyte_is_taken_and_a_larger_one_told(home: Home, tmp_path: Path) -> None:
    asked(home, "mega", call("write_file", path="mega.txt", content="small\n"))
    text = tmp_path / "text"
    text.write_text("x" * 1_000_000)
    large = home.run(
        "modify", "mega/b1c1/1", "--arguments", "-", stdin=json.dumps({"path": "m", "content": "x" * 1_048_577})
    )
    assert (large.returncode, "the limit is 1,048,576" in large.stderr) == (1, True)
    assert told(home, "approve", "mega/b1c1/1", "--content", str(text))["counted"]
    home.seen("mega", kind="turn", after="completed")
    assert (home.workspace / "mega.txt").stat().st_size == 1_000_000
