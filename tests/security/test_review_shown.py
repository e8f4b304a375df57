"""What a person sees is what they decide on: ids and texts that hide something, forged output (S22, S32, S41)."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.config.settings import Settings
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.call import Call, CallRequest, Status
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import BoundCall
from holdfast.domain.content import escape_name
from holdfast.domain.turn import approval_view
from holdfast.domain.turn.activity_io import LiveOutput
from holdfast.domain.turn.approval_view import build_approval_view
from holdfast.errors import HoldfastError
from holdfast.util.text import escape_controls, has_invisible
from holdfast.workers.gateway.tokens import TokenFile
from holdfast.workers.runtime.data_folder import prepare_folder
from holdfast.workers.terminal import approval_text, render

UNSEEN = [
    *(0x00, 0x07, 0x08, 0x0D, 0x1B, 0x7F, 0x85, 0x9B, 0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5),
    *(0x180B, 0x180E, 0x180F, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x2029, 0x202A, 0x202E, 0x2060),
    *(0x2063, 0x2066, 0x2069, 0x206A, 0x206F, 0x2800, 0x3164, 0xFE00, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF0, 0xFFF9),
    *(0xFFFB, 0x1BCA0, 0x1D173, 0x1D17A, 0xE0001, 0xE0041, 0xE007F, 0xE0100, 0xE01EF, 0xE0FFF),
]
SPACES = [0x09, 0x0A, 0xA0, 0x1680, 0x2000, 0x2003, 0x200A, 0x202F, 0x205F, 0x3000]
CODES = pytest.mark.parametrize("code", UNSEEN, ids=lambda code: f"U+{code:04X}")
IDS = pytest.mark.parametrize("code", [*UNSEEN, *SPACES], ids=lambda code: f"U+{code:04X}")


def call(command: str, shown: str | None = None, tool: str = "shell") -> Call:
    """One that waits."""
    bound = BoundCall(
        tool=ToolRef(name=tool, effect=Effect.ONCE, definition="d"),
        title="Run",
        arguments={"command": command},
        digest="0" * 64,
        timeout_seconds=1,
        heartbeat_seconds=1,
    )
    confirmation = Confirmation(kind="exec", title="Run", command=shown or command, told=("command",))
    request = CallRequest(tool=tool, arguments=bound.arguments)
    return Call(
        id="b1c1", request=request, bound=bound, status=Status.AWAITING_APPROVAL, confirmation=confirmation, revision=1
    )


def printed(item: object) -> str:
    """What a terminal gets."""
    console = Console(width=300, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(item)
    return captured.get()


@CODES
def test_S22_what_cannot_be_seen_is_written_out_wherever_a_command_is_shown(code: int) -> None:
    hidden, written = (
        f"rm{chr(code)} -rf x",
        f"U+{code:04X}" if code >= 0x80 else chr(0x2400 + code) if code < 32 else "␡",
    )
    assert has_invisible(hidden)
    assert written in escape_controls(hidden)
    waiting = call(hidden)
    for shown in (
        approval_text.render_question(build_approval_view("t", waiting)),
        approval_text.render_question(approval_view.build_whole_approval("t", waiting)),
        approval_text.format_whole(approval_view.build_whole_approval("t", waiting)),
    ):
        assert written in printed(shown), shown
    told = printed(render.render_call(waiting))  # JSON says some of them in its own way
    assert written in told or f"\\u{code:04x}" in told or {8: "\\b", 13: "\\r"}.get(code, "?") in told


@IDS
def test_S41_no_turn_looks_like_another_and_what_is_pasted_is_the_one_that_was_meant(code: int) -> None:
    name = f"dep{chr(code)}loy"
    assert escape_name(name) not in ("deploy", "dep loy")
    view = build_approval_view(name, call("ls"))
    label = printed(approval_text.render_label(view))
    assert "deploy" not in label
    assert "dep loy" not in label
    words = approval_text.format_answer_command(view)
    if code == 0:
        return  # no argument of a program holds it
    assert "\n" not in words
    assert not has_invisible(words)
    said = subprocess.run(
        ["bash", "-c", words.replace("holdfast approve", "printf %s")],
        capture_output=True,
        check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert said.stdout.decode() == view.approval_id


@pytest.mark.parametrize("name", ["--turn=other", "-h", "--all", "--data=/tmp/x", "-", "--", "--by=ana", "--json"])
def test_S41_the_id_of_a_turn_is_no_option_of_the_command_that_is_proposed(name: str) -> None:
    words = approval_text.format_answer_command(build_approval_view(name, call("ls")))
    assert all(not word.startswith("-") for word in shlex.split(words)[2:]), words
    assert name in printed(approval_text.render_label(build_approval_view(name, call("ls")))), (
        "the id itself is shown as it is"
    )


@pytest.mark.parametrize(
    "name", ["$(touch x)", "`id`", "a;b", "a b", "a'b", 'a"b', "a\\b", "a|b", "~root", "*", "!!", "a&b"]
)
def test_S41_an_id_is_pasted_into_a_shell_as_it_is(name: str) -> None:
    view = build_approval_view(name, call("ls"))
    words = approval_text.format_answer_command(view).replace("holdfast approve", "printf %s")
    assert subprocess.run(["bash", "-c", words], capture_output=True, check=True).stdout.decode() == view.approval_id


def test_S22_a_command_that_is_shown_in_the_place_of_the_one_that_would_run_hides_nothing() -> None:
    waiting = call("rm -rf /", shown="git status")
    for view in (build_approval_view("t", waiting), approval_view.build_whole_approval("t", waiting)):
        assert "rm -rf /" in view.others
        assert "rm -rf /" in printed(approval_text.render_question(view))
    honest = call("git status")
    assert build_approval_view("t", honest).others == ""


ESCAPES = (
    "\x1b]0;title\x07", "\x1b]52;c;cm0gLXJm\x07", "\x1b[2J", "\x1b[8m", "\x1b[?1049h", "\x1bP+q\x1b\\", "\x9b2J",
    "\x1bc", "\x1b]8;;http://evil\x1b\\x", "\x1b[6n", "\x05", "\u202e", "\x1b[1;1H", "\x1b(0", "\x1b_x\x1b\\",
)  # fmt: skip


@pytest.mark.parametrize("escape", ESCAPES, ids=ascii)
def test_S32_live_output_that_anybody_may_have_put_into_a_heartbeat_does_nothing_to_a_terminal(escape: str) -> None:
    for live in (
        LiveOutput(call_id="b1c1", tail=f"a{escape}b"),
        LiveOutput(call_id="b1c1", tail="a", styled=f"a{escape}b"),
    ):
        told = printed(render.render_output(live))
        assert not any(bad in told for bad in ("\x1b", "\x9b", "\x07", "\x05", "\u202e", "\x0e")), ascii(told)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_S45_a_data_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o777)
    os.chown(theirs, 12_345, 12_345)
    with pytest.raises(HoldfastError, match="belongs to another user"):
        prepare_folder(theirs)
    (tmp_path / "link").symlink_to(theirs)
    with pytest.raises(HoldfastError, match="belongs to another user"):
        TokenFile(Settings(data=tmp_path / "link").tokens_file).create("ada")
    assert list(theirs.iterdir()) == []


def test_S45_nobody_else_may_write_into_a_data_folder_that_is_in_use(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    ours.chmod(0o777)
    prepare_folder(ours)
    assert not ours.stat().st_mode & stat.S_IWOTH
