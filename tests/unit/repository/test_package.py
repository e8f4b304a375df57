"""What is published: the version, the wheel, and the pinned dependencies."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import holdfast

ROOT = Path(__file__).resolve().parents[3]


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
