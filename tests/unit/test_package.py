"""What is published: the public surface, and the wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import holdfast

ROOT = Path(__file__).resolve().parents[2]

SURFACE = """
AfterAnswer AfterTool ApprovalId ApprovalView BadInput BeforeAnswer BeforeTool BlobPart Call CallError CallRequest
Confirmation Confirming Context ContextChange DataPart Decision DecisionAction DecisionNotice DecisionRefused
Declaration Effect Event FunctionResponse FunctionTool Holdfast HoldfastError HoldfastPlugin Interrupt Invocation
LiveOutput Mode ModelChoice ModelReply ModelSettings NoWorker Offer Refused RequestRefused Response Result Retries Run
Schedule Scope ScriptedReply ServerUnavailable Session SessionInput SessionView Settings Status StrictParameters
TextPart Tool ToolFailure Turn TurnInput TurnLimits TurnNotFound TurnResult TurnView after_tool before_tool
build_function_response tool
""".split()  # noqa: SIM905 - easier to read than to index


def test_the_public_surface_is_what_we_say_it_is() -> None:
    assert sorted(holdfast.__all__) == SURFACE
    assert all(getattr(holdfast, name).__name__ == name for name in SURFACE)


def test_the_version_is_told_once() -> None:
    assert f'version = "{holdfast.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_the_wheel_holds_one_top_level_name_and_every_module(tmp_path: Path) -> None:
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)]
    subprocess.run(command, check=True, timeout=100, cwd=tmp_path)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"holdfast", f"holdfast-{holdfast.__version__}.dist-info"}
    modules = ["client/client.py", "py.typed", "workflows/turn.py", "activities/tool_activities.py"]
    for module in [*modules, "activities/policy/defaults.toml"]:
        assert f"holdfast/{module}" in names


def test_the_lock_file_pins_by_hash_and_names_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    pinned = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert pinned
    assert all("==" in line for line in pinned)
