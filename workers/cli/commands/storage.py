"""`holdfast storage …`: try where payloads are kept, and remove what no history needs any more."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.workers.cli.commands.encryption import print_progress
from holdfast.workers.cli.options import Address, Data, Json, format_example, parse_seconds, resolve_settings, run_async
from holdfast.workers.exit_codes import FAILED
from holdfast.workers.terminal.output import escape_line, print_json, print_note, print_table, print_text

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.converter import StorageDriver

    from holdfast.config.settings import Settings
    from holdfast.workers.storage.referenced import NamespaceUsage
    from holdfast.workers.storage.sweep import SweepPlan, SweepResult

LEAST_GRACE = 3_600
storage = typer.Typer(
    help="Payloads and outputs that are kept outside the histories: check, sweep.",
    epilog=format_example("holdfast storage check", "holdfast storage sweep"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
DAY = 86_400
Grace = Annotated[
    int | None,
    typer.Option("--grace", metavar="1d", help="What is younger stays: 1h, 36h, 7d; else a day.", parser=parse_seconds),
]
Delete = Annotated[bool, typer.Option("--delete", help="Remove it; else only say what would be removed.")]
Also = Annotated[
    list[str] | None,
    typer.Option(
        "--also", metavar="NAMESPACE", help="Another namespace whose payloads are kept here. May be repeated."
    ),
]
Ignore = Annotated[
    bool,
    typer.Option(
        "--ignore-unreadable",
        help="Go on though something cannot be read, as a forged reference; of a lost key with --all too.",
    ),
]
Forget = Annotated[
    list[str] | None,
    typer.Option("--forget", metavar="NAMESPACE", help="One that is gone for good: nobody asks for it any more."),
]
All = Annotated[bool, typer.Option("--all", help="Even if nothing at all that is kept here is needed by anybody.")]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(storage, name="storage")


@storage.command(epilog=format_example("holdfast storage check", "holdfast storage check --json"))
def check(data: Data = None, json: Json = False) -> None:
    """Try every store that the settings name: write a payload to the one that is written to, and read from all.

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
    from holdfast.payloads.bucket_store import build_drivers
    from holdfast.workers.runtime import log_setup

    log_setup.silence_logging()
    return [
        {"store": driver.name(), "writes": place == 0, "problem": await _test_store(driver, writes=place == 0)}
        for place, driver in enumerate(build_drivers(settings))
    ]


async def _test_store(driver: StorageDriver, *, writes: bool) -> str | None:
    from temporalio.api.common.v1 import Payload
    from temporalio.converter import StorageDriverRetrieveContext, StorageDriverStoreContext

    from holdfast.errors import HoldfastError
    from holdfast.payloads.bucket_store import BucketStorage

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
    return None if found == sample else "what was written does not come back"


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
    """Remove stored payloads and whole outputs that nothing on the server needs any more. Without --delete, say which.

    Every history that the server still has is read, open and closed, and what they refer to stays, and whatever is
    younger than --grace. Turns may run meanwhile, here and elsewhere. When anything cannot be read nothing is removed.

    A folder or a bucket may be shared by namespaces: name all of them with --also. One that servers share must not be
    swept: each of them would remove the others' payloads. Outputs are swept on the host where they are.
    """
    from holdfast.errors import BadInput

    grace = DAY if grace is None else grace
    if grace < LEAST_GRACE:
        raise BadInput("--grace is at least an hour: a payload is stored before the event is written that names it")
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
    """What a sweep did, or would do; and why it did nothing, if it was to."""

    deleted: bool
    runs: int
    namespaces: list[str]
    places: list[SweepResult]
    refused: list[str]


async def _run_sweep(settings: Settings, address: str | None, options: _SweepOptions) -> _SweepReport:
    from holdfast.payloads.file_store import forget_namespaces
    from holdfast.workers.runtime import log_setup
    from holdfast.workers.runtime.connect import connect_client
    from holdfast.workers.storage.referenced import read_namespaces
    from holdfast.workers.storage.sweep import SweepPlan, read_clock

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
    from holdfast.payloads.bucket_store import build_buckets
    from holdfast.workers.storage.sweep import sweep_bucket, sweep_folders

    return [
        *await sweep_folders(settings, plan),
        *[await sweep_bucket(buckets, names, plan) for buckets in build_buckets(settings)],
    ]


def _build_client(client: Client, namespace: str) -> Client:
    from temporalio.client import Client

    config = client.config(active_config=True)
    config["namespace"] = namespace
    return Client(**config)


def _find_unknown_namespaces(settings: Settings, names: list[str]) -> list[str]:
    from holdfast.payloads.file_store import list_namespaces

    known = {*list_namespaces(settings.data), *list_namespaces(settings.payloads_folder)}
    if not (others := sorted(known.difference(names))):
        return []
    options = " ".join(f"--also {shlex.quote(name)}" for name in others)
    return [
        f"what is kept here is used for other namespaces too: look at all of them with {options}; "
        "one that is gone for good is left out with --forget NAMESPACE"
    ]


def _list_objections(reached: NamespaceUsage, places: list[SweepResult], options: _SweepOptions) -> list[str]:
    """Why nothing should be removed."""
    found = [] if options.ignore_unreadable else list(reached.troubles)
    if not (options.ignore_unreadable and options.everything):
        found += reached.locked
    if options.everything:
        return found
    needed = any(place.needed for place in places)
    for place in places:
        if place.is_strange and not (needed and place.place.endswith("outputs")):
            found.append(
                f"nothing that is kept in {place.place} is needed by anything on this server: is it another server's? "
                "If it is not, say --all"
            )
    return found


def _print_report(report: _SweepReport) -> None:
    print_text(escape_line(f"{report.runs:,} runs of workflows read, in {', '.join(report.namespaces)}."))
    word = "removed" if report.deleted else "could be removed"
    for place in report.places:
        print_text(
            escape_line(
                f"{place.place}: {place.needed:,} needed, {place.young:,} young, "
                f"{place.removed:,} {word} ({_format_size(place.removed_bytes)})"
            )
        )
        for problem in place.problems[:20]:
            print_note(escape_line(f"holdfast: {problem}"))
    for reason in report.refused[:20]:
        print_note(escape_line(f"holdfast: {reason}"))
    if len(report.refused) > 20:
        print_note(f"holdfast: and {len(report.refused) - 20:,} more; --json tells all")
    if report.refused:
        print_note("holdfast: nothing is removed as long as this is so")
    elif not report.deleted and any(place.removed for place in report.places):
        print_note("Nothing was removed: say --delete.")


def _format_size(count: int) -> str:
    if count < 1_000_000:
        return f"{count:,} bytes"
    return f"{count / 1_000_000:,.1f} MB"
