"""Changing calls in an editor: from `holdfast modify`, and from the live view (S25)."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.workers.terminal.live.edit_call import find_suffix
from tests.cli.approvals.test_approving import asked, strict, waiting
from tests.cli.screens import KEYS, ended, terminal
from tests.cli.support import Home, call
from tests.cli.turns.test_terminal import calls_file

__all__ = ["strict"]


@pytest.fixture(autouse=True)
def drafts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """What is kept of a draft goes with the test."""
    homes = [request.getfixturevalue(name) for name in ("home", "strict") if name in request.fixturenames]
    for one in homes:
        one.env["TMPDIR"] = str(tmp_path)
    yield
    for one in homes:
        del one.env["TMPDIR"]


@pytest.fixture
def editor(tmp_path: Path) -> Any:
    """Makes an editor of a shell script, which finds its file as $1; notes where and how that was."""

    def make(script: str) -> str:
        file = tmp_path / "my editor.sh"
        file.write_text(
            f'stat -c %a "$1" "$(dirname "$1")" > {tmp_path}/modes\necho "$1" > {tmp_path}/where\n{script}\n'
        )
        return f"sh {shlex.quote(str(file))}"

    return make


def edited(tmp_path: Path) -> Path:
    """The file that the editor was given."""
    return Path((tmp_path / "where").read_text().rstrip("\n"))


def test_S25_a_text_is_edited_in_a_private_file_and_others_see_it_meanwhile(
    home: Home, tmp_path: Path, editor: Any
) -> None:
    asked(home, "edited", call("write_file", path="src/edited.py", content="one = 1"))
    script = f'cp "$1" {tmp_path}/seen; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo "two = 2" > "$1"'
    with terminal(home, "modify", "edited/b1c1/1", "--by", "ben", EDITOR=editor(script)) as child:
        home.seen("edited", note="ben is editing it")
        [item] = home.json("turn", "show", "edited")["approvals"]
        assert item["editing"] == "ben"
        assert "  ben is editing it" in home.run("turn", "show", "edited").stdout
        (tmp_path / "go").touch()
        child.expect("edited/b1c1/2")
        child.expect(r"\+two = 2")
        child.expect("arguments changed by ben")
        child.expect("it needs approval again: holdfast approve edited/b1c1/2")
        assert ended(child) == 0
    assert (tmp_path / "modes").read_text().split() == ["600", "700"]
    assert edited(tmp_path).suffix == ".py"
    assert not edited(tmp_path).parent.exists()
    assert (tmp_path / "seen").read_text() == "one = 1\n"
    whole = home.json("turn", "show", "edited", "--call", "b1c1")
    assert whole["bound"]["arguments"]["content"] == "two = 2", "a line that did not end before does not end after"
    assert whole["editing"] is None
    home.json("deny", "--turn", "edited")


def test_S25_of_an_edit_the_whole_file_is_seen_with_the_change_applied(home: Home, tmp_path: Path, editor: Any) -> None:
    file = home.workspace / "whole.py"
    file.write_text("one = 1\ntwo = 2\nthree = 3\nfour = 4\n")
    asked(home, "whole-file", call("edit", path="whole.py", old_text="two = 2", new_text="two = 22"))
    script = f'cp "$1" {tmp_path}/seen; sed -i "s/three = 3/three = 33/" "$1"'
    with terminal(home, "modify", "whole-file/b1c1/1", "--by", "ben", EDITOR=editor(script)) as child:
        child.expect(r"\+two = 22")
        child.expect(r"\+three = 33")
        child.expect("it needs approval again: holdfast approve whole-file/b1c1/2")
        assert ended(child) == 0
    assert (tmp_path / "seen").read_text() == "one = 1\ntwo = 22\nthree = 3\nfour = 4\n"
    assert edited(tmp_path).suffix == ".py"
    assert home.run("approve", "whole-file/b1c1/2").returncode == 0
    home.seen("whole-file", kind="turn", after="completed")
    assert file.read_text() == "one = 1\ntwo = 22\nthree = 33\nfour = 4\n"
    whole = home.json("turn", "show", "whole-file", "--call", "b1c1")
    assert whole["bound"]["arguments"]["old_text"] == "two = 2\nthree = 3\n"
    assert whole["confirmation"]["current"] is None, "not kept once nobody can edit it"


def test_S25_a_text_that_is_left_as_it_was_is_not_sent(home: Home, tmp_path: Path, editor: Any) -> None:
    asked(home, "left-alone", call("shell", command="echo same"))
    with terminal(home, "modify", "left-alone/b1c1/1", VISUAL=editor("touch $1"), EDITOR="false") as child:
        child.expect("no change, so nothing was sent")
        assert ended(child) == 0
    assert edited(tmp_path).suffix == ".sh"
    assert home.json("turn", "show", "left-alone")["approvals"][0]["editing"] is None
    assert waiting(home, "left-alone") == ["left-alone/b1c1/1"]
    home.json("deny", "--turn", "left-alone")


def test_S25_what_is_refused_is_kept_in_a_file_and_can_be_sent_once_more(
    home: Home, tmp_path: Path, editor: Any
) -> None:
    asked(home, "refused-edit", call("shell", command="echo fine"))
    with terminal(home, "modify", "refused-edit/b1c1/1", EDITOR=editor('printf " " > "$1"'), columns=300) as child:
        child.expect("Your text is in [^;]+; send it again: (holdfast modify [^\n]*)\n")
        again = str(child.match.group(1))
        child.expect("holdfast: the change was refused: .*blank")
        assert ended(child) == 1
    kept = edited(tmp_path)
    assert again == f"holdfast modify refused-edit/b1c1/1 --content {kept}"
    assert kept.read_text() == " "
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.write_text("echo better")
    found = home.json(*shlex.split(again)[1:], "--approve")
    assert found["changed"] is True
    home.seen("refused-edit", kind="turn", after="completed")


@pytest.mark.parametrize(
    ("script", "command", "code", "words"),
    [
        ('echo lost >> "$1"; exit 3', None, 1, "exited with code 3: nothing was sent"),
        ("kill -9 $$", None, 1, "was ended by SIGKILL: nothing was sent"),
        ('rm "$1"', None, 1, "the edited file cannot be read"),
        (r'printf "\377" > "$1"', None, 1, "the text is not UTF-8"),
        ('head -c 1000001 /dev/zero | tr "\\0" x > "$1"', None, 2, "over the limit of 1,000,000"),
        ('head -c 8000001 /dev/zero | tr "\\0" x > "$1"', None, 1, "the text is over 8 MB"),
        ("", "/nowhere/editor --wait", 2, "the editor '/nowhere/editor' cannot be started: No such file"),
        ("", "ed 'unclosed", 2, "EDITOR is not a command: no closing quotation"),
    ],
)
def test_an_editor_that_fails_sends_nothing_and_is_not_open_any_more(
    home: Home, script: str, command: str | None, code: int, words: str, tmp_path: Path, editor: Any
) -> None:
    turn = tmp_path.name
    asked(home, turn, call("shell", command="echo fine"))
    with terminal(home, "modify", f"{turn}/b1c1/1", EDITOR=command or editor(script), columns=300) as child:
        child.expect_exact(words)
        assert "Traceback" not in str(child.before)
        assert ended(child) == code
    [item] = home.json("turn", "show", turn)["approvals"]
    assert (item["approval_id"], item["editing"]) == (f"{turn}/b1c1/1", None)
    home.json("deny", "--turn", turn)


def test_ctrl_c_ends_the_editor_and_others_no_longer_see_it(home: Home, tmp_path: Path, editor: Any) -> None:
    asked(home, "interrupted", call("shell", command="echo fine"))
    script = 'trap "" INT; echo "echo half" > "$1"; echo editing; read never'
    with terminal(home, "modify", "interrupted/b1c1/1", EDITOR=editor(script), columns=300) as child:
        child.expect("editing")
        child.sendintr()
        child.expect("Your text is in")
        assert ended(child) == 130
    [item] = home.json("turn", "show", "interrupted")["approvals"]
    assert (item["approval_id"], item["editing"]) == ("interrupted/b1c1/1", None)
    assert edited(tmp_path).read_text() == "echo half"
    home.json("deny", "--turn", "interrupted")


@pytest.mark.parametrize(
    ("path", "suffix"),
    [
        ("src/a.py", ".py"),
        ("a.tar.gz", ".gz"),
        ("Makefile", ".txt"),
        ("a.$(reboot)", ".txt"),
        ("a.p\ny", ".txt"),
        ("a.sh -c x", ".txt"),
        (None, ".txt"),
        (7, ".txt"),
    ],
)
def test_the_name_of_the_file_never_comes_from_a_model_unchecked(path: object, suffix: str) -> None:
    assert find_suffix(path) == suffix


def test_without_any_editor_it_says_what_to_do(home: Home, tmp_path: Path) -> None:
    asked(home, "no-editor", call("shell", command="echo fine"))
    with terminal(home, "modify", "no-editor/b1c1/1", PATH=str(tmp_path), EDITOR=" ", columns=200) as child:
        child.expect("no editor is installed: set EDITOR, or give the change with --content")
        assert ended(child) == 2
    home.json("deny", "--turn", "no-editor")


def test_S25_arguments_are_edited_as_json_and_broken_ones_are_kept(strict: Home, tmp_path: Path, editor: Any) -> None:
    asked(strict, "json", call("publish", title="News", copies=1))
    broken = editor('echo "{" > "$1"')
    with terminal(strict, "modify", "json/b1c1/1", EDITOR=broken, columns=300) as child:
        child.expect("send it again: holdfast modify json/b1c1/1 --arguments @/")
        child.expect("what you typed is not JSON")
        assert ended(child) == 2
    assert edited(tmp_path).read_text() == "{\n"
    assert edited(tmp_path).suffix == ".json"
    with terminal(strict, "modify", "json/b1c1/1", "--approve", EDITOR="sed -i s/1/7/", columns=200) as child:
        child.expect("decided; the call")
        assert ended(child) == 0
    strict.seen("json", kind="turn", after="completed")
    [response] = strict.json("turn", "show", "json")["result"]["batches"][0]["responses"]
    assert response["parts"][0]["text"] == "7 of News"


def test_S25_a_call_is_edited_from_the_live_view_and_asked_about_again(home: Home, editor: Any) -> None:
    file = calls_file(home, "live-edit.json", call("write_file", path="live.txt", content="one\n"))
    script = 'echo editing; read answer; echo "$answer" > "$1"'
    with terminal(
        home, "turn", "start", "--calls", file, "--id", "live-edit", "--wait", EDITOR=editor(script)
    ) as child:
        child.expect(r"\+one")
        child.expect(KEYS)
        child.send("e")
        child.expect("editing")
        child.sendline("two")
        child.expect("Changed.")
        child.expect("Approve call 1 of 1")
        child.expect(r"\+two")
        child.expect("arguments changed by")
        child.expect(KEYS)
        child.send("y")
        child.expect("Approved.")
        assert ended(child) == 0
        assert "elsewhere" not in str(child.before)
    assert (home.workspace / "live.txt").read_text() == "two\n"


def test_an_editor_that_fails_gives_the_live_view_its_screen_back(home: Home, editor: Any) -> None:
    file = calls_file(home, "live-fail.json", call("shell", command="echo one"))
    with terminal(
        home, "turn", "start", "--calls", file, "--id", "live-fail", "--wait", EDITOR=editor("exit 2")
    ) as child:
        child.expect(KEYS)
        child.send("e")
        child.expect("Not sent: the editor .* exited with code 2")
        child.expect(KEYS)
        child.send("y")
        child.expect("Approved.")
        assert ended(child) == 0


def test_a_turn_that_ends_meanwhile_waits_for_the_editor(home: Home, tmp_path: Path, editor: Any) -> None:
    file = calls_file(home, "live-late.json", call("shell", command="echo one"))
    script = 'echo editing; read answer; echo "$answer" > "$1"'
    started = ("turn", "start", "--calls", file, "--id", "live-late", "--wait")
    with terminal(home, *started, EDITOR=editor(script), columns=300) as child:
        child.expect(KEYS)
        child.send("e")
        child.expect("editing")
        assert home.run("approve", "live-late/b1c1/1", "--by", "another").returncode == 0
        home.seen("live-late", kind="turn", after="completed")
        child.sendline("echo mine")
        child.expect("Decided elsewhere by another")
        child.expect("Not sent")
        child.expect("Your text is in")
        assert ended(child) == 0
    assert edited(tmp_path).read_text() == "echo mine"


@pytest.mark.needs("git")
def test_S24_what_always_covers_is_shown_before_it_is_asked_in_the_live_view(home: Home) -> None:
    commands = ("git status -s", "git status", "echo other")
    file = calls_file(home, "live-always.json", *(call("shell", command=command) for command in commands))
    with terminal(home, "turn", "start", "--calls", file, "--id", "live-always", "--wait", columns=200) as child:
        child.expect("Approve call 1 of 3")
        child.expect(KEYS)
        child.send("a")
        child.expect(r"1\. `git status -s`, exactly these words")
        child.expect(r"2\. `git status` with further words")
        child.expect(r"from now on, as 1\?  \[y\] yes  \[n\] no  \[1-3\] another")
        child.send("n")
        child.expect("decide about this call")
        child.expect(KEYS)
        child.send("a")
        child.expect(r"as 1\?")
        child.send("2")
        child.expect(r"as 2\?")
        child.send("y")
        child.expect("Approved; allows from now on: `git status` with further words")
        child.expect("Approve call 3 of 3")
        child.expect(KEYS)
        child.send("n")
        assert ended(child) == 0
    whole = home.json("turn", "show", "live-always", "--call", "b1c2")
    assert whole["grant"] == "g1"


def test_what_others_do_is_told_in_the_live_view(home: Home) -> None:
    file = calls_file(home, "live-news.json", call("shell", command="echo one"), call("shell", command="echo two"))
    with terminal(home, "turn", "start", "--calls", file, "--id", "live-news", "--wait", columns=200) as child:
        child.expect("Approve call 1 of 2")
        child.expect(KEYS)
        assert home.run("turn", "mode", "live-news", "auto_edit", "--by", "ana").returncode == 0
        child.expect(r"mode auto_edit \(by ana\)")
        assert (
            home.run("modify", "live-news/b1c2/1", "--arguments", '{"command": "echo 2"}', "--by", "ben").returncode
            == 0
        )
        child.expect("call 2 of 2: changed by ben")
        assert (
            home.run("modify", "live-news/b1c1/1", "--arguments", '{"command": "echo 1"}', "--by", "ben").returncode
            == 0
        )
        child.expect("Changed elsewhere: it needs approval again")
        child.expect("Approve call 1 of 2")
        child.expect(r"\$ echo 1")
        child.expect(KEYS)
        child.send("N")
        assert ended(child) == 1
