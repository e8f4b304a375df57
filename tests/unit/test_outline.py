"""What a person is told of a settings file before they trust it: everything that would run or decide."""

from __future__ import annotations

from pathlib import Path

from holdfast.configuration import configuration_of
from holdfast.documents import Content
from holdfast.workers.outline import outline

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
    found = outline(configuration_of(Content(tmp_path / "holdfast.toml", FILE.encode())).require())
    assert found == [
        ("asks before calls", "check --all  (hook look, for shell)"),
        ("asks after calls", "team.hooks:redact  (hook redact, for *)"),
        ("goes by the rules in", str(tmp_path / "rules.toml")),
        ("permits the modes", "default, yolo"),
        ("lets decide", "ana release"),
    ]
