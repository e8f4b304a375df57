"""`holdfast audit …`: what an agent did and who allowed it: shown, exported, verified, replayed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from holdfast.client.signing_keys import find_key, load_signer
from holdfast.config.settings import Settings
from holdfast.domain.approvals.signing import KEY_PREFIX, derive_key_id
from holdfast.errors import BadInput
from holdfast.util.text import escape_controls
from holdfast.workers.audit.bundle.export import export_bundle as make
from holdfast.workers.audit.bundle.verify import VerifyResult
from holdfast.workers.audit.bundle.verify import verify_bundle as look
from holdfast.workers.audit.read.replay import Departure, ReplayedRun
from holdfast.workers.audit.read.replay import replay_runs as again
from holdfast.workers.audit.render import timeline_text
from holdfast.workers.audit.render.html import render_page
from holdfast.workers.audit.source import AuditSubject, gather_from_server, open_subject
from holdfast.workers.audit.timeline.build import build_timeline
from holdfast.workers.audit.timeline.phrases import format_count
from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example
from holdfast.workers.cli.resolve_settings import resolve_client_settings
from holdfast.workers.exit_codes import FAILED, OK
from holdfast.workers.runtime import log_setup
from holdfast.workers.terminal import render
from holdfast.workers.terminal.output import print_answer, print_json, print_note, print_text
from holdfast.workers.terminal.render import format_line

audit = typer.Typer(
    help="What an agent did and who allowed it: show, export a bundle, verify and replay it without a server.",
    epilog=format_example(
        "holdfast audit show hello",
        "holdfast audit export hello -o hello.tar --sign auditor",
        "holdfast audit verify hello.tar",
        "holdfast audit replay hello.tar",
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)

LINE_LIMIT = 2_000
"""Characters of a line that comes from a bundle."""

SubjectName = Annotated[str, typer.Argument(metavar="TURN|SESSION|FILE", help="A turn's or session's id, or a bundle.")]
BundleFile = Annotated[str, typer.Argument(metavar="FILE", help="A bundle.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if there is one.")]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(audit, name="audit")


@audit.command(
    epilog=format_example(
        "holdfast audit show hello",
        "holdfast audit show hello --html hello.html",
        "holdfast audit show hello.tar --json",
    )
)
def show(
    named: SubjectName,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Do not cut results and diffs.")] = False,
    force: Force = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Show what happened: prompts, calls, verdicts, decisions with their senders, waits, runs, results, crashes."""

    async def print_timeline() -> None:
        file = _check_target(html, force) if html is not None else None
        with _show_progress() as tell:
            subject = await open_subject(named, _load_settings(data), address=address, tell=tell)
            tell("building the timeline")
            timeline = await build_timeline(subject.gathered, subject.converter)
        if subject.findings:
            forged = tuple(f"the bundle was modified: {words}" for words in subject.findings)
            timeline = timeline.model_copy(update={"notes": (*forged, *timeline.notes)})
        if file:
            _write_text(file, render_page(timeline))
        if json:
            print_json(timeline.model_dump(mode="json"))
        elif file:
            print_answer(json, f"Written: {file}")
        else:
            render.build_console().print(timeline_text.render_timeline(timeline, uncut=every))

    run_async(print_timeline())


@audit.command(
    epilog=format_example(
        "holdfast audit export hello -o hello.tar",
        "holdfast audit export my-session -o session.tar --sign auditor --json",
    )
)
def export(
    named: Annotated[str, typer.Argument(metavar="TURN|SESSION", help="The turn's or session's id.")],
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="File of the bundle.")],
    sign: Annotated[
        str | None, typer.Option("--sign", metavar="NAME|FILE", help="Sign with a key of `holdfast keys`.")
    ] = None,
    force: Force = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Write a bundle: histories, payloads, outputs, definitions, rules, decisions, in a hash chain, signed with --sign.

    It is not encrypted: protect it as you protect the data of the turn.
    """

    async def write_bundle() -> None:
        file, settings = _check_target(output, force), _load_settings(data)
        signer = load_signer(sign, settings.approvers) if sign else None
        with _show_progress() as tell:
            subject = await gather_from_server(named, settings, address=address, tell=tell)
            made = await make(
                subject.gathered,
                subject.converter,
                subject.fetch,
                settings,
                file,
                namespace=subject.namespace,
                signer=signer,
                tell=tell,
            )
        for absent in made.absent:
            print_note(format_line(f"Missing: {absent}.", LINE_LIMIT))
        signed = f", signed by {signer.name}" if signer else ""
        held = f"{format_count(len(made.runs), 'run')}, {format_count(made.records, 'record')}{signed}"
        words = f"Written: {file}, {held}. Head {made.head}"
        body = {"file": str(file), "signed": bool(signer), **made.model_dump(mode="json")}
        print_answer(json, words, **body)

    run_async(write_bundle())


@audit.command(
    epilog=format_example(
        "holdfast audit verify hello.tar",
        "holdfast audit verify hello.tar --key ed25519:cVoKYjnyHVQCYXFUkv5w6a0Jt1ZclnUI6bvaF9SAbwU=",
        "holdfast audit verify hello.tar --json",
    )
)
def verify(
    file: BundleFile,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY|NAME",
            help="The only key that may have signed: a public key, or the name of one of yours.",
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Option("--head", metavar="SHA256", help="The head that `audit export` printed.")
    ] = None,
    json: Json = False,
) -> None:
    """Check whether a bundle was modified, and list every modification. Needs no server.

    The exit code is 0 for an intact bundle, 1 when something was changed, removed, added or moved, 2 when the file is
    not a bundle.
    """
    found = look(Path(file), key=_find_public_key(key) if key else None, head=head)
    if json:
        print_json(_verified_as_json(found))
    else:
        _print_verified(found, sure=key is not None)
    raise typer.Exit(OK if found.is_intact else FAILED)


@audit.command(epilog=format_example("holdfast audit replay hello.tar", "holdfast audit replay hello --json"))
def replay(named: SubjectName, json: Json = False, address: Address = None, data: Data = None) -> None:
    """Replay with the installed version, and list where it would act differently. A bundle needs no server.

    The exit code is 1 when it would act differently somewhere, or cannot be replayed.
    """

    async def replay_subject() -> tuple[AuditSubject, list[ReplayedRun]]:
        with _show_progress() as tell:
            subject = await open_subject(named, _load_settings(data), address=address, tell=tell)
            tell("replaying")
            return subject, await again(subject.gathered.runs, subject.converter)

    subject, replayed = run_async(replay_subject())
    departures = [one for each in replayed for one in each.departures]
    lacking = [f"{each.run.title}, run {each.run.run}: {words}" for each in replayed for words in each.lacking]
    broken = [one for one in departures if one.breaks]
    if json:
        print_json(
            {
                "same": not broken and not lacking,
                "runs": len(replayed),
                "departures": [_departure_as_json(one) for one in departures],
                "lacking": lacking,
                "findings": list(subject.findings),
            }
        )
    else:
        _print_replayed(subject, replayed, departures, lacking)
    raise typer.Exit(FAILED if broken or lacking else OK)


def _load_settings(data: Path | None) -> Settings:
    log_setup.silence_logging()
    return resolve_client_settings(data)


def _check_target(name: str, force: bool) -> Path:
    """The path to write to; BadInput when it exists and --force is not given, or cannot be written."""
    file = Path(name).expanduser()
    if not name.strip():
        raise BadInput("the file's name is empty")
    if os.path.lexists(file) and not force:
        raise BadInput(f"the file {name!r} exists: give another name, or --force")
    if not file.parent.is_dir() or file.is_dir():
        raise BadInput(
            f"{name!r} cannot be written: {'it is a folder' if file.is_dir() else 'its folder does not exist'}"
        )
    return file


def _write_text(file: Path, text: str) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as opened:
            opened.write(text)
    except OSError as error:
        raise BadInput(f"{str(file)!r} cannot be written: {error.strerror}") from None


def _find_public_key(named: str) -> str:
    """The public key that is given as text, or by the name of a key of the user."""
    if not named.startswith(KEY_PREFIX):
        found = find_key(named).public
        assert found, "one that is found has a public half"
        return found
    try:
        derive_key_id(named)
    except ValueError:
        raise BadInput(f"{named[:80]!r} is not a public key, as `holdfast keys show` prints it") from None
    return named


def _verified_as_json(found: VerifyResult) -> dict[str, object]:
    return {
        "intact": found.is_intact,
        "findings": list(found.findings),
        "signature": found.signature,
        "key": found.key,
        "name": found.name,
        "head": found.head,
        "records": found.records,
        "manifest": found.manifest.model_dump(mode="json"),
    }


def _print_verified(found: VerifyResult, *, sure: bool) -> None:
    for finding in found.findings:
        print_text(format_line(finding, LINE_LIMIT))
    if not found.is_intact:
        print_text(f"Bundle was modified: {format_count(len(found.findings), 'finding')}.")
        return
    held = f"{format_count(len(found.manifest.runs), 'run')}, {format_count(found.records, 'record')}"
    print_text(format_line(f"Bundle is intact: {found.manifest.kind} {found.manifest.subject}, {held}.", LINE_LIMIT))
    print_text(format_line(f"Head {found.head}"))
    if found.signature == "valid" and found.key:
        print_text(
            format_line(
                f"Signed by key {derive_key_id(found.key)} ({found.key}), named {found.name!r} by its owner.",
                LINE_LIMIT,
            )
        )
    for absent in found.manifest.absent:
        print_note(format_line(f"Missing since the export: {absent}.", LINE_LIMIT))
    if found.signature == "none":
        print_note("It is not signed, so anyone can write another valid bundle. Compare the head (--head).")
    elif not sure:
        print_note("To check who owns that key, give --key.")


def _print_replayed(
    subject: AuditSubject, replayed: list[ReplayedRun], departures: list[Departure], lacking: list[str]
) -> None:
    for finding in subject.findings:
        print_note(format_line(f"Bundle was modified: {finding}", LINE_LIMIT))
    for one in departures:
        kind = "acts differently" if one.breaks else "same actions, other values"
        print_text(format_line(f"{one.location}: {kind}: {one.what}", LINE_LIMIT))
    for words in lacking:
        print_text(format_line(f"cannot be replayed: {words}", LINE_LIMIT))
    events = sum(len(one.run.events) for one in replayed)
    broken = len({one.run.run for one in departures if one.breaks})
    verdict = f"{broken:,} would act differently" if broken else "the installed version acts the same"
    if lacking and not broken:
        verdict = "some cannot be replayed, because something is missing"
    print_text(f"{format_count(len(replayed), 'run')} of {format_count(events, 'event')}: {verdict}.")


def _departure_as_json(one: Departure) -> dict[str, object]:
    return {
        "workflow": one.run.workflow,
        "run": one.run.run,
        "events": [one.first, one.last],
        "breaks": one.breaks,
        "where": one.location,
        "what": one.what,
    }


@contextmanager
def _show_progress() -> Iterator[Callable[[str], None]]:
    """A status line on standard error while the block runs, if that is a terminal."""
    shown = sys.stderr.isatty()

    def write_progress(text: str) -> None:
        if shown:
            sys.stderr.write(f"\r\x1b[2K{escape_controls(text[:100])}")
            sys.stderr.flush()

    try:
        yield write_progress
    finally:
        write_progress("")
