"""`holdfast doctor`: everything that a worker stands on, looked at; and what to do about what is not well."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.workers.cli.options import (
    Address,
    Data,
    Json,
    Workspace,
    apply_options,
    format_example,
    resolve_settings,
    run_async,
)
from holdfast.workers.exit_codes import FAILED, OK, UNREACHABLE
from holdfast.workers.terminal.output import print_json

if TYPE_CHECKING:
    from holdfast.config.settings import Settings
    from holdfast.workers.doctor.run_checks import Report

Offline = Annotated[bool, typer.Option("--offline", help="Look at this machine alone, and ask no server.")]


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
    """Look at everything that workers stand on here, and say what is not well and what to do about it.

    The server, its namespace, search attributes and clock, workers and their versions, what waits; and on this machine
    the disk, the ledger, the sandbox, tools, rules, MCP servers and keys. It changes nothing and tells no secret.
    The exit code is 0 without problems (there may be warnings), 1 with some, 3 when the server cannot be reached.
    """
    from holdfast.workers.doctor.report_text import print_reports
    from holdfast.workers.doctor.run_checks import count_findings, reports_as_json, run_checks
    from holdfast.workers.runtime import log_setup

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
    """The settings, or those without a file when that cannot be gone by; and what there is to say of it."""
    from holdfast.config.settings import Settings
    from holdfast.errors import BadInput
    from holdfast.util.findings import report_ok, report_problem
    from holdfast.workers.doctor.run_checks import Report

    try:
        settings = resolve_settings(data, workspace)
    except BadInput as error:
        found = report_problem(
            f"{error}; the rest is looked at without it", "correct it; `holdfast config check` tells more"
        )
        return apply_options(Settings(), data, workspace), Report("settings", (found,))
    where = f"{settings.file} is read" if settings.file else "no settings file: the environment and the defaults count"
    return settings, Report("settings", (report_ok(where),))
