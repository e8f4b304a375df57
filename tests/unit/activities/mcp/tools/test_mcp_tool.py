"""What a person is shown of a call of a server's tool: its arguments once, and what is known of the tool."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.activities.gate.gate import Gate
from holdfast.activities.mcp.server.definition_pins import PinnedDefinitions
from holdfast.activities.mcp.server.definitions import Definition
from holdfast.activities.mcp.server.server import Server
from holdfast.activities.mcp.tools.mcp_tool import DESCRIPTION_LIMIT, McpTool
from holdfast.activities.registry.registry import Registry
from holdfast.config.schema import McpServerSettings
from holdfast.domain.approvals.approval import Confirmation, digest_call
from holdfast.domain.calls.call import Call, CallRequest, Status
from holdfast.domain.calls.verdicts import Ask
from holdfast.domain.turn import approval_view
from holdfast.domain.turn.approval_view import build_approval_view, build_inbox_summary
from holdfast.util.text import first_line
from holdfast.workers.terminal import approval_text, render
from tests.support.policies import policy
from tests.support.rendering import printed

STATUS = Definition(
    name="git_status",
    title="Status",
    description="\n  Shows the working tree \x1b[31mstatus\n\nReturns: the output.",
    parameters={"type": "object", "properties": {"repo_path": {"type": "string"}}},
    annotations={"readOnlyHint": True, "openWorldHint": False},
)
ASKING = '[[rule]]\nname = "look"\ndecision = "ask"\ntool = "git__*"\n'


def a_server(settings: McpServerSettings) -> Server:
    return Server("git", settings, lambda _: None, lambda *_: asyncio.sleep(0))


async def asked(folder: Path, definition: Definition = STATUS, rules: str = "", **settings: Any) -> Call:
    """A call of the tool that waits."""
    made = McpServerSettings.model_validate({"command": "git", **settings})
    approved = PinnedDefinitions(folder, "git")
    approved.pin_new([definition])
    tool = McpTool(a_server(made), definition, approved)
    gate = Gate(Registry([tool]), folder, policy(rules))
    request = CallRequest(tool="git__git_status", arguments={"repo_path": "é"})
    verdict, _, _ = await gate.judge(request)
    assert isinstance(verdict, Ask), verdict
    return Call(
        id="b1c1",
        request=request,
        status=Status.AWAITING_APPROVAL,
        bound=verdict.bound,
        confirmation=verdict.confirmation,
        revision=1,
    )


async def test_S20_the_arguments_are_shown_once_with_the_server_and_what_it_says_of_the_tool(tmp_path: Path) -> None:
    view = build_approval_view("t", await asked(tmp_path))
    assert printed(approval_text.render_question(view), 80) == [
        "git/git_status (Status)",
        '  with {"repo_path": "é"}',
        "  server git",
        "  described as: Shows the working tree ␛[31mstatus …",
    ]


async def test_S20_all_of_the_definition_is_had_by_looking_at_all_of_the_call(tmp_path: Path) -> None:
    call = await asked(tmp_path)
    definition = [
        "server git",
        "effect once: the server is not trusted to say what its tools do",
        "the server's hints: openWorldHint false, readOnlyHint true",
        "described as:",
        "  Shows the working tree ␛[31mstatus",
        "",
        "  Returns: the output.",
    ]
    whole = approval_text.format_whole(approval_view.build_whole_approval("t", call))
    assert whole == "\n".join(["git/git_status (Status)", "", '{\n  "repo_path": "é"\n}', "", *definition, ""])
    told = printed(render.render_call(call), 80)
    assert [line[2:] for line in told[told.index("tool") + 1 :]] == definition


async def test_S20_what_a_rule_asks_about_is_shown_in_the_same_way(tmp_path: Path) -> None:
    call = await asked(tmp_path, rules=ASKING, trust=True)
    view = build_approval_view("t", call)
    assert (view.kind, view.title, view.server) == ("mcp", "git/git_status (Status)", "git")
    assert view.about
    assert view.about.because == "the server says so (readOnlyHint), and is trusted"
    assert call.confirmation
    assert call.confirmation.arguments == {"repo_path": "é"}


@pytest.mark.parametrize(
    ("settings", "effect", "because"),
    [
        ({}, "once", "not trusted"),
        ({"trust": True}, "read", "readOnlyHint"),
        ({"trust": True, "effects": {"git_status": "idempotent"}}, "idempotent", "`effects`"),
    ],
)
async def test_S39_why_a_tool_has_its_effect_is_told(tmp_path: Path, settings: Any, effect: str, because: str) -> None:
    call = await asked(tmp_path, rules=ASKING, **settings)
    assert call.confirmation
    assert call.confirmation.about
    assert call.confirmation.about.effect == effect
    assert because in call.confirmation.about.because


async def test_S22_what_is_told_of_a_tool_is_in_no_digest(tmp_path: Path) -> None:
    call = await asked(tmp_path)
    assert call.bound
    tool = call.bound.tool
    expected = digest_call(
        tool="git__git_status", server="git", definition=tool.definition, arguments={"repo_path": "é"}
    )
    assert call.bound.digest == expected


async def test_S40_a_description_is_bounded_where_it_is_kept_and_where_it_is_shown(tmp_path: Path) -> None:
    long = STATUS.model_copy(update={"description": "word " * 10_000})
    call = await asked(tmp_path, long)
    assert call.confirmation
    assert call.confirmation.about
    assert len(call.confirmation.about.description) == DESCRIPTION_LIMIT
    view = build_approval_view("t", call)
    assert view.about
    assert len(view.about.description) == 200
    assert len(build_inbox_summary("t", (call,), {}).model_dump_json()) < 3_000


async def test_S45_what_is_secret_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TOKEN", "canary-of-git")
    server = a_server(McpServerSettings(command="/nonexistent", env={"T": "${GIT_TOKEN}"}))
    server.start()
    async with asyncio.timeout(30):
        await server.first_attempt.wait()
    await server.stop()
    tool = McpTool(
        server, STATUS.model_copy(update={"description": "Uses canary-of-git"}), PinnedDefinitions(tmp_path, "git")
    )
    assert tool.build_notes().description == "Uses [GIT_TOKEN]"


def test_an_old_confirmation_knows_nothing_of_the_tool() -> None:
    assert Confirmation.model_validate({"kind": "mcp", "title": "act (s) {}", "server": "s"}).about is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        (" \n \n", ""),
        ("One", "One"),
        ("\n\n  One\ttwo  \n", "One two"),
        ("One\nTwo", "One …"),
        ("\x1b]0;x\x07\u202eOne", "␛]0;x␇⟨U+202E⟩One"),
    ],
)
def test_the_first_line_of_a_text_is_harmless_and_says_that_there_is_more(text: str, line: str) -> None:
    assert first_line(text) == line
    assert first_line(first_line(text)) == first_line(text)


def test_a_long_first_line_is_cut() -> None:
    for text in ("x" * 1_000_000, "x" * 1_000_000 + "\nmore"):
        assert len(first_line(text)) == 200
        assert first_line(first_line(text)) == first_line(text)
