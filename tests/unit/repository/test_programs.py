"""Tests on a machine without the Debian packages that they need: .ci/packages, and `require_program`."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import LIST, PACKAGES, require_program

SCRIPT = LIST.with_name("packages")
BARE = ("sh", "chmod", "dirname", "ls", "sed", "tr")
APT = """#!/bin/sh
echo "$@" >> "$LOG"
case " $* " in *" install "*) while read -r program package; do
    for given in "$@"; do [ "$given" != "$package" ] || { : > "$BIN/$program"; chmod +x "$BIN/$program"; }; done
done <"$LIST" ;; esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The programs of a machine that has none of ours."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in BARE:
        (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return folder


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def run(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {"PATH": str(machine), "BIN": str(machine), "LOG": str(machine.parent / "log"), "LIST": str(LIST)}
    return subprocess.run(
        [str(SCRIPT)], env={**known, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


LACKING = [package for program, package in PACKAGES.items() if program != "postgres"]
"""Without that which is found by its folder, whatever the path."""


def test_what_cannot_be_installed_is_told_in_one_line_and_is_no_failure(machine: Path) -> None:
    done = run(machine)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (0, "", 1)
    assert "are skipped" in done.stderr
    assert set(LACKING) <= set(done.stderr.partition(": ")[2].split())


def test_in_ci_what_is_missing_is_a_failure(machine: Path) -> None:
    done = run(machine, CI="true")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "shellcheck" in done.stderr


@pytest.mark.parametrize("user", ["0", "1000"], ids=["root", "sudo"])
def test_what_is_missing_is_installed_where_it_may_be_and_nothing_else(machine: Path, user: str) -> None:
    """With stand-ins for apt-get and sudo: this machine stays as it is."""
    for name in ("env", "true"):
        (machine / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    put(machine, "id", f"#!/bin/sh\necho {user}\n")
    put(machine, "sudo", '#!/bin/sh\n[ "$1" = -n ] || exit 1\nshift\nexec "$@"\n')
    put(machine, "apt-get", APT)
    put(machine, "apt-cache", "#!/bin/sh\necho '  Candidate: 1.20.5'\n")
    put(machine, "dpkg", "#!/bin/sh\nexit 1\n")
    put(machine, "git", "#!/bin/sh\n")
    done = run(machine, CI="true")
    assert done.returncode == 0, done.stderr
    asked = (machine.parent / "log").read_text().splitlines()
    installed = [line.split()[-1] for line in asked if line.startswith("install")]
    assert set(LACKING) - {"git"} <= set(installed) <= set(PACKAGES.values()) - {"git"}
    done = run(machine, CI="true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "nothing is left to do"


def test_with_a_sudo_that_asks_for_a_password_nothing_is_installed(machine: Path) -> None:
    put(machine, "id", "#!/bin/sh\necho 1000\n")
    put(machine, "sudo", "#!/bin/sh\necho 'a password is required' >&2\nexit 1\n")
    put(machine, "apt-get", APT)
    done = run(machine)
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)
    assert not (machine.parent / "log").exists()


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_test_without_its_program_is_skipped_and_fails_in_ci(
    machine: Path, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("PATH", str(machine))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="shellcheck is not installed: apt-get install shellcheck"):
        require_program("shellcheck")


STARTING = {"run", "Popen", "check_output", "check_call", "create_subprocess_exec"}


def started(tree: ast.AST) -> set[str]:
    """The programs of packages that a file starts by their bare names."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    named = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in STARTING]
    words = [
        word.elts[0] if isinstance(word, ast.List | ast.Tuple) and word.elts else word
        for word in (call.args[0] for call in named)
    ]
    return {str(word.value) for word in words if isinstance(word, ast.Constant) and word.value in PACKAGES}


def test_whoever_starts_a_program_of_a_package_says_that_it_needs_it() -> None:
    unsaid = {}
    for file in LIST.parents[1].joinpath("tests").rglob("*.py"):
        text = file.read_text()
        programs = started(ast.parse(text))
        if missing := {name for name in programs if not re.search(rf'(needs|require_program)\([^)]*"{name}"', text)}:
            unsaid[file.name] = missing
    assert unsaid == {}


def test_make_and_ci_install_by_the_same_script() -> None:
    assert "\ntest: setup packages\n" in (LIST.parents[1] / "Makefile").read_text()
    text = (LIST.with_name("run")).read_text()
    assert "\n.ci/packages\n" in text
    assert "\nexport CI=true\n" in text
