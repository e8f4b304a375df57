"""`holdfast doctor`: checks of everything that a worker depends on, each with what to do about a problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.config.settings import Settings
from holdfast.errors import BadInput
from holdfast.util.findings import report_ok, report_problem
from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Address, Data, Json, Workspace, format_example
from holdfast.workers.cli.resolve_settings import apply_options, resolve_settings
from holdfast.workers.doctor.report_text import print_reports
from holdfast.workers.doctor.run_checks import Report, count_findings, reports_as_json, run_checks
from holdfast.workers.exit_codes import FAILED, OK, UNREACHABLE
from holdfast.workers.runtime import log_setup
from holdfast.workers.terminal.output import print_json

Offline = Annotated[bool, typer.Option("--offline", help="Check this machine only, and connect to no server.")]


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=format_example("holdfast doctor", "holdfast doctor --json | jq '.checks[] | select(.level != \"ok\")'")
    )(doctor)


def doctor(
    offline: Offline = False,
    address: Address = None,
    data: Data = None,
    workspace: Workspace = None,
    json: Json = False,
) -> None:
    """Check everything that workers here depend on, and say what to do about each problem.

    The server, its namespace, search attributes and clock, workers and their versions, calls that wait for a worker;
    and on this machine the disk, the ledger, the sandbox, tools, rules, MCP servers and keys. It changes nothing and
    prints no secret. The exit code is 0 without problems (there may be warnings), 1 with problems, 3 when the server
    cannot be reached.
    """
    log_setup.silence_logging()
    settings, about = _load_settings(data, workspace)
    reports = (about, *run_async(run_checks(settings, offline=offline, address=address)))
    if json:
        print_json(reports_as_json(reports))
    else:
        print_reports(reports)
    if count_findings(reports, "problem"):
        raise typer.Exit(UNREACHABLE if any(report.lost for report in reports) else FAILED)
    raise typer.Exit(OK)


def _load_settings(data: Path | None, workspace: Path | None) -> tuple[Settings, Report]:
    """The settings, without the file when it is invalid; and a report about the file."""
    try:
        settings = resolve_settings(data, workspace)
    except BadInput as error:
        found = report_problem(
            f"{error}; the other checks ignore it", "correct it; `holdfast config check` lists every problem"
        )
        return apply_options(Settings(), data, workspace), Report("settings", (found,))
    where = (
        f"{settings.file} is read" if settings.file else "no settings file: the environment and the defaults are used"
    )
    return settings, Report("settings", (report_ok(where),))
