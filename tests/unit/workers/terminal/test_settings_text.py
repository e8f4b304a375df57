"""What a person is told of a settings file before they trust it: everything that would run or decide."""

from __future__ import annotations

from pathlib import Path

from holdfast.config.schema import parse_configuration
from holdfast.config.toml_document import FileContent
from holdfast.workers.terminal.settings_text import outline_settings

FILE = """
policy = ["rules.toml"]
modes = ["default", "yolo"]

[[hooks]]
name = "look"
when = "before"
command = "check --all"
tools = ["shell"]

[[hooks]]
name = "redact"
when = "after"
python = "team.hooks:redact"

[[approvers]]
name = "ana"
roles = ["release"]
"""


def test_hooks_rules_modes_and_approvers_are_told(tmp_path: Path) -> None:
    found = outline_settings(parse_configuration(FileContent(tmp_path / "holdfast.toml", FILE.encode())).get_value())
    assert found == [
        ("asks before calls", "check --all  (hook look, for shell)"),
        ("asks after calls", "team.hooks:redact  (hook redact, for *)"),
        ("uses the rules in", str(tmp_path / "rules.toml")),
        ("permits the modes", "default, yolo"),
        ("approver", "ana release"),
    ]
