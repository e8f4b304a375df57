"""Commands: can they be closed in, supervised, and kept beneath the workspace."""

from __future__ import annotations

from holdfast.errors import BadInput
from holdfast.util.findings import Finding, ok, problem, warning
from holdfast.workers.doctor.check import Check, CheckContext, run_in_thread


async def _examine_sandbox(around: CheckContext) -> list[Finding]:
    from holdfast.activities.supervision.runs import open_sandbox

    try:
        sandbox = open_sandbox(around.settings)
    except BadInput as error:
        return [problem(str(error), 'run workers where it can be had, or set tools.shell.sandbox = "none"')]
    if sandbox is None:
        return [ok("commands run without one, as the settings have it")]
    why = await sandbox.explain_missing()
    if why:
        do = 'make it available, or set tools.shell.sandbox = "none": workers do not start like this'
        return [problem(f"commands are to run in one, but {why}", do)]
    return [ok("commands run in one, and it can be made here")]


async def _examine_supervisors(around: CheckContext) -> list[Finding]:
    from holdfast.activities.supervision.launch import explain_unsupported, find_placement

    if why := explain_unsupported():
        return [warning(f"commands end with their worker: {why}", "run workers on Linux")]
    placement = await find_placement()
    if placement.worry:
        return [
            warning(f"commands may not outlive their worker: {placement.worry}", "set KillMode=process in the unit")
        ]
    return [ok(f"commands outlive their worker{', but ' + placement.note if placement.note else ''}")]


async def _examine_workspace(around: CheckContext) -> list[Finding]:
    from holdfast.activities.files.workspace import has_openat2

    folder = around.settings.workspace
    if not await run_in_thread(folder.is_dir):
        return [problem(f"the workspace {folder} is not a folder", "make it, or set HOLDFAST_WORKSPACE")]
    if not has_openat2():
        do = "run workers on Linux 5.6 or newer, where nothing in a sandbox of the system forbids openat2"
        return [warning("files are kept beneath the workspace by looking, which a swapped link can fool", do)]
    return [ok(f"the kernel keeps files beneath {folder}")]


CHECKS = (
    Check("sandbox", _examine_sandbox, seconds=15),
    Check("supervisors", _examine_supervisors),
    Check("workspace", _examine_workspace),
)
