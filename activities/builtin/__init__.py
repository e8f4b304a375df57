"""The tools every worker has."""

from __future__ import annotations

from holdfast.activities.builtin.asking import AskUser
from holdfast.activities.builtin.background import BackgroundLimits, ReadCommand, StopCommand
from holdfast.activities.builtin.delegating import Delegate
from holdfast.activities.builtin.editing import Edit
from holdfast.activities.builtin.fetching import Fetch
from holdfast.activities.builtin.finding import Glob
from holdfast.activities.builtin.reading import ListDirectory, ReadFile
from holdfast.activities.builtin.saved import ReadOutput
from holdfast.activities.builtin.searching import Grep
from holdfast.activities.builtin.shell import Shell
from holdfast.activities.builtin.writing import WriteFile
from holdfast.activities.outputs import OutputStore
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.activities.web.addresses import AddressRules
from holdfast.configuration import ToolSettings
from holdfast.tools import Tool


def build_builtin_tools(
    outputs: OutputStore, settings: ToolSettings, runs: Runs | None = None, sandbox: Sandbox | None = None
) -> list[Tool]:
    """One of each."""
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
