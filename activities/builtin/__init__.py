"""The tools that every worker has, one module each. No judgement: that is the gate's."""

from __future__ import annotations

from holdfast.activities.builtin.ask_user import AskUser
from holdfast.activities.builtin.delegate import Delegate
from holdfast.activities.builtin.edit import Edit
from holdfast.activities.builtin.fetch import Fetch
from holdfast.activities.builtin.glob import Glob
from holdfast.activities.builtin.grep import Grep
from holdfast.activities.builtin.read_file import ListDirectory, ReadFile
from holdfast.activities.builtin.read_output import ReadOutput
from holdfast.activities.builtin.shell import Shell
from holdfast.activities.builtin.shell_background import BackgroundLimits, ReadCommand, StopCommand
from holdfast.activities.builtin.write_file import WriteFile
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.config.address_rules import AddressRules
from holdfast.config.schema import ToolSettings
from holdfast.domain.calls.tool import Tool


def build_builtin_tools(
    outputs: OutputStore, settings: ToolSettings, runs: Runs | None = None, sandbox: Sandbox | None = None
) -> list[Tool]:
    """Build one of each, as the settings have them. Without `runs` commands end with their worker."""
    given = settings.shell
    background = (
        None
        if given.background == "off"
        else BackgroundLimits(given.background, given.background_commands, given.background_seconds)
    )
    shell = Shell(
        outputs,
        environment=given.environment,
        inherit=given.inherit_environment,
        seconds=given.timeout_seconds,
        runs=runs,
        sandbox=sandbox,
        background=background,
    )
    commands = [shell, ReadCommand(outputs, runs), StopCommand(outputs, runs)]
    fetch = Fetch(AddressRules(allow=settings.fetch.allow), settings.fetch.max_bytes)
    asking, finding = [AskUser(), Delegate()], [Glob(), Grep(), ListDirectory()]
    return [ReadFile(), ReadOutput(outputs), WriteFile(), Edit(), *finding, *asking, *commands, fetch]
