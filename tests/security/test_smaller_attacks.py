"""Smaller ways in: what is shown to the person who decides, and what a word of theirs covers."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.activities.mcp.server.definitions import Definition
from holdfast.activities.mcp.server.elicitation_forms import build_question
from holdfast.activities.policy.grants import EXCEPTIONS, build_offers, find_covering_grant
from holdfast.activities.policy.rules import Rule
from holdfast.activities.policy.saved_grants import save_grant
from holdfast.config.settings import Settings
from holdfast.domain.approvals.approval import ApprovalId, Confirmation, Decision, DecisionAction
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.call import Call, CallRequest, Status
from holdfast.domain.turn.approval_view import build_approval_view, build_inbox_summary
from holdfast.errors import BadInput
from holdfast.workers.terminal import approval_text
from tests.cli.support import Home, call
from tests.support.policies import run
from tests.support.rendering import printed
from tests.unit.activities.mcp.tools.test_mcp_tool import asked

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def empty(tmp_path: Path) -> Home:
    """A data folder on which nothing runs."""
    return Home(tmp_path / "home")


# Secrets in the settings file

SETTINGS = """
[[hooks]]
name = "h"
when = "before"
command = ["./h.py", "--api-key", "hidden-1-abc", "--at", "https://u:hidden-2-abc@h/x", "--plain", "shown-1"]
environment = { TOKEN = "hidden-3", LD_PRELOAD = "/shown-2.so", ODD = "ghp_hidden40123456789XYZ" }
[[discovery]]
name = "d"
discovery_command = "./d --password hidden-5"
call_command = "./d --password=hidden-6"
[mcp.servers.a]
command = "npx"
args = ["-y", "@shown/shown-3", "--token=hidden-7"]
env = { API_KEY = "${K:-hidden-9}", FOREIGN = "${input:what}", PLAIN = "${HOME}/shown-4" }
[mcp.servers.b]
url = "https://shown-5.example/mcp?token=hidden-10"
headers = { Authorization = "Bearer hidden-11" }
[mcp.servers.c]
url = "https://h.example/mcp"
oauth = { client_id = "me", client_secret = "${X:-hidden-12}", issuer = "https://h.example" }
[tools.shell]
environment = { DB = "postgres://u:hidden-13@h/db", CI = "shown-6" }
"""


def test_S45_config_check_tells_what_runs_and_no_secret_of_the_file(empty: Home) -> None:
    file = empty.folder / "s.toml"
    file.write_text(SETTINGS)
    for arguments in (("config", "check", str(file)), ("config", "trust", str(file), "--yes")):
        done = empty.run(*arguments)
        assert done.returncode == 0, done.stderr
        assert "hidden-" not in done.stdout
        assert sorted(set(re.findall(r"shown-\d", done.stdout))) == [f"shown-{n}" for n in range(1, 7)]
        assert "--api-key [api-key]" in done.stdout


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_S45_config_show_tells_no_secret_of_the_file(more: tuple[str, ...], empty: Home) -> None:
    file = empty.folder / "s.toml"
    file.write_text(SETTINGS)
    done = empty.run("--config", str(file), "config", "show", *more)
    assert done.returncode == 0, done.stderr
    assert "hidden-" not in done.stdout
    assert {"shown-1", "shown-3", "shown-5"} <= set(re.findall(r"shown-\d", done.stdout))


# Yes to every call of a tool

LEFT_OUT = [
    "python3 x.py", "python3 -c 1", "bash x.sh", "node x.js", "perl x.pl", "java -jar x.jar", "env python3 x.py", "./x",
    "sudo ls", "doas ls", "sudo make", "cp a b", "mv a b", "tee f", "touch f", "sed -i s/a/b/ f", "echo x > f",
    "curl -o f http://a", "git commit -m x", "git push", "find . -fprint f", "ls; cp a b", "timeout 5 python3 x.py",
    "A=1 make", "rm -rf x",
]  # fmt: skip


@pytest.mark.parametrize("command", LEFT_OUT)
def test_S24_yes_to_every_call_of_shell_covers_no_interpreter_no_sudo_and_no_writes(command: str) -> None:
    [wide] = [
        offer for offer in build_offers(run("make"), "d", None) if offer.outcome is DecisionAction.PROCEED_ALWAYS_TOOL
    ]
    assert wide.covers == f"every call of `shell`, but not {EXCEPTIONS}"
    decision = Decision(approval_id="t/c/1", digest="d", outcome=wide.outcome, by="ann")
    grant = Grant(id="g1", scope=wide.scope, covers=wide.covers, decision=decision, given_at=NOW)
    assert find_covering_grant([grant], run(command), "other", NOW) is None
    assert wide.outcome not in [offer.outcome for offer in build_offers(run(command), "d", None)], (
        "and it is not offered"
    )
    for other in ("make test", "ls -l", "git status; make", "timeout 5 make"):
        assert find_covering_grant([grant], run(other), "other", NOW) is grant


# What a server says of itself


@pytest.mark.parametrize("title", ["Run git status", "shell: ls", "Read file (read_file)", "git/git_status"])
async def test_S39_the_title_of_a_servers_tool_stands_behind_the_server_and_the_name(
    title: str, tmp_path: Path
) -> None:
    definition = Definition(name="git_status", title=title, parameters={"type": "object"})
    waiting = await asked(tmp_path, definition)
    assert waiting.bound
    view = build_approval_view("t", waiting)
    assert view.title == f"git/git_status ({title})"
    assert waiting.bound.title.startswith(f"git/git_status ({title}) ")
    assert printed(approval_text.render_question(view), 120)[0].startswith("git/git_status (")


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "file:///etc/passwd", "vscode://x/run",
        "//evil", "https:evil", "http://", "https://a b", " javascript:x", "https://[::1", "https://evil\\@good.example",
    ],
)  # fmt: skip
def test_S39_an_address_that_is_none_of_the_web_is_text_and_no_link(url: str) -> None:
    shown = build_question("s", {"mode": "url", "message": "Pay", "url": url})
    assert shown.urls == ()
    assert "not an address of the web" in (shown.question or "")
    assert url.strip() in (shown.question or "")
    assert (shown.options, shown.other) == (("done",), False)


def test_S39_an_address_of_the_web_stays_one() -> None:
    for url in ("https://example.org/a?b=c#d", "HTTP://localhost:1/"):
        assert build_question("s", {"mode": "url", "message": "Pay", "url": url}).urls == (url,)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("password", {"type": "string"}),
        ("apiKey", {"type": "string"}),
        ("PIN", {"type": "string"}),
        ("a", {"type": "string", "format": "password"}),
        ("a", {"type": "string", "title": "Your access token"}),
        ("a", {"type": "string", "description": "The one-time code"}),
    ],
)
def test_S39_a_form_that_asks_for_a_secret_warns_that_the_answer_is_kept(name: str, field: dict[str, Any]) -> None:
    form = {"type": "object", "properties": {"who": {"type": "string"}, name: field}}
    shown = build_question("s", {"message": "Log in", "requestedSchema": form})
    assert f"Warning: {name!r} looks like something secret" in (shown.question or "")
    assert "kept in the history" in (shown.question or "")
    plain = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("author", "keyboard", "spin", "city")},
    }
    assert build_question("s", {"message": "Log in", "requestedSchema": plain}).question == "Log in"


# What is shown of an edit


def edit(added: int, removed: int, width: int = 10) -> tuple[Call, str]:
    """A call that waits, with a diff of so many lines."""
    lines = [f"-{n}{'o' * width}" for n in range(removed)] + [f"+{n}{'n' * width}" for n in range(added)]
    text = "\n".join(["--- a/f", "+++ b/f", f"@@ -1,{removed} +1,{added} @@", *lines]) + "\n"
    shown = Confirmation(kind="edit", title="Edit f", diff=text)
    request = CallRequest(tool="edit", arguments={})
    return Call(id="b1c1", request=request, status=Status.AWAITING_APPROVAL, confirmation=shown, revision=1), text


@pytest.mark.parametrize(("added", "removed", "width"), [(3, 5_000, 10), (5_000, 3, 10), (900, 900, 3), (2, 9, 3_000)])
def test_S20_the_counts_of_a_diff_that_was_cut_are_those_of_the_whole(added: int, removed: int, width: int) -> None:
    waiting, text = edit(added, removed, width)
    brief = build_inbox_summary("t", (waiting,), {}).approvals[0]
    for view in (build_approval_view("t", waiting), brief):
        assert (view.cut, view.changes) == (True, f"+{added:,} −{removed:,}")
        assert counted(view.diff or "") == text.count("\n")
        shown = printed(approval_text.render_question(view), 100_000)
        assert shown[1] == f"+{added:,} −{removed:,}"
        assert counted("\n".join(shown[2:-1])) == text.count("\n")


def counted(diff: str) -> int:
    """How many lines a diff that was cut is of, by what it says."""
    left_out = [int(found.replace(",", "")) for found in re.findall(r"^… ([\d,]+) lines left out$", diff, re.MULTILINE)]
    return len(diff.split("\n")) - len(left_out) + sum(left_out)


# Addresses


@pytest.mark.parametrize("revision", ["01", "001", "00", "+1", "1 ", " 1", "1_0", "१", "1.0", "-1", ""])
def test_S41_an_approval_has_one_id(revision: str) -> None:
    with pytest.raises(BadInput):
        ApprovalId.parse(f"turn/b1c1/{revision}")
    assert ApprovalId.parse("turn/b1c1/1") == ("turn", "b1c1", 1)


# What would be done


def explained(home: Home, tool: str, arguments: dict[str, Any], *more: str) -> Any:
    return home.json("policy", "explain", "--tool", tool, "--args", json.dumps(arguments), *more)


def test_S29_policy_explain_says_what_the_gate_would_do(empty: Home) -> None:
    (empty.folder / "rules.toml").write_text('[[rule]]\nname = "all"\ndecision = "allow"\ntool = "*"\n')
    with_rules = ("--policy", "rules.toml")
    found = explained(empty, "shell", {"command": "ls > f"}, *with_rules)
    assert found["ruling"]["decision"] == "allow"
    assert found["foreseen"]["decision"] == "ask", "what is no plain chain is asked about whatever an allow rule says"
    assert explained(empty, "shell", {"command": "ls"}, *with_rules)["foreseen"]["decision"] == "allow"
    for arguments in ({"cmd": "ls"}, {"command": "ls", "directory": "/"}):
        assert explained(empty, "shell", arguments, *with_rules)["foreseen"]["decision"] == "reject"
    (empty.workspace / "out").symlink_to("/etc/passwd")
    assert explained(empty, "read_file", {"path": "out"}, *with_rules)["foreseen"]["decision"] == "reject"
    text = empty.run("policy", "explain", "--tool", "shell", "--args", '{"command": "ls > f"}', *with_rules).stdout
    assert text.startswith("ask: no rule: the tool asks for confirmation\n  by the rules alone: allow: by rule 'all'")


def test_S24_policy_explain_knows_the_answers_that_are_kept(empty: Home) -> None:
    file = Settings(data=empty.data).grants_file
    save_grant(file, Rule.model_validate({"decision": "allow", "tool": "shell", "command": "make $", "name": "yes"}))
    save_grant(file, Rule.model_validate({"decision": "deny", "tool": "weather", "name": "no"}))
    assert explained(empty, "shell", {"command": "make"})["foreseen"]["by"] == "saved grant: yes"
    assert explained(empty, "shell", {"command": "make x"})["foreseen"]["decision"] == "ask"
    refused = explained(empty, "weather", {})["foreseen"]
    assert (refused["decision"], refused["by"]) == ("deny", "saved grant: no")


def test_S27_policy_explain_judges_in_a_mode_that_is_permitted(empty: Home) -> None:
    done = empty.run("policy", "explain", "--tool", "shell", "--args", '{"command": "make"}', "--mode", "yolo")
    assert done.stdout.startswith("ask: ")
    assert "do not permit mode yolo: the call is judged in mode default" in done.stderr
    config = empty.folder / "yolo.toml"
    config.write_text('modes = ["default", "yolo"]\n')
    empty.env["HOLDFAST_CONFIG"] = str(config)
    assert explained(empty, "shell", {"command": "make"}, "--mode", "yolo")["foreseen"]["decision"] == "allow"


def test_S35_policy_explain_names_the_hooks_that_it_does_not_ask(empty: Home) -> None:
    marker = empty.folder / "asked"
    hook = '[[hooks]]\nname = "{}"\nwhen = "{}"\ncommand = ["touch", "{}"]\ntools = ["{}"]\n'
    config = empty.folder / "hooks.toml"
    config.write_text(
        "".join(
            hook.format(*one, marker, two)
            for one, two in [(("a", "before"), "sh*"), (("b", "after"), "*"), (("c", "before"), "edit")]
        )
    )
    empty.env["HOLDFAST_CONFIG"] = str(config)
    assert explained(empty, "shell", {"command": "ls"})["foreseen"]["hooks"] == ["a"]
    done = empty.run("policy", "explain", "--tool", "shell", "--args", '{"command": "ls"}')
    assert "Hooks that a worker runs first, and this command does not: a." in done.stdout
    assert not marker.exists()


def test_S29_what_policy_explain_says_is_what_a_worker_does(empty: Home) -> None:
    calls = [
        call("shell", command="ls > f"),
        call("shell", command="ls; date"),
        call("read_file", path="there"),
        call("read_file", path="../elsewhere"),
        call("write_file", path="new", content="x"),
        call("write_file", path=".mcp.json", content="x"),
        call("glob", pattern="*"),
    ]
    (empty.workspace / "there").write_text("x")
    with empty.up("--no-gateway"):
        for mode in ("default", "auto_edit", "plan"):
            foreseen = [explained(empty, one["tool"], one["arguments"], "--mode", mode)["foreseen"] for one in calls]
            turns = [f"{mode}-{number}" for number in range(len(calls))]
            for turn, one in zip(turns, calls, strict=True):
                empty.start(turn, one, options=("--mode", mode))
            became = [empty.json_once(lambda shown: settled(shown), "turn", "show", turn) for turn in turns]
            assert [one["decision"] for one in foreseen] == [judged(shown) for shown in became], mode


def settled(shown: Any) -> bool:
    return bool(shown["approvals"]) or shown["result"] is not None


def judged(shown: Any) -> str:
    """What became of the one call of a turn, as a verdict."""
    if shown["approvals"]:
        return "ask"
    error = shown["result"]["batches"][0]["responses"][0]["error"]
    return "allow" if error is None else "deny" if error["type"] == "denied" else "reject"
