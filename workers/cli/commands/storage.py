"""`holdfast storage …`: test the stores of payloads, and remove what no history needs any more."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import typer
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import StorageDriver, StorageDriverRetrieveContext, StorageDriverStoreContext

from holdfast.config.settings import Settings
from holdfast.errors import BadInput, HoldfastError
from holdfast.payloads.bucket_store import BucketStorage, build_buckets, build_drivers
from holdfast.payloads.file_store import forget_namespaces, list_namespaces
from holdfast.workers.cli.commands.encryption import print_progress
from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example, parse_seconds
from holdfast.workers.cli.resolve_settings import resolve_settings
from holdfast.workers.exit_codes import FAILED
from holdfast.workers.runtime import log_setup
from holdfast.workers.runtime.connect import connect_client
from holdfast.workers.storage.referenced import NamespaceUsage, read_namespaces
from holdfast.workers.storage.sweep import SweepPlan, SweepResult, read_clock, sweep_bucket, sweep_folders
from holdfast.workers.terminal.output import escape_line, print_json, print_note, print_table, print_text

LEAST_GRACE = 3_600
storage = typer.Typer(
    help="Payloads and outputs that are stored outside the histories: check, sweep.",
    epilog=format_example("holdfast storage check", "holdfast storage sweep"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
DAY = 86_400
Grace = Annotated[
    int | None,
    typer.Option(
        "--grace", metavar="1d", help="Keep files newer than this: 1h, 36h, 7d; default: 1d.", parser=parse_seconds
    ),
]
Delete = Annotated[bool, typer.Option("--delete", help="Remove the files; default: only print what would be removed.")]
Also = Annotated[
    list[str] | None,
    typer.Option(
        "--also", metavar="NAMESPACE", help="Another namespace whose payloads are stored here. May be repeated."
    ),
]
Ignore = Annotated[
    bool,
    typer.Option(
        "--ignore-unreadable",
        help="Continue despite unreadable references; together with --all also despite a lost key.",
    ),
]
Forget = Annotated[
    list[str] | None,
    typer.Option("--forget", metavar="NAMESPACE", help="Namespace that was deleted. May be repeated."),
]
All = Annotated[bool, typer.Option("--all", help="Allow removing every payload.")]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(storage, name="storage")


@storage.command(epilog=format_example("holdfast storage check", "holdfast storage check --json"))
def check(data: Data = None, json: Json = False) -> None:
    """Test every store of the settings: write a payload to the store in use, and reach all of them.

    The exit code is 1 when one of them does not work.
    """
    settings = resolve_settings(data)
    found = run_async(_test_stores(settings))
    if json:
        print_json({"kind": settings.storage.kind, "stores": found})
    else:
        uses = {True: "written and read", False: "read only"}
        rows = [(one["store"], uses[one["writes"]], escape_line(one["problem"] or "works")) for one in found]
        print_table(("store", "use", "state"), rows)
    if any(one["problem"] for one in found):
        raise typer.Exit(FAILED)


async def _test_stores(settings: Settings) -> list[dict[str, Any]]:
    log_setup.silence_logging()
    return [
        {"store": driver.name(), "writes": place == 0, "problem": await _test_store(driver, writes=place == 0)}
        for place, driver in enumerate(build_drivers(settings))
    ]


async def _test_store(driver: StorageDriver, *, writes: bool) -> str | None:
    sample = Payload(metadata={"encoding": b"binary/plain"}, data=b"holdfast storage check")
    try:
        if isinstance(driver, BucketStorage):
            await driver.check_reachable()
        if not writes:
            return None
        claims = await driver.store(StorageDriverStoreContext(), [sample])
        [found] = await driver.retrieve(StorageDriverRetrieveContext(), claims)
    except (HoldfastError, OSError) as error:
        return str(error)
    return None if found == sample else "reading returned other data than was written"


@storage.command(
    epilog=format_example(
        "holdfast storage sweep",
        "holdfast storage sweep --delete --grace 7d",
        "holdfast storage sweep --json | jq .places",
    )
)
def sweep(
    delete: Delete = False,
    grace: Grace = None,
    also: Also = None,
    ignore_unreadable: Ignore = False,
    everything: All = False,
    forget: Forget = None,
    address: Address = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Remove stored payloads and whole outputs that nothing on the server needs. Without --delete, only count them.

    Every open and closed history on the server is read; what it refers to is kept, and everything newer than --grace.
    Turns may run meanwhile, here and elsewhere. If anything cannot be read, nothing is removed.

    Several namespaces may share a folder or a bucket: name all of them with --also. A folder or bucket that several
    servers share must not be swept: each would remove the payloads of the others. Outputs are swept on their host.
    """
    grace = DAY if grace is None else grace
    if grace < LEAST_GRACE:
        raise BadInput(
            "--grace must be at least an hour: a payload is stored before the event that refers to it is written"
        )
    asked = _SweepOptions(
        delete, float(grace), tuple(also or ()), ignore_unreadable, everything, json, tuple(forget or ())
    )
    report = run_async(_run_sweep(resolve_settings(data), address, asked))
    if json:
        print_json(asdict(report))
    else:
        _print_report(report)
    if report.refused:
        raise typer.Exit(FAILED)


@dataclass(frozen=True)
class _SweepOptions:
    delete: bool
    grace: float
    also: tuple[str, ...]
    ignore_unreadable: bool
    everything: bool
    quiet: bool
    forget: tuple[str, ...]


@dataclass(frozen=True)
class _SweepReport:
    """What a sweep removed or would remove, and why it refused to."""

    deleted: bool
    runs: int
    namespaces: list[str]
    places: list[SweepResult]
    refused: list[str]


async def _run_sweep(settings: Settings, address: str | None, options: _SweepOptions) -> _SweepReport:
    log_setup.silence_logging()
    lenient = settings.encryption.model_copy(update={"plain": "accept"})
    settings = replace(settings, encryption=lenient)
    client = await connect_client(settings, address=address)
    clients = [client, *(_build_client(client, name) for name in options.also if name != client.namespace)]
    began = read_clock(settings.payloads_folder)
    reached = await read_namespaces(clients, progress=lambda runs: print_progress(runs, quiet=options.quiet))
    names = [one.namespace for one in clients]
    plan = SweepPlan.from_usage(reached, settings, began=began, grace=options.grace, delete=False)
    places = await _sweep_places(settings, names, plan)
    for folder in (settings.data, settings.payloads_folder):
        forget_namespaces(folder, options.forget)
    refused = [*_find_unknown_namespaces(settings, names), *_list_objections(reached, places, options)]
    if options.delete and not refused:
        places = await _sweep_places(settings, names, replace(plan, delete=True))
    return _SweepReport(options.delete and not refused, reached.runs, names, places, refused)


async def _sweep_places(settings: Settings, names: list[str], plan: SweepPlan) -> list[SweepResult]:
    return [
        *await sweep_folders(settings, plan),
        *[await sweep_bucket(buckets, names, plan) for buckets in build_buckets(settings)],
    ]


def _build_client(client: Client, namespace: str) -> Client:
    config = client.config(active_config=True)
    config["namespace"] = namespace
    return Client(**config)


def _find_unknown_namespaces(settings: Settings, names: list[str]) -> list[str]:
    known = {*list_namespaces(settings.data), *list_namespaces(settings.payloads_folder)}
    if not (others := sorted(known.difference(names))):
        return []
    options = " ".join(f"--also {shlex.quote(name)}" for name in others)
    return [
        f"other namespaces store payloads here too: add {options}; for a namespace that was deleted, add --forget "
        "NAMESPACE"
    ]


def _list_objections(reached: NamespaceUsage, places: list[SweepResult], options: _SweepOptions) -> list[str]:
    """The reasons not to remove anything."""
    found = [] if options.ignore_unreadable else list(reached.troubles)
    if not (options.ignore_unreadable and options.everything):
        found += reached.locked
    if options.everything:
        return found
    needed = any(place.needed for place in places)
    for place in places:
        if place.is_strange and not (needed and place.place.endswith("outputs")):
            found.append(
                f"nothing on this server needs anything in {place.place}: does it belong to another server? "
                "If not, add --all"
            )
    return found


def _print_report(report: _SweepReport) -> None:
    print_text(escape_line(f"Read {report.runs:,} workflow runs of {', '.join(report.namespaces)}."))
    word = "removed" if report.deleted else "could be removed"
    for place in report.places:
        print_text(
            escape_line(
                f"{place.place}: {place.needed:,} needed, {place.young:,} newer than --grace, "
                f"{place.removed:,} {word} ({_format_size(place.removed_bytes)})"
            )
        )
        for problem in place.problems[:20]:
            print_note(escape_line(f"holdfast: {problem}"))
    for reason in report.refused[:20]:
        print_note(escape_line(f"holdfast: {reason}"))
    if len(report.refused) > 20:
        print_note(f"holdfast: and {len(report.refused) - 20:,} more (--json lists all)")
    if report.refused:
        print_note("holdfast: not removed: fix the problems above")
    elif not report.deleted and any(place.removed for place in report.places):
        print_note("Nothing was removed: add --delete.")


def _format_size(count: int) -> str:
    if count < 1_000_000:
        return f"{count:,} bytes"
    return f"{count / 1_000_000:,.1f} MB"
