"""`holdfast versions …`: which versions of the workers there are, which gets new turns, and what still needs which."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from holdfast.workers.cli.options import Address, Data, Json, format_example, parse_seconds, run_async
from holdfast.workers.terminal.output import print_answer, print_json, print_note, print_text

if TYPE_CHECKING:
    from temporalio.client import Client

    from holdfast.config.settings import Settings
    from holdfast.workers.versions.fleet import Fleet, Version

T = TypeVar("T")

versions = typer.Typer(
    help="Versions of the workers (docs/how-to/upgrading.md): list, set-current, drain, move.",
    epilog=format_example("holdfast versions list", "holdfast versions set-current 2026-11-18.1 --wait 5m"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
Build = Annotated[str, typer.Argument(metavar="BUILD", help="The version's build, as its workers have it.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a turn or a session.")]
Deployment = Annotated[
    str | None, typer.Option("--deployment", metavar="NAME", help="Its deployment; else that of the settings.")
]
Wait = Annotated[
    int | None,
    typer.Option("--wait", metavar="5m", help="How long a worker of it may still take to come.", parser=parse_seconds),
]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(versions, name="versions")


@versions.command("list", epilog=format_example("holdfast versions list", "holdfast versions list --json"))
def list_versions(
    deployment: Deployment = None, json: Json = False, address: Address = None, data: Data = None
) -> None:
    """List the versions of a deployment: which gets new turns, what is open on each, how many workers poll for it.

    A version may be stopped for good when nothing is open on it, and it is not current.
    """
    fleet = run_async(
        _run_with_client(data, address, deployment, lambda client, settings, name: _fetch_fleet(client, settings, name))
    )
    if json:
        print_json(fleet.as_json())
    else:
        _print_fleet(fleet)


@versions.command(
    epilog=format_example(
        "holdfast versions set-current 2026-11-18.1", "holdfast versions set-current v2 --wait 5m --json"
    )
)
def set_current(
    build: Build,
    wait: Wait = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also when none of its workers polls, or it lacks a task queue.")
    ] = False,
    deployment: Deployment = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Let every new turn begin on a version. What runs stays with the one it began on; sessions go over between turns.

    The version before drains: keep its workers until `holdfast versions list` shows nothing open on it.
    """
    _check_build(build)

    async def make_current(client: Client, settings: Settings, name: str) -> tuple[str | None, Fleet]:
        from holdfast.workers.versions import deployments

        deadline = time.monotonic() + (wait or 0)
        if not await deployments.is_known(client, name, build, wait=wait or 0):
            raise _build_unknown_error(build, name)
        patience = 0 if force else deadline - time.monotonic()
        fleet = await deployments.wait_for_worker(client, name, settings.task_queue, build, wait=patience)
        found = fleet.find_version(build)
        if not force and not (found and found.workers):
            raise _build_unmanned_error(build, fleet)
        left = max(0.0, deadline - time.monotonic())
        return await deployments.set_current(client, name, build, force=force, wait=left), fleet

    before, fleet = run_async(_run_with_client(data, address, deployment, make_current))
    after = f"; {before!r} did before" if before and before != build else ""
    print_answer(
        json,
        f"Version {build!r} of {fleet.deployment!r} gets new turns{after}.",
        deployment=fleet.deployment,
        current=build,
        previous=before,
    )


@versions.command(epilog=format_example("holdfast versions drain 2026-11-01.2"))
def drain(
    build: Build, deployment: Deployment = None, json: Json = False, address: Address = None, data: Data = None
) -> None:
    """Send the sessions of a version to the current one, each as soon as no turn of it runs. Turns stay.

    A session in which nothing is said would stay where it is. One worker of the version must be there for it.
    """
    _check_build(build)

    async def wake_all(client: Client, settings: Settings, name: str) -> tuple[int, Version, str]:
        from holdfast.errors import HoldfastError
        from holdfast.workers.versions.move import wake_sessions

        fleet = await _fetch_fleet(client, settings, name)
        found = fleet.find_version(build)
        if found is None:
            raise _build_unknown_error(build, name)
        if build == fleet.current:
            raise HoldfastError(f"version {build!r} of {name!r} is current: make another one current first")
        return await wake_sessions(client, name, build), found, name

    woken, found, name = run_async(_run_with_client(data, address, deployment, wake_all))
    if not found.workers:
        print_note(f"no worker of version {build!r} polls: its sessions go over when one does")
    print_answer(
        json,
        f"{woken:,} sessions of version {build!r} were told; {found.open.turns:,} turns end there.",
        deployment=name,
        build=build,
        sessions=woken,
        turns=found.open.turns,
    )


@versions.command(epilog=format_example("holdfast versions move deploy-42 2026-11-18.1"))
def move(
    id: Id,
    build: Build,
    deployment: Deployment = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Have a turn or a session go on with another version: for one whose version has no workers any more.

    Its history is replayed on the other code. Where that takes other steps the turn does not go on, and nothing is
    lost: move it back, or to a version that fits.
    """
    _check_build(build)

    async def move_one(client: Client, settings: Settings, name: str) -> tuple[bool, str]:
        from holdfast.workers.versions import deployments
        from holdfast.workers.versions import move as moving

        if not await deployments.is_known(client, name, build):
            raise _build_unknown_error(build, name)
        return await moving.move_workflow(client, id, name, build), name

    held, name = run_async(_run_with_client(data, address, deployment, move_one))
    more = ", and is held there (this server knows no other way)" if held else ""
    print_answer(
        json,
        f"{id} goes on with version {build!r} of {name!r} from its next step{more}.",
        id=id,
        deployment=name,
        build=build,
        held=held,
    )


async def _run_with_client(
    data: Path | None,
    address: str | None,
    deployment: str | None,
    work: Callable[[Client, Settings, str], Awaitable[T]],
) -> T:
    from holdfast.config.sections import check_deployment_name
    from holdfast.errors import BadInput
    from holdfast.workers.cli.options import resolve_client_settings
    from holdfast.workers.runtime import log_setup
    from holdfast.workers.runtime.connect import connect

    log_setup.silence_logging()
    settings = resolve_client_settings(data)
    try:
        name = settings.deployment.name if deployment is None else check_deployment_name(deployment)
    except ValueError as error:
        raise BadInput(f"--deployment {deployment!r}: a deployment's name {error}") from None
    return await work(await connect(settings, address=address), settings, name)


async def _fetch_fleet(client: Client, settings: Settings, name: str) -> Fleet:
    from holdfast.workers.versions.deployments import fetch_fleet

    return await fetch_fleet(client, name, settings.task_queue)


def _check_build(build: str) -> None:
    from holdfast.config.sections import check_build_name
    from holdfast.errors import BadInput

    try:
        check_build_name(build)
    except ValueError as error:
        raise BadInput(f"{build[:150]!r}: a build {error}") from None


def _build_unknown_error(build: str, name: str) -> Exception:
    from holdfast.errors import HoldfastError

    return HoldfastError(
        f"no worker of version {build!r} of {name!r} has ever polled: start one with HOLDFAST_BUILD={build}, "
        "or see `holdfast versions list`"
    )


def _build_unmanned_error(build: str, fleet: Fleet) -> Exception:
    from holdfast.errors import HoldfastError

    return HoldfastError(
        f"no worker of version {build!r} of {fleet.deployment!r} polls {fleet.task_queue!r} now, so new turns would "
        "wait: start one, or say --force"
    )


def _print_fleet(fleet: Fleet) -> None:
    from holdfast.workers.terminal import render
    from holdfast.workers.versions.fleet import list_advice

    if not fleet.versions:
        print_text(
            f"No worker has a version of {fleet.deployment!r}: every worker takes up whatever there is "
            "(docs/how-to/upgrading.md)."
        )
        return
    header = ("version", "status", "workers", "open turns", "open sessions", "other workflows")
    rows = [(one.build, _format_status(fleet, one), one.workers, *astuple(one.open)) for one in fleet.versions]
    if fleet.unversioned or fleet.unversioned_workers:
        rows.append(("(none)", "", fleet.unversioned_workers, *astuple(fleet.unversioned)))
    columns = len(header) if any(row[-1] for row in rows) else len(header) - 1
    render.build_console().print(render.build_table(header[:columns], [row[:columns] for row in rows]))
    for sentence in list_advice(fleet):
        print_note(sentence)


def _format_status(fleet: Fleet, version: Version) -> str:
    if version.build == fleet.ramping:
        return f"ramping, {fleet.percentage:g} %"
    return f"{version.status}, may be stopped" if not version.is_needed and version.workers else version.status
