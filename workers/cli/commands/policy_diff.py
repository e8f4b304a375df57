"""`holdfast policy diff`: the calls of recorded turns that another policy would decide differently."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.policy.compare import RecordedCall, RulingDifference, compare_policies, describe_ruling
from holdfast.activities.policy.load_policy import PolicySource, list_sources, load_policy
from holdfast.activities.policy.policy import Policy, Ruling
from holdfast.activities.policy.rules import Tier
from holdfast.client.client import Holdfast
from holdfast.config.settings import Settings
from holdfast.errors import ServerUnavailable, TurnNotFound
from holdfast.names import TURN_WORKFLOW
from holdfast.payloads.converter import build_converter
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example
from holdfast.workers.cli.policy_options import Policies, TierName, parse_choice, parse_path, parse_source
from holdfast.workers.cli.resolve_settings import resolve_settings
from holdfast.workers.exit_codes import FAILED, OK
from holdfast.workers.lookup.recorded_calls import RecordedTurn, read_history, read_recorded_turn
from holdfast.workers.runtime import log_setup
from holdfast.workers.terminal.output import escape_line, print_json, print_note, print_text

DEFAULT_TURNS = 100
"""Turns that are compared by default."""
SHOWN_LIMIT = 200
"""Most differences that are printed as text; JSON has them all."""


def register_commands(group: typer.Typer) -> None:
    """Add the command."""
    lines = (
        "holdfast policy diff --with stricter.toml",
        "holdfast policy diff --with team.toml --replace --limit 500 --json",
        "holdfast policy diff --with team.toml --history exported.json",
    )
    group.command(epilog=format_example(*lines))(diff)


def diff(
    file: Annotated[str, typer.Option("--with", metavar="FILE", help="The policy file to try.")],
    tier: TierName = "user",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the present files of that tier; default: add the file to them.")
    ] = False,
    turns: Annotated[
        list[str] | None, typer.Option("--turn", metavar="TURN", help="Compare this turn. May be repeated.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, max=10_000, help=f"Compare this many of the latest turns; default: {DEFAULT_TURNS}."
        ),
    ] = None,
    histories: Annotated[
        list[str] | None,
        typer.Option("--history", metavar="FILE", help="Compare an exported history. May be repeated."),
    ] = None,
    policies: Policies = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """List the calls of recorded turns that would be decided differently with another policy file.

    The exit code is 0 when there is none, and 1 when there are some.
    """
    if sum(map(bool, (turns, limit, histories))) > 1:
        raise typer.BadParameter("give --turn, --limit or --history, not several of them")
    settings = resolve_settings(data)
    before, after = _load_policies(settings, file, tier, replace, policies)
    found = run_async(_compare_turns(_HistorySources(settings, turns, limit, histories, address, data), before, after))
    if json:
        print_json(found.as_json())
    else:
        found.print_differences()
    raise typer.Exit(FAILED if found.differences else OK)


class _HistorySources:
    """Where recorded turns come from."""

    def __init__(
        self,
        settings: Settings,
        turns: list[str] | None,
        limit: int | None,
        histories: list[str] | None,
        address: str | None,
        data: Path | None,
    ) -> None:
        self.settings = settings
        self._turns = turns
        self._limit = limit or DEFAULT_TURNS
        self._files = [parse_path(name) for name in histories or ()]
        self._address = address
        self._data = data

    async def read_histories(self) -> AsyncIterator[tuple[WorkflowHistory, DataConverter]]:
        """Each history, with what reads its payloads."""
        log_setup.silence_logging()
        if self._files:
            converter = build_converter(self.settings)
            for file in self._files:
                yield read_history(file), converter
            return
        holdfast = await open_holdfast(self._data, self._address)
        for turn in self._turns or await _list_latest(holdfast, self._limit):
            yield await _fetch_history(holdfast, turn), holdfast.client.data_converter


async def _list_latest(holdfast: Holdfast, limit: int) -> list[str]:
    try:
        found = holdfast.client.list_workflows(f"WorkflowType = '{TURN_WORKFLOW}'", limit=limit)
        return [item.id async for item in found]
    except RPCError as error:
        raise ServerUnavailable(f"the turns cannot be listed: {error.message}") from error


async def _fetch_history(holdfast: Holdfast, turn: str) -> WorkflowHistory:
    try:
        return await holdfast.client.get_workflow_handle(turn).fetch_history()
    except RPCError as error:
        if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            raise TurnNotFound(f"no turn is called {turn!r}: see `holdfast turn list`") from error
        raise ServerUnavailable(f"the history of {turn!r} cannot be fetched: {error.message}") from error


def _load_policies(
    settings: Settings, file: str, tier: str, replace: bool, policies: list[str] | None
) -> tuple[Policy, Policy]:
    other = PolicySource(parse_path(file), Tier(parse_choice("tier", tier, ("workspace", "user", "admin"))))
    present = [*list_sources(settings), *(parse_source(text) for text in policies or ())]
    others = [source for source in present if not (replace and source.tier is other.tier)]
    return load_policy(present), load_policy([*others, other])


async def _compare_turns(sources: _HistorySources, before: Policy, after: Policy) -> _PolicyComparison:
    found, settings = _PolicyComparison(), sources.settings
    with _ProgressLine() as progress:
        async for history, converter in sources.read_histories():
            turn = await read_recorded_turn(history, converter, settings.workspace, settings.permitted_modes)
            found.count_turn(turn)
            differences = (compare_policies(recorded, before, after) for recorded in turn.calls)
            found.differences += [one for one in differences if one]
            seen = f"{_format_count(found.turns, 'turn')}, {_format_count(found.calls, 'call')}"
            progress.show_text(f"{seen}, {len(found.differences):,} decided differently")
    return found


class _PolicyComparison:
    """The differences that were found, and how many turns and calls were compared."""

    def __init__(self) -> None:
        self.turns = self.calls = self.unreadable = 0
        self.differences: list[RulingDifference] = []

    def count_turn(self, turn: RecordedTurn) -> None:
        """Count a turn."""
        self.turns += 1
        self.calls += len(turn.calls)
        self.unreadable += turn.unreadable

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return {
            "same": not self.differences,
            "turns": self.turns,
            "calls": self.calls,
            "unreadable": self.unreadable,
            "differences": [
                {
                    **_call_as_json(one.recorded),
                    "before": _ruling_as_json(one.before),
                    "after": _ruling_as_json(one.after),
                }
                for one in self.differences
            ],
        }

    def print_differences(self) -> None:
        """Print the first differences, and the numbers."""
        for one in self.differences[:SHOWN_LIMIT]:
            recorded = one.recorded
            print_text(escape_line(f"{recorded.turn} {recorded.call}  {recorded.title}"))
            print_text(escape_line(f"  {describe_ruling(one.before)} -> {describe_ruling(one.after)}"))
        if len(self.differences) > SHOWN_LIMIT:
            print_text(f"… {len(self.differences) - SHOWN_LIMIT:,} more (--json shows them)")
        of = f"{_format_count(self.calls, 'call')} in {_format_count(self.turns, 'turn')}"
        print_text(f"{len(self.differences):,} of {of} would be decided differently.")
        if self.unreadable:
            print_note(
                f"{self.unreadable:,} payloads of histories could not be read: they are not in this data folder."
            )


def _format_count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _call_as_json(recorded: RecordedCall) -> dict[str, Any]:
    return {
        "turn": recorded.turn,
        "call": recorded.call,
        "title": recorded.title,
        "tool": recorded.subject.tool,
        "mode": recorded.mode.value,
    }


def _ruling_as_json(ruling: Ruling | None) -> dict[str, Any] | None:
    return ruling.model_dump(mode="json", exclude={"anything"}) if ruling else None


class _ProgressLine:
    """A status line on standard error until the end of the block, if that is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> _ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.show_text("")

    def show_text(self, text: str) -> None:
        """Replace what is shown."""
        if self._shown:
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()
